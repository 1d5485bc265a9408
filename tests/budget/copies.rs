//! Copies of received bytes in user space.

use hedgerow::prelude::*;
use hedgerow::runtime::buffer::LocalBytes;
use hedgerow::runtime::caps::Rung;

use crate::place::on_core;

const WARM: u64 = 200;
const COUNTED: u64 = 400;

/// Design section 5. Fails if a value of 64 KiB is copied when it could be a part of its block, or
/// one that lies across two blocks is copied twice.
#[test]
fn large_values_are_seldom_copied() {
    const SIZE: usize = 64 << 10;
    let (received, copied) = on_core(Rung::U2, async |context, client| {
        client.set::<()>("key", vec![b'x'; SIZE]).await.expect("the value is set");
        let mut before = context.counters();
        for turn in 0..WARM + COUNTED {
            if turn == WARM {
                before = context.counters();
            }
            let value = client.get::<LocalBytes>("key").await.expect("a value");
            assert_eq!(value.len(), SIZE);
        }
        let now = context.counters();
        (now.bytes_received - before.bytes_received, now.bytes_copied - before.bytes_copied)
    });
    assert!(received >= (COUNTED - 1) * SIZE as u64);
    assert!(copied * 100 <= received * 30, "{copied} of {received}");
}
