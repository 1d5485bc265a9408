//! Allocations of a warm command, counted on the core's own thread over real sockets. (Over the
//! simulator the modelled kernel and server would be counted with it.)

use bytes::Bytes;
use hedgerow::LocalClient;
use hedgerow::prelude::*;
use hedgerow::runtime::buffer::LocalBytes;
use hedgerow::runtime::caps::Rung;

use crate::allocator::asked;
use crate::place::{on_core, rungs};

/// Turns after which nothing grows any more: tables, queues, blocks that follow what comes.
const WARM: u64 = 300;
/// Commands that are counted.
const COUNTED: u64 = 400;
/// A reply that came in pieces for the first time makes the place where it is put together.
const ONCE: u64 = 2;
/// Values that are copied out of the received block, and so never keep it.
const SMALL: [usize; 5] = [16, 64, 200, 1 << 10, 4 << 10];
const LARGE: usize = 64 << 10;

/// Allocations of `COUNTED` calls of a warm `step`.
async fn count(mut step: impl AsyncFnMut()) -> u64 {
    for _ in 0..WARM {
        step().await;
    }
    let before = asked();
    for _ in 0..COUNTED {
        step().await;
    }
    asked() - before
}

async fn put(client: &LocalClient, size: usize) {
    client.set("key", vec![b'x'; size]).await.expect("the value is set");
}

/// R-088, design section 2. Fails if a command whose answer owns nothing allocates: the command's bytes,
/// its cell, its waker, its place in the queues, the turn's lists, its deadline.
#[test]
fn integers_nil_and_status_allocate_nothing() {
    for rung in rungs() {
        let counts = on_core(rung, async |_, client| {
            let value = [b'x'; 64];
            [
                count(async || assert!(client.incr("n").await.expect("a number") > 0)).await,
                count(async || drop(client.get::<Option<Bytes>>("none").await.expect("nil"))).await,
                count(async || client.set("key", &value[..]).await.expect("a status")).await,
                count(async || assert_eq!(client.exists("key").await.expect("a number"), 1)).await,
            ]
        });
        assert_eq!(counts, [0; 4], "{rung:?}: incr, get, set, exists");
    }
}

/// Allocations of `get_with` and of `get_into` memory that is large enough.
async fn borrowed(client: &LocalClient, size: usize) -> [u64; 2] {
    put(client, size).await;
    let shown = count(async || {
        let len = client.get_with("key", |value| value.map(<[u8]>::len)).await;
        assert_eq!(len.expect("a value"), Some(size));
    });
    let shown = shown.await;
    let mut into = Vec::with_capacity(size);
    let copied = count(async || {
        into.clear();
        let len = client.get_into("key", &mut into).await;
        assert_eq!(len.expect("a value"), Some(size));
    });
    [shown, copied.await]
}

/// Design section 2. Fails if showing a value in place, or copying it into memory of the caller's
/// that is large enough, allocates.
#[test]
fn borrowed_values_allocate_nothing() {
    for rung in rungs() {
        let counts = on_core(rung, async |_, client| {
            let mut counts = Vec::new();
            for size in SMALL {
                counts.push((size, borrowed(&client, size).await));
            }
            counts
        });
        for (size, counts) in counts {
            let none = counts.iter().all(|count| *count <= ONCE);
            assert!(none, "{rung:?}, {size} B: get_with, get_into: {counts:?}");
        }
    }
}

/// Allocations of values of each kind, each dropped before the next.
async fn owned(client: &LocalClient, size: usize) -> [u64; 4] {
    put(client, size).await;
    [
        count(async || assert_eq!(client.get::<LocalBytes>("key").await.unwrap().len(), size))
            .await,
        count(async || assert_eq!(client.get::<Bytes>("key").await.unwrap().len(), size)).await,
        count(async || assert_eq!(client.get::<String>("key").await.unwrap().len(), size)).await,
        count(async || assert_eq!(client.get::<Vec<u8>>("key").await.unwrap().len(), size)).await,
    ]
}

/// Design section 2. Fails if an owned value costs more than its own memory, or one of 33 to 128 bytes
/// that stays on its core anything at all.
#[test]
fn small_owned_values_allocate_once() {
    for rung in rungs() {
        let counts = on_core(rung, async |_, client| {
            let mut counts = Vec::new();
            for size in SMALL {
                counts.push((size, owned(&client, size).await));
            }
            counts
        });
        for (size, counts) in counts {
            let one = |count: &u64| (COUNTED..=COUNTED + ONCE).contains(count);
            let [local, others @ ..] = &counts;
            let fits = if (33..=128).contains(&size) { *local <= ONCE } else { one(local) };
            let all = fits && others.iter().all(one);
            assert!(all, "{rung:?}, {size} B: LocalBytes, Bytes, String, Vec: {counts:?}");
        }
    }
}

/// Design section 2. A value above the copy threshold shares its block, which is given away with it
/// and comes back to the core's reserve: that costs the block's two counts, and no memory. Fails if
/// it is more than that, beside what an owned value has of its own.
#[test]
fn large_values_share_their_block() {
    let counts = on_core(Rung::U2, async |_, client| {
        (borrowed(&client, LARGE).await, owned(&client, LARGE).await)
    });
    let ([shown, copied], [local, bytes, string, vec]) = counts;
    // Now and then a value lies across two blocks.
    let slack = COUNTED / 10;
    for (what, count, own) in [
        ("get_with", shown, 0),
        ("get_into", copied, 0),
        ("LocalBytes", local, 0),
        ("Bytes, which may leave the core", bytes, 1),
        ("String", string, 1),
        ("Vec", vec, 1),
    ] {
        assert!(count <= own * COUNTED + slack, "{what}: {count} of {COUNTED}");
    }
}
