//! What a read costs that may go elsewhere than to the primary, or be sent twice.

use std::time::Duration;

use hedgerow::prelude::*;
use hedgerow::read::{Delay, Hedging, ReadFrom};
use hedgerow::runtime::buffer::LocalBytes;
use hedgerow::runtime::caps::Rung;
use hedgerow::testing::{self, Server};
use hedgerow::{LocalClient, Options};

use crate::allocator::asked;
use crate::place::{on_fleet, rungs};

const WARM: u64 = 300;
const COUNTED: u64 = 400;
/// The PINGs of Nearest, one a second for each node, and what was needed for the first time: where the
/// times of answers decide, the first read of a node may come late.
const ONCE: u64 = 8;

fn armed(options: &mut Options, delay: Duration) {
    let mut hedging = Hedging::default();
    hedging.delay = Delay::Fixed(delay);
    hedging.max_extra_load_percent = 100;
    hedging.storm_guard = false;
    options.hedging = Some(hedging);
}

/// Allocations of `COUNTED` warm GETs of a missing key, and of 200 B shown in place.
async fn count(client: &LocalClient) -> u64 {
    let mut before = 0;
    for n in 0..WARM + COUNTED {
        if n == WARM {
            before = asked();
        }
        client.get_with("none", |value| assert!(value.is_none())).await.expect("nil");
        client.get_with("key", |_| ()).await.expect("an answer");
    }
    asked() - before
}

/// Fails if a warm read that may be hedged, or whose node is chosen by any policy,
/// allocates: its record, its bytes, its place among those that are due, however long their delay is.
#[test]
fn armed_reads_allocate_nothing() {
    const POLICIES: [ReadFrom; 5] = [
        ReadFrom::Replica,
        ReadFrom::PrimaryPreferred,
        ReadFrom::ReplicaPreferred,
        ReadFrom::Nearest,
        ReadFrom::Quickest,
    ];
    for rung in rungs() {
        let set = |options: &mut Options| armed(options, Duration::from_secs(10));
        let counts = on_fleet(rung, Server::builder(), set, async |_, client| {
            client.set("key", &[b'x'; 200][..]).await.expect("a status");
            let mut counts = Vec::new();
            for policy in POLICIES {
                let view = client.read_from(policy).expect("a view");
                counts.push((policy, count(&view).await));
            }
            assert!(client.hedges().reads > 4 * (WARM + COUNTED));
            counts
        });
        for (policy, count) in counts {
            let by_times = matches!(policy, ReadFrom::Nearest | ReadFrom::Quickest);
            let most = if by_times { ONCE } else { 0 };
            assert!(count <= most, "{rung:?}, {policy}: {count}");
        }
    }
}

/// Fails if a warm read that is sent twice allocates more than the list of engines with something
/// due.
#[test]
fn hedged_reads_allocate_one_list() {
    let set = |options: &mut Options| armed(options, Duration::from_micros(50));
    let slow = Server::builder().delay(testing::Delay::Constant(Duration::from_millis(1)));
    let (allocated, hedged) = on_fleet(Rung::U2, slow, set, async |_, client| {
        let view = client.read_from(ReadFrom::PrimaryPreferred).expect("a view");
        let (mut before, mut sent) = (0, 0);
        for n in 0..WARM + COUNTED {
            if n == WARM {
                (before, sent) = (asked(), client.hedges().sent);
            }
            view.get_with("none", |_| ()).await.expect("nil");
        }
        (asked() - before, client.hedges().sent - sent)
    });
    assert!(hedged > COUNTED / 2, "{hedged} hedges");
    // What is told to the coordinator every 20 ms may need new memory, where it still reads the last.
    assert!(allocated <= hedged + hedged / 10, "{allocated} with {hedged} hedges");
}

/// Design section 5. Fails if a large value is copied more often since its read may be hedged.
#[test]
fn armed_large_values_are_seldom_copied() {
    const SIZE: usize = 64 << 10;
    let set = |options: &mut Options| armed(options, Duration::from_secs(10));
    let (received, copied) = on_fleet(Rung::U2, Server::builder(), set, async |context, client| {
        client.set("key", vec![b'x'; SIZE]).await.expect("the value is set");
        let view = client.read_from(ReadFrom::PrimaryPreferred).expect("a view");
        let mut before = context.counters();
        for turn in 0..WARM + COUNTED {
            if turn == WARM {
                before = context.counters();
            }
            assert_eq!(view.get::<LocalBytes>("key").await.expect("a value").len(), SIZE);
        }
        let now = context.counters();
        (now.bytes_received - before.bytes_received, now.bytes_copied - before.bytes_copied)
    });
    assert!(received >= (COUNTED - 1) * SIZE as u64);
    assert!(copied * 100 <= received * 30, "{copied} of {received}");
}
