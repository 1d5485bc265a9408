//! What a load on a real cluster feels of slots that move, and of nodes that change roles, stand still or
//! die.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cluster_fleet::{Cluster, key_of, slot_of};
use crate::cluster_load::{Calls, Gap, Load, TIMEOUT, beside, options_under_load};
use crate::placement::{Placement, on_core, on_tokio, over_cores};
use crate::server::Flavor;

/// The slots that move in the first test, from node 0.
const MOVING: std::ops::RangeInclusive<u16> = 100..=249;

/// Keys of moving slots, and as many of each shard.
fn keys_to_move(cluster: &Cluster) -> Vec<String> {
    let moving = MOVING.step_by(25).map(|slot| key_of(slot, "moving"));
    moving.chain(keys(cluster)).collect()
}

/// Keys of all shards.
fn keys(cluster: &Cluster) -> Vec<String> {
    let key = |n: usize| cluster.key_in(n % 3, &format!("key{n}"));
    (0..24).map(key).collect()
}

fn show(what: &str, gap: &Gap) {
    let ms = |time: Duration| time.as_millis();
    let (noticed, back) = (gap.noticed.map(ms), gap.back.map(ms));
    let (longest, errors) = (ms(gap.longest), &gap.errors);
    eprintln!(
        "{what}: first error {noticed:?} ms, back {back:?} ms, longest gap {longest} ms, {errors:?}"
    );
}

fn show_sums(what: &str, calls: &Calls) {
    let ((acknowledged, unknown), lost) = (calls.sums(), calls.lost());
    eprintln!("{what}: {acknowledged} INCRs acknowledged, {unknown} unknown, {lost} writes lost");
}

/// Fails if a command on a slot that moves gets an error or a wrong reply, is lost or
/// run twice, or if other slots feel it.
async fn slots_move<P: Placement>(place: P, flavor: Flavor) {
    let cluster = Arc::new(Cluster::start(&place, flavor, 3, 1).await);
    let client = place.connect(&options_under_load(&cluster)).await.expect("up");
    let load = Load::start(&place, &client, &keys_to_move(&cluster)).await;
    let fault = Instant::now();
    let moved = cluster.clone();
    let by_keys = move || on_tokio(async |place| moved.move_slots(&place, MOVING, 0, 1).await);
    beside(&place, "the slots to move", by_keys).await;
    load.goes_on(&place, 20).await;
    if flavor == Flavor::Valkey91 {
        let moved = cluster.clone();
        let whole = move || on_tokio(async |place| moved.migrate_slots(&place, MOVING, 2).await);
        beside(&place, "the slots to migrate", whole).await;
        load.goes_on(&place, 20).await;
    }
    let calls = load.end::<P>(&client, |_| u64::MAX).await;
    let is_moving = |key: &str| MOVING.contains(&slot_of(key));
    let gap = calls.gap(is_moving, fault);
    show(&format!("resharding, {flavor:?}"), &gap);
    show_sums("resharding", &calls);
    let p99 = calls.p99(|key| !is_moving(key), fault);
    eprintln!("resharding: p99 of other slots {p99:?}");
    assert!(gap.errors.is_empty() && calls.lost() == 0, "{flavor:?}: {gap:?}");
    assert!(p99 < TIMEOUT / 4, "{p99:?}");
}

/// Fails if a planned change of roles costs a command, an acknowledged write, or a
/// second run, or if other shards feel it.
async fn roles_change<P: Placement>(place: P, flavor: Flavor) {
    let cluster = Arc::new(Cluster::start(&place, flavor, 3, 1).await);
    let (client, load, is_affected) = under_load(&place, &cluster).await;
    let fault = Instant::now();
    let changed = cluster.clone();
    let change = move || on_tokio(async |place| changed.fail_over(&place, 3).await);
    beside(&place, "the change of roles", change).await;
    load.goes_on(&place, 50).await;
    let calls = load.end::<P>(&client, |_| u64::MAX).await;
    let gap = calls.gap(&is_affected, fault);
    show(&format!("CLUSTER FAILOVER, {flavor:?}"), &gap);
    show_sums("CLUSTER FAILOVER", &calls);
    let p99 = calls.p99(|key| !is_affected(key), fault);
    eprintln!("CLUSTER FAILOVER: p99 of other shards {p99:?}");
    assert_eq!(calls.lost(), 0, "{flavor:?}: {gap:?}");
    assert!(gap.errors.is_empty(), "{flavor:?}: {gap:?}");
    assert!(p99 < TIMEOUT / 4, "{p99:?}");
}

/// A client under load, and which of its keys are those of node 0.
async fn under_load<P: Placement>(
    place: &P,
    cluster: &Cluster,
) -> (P::Client, Load, impl Fn(&str) -> bool + use<P>) {
    let client = place.connect(&options_under_load(cluster)).await.expect("up");
    let load = Load::start(place, &client, &keys(cluster)).await;
    (client, load, slots_of(cluster, 0))
}

/// Whether a key is one of a node, by the slots that it has now.
fn slots_of(cluster: &Cluster, n: usize) -> impl Fn(&str) -> bool + use<> {
    let slots = cluster.slots_of(n);
    move |key| slots.iter().any(|slots| slots.contains(&slot_of(key)))
}

