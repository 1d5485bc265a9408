//! Copies of received bytes in user space.

use hedgerow::prelude::*;
use hedgerow::runtime::buffer::LocalBytes;
use hedgerow::runtime::caps::Rung;

use crate::place::on_core;

const WARM: u64 = 200;
const COUNTED: u64 = 400;

/// Design section 5. Fails if a large value is copied when it could be a part of its block, or
/// received in place.
#[test]
fn large_values_are_seldom_copied() {
    for (size, percent_max) in [(64 << 10, 30), (1 << 20, 25)] {
        let (received, copied) = on_core(Rung::U2, move |context, client| async move {
            client.set("key", vec![b'x'; size]).await.expect("the value is set");
            let mut before = context.counters();
            for turn in 0..WARM + COUNTED {
                if turn == WARM {
                    before = context.counters();
                }
                let value = client.get::<LocalBytes>("key").await.expect("a value");
                assert_eq!(value.len(), size);
            }
            let now = context.counters();
            let received = now.bytes_received - before.bytes_received;
            (received, now.bytes_copied - before.bytes_copied)
        });
        assert!(received >= (COUNTED - 1) * size as u64);
        assert!(copied * 100 <= received * percent_max, "{size} B: {copied} of {received}");
    }
}
