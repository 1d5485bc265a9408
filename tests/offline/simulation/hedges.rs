//! When a second copy is sent, and what becomes of a copy that is not needed any more.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use hedgerow::Options;
use hedgerow::prelude::*;
use hedgerow::read::{Delay, Hedging, ReadFrom};
use hedgerow::testing::{Asked, ModelServer, Reaction};

use super::clock::{pass, unless};
use super::fleet::{Fleet, MS, after, always, does, get, hedging};

/// How a hedged GET of `k` ends that was queued behind what its node does not read.
#[derive(Clone, Copy)]
enum End {
    OriginalWins,
    GivenUp,
    TimeIsOver,
}

/// How many copies of it that node is sent, once it reads again.
fn sent_late(end: End, moved: bool) -> usize {
    let fleet = Fleet::new(1);
    fleet.primary.set_value("k", "v");
    does(&fleet.primary, [after(30)]);
    fleet.replicas[0].on_request(|asked: &Asked<'_>| match asked.args {
        [b"GET", b"pause"] => Reaction::Pause(200 * MS),
        _ => Reaction::Serve,
    });
    let mut options = fleet.options(ReadFrom::PrimaryPreferred);
    options.hedging = Some(hedging(10 * MS));
    let replica = fleet.replicas[0].clone();
    fleet.run(options, async move |core, client| {
        let strict = client.read_from(ReadFrom::Replica).expect("a view");
        let _: Option<String> = strict.get("pause").await.expect("an answer");
        let full = core.spawn({
            let strict = strict.clone();
            async move { strict.get::<Option<String>>("x".repeat(8 << 20)).await }
        });
        pass(&core, 5 * MS).await;
        // What is cut out before it moves the copy's place.
        let dropped = core.spawn({
            let (core, key) = (core.clone(), if moved { "y".repeat(5_000) } else { "y".into() });
            async move { unless(pass(&core, 15 * MS), strict.get::<()>(key)).await }
        });
        pass(&core, MS).await;
        match end {
            End::OriginalWins => assert!(get(&client).await.expect("a value").is_some()),
            End::GivenUp => _ = unless(pass(&core, 25 * MS), get(&client)).await,
            End::TimeIsOver => _ = client.get::<()>("k").timeout(25 * MS).await,
        }
        assert_eq!(client.hedges().sent, 1);
        dropped.await.expect("its end");
        let _ = full.await.expect("its end");
        pass(&core, 300 * MS).await;
        replica.seen().iter().filter(|seen| seen.key == b"k").count()
    })
}

/// Fails if a copy that nobody needs any more is sent after all, although it was still queued
/// when its race ended: won by the original, given up, or out of time.
#[test]
fn a_copy_that_is_queued_is_taken_back() {
    for end in [End::OriginalWins, End::GivenUp, End::TimeIsOver] {
        for moved in [false, true] {
            assert_eq!(sent_late(end, moved), 0, "{} {moved}", end as u8);
        }
    }
}

/// Fails if a hedge that lost counts as a margin by which one won, or not as a cost.
#[test]
fn a_lost_hedge_has_no_margin() {
    let fleet = Fleet::new(1);
    does(&fleet.primary, [after(50)]);
    does(&fleet.replicas[0], [after(80)]);
    let mut options = fleet.options(ReadFrom::PrimaryPreferred);
    options.hedging = Some(hedging(20 * MS));
    let ledger = fleet.run(options, async |core, client| {
        get(&client).await.expect("a value");
        pass(&core, 200 * MS).await;
        client.hedges()
    });
    assert_eq!((ledger.sent, ledger.lost, ledger.margins.count()), (1, 1, 0));
    assert_eq!(ledger.wasted_time.as_millis(), 80);
}

/// Fails if of two reads that wait the second is hedged only when something else is due.
#[test]
fn each_read_has_its_own_delay() {
    let fleet = Fleet::new(1);
    does(&fleet.primary, [after(0), after(0), after(300), after(300)]);
    let mut options = fleet.options(ReadFrom::PrimaryPreferred);
    let mut two = hedging(20 * MS);
    two.burst = 2;
    options.hedging = Some(two);
    let took = fleet.run(options, async |core, client| {
        for _ in 0..2 {
            get(&client).await.expect("an answer");
        }
        let timed = |core: hedgerow::LocalContext, client: hedgerow::LocalClient| async move {
            let begun = core.now();
            get(&client).await.expect("an answer");
            core.now().since(begun).as_millis()
        };
        let first = core.spawn(timed(core.clone(), client.clone()));
        pass(&core, 5 * MS).await;
        let second = core.spawn(timed(core.clone(), client.clone()));
        [first.await.expect("its end"), second.await.expect("its end")]
    });
    assert_eq!(took, [20, 20]);
}

