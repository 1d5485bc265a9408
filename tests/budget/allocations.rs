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

/// Design section 2. Fails if a command whose answer owns nothing allocates: the command's bytes,
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
        let none = SMALL.map(|size| (size, [0; 2])).to_vec();
        assert_eq!(counts, none, "{rung:?}: get_with, get_into");
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

/// Design section 2. Fails if an owned value costs more than its own memory.
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
            assert_eq!(counts, [COUNTED; 4], "{rung:?}, {size} B: LocalBytes, Bytes, String, Vec");
        }
    }
}

/// Design section 2. A value above the copy threshold shares its block. Of four in a block of
/// 256 KiB one lies across its end and is put together in memory of its own (which has a count of
/// its own), and a block that is given away costs three (its memory and its two counts). Fails if
/// it is more than that.
#[test]
fn large_values_share_their_block() {
    let counts = on_core(Rung::U2, async |_, client| {
        (borrowed(&client, LARGE).await, owned(&client, LARGE).await)
    });
    let ([shown, copied], [local, bytes, string, vec]) = counts;
    let crossing = COUNTED / 4 + 1;
    assert!(shown <= 2 * crossing && copied <= 2 * crossing, "get_with {shown}, get_into {copied}");
    assert!(local <= 5 * crossing, "LocalBytes {local}");
    // The form that may leave the core has one allocation of its own.
    assert!(bytes <= COUNTED + 5 * crossing, "Bytes {bytes}");
    let own = COUNTED + 2 * crossing;
    assert!(string <= own && vec <= own, "String {string}, Vec {vec}");
}
