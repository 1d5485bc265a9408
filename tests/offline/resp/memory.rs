//! Counting what a thread allocates.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    hint::black_box,
};

use bytes::Bytes;
use hedgerow::resp::{Decoder, Limits, Protocol, Reply, Step, Value};

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    // A thread that ends frees memory after its counters are gone.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
        let _ = CALLS.try_with(|calls| calls.set(calls.get() + u64::from(bytes > 0)));
    });
}

// SAFETY: every call goes to the system allocator unchanged; the counters neither allocate nor unwind.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: `pointer` came from `System` with this layout, as all of `alloc` does.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Bytes that this thread has allocated and not freed.
pub(crate) fn live() -> i64 {
    LIVE.get()
}

/// Feeds `reads`, builds each frame's value, and checks after each read that no more was ever
/// reserved than 1 MiB plus 64 times the bytes received.
pub(super) fn check(label: &str, protocol: Protocol, reads: &[&[u8]]) {
    let mut buffer = Vec::with_capacity(reads.iter().map(|read| read.len()).sum());
    let base = LIVE.get();
    PEAK.set(base);
    let mut decoder = Decoder::new(protocol, Limits::default());
    let mut received = 0;
    for read in reads {
        buffer.extend_from_slice(read);
        received += read.len();
        while let Ok(Step::Frame(frame)) = decoder.decode(&buffer) {
            let value: Value = Reply::<Bytes>::new(frame, None).convert().expect("a value");
            drop(black_box(value));
            let len = frame.len_raw();
            buffer.drain(..len);
        }
        let reserved = PEAK.get() - base;
        let most = (1 << 20) + 64 * received as i64;
        assert!(reserved <= most, "{label}: {reserved} reserved after {received} bytes");
    }
}

/// How many allocations `run` makes.
pub(super) fn allocations(run: impl FnOnce()) -> u64 {
    let before = CALLS.get();
    run();
    CALLS.get() - before
}