/// Fails if a read that had to wait for room is not hedged, or not after its delay.
#[test]
fn a_read_that_waited_for_room_is_hedged() {
    let fleet = Fleet::new(2);
    for replica in &fleet.replicas {
        does(replica, [after(20), after(100)]);
    }
    let mut options = fleet.options(ReadFrom::Replica);
    options.in_flight_max = 1;
    let mut often = hedging(30 * MS);
    often.burst = 3;
    options.hedging = Some(often);
    let took = fleet.run(options, async |core, client| {
        let busy: Vec<_> = (0..2)
            .map(|_| {
                let client = client.clone();
                core.spawn(async move { get(&client).await })
            })
            .collect();
        pass(&core, MS).await;
        let begun = core.now();
        get(&client).await.expect("an answer");
        let took = core.now().since(begun).as_millis();
        for read in busy {
            read.await.expect("its end").expect("an answer");
        }
        (took, client.hedges().sent)
    });
    assert_eq!(took.1, 1, "after {} ms", took.0);
}

/// A primary whose reads all take so long, but for those that a test lists.
fn takes(server: &ModelServer, usual: u32, lrange: u32, stalls: &'static [usize]) {
    let mut count = 0;
    server.on_request(move |asked: &Asked<'_>| match asked.args[0] {
        b"GET" | b"LRANGE" => {
            count += 1;
            let ms = match asked.args[0] {
                _ if stalls.contains(&count) => 300,
                b"GET" => usual,
                _ => lrange,
            };
            Reaction::AnswerAfter(ms * MS, b"*0\r\n".to_vec())
        }
        _ => Reaction::Serve,
    });
}

fn adaptive(mut options: Options, percent: u32, burst: u32) -> Options {
    let mut hedging = Hedging::default();
    hedging.delay = Delay::adaptive();
    (hedging.max_extra_load_percent, hedging.burst) = (percent, burst);
    hedging.storm_guard = false;
    options.hedging = Some(hedging);
    options
}

/// Fails if a read whose delay is short waits for the delay of a slower sort of read that
/// began before it.
#[test]
fn a_short_delay_waits_for_no_long_one() {
    let fleet = Fleet::new(1);
    takes(&fleet.primary, 1, 60, &[601, 602]);
    let options = adaptive(fleet.options(ReadFrom::PrimaryPreferred), 50, 10);
    let took = fleet.run(options, async |core, client| {
        for _ in 0..300 {
            let _ = client.lrange::<Vec<String>>("l", 0, 1).await;
            let _ = get(&client).await;
        }
        let slow = core.spawn({
            let client = client.clone();
            async move { client.lrange::<Vec<String>>("l", 0, 1).await }
        });
        pass(&core, MS / 10).await;
        let begun = core.now();
        let _ = get(&client).await;
        let took = core.now().since(begun);
        let _ = slow.await.expect("its end");
        (took, client.hedges().sent)
    });
    assert!(took.1 >= 1 && took.0 < 20 * MS, "{took:?}");
}

/// Fails if a late read that found no credit does not ask again once others have earned it.
#[test]
fn a_late_read_asks_again_for_credit() {
    let fleet = Fleet::new(1);
    takes(&fleet.primary, 1, 1, &[201, 202]);
    let options = adaptive(fleet.options(ReadFrom::PrimaryPreferred), 10, 1);
    let took = fleet.run(options, async |core, client| {
        for _ in 0..200 {
            let _: Vec<String> = client.command("GET").arg("k").send().await.expect("a list");
        }
        let late: Vec<_> = (0..2)
            .map(|_| {
                let (core, client) = (core.clone(), client.clone());
                let of_core = core.clone();
                of_core.spawn(async move {
                    let begun = core.now();
                    let _ = get(&client).await;
                    core.now().since(begun)
                })
            })
            .collect();
        pass(&core, 20 * MS).await;
        // They are behind the two on their connection, and so late as well, but earn what a hedge costs.
        let earn: Vec<_> = (0..15)
            .map(|_| {
                let client = client.clone();
                core.spawn(async move { get(&client).await })
            })
            .collect();
        let mut took = Vec::new();
        for late in late {
            took.push(late.await.expect("its end"));
        }
        drop(earn);
        took
    });
    assert!(took.iter().all(|took| *took < 150 * MS), "{took:?}");
}

