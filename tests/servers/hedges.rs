//! Second copies of slow reads, on real servers.

use std::time::{Duration, Instant};

use futures::future::join_all;
use hedgerow::prelude::*;
use hedgerow::read::{Delay, Hedging, ReadFrom};
use hedgerow::{Error, Options};

use crate::fleet::{Fleet, PROTOCOLS, connections, gets};
use crate::placement::{Client, Placement, on_every_placement, until};
use crate::server::Flavor;

const MS: Duration = Duration::from_millis(1);

fn hedged(mut options: Options, delay: Duration, percent: u32) -> Options {
    let mut hedging = Hedging::default();
    hedging.delay = Delay::Fixed(delay);
    hedging.max_extra_load_percent = percent;
    options.hedging = Some(hedging);
    options
}

const NAME: &str = "reader";

async fn get<C: Client>(client: &C, key: &str) -> Result<Option<String>, Error> {
    client.get_within(key, 5_000 * MS).await
}

/// Fails if a read of a server that stands still waits for it although another could
/// answer, if the loser's late reply reaches another read or costs its connection, or if the books lack it.
async fn a_stalled_read_is_answered_by_its_hedge<P: Placement>(place: P) {
    for flavor in [Flavor::Valkey91, Flavor::Redis70, Flavor::Redis82] {
        let fleet = Fleet::start(&place, flavor, 1).await;
        for protocol in PROTOCOLS {
            let what = format!("{flavor:?}, {protocol:?}");
            let mut options = hedged(fleet.options(ReadFrom::PrimaryPreferred), 10 * MS, 100);
            options.protocol = protocol;
            // The coordinator of the client before may still be about to leave.
            let name = format!("{NAME}-{protocol:?}");
            options.client_name = Some(name.clone());
            let client = fleet.client(&place, &options).await;
            client.mset([("k", "v"), ("l", "w")]).await.expect("MSET");
            fleet.in_step(&place).await;
            // A core counts from the beginning of its turn: this reply begins one, and all of what follows up
            // to the read belongs to it.
            client.set("m", "x").await.expect("SET");
            let begun = Instant::now();
            let before = client.hedges();
            let (links, asked) = (connections(&fleet.primary, &name), gets(&fleet.primary));
            fleet.primary.pause();
            let value = get(&client, "k").await.expect("the replica's answer");
            let (took, now) = (begun.elapsed(), client.hedges());
            fleet.primary.resume();
            assert_eq!(value.as_deref(), Some("v"), "{what}");
            assert!(took >= 5 * MS && took < 2_000 * MS, "{what}: {took:?}");
            if let (Some(before), Some(now)) = (&before, now) {
                assert_eq!((now.sent - before.sent, now.won - before.won), (1, 1), "{what}");
            }
            // The loser is run all the same, and its reply is nobody's.
            until(&place, "the original", || gets(&fleet.primary) > asked).await;
            for (key, value) in [("l", "w"), ("k", "v"), ("l", "w")] {
                assert_eq!(get(&client, key).await.expect("a read").as_deref(), Some(value));
            }
            let still = connections(&fleet.primary, &name);
            assert!(links.iter().all(|link| still.contains(link)), "{what}: {links:?}, {still:?}");
            if let (Some(before), Some(now)) = (before, client.hedges()) {
                assert!(now.wasted_bytes > before.wasted_bytes, "{what}: {now:?}");
                assert!(now.margins.count() > before.margins.count(), "{what}: {now:?}");
            }
        }
    }
}

/// Fails if a read of replicas alone is hedged onto the primary, or if more hedges go out
/// than the budget has.
async fn the_budget_holds_on_replicas<P: Placement>(place: P) {
    let fleet = Fleet::start(&place, Flavor::Valkey91, 2).await;
    let mut options = hedged(fleet.options(ReadFrom::Replica), 2 * MS, 5);
    // It stands still for longer than a role holds otherwise.
    options.replica_refresh_interval = Duration::from_secs(60);
    let client = fleet.client(&place, &options).await;
    client.set("k", "v").await.expect("SET");
    fleet.in_step(&place).await;
    let (before, of_books) = (fleet.gets(), client.hedges());
    let paused = &fleet.replicas[0];
    paused.pause();
    let mut answered = 0;
    for _ in 0..10 {
        let outcomes = join_all((0..20).map(|_| client.get_within("k", 250 * MS))).await;
        answered += outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u64;
    }
    paused.resume();
    // Each replica had half of the reads; what it got beside them are hedges of the other one's.
    let hedges = || {
        let sent = fleet.gets();
        [1, 2].map(|at| (sent[at] - before[at]).checked_sub(100))
    };
    let of_books = || Some(client.hedges()?.sent - of_books.as_ref()?.sent);
    until(&place, "the rest", || match hedges() {
        [Some(paused), Some(other)] => of_books().is_none_or(|sent| sent == paused + other),
        _ => false,
    })
    .await;
    assert_eq!(fleet.gets()[0], before[0], "a read of replicas went to the primary");
    let [Some(to_paused), Some(to_other)] = hedges() else { unreachable!() };
    // What the reads before have saved is one at most.
    assert!((5..=11).contains(&(to_paused + to_other)), "{to_paused} + {to_other} hedges");
    assert_eq!(answered, 100 + to_other);
}

/// Fails if `CLIENT PAUSE` of one replica shows in reads that may be hedged at all times, or
/// if a write is held up or sent twice.
async fn a_paused_replica_is_not_felt<P: Placement>(place: P) {
    let fleet = Fleet::start(&place, Flavor::Valkey91, 2).await;
    let options = hedged(fleet.options(ReadFrom::Replica), 5 * MS, 100);
    let client = fleet.client(&place, &options).await;
    client.set("k", "v").await.expect("SET");
    fleet.in_step(&place).await;
    assert_eq!(fleet.replicas[0].tell(&["CLIENT", "PAUSE", "400", "ALL"]), "+OK\r\n");
    let begun = Instant::now();
    let mut n = 0;
    while begun.elapsed() < 300 * MS {
        let asked = Instant::now();
        assert_eq!(get(&client, "k").await.expect("a read").as_deref(), Some("v"));
        assert!(asked.elapsed() < 200 * MS, "{:?}", asked.elapsed());
        n += 1;
        assert_eq!(client.incr("n").await.expect("INCR"), n);
    }
    assert!(n > 10, "{n}");
}

on_every_placement! {
    a_stalled_read_is_answered_by_its_hedge,
    the_budget_holds_on_replicas,
    a_paused_replica_is_not_felt,
}