/// By key how many INCRs had been acknowledged when node 0 last answered a WAIT 1, while all goes on.
///
/// WAIT is about the writes of its own connection. As writes are copied in order, one of a connection beside
/// the client's stands for all that were acknowledged before it.
async fn copied_of<P: Placement>(place: &P, cluster: &Cluster, load: &Load) -> Vec<u64> {
    let mark = cluster.key_in(0, "mark");
    let mut copied = None;
    for _ in 0..20 {
        let acknowledged = load.acknowledged();
        let said = cluster.node(0).tell_in_turn(&[&["SET", &mark, "1"], &["WAIT", "1", "1000"]]);
        if said == "+OK\r\n:1\r\n" {
            copied = Some(acknowledged);
        }
        load.goes_on(place, 2).await;
    }
    copied.expect("a write that was copied")
}

/// Waits for the successor of node 0; answers when the cluster had it.
async fn taken_over<P: Placement>(place: &P, cluster: &Arc<Cluster>) -> Instant {
    let seen = cluster.clone();
    let takeover = move || {
        on_tokio(async |place| {
            assert_eq!(seen.await_takeover(&place, 0).await, 3);
            Instant::now()
        })
    };
    beside(place, "the takeover", takeover).await
}

/// What an outage of node 0 did.
fn judge(what: &str, calls: &Calls, is_affected: impl Fn(&str) -> bool, at: [Instant; 2]) -> Gap {
    let [fault, taken] = at;
    let gap = calls.gap(&is_affected, fault);
    show(what, &gap);
    show_sums(what, calls);
    let (p99, refusal) = (calls.p99(|key| !is_affected(key), fault), calls.refusal());
    eprintln!("{what}: the cluster took {:?}, p99 of other shards {p99:?}", taken - fault);
    eprintln!("{what}: a command to the dead node failed in {refusal:?} on average");
    let others = calls.gap(|key| !is_affected(key), fault);
    assert!(others.errors.is_empty(), "{what}: {others:?}");
    assert!(p99 < TIMEOUT / 4, "{what}: {p99:?}");
    assert!(refusal.is_none_or(|mean| mean < Duration::from_millis(1)), "{what}: {refusal:?}");
    let late = gap.back.expect("it is back").saturating_sub(taken - fault);
    assert!(late < Duration::from_millis(2_000), "{what}: {late:?} after the takeover: {gap:?}");
    gap
}

/// Fails if a primary that stands still holds up other shards, if its successor is not
/// found soon, or if a command outlives its time or is run twice.
async fn a_primary_stands_still<P: Placement>(place: P, flavor: Flavor) {
    let cluster = Arc::new(Cluster::start(&place, flavor, 3, 1).await);
    let (client, load, is_affected) = under_load(&place, &cluster).await;
    let copied = copied_of(&place, &cluster, &load).await;
    let fault = Instant::now();
    cluster.pause(0);
    let taken = taken_over(&place, &cluster).await;
    load.goes_on(&place, 20).await;
    cluster.resume(0);
    load.goes_on(&place, 100).await;
    let calls = load.end::<P>(&client, |n| copied[n]).await;
    judge(&format!("SIGSTOP, {flavor:?}"), &calls, is_affected, [fault, taken]);
}

/// Fails if the death of a primary holds up other shards, if its successor is not found
/// soon, if a write that was copied is lost, or a command that may have run is run again.
async fn a_primary_dies<P: Placement>(place: P, flavor: Flavor) {
    let mut cluster = Cluster::start(&place, flavor, 3, 1).await;
    let (client, load, is_affected) = under_load(&place, &cluster).await;
    let copied = copied_of(&place, &cluster, &load).await;
    let fault = Instant::now();
    cluster.kill(0);
    let cluster = Arc::new(cluster);
    let taken = taken_over(&place, &cluster).await;
    load.goes_on(&place, 100).await;
    let calls = load.end::<P>(&client, |n| copied[n]).await;
    let gap = judge(&format!("SIGKILL, {flavor:?}"), &calls, is_affected, [fault, taken]);
    assert!(gap.errors.keys().any(|error| error.starts_with("NotConnected, NotSent")), "{gap:?}");
}

/// Makes the tests: each fault on every placement and every sort of server, but not each with each.
macro_rules! tests {
    ($($name:ident: $on:ident, $scenario:ident, $flavor:ident;)+) => {$(
        #[test]
        fn $name() {
            $on(|place| $scenario(place, Flavor::$flavor));
        }
    )+};
}

tests! {
    slots_move_on_a_core: on_core, slots_move, Redis70;
    slots_move_hosted: on_tokio, slots_move, Valkey91;
    slots_move_over_cores: over_cores, slots_move, Valkey91;
    roles_change_on_a_core: on_core, roles_change, Redis70;
    roles_change_hosted: on_tokio, roles_change, Redis70;
    roles_change_over_cores: over_cores, roles_change, Valkey91;
    a_primary_stands_still_on_a_core: on_core, a_primary_stands_still, Redis70;
    a_primary_stands_still_hosted: on_tokio, a_primary_stands_still, Valkey91;
    a_primary_stands_still_over_cores: over_cores, a_primary_stands_still, Valkey91;
    a_primary_dies_on_a_core: on_core, a_primary_dies, Valkey91;
    a_primary_dies_hosted: on_tokio, a_primary_dies, Valkey91;
    a_primary_dies_over_cores: over_cores, a_primary_dies, Redis70;
}