/// Fails if a strict replica read is hedged onto the primary, or not onto the other replica.
#[test]
fn replica_reads_are_hedged_onto_replicas() {
    for (replicas, hedged) in [(1, 0), (2, 1)] {
        let fleet = Fleet::new(replicas);
        fleet.replicas.iter().for_each(|replica| does(replica, [after(100)]));
        let mut options = fleet.options(ReadFrom::Replica);
        options.hedging = Some(hedging(5 * MS));
        let sent = fleet.run(options, async |_, client| {
            get(&client).await.expect("an answer");
            client.hedges().sent
        });
        assert_eq!(sent, hedged);
        assert_eq!(fleet.gets()[0], 0);
    }
}

/// Fails if 5 % is more than one hedge for 20 eligible reads, or if reads of the primary
/// alone earn credit.
#[test]
fn the_budget_holds() {
    let fleet = Fleet::new(1);
    always(&fleet.primary, "GET", after(3));
    let mut options = fleet.options(ReadFrom::PrimaryPreferred);
    let mut slow = hedging(MS);
    (slow.max_extra_load_percent, slow.storm_guard) = (5, false);
    options.hedging = Some(slow);
    let (before, after) = fleet.run(options, async |_, client| {
        let primary = client.read_from(ReadFrom::Primary).expect("a view");
        for _ in 0..100 {
            get(&primary).await.expect("an answer");
        }
        let before = client.hedges();
        for _ in 0..100 {
            get(&client).await.expect("an answer");
        }
        (before, client.hedges())
    });
    assert_eq!((before.reads, before.sent), (0, 0));
    assert_eq!((after.reads, after.sent), (100, 5));
}

/// Fails if a copy of a read is missing from the trace, or marked as what it was not.
#[test]
fn copies_are_traced() {
    let fleet = Fleet::new(1);
    does(&fleet.primary, [after(50)]);
    does(&fleet.replicas[0], [after(10)]);
    let mut options = fleet.options(ReadFrom::PrimaryPreferred);
    options.hedging = Some(hedging(20 * MS));
    let copies = fleet.run(options, async |core, client| {
        client.trace_reads(10);
        get(&client).await.expect("an answer");
        pass(&core, 100 * MS).await;
        client.take_trace()
    });
    let told = copies.0.iter().map(|c| (c.node, c.time.as_millis(), c.is_hedge, c.won));
    assert_eq!(told.collect::<Vec<_>>(), [(1, 10, true, true), (0, 50, false, false)]);
    assert_eq!(copies.1, 0);
}

/// Fails if with an interval of zero, where a hedge's node has to be asked for its role first, no
/// hedge goes out, or one goes to a node that was not asked.
#[test]
fn zero_asks_before_a_hedge() {
    let fleet = Fleet::new(1);
    let mut options = fleet.options(ReadFrom::PrimaryPreferred);
    options.replica_refresh_interval = Duration::ZERO;
    options.hedging = Some(hedging(20 * MS));
    does(&fleet.primary, [after(300)]);
    let (took, ledger) = fleet.run(options, async |core, client| {
        let begun = core.now();
        get(&client).await.expect("an answer");
        (core.now().since(begun), client.hedges())
    });
    assert_eq!(ledger.sent, 1, "after {took:?}");
    assert!(took < 25 * MS, "{took:?}");
    let seen = fleet.replicas[0].seen();
    let names: Vec<&str> = seen.iter().map(|seen| &seen.name[..]).collect();
    assert!(names.ends_with(&["ROLE", "GET"]), "{names:?}");
}

/// How often a core goes to the kernel for 2,000 reads of a value, one after the other, that may be hedged.
fn enters_for(value: &str) -> u64 {
    let fleet = Fleet::new(1);
    fleet.primary.set_value("k", value);
    let mut options = fleet.options(ReadFrom::PrimaryPreferred);
    options.hedging = Some(hedging(MS));
    fleet.run(options, async |core, client| {
        let before = core.counters().enters;
        for _ in 0..2_000 {
            get(&client).await.expect("a value");
        }
        core.counters().enters - before
    })
}

/// Fails if the end of a delay that nobody waits for any more wakes a core, be it that replies are short
/// or that they are not.
#[test]
fn answered_reads_wake_nobody() {
    let (short, long) = (enters_for("v"), enters_for(&"v".repeat(256)));
    assert!(long <= short + 20, "{short} enters for short replies, {long} for long ones");
}

/// Fails if the second copy of a read of a zone policy goes to another node than the next best
/// by that policy.
#[test]
fn zones_rank_second_copies() {
    for (from, zones, stalled, copies) in [
        // Both replicas of the zone, before the primary that is there and the one that is not.
        (ReadFrom::AzAffinity, ["a", "a", "a", "b"], &[1, 2][..], [0, 1, 1, 0]),
        // No other one of the zone: the primary of the zone, where the policy takes that before others.
        (ReadFrom::AzAffinityReplicasAndPrimary, ["a", "a", "b", "b"], &[1], [1, 1, 0, 0]),
        (ReadFrom::AzAffinity, ["a", "a", "b", "a"], &[1, 3], [0, 1, 0, 1]),
    ] {
        let fleet = Fleet::new(3);
        let all: Vec<_> =
            std::iter::once(fleet.primary.clone()).chain(fleet.replicas.clone()).collect();
        all.iter().zip(zones).for_each(|(server, zone)| server.set_zone(zone));
        stalled.iter().for_each(|at| does(&all[*at], [after(200)]));
        let mut options = fleet.options(from);
        options.client_availability_zone = Some("a".into());
        options.hedging = Some(hedging(10 * MS));
        fleet.run(options, async |_, client| get(&client).await.expect("an answer"));
        assert_eq!(fleet.gets(), copies, "{from} {zones:?}");
    }
}

/// Fails if reads earn no credit while no second node is there, if those of a view do not,
/// or if those that may not be hedged do.
#[test]
fn who_earns() {
    let fleet = Fleet::new(1);
    fleet.replicas[0].stop();
    let mut options = fleet.options(ReadFrom::PrimaryPreferred);
    options.hedging = Some(hedging(500 * MS));
    let reads = fleet.run(options, async |_, client| {
        let nearest = client.read_from(ReadFrom::Nearest).expect("a view");
        let primary = client.read_from(ReadFrom::Primary).expect("a view");
        for _ in 0..10 {
            get(&client).await.expect("an answer");
            get(&nearest).await.expect("an answer");
            get(&primary).await.expect("an answer");
            let _ = client.command("SRANDMEMBER").arg("s").send::<Option<String>>().await;
        }
        client.hedges().reads
    });
    assert_eq!(reads, 20);
}

/// R-280, C-19. Fails if what one client of a deployment has learnt of its latencies is not there for
/// another one.
#[test]
fn latencies_are_published() {
    let fleet = Fleet::new(1);
    fleet.primary.set_duration(3 * MS);
    let mut options = fleet.options(ReadFrom::PrimaryPreferred);
    let mut adaptive = hedging(MS);
    adaptive.delay = Delay::adaptive();
    options.hedging = Some(adaptive);
    let primary = fleet.primary.clone();
    let sent = fleet.run(options.clone(), async move |core, client| {
        for _ in 0..2_000 {
            get(&client).await.expect("an answer");
        }
        let other = core.connect(&options).await.expect("a connection");
        pass(&core, 200 * MS).await;
        // Without that its delay would be the ceiling, 100 ms.
        does(&primary, [after(90)]);
        get(&other).await.expect("an answer");
        other.hedges().sent
    });
    assert_eq!(sent, 1);
}

/// Fails if a hedge goes to a replica whose word on its role is too old to serve reads.
#[test]
fn a_silent_peer_is_no_peer() {
    for is_mute in [false, true] {
        let fleet = Fleet::new(1);
        let mute = Rc::new(Cell::new(false));
        let says = mute.clone();
        fleet.replicas[0].on_request(move |asked: &Asked<'_>| match asked.args[0] {
            b"ROLE" if says.get() => after(60_000),
            _ => Reaction::Serve,
        });
        let mut options = fleet.options(ReadFrom::PrimaryPreferred);
        options.hedging = Some(hedging(10 * MS));
        let primary = fleet.primary.clone();
        fleet.run(options, async move |core, client| {
            mute.set(is_mute);
            pass(&core, 3_500 * MS).await;
            does(&primary, [after(200)]);
            get(&client).await.expect("an answer");
        });
        assert_eq!(fleet.gets(), [1, usize::from(!is_mute)]);
    }
}
