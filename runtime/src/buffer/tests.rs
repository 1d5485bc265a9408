//! Small enough for Miri, which sees every read of a byte that nobody wrote.

use super::*;
use crate::buffer::pool::RETAINED_MAX;

/// Delivers `bytes` into a block at `at`, as a kernel would.
fn deliver(block: &Block, at: usize, bytes: &[u8]) {
    assert!(at + bytes.len() <= block.len());
    // SAFETY: in bounds, and beyond all that was delivered before.
    unsafe { block.as_mut_ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

/// Trap 4. Fails if bytes beyond what was delivered can be read, or later deliveries touch slices.
#[test]
fn slices_outlive_later_deliveries() {
    let pool = Pool::default();
    let block = pool.take(64);
    deliver(&block, 0, b"first");
    let first = Slice::new(block.clone(), 0, 5);
    let foreign = Slice::new(block.clone(), 1, 5).into_bytes();
    let reader = std::thread::spawn(move || assert_eq!(&foreign[..], b"irst"));
    deliver(&block, 5, b"second");
    assert_eq!(block.bytes(5, 11), b"second");
    assert_eq!(first.as_ref(), b"first");
    reader.join().unwrap();
    drop(block);
    assert_eq!(first.as_ref(), b"first");
}

/// Trap 4. Fails if a block counts as unkept while any thread holds a part of it.
#[test]
fn a_block_is_kept_until_its_last_holder_goes() {
    let pool = Pool::default();
    let block = pool.take(16);
    deliver(&block, 0, &[7; 16]);
    assert!(block.is_unkept());
    let local: LocalBytes = Slice::new(block.clone(), 2, 10).into();
    let part = local.slice_ref(&local[1..3]);
    assert!(local.shares_block() && part.shares_block() && !block.is_unkept());
    drop(local);
    let foreign = part.into_bytes();
    let again = foreign.clone();
    drop(foreign);
    assert!(!block.is_unkept());
    std::thread::spawn(move || assert_eq!(&again[..], [7; 2])).join().unwrap();
    assert!(block.is_unkept());
    // Written again only now: nobody can see it.
    deliver(&block, 0, &[8; 16]);
}

/// Trap 4. Fails if a foreign holder's reads can race with the next delivery into the block.
#[test]
fn a_block_written_again_races_with_no_reader() {
    let pool = Pool::default();
    let block = pool.take(8);
    for round in 0..20u8 {
        deliver(&block, 0, &[round; 8]);
        let foreign = Slice::new(block.clone(), 0, 8).into_bytes();
        let reader = std::thread::spawn(move || assert_eq!(foreign[..], [round; 8]));
        while !block.is_unkept() {
            std::thread::yield_now();
        }
        // The reader is done, though nobody has joined it.
        deliver(&block, 0, &[0xff; 8]);
        reader.join().unwrap();
    }
}

/// Trap 5. Fails if what users keep is not counted, counted twice, or not given back in the end.
#[test]
fn what_is_given_away_is_counted_once() {
    let pool = Pool::default();
    let block = pool.take(1000);
    deliver(&block, 0, &[1; 10]);
    let slice = Slice::new(block.clone(), 0, 10);
    block.give_away();
    block.give_away();
    assert_eq!(pool.retained(), 1000);
    assert!(pool.may_give_away(RETAINED_MAX - 1000) && !pool.may_give_away(RETAINED_MAX - 999));
    drop(block);
    assert_eq!(pool.retained(), 1000);
    let foreign = slice.into_bytes();
    std::thread::spawn(move || drop(foreign)).join().unwrap();
    assert_eq!(pool.retained(), 0);
    let again = pool.take(1000);
    assert!(again.is_unkept());
    drop(again);
    assert_eq!(pool.retained(), 0, "a block out of the reserve is not a given one");
}

/// Trap 12. Fails if memory in the reserve leaks, or a slice dies with the pool it came from.
#[test]
fn slices_outlive_their_pool() {
    let pool = Pool::default();
    let (block, other) = (pool.take(100), pool.take(40));
    deliver(&block, 0, b"abc");
    let foreign = Slice::new(block, 0, 3).into_bytes();
    drop(other);
    drop(pool);
    assert_eq!(&foreign[..], b"abc");
}

/// Design 5. Fails if a block of the wrong size comes out of the reserve, or the reserve is unused.
#[test]
fn the_reserve_gives_blocks_that_fit() {
    let pool = Pool::default();
    let first = pool.take(100);
    let at = first.as_mut_ptr();
    drop(first);
    let larger = pool.take(101);
    assert!(larger.len() >= 101 && larger.as_mut_ptr() != at);
    let fits = pool.take(90);
    assert_eq!((fits.as_mut_ptr(), fits.len()), (at, 100));
    let blocks: Vec<Block> = (0..200).map(|_| pool.take(64)).collect();
    drop(blocks);
    assert_eq!(pool.take(64).len(), 64);
}

/// Trap 25. Fails if a fill goes beyond its block.
#[test]
fn a_fill_stays_inside_its_block() {
    let block = Pool::default().take(10);
    assert_eq!(block.fill(0, b"123456"), 6);
    assert_eq!(block.fill(6, b"7890xx"), 4);
    assert_eq!((block.fill(10, b"x"), block.fill(99, b"x")), (0, 0));
    assert_eq!(block.bytes(0, 10), b"1234567890");
}

/// Trap 4. Fails if a part of other memory, or none at all, is taken for a part of the block.
#[test]
fn only_parts_of_the_same_bytes_are_shared() {
    let block = Pool::default().take(32);
    deliver(&block, 0, b"0123456789");
    let whole: LocalBytes = Slice::new(block.clone(), 2, 8).into();
    assert_eq!(&whole.slice_ref(&whole[2..4])[..], b"45");
    assert!(!whole.slice_ref(block.bytes(0, 2)).shares_block(), "before it");
    assert!(!whole.slice_ref(block.bytes(7, 9)).shares_block(), "beyond it");
    assert!(!whole.slice_ref(b"elsewhere").shares_block());
    let copied = LocalBytes::copy_from(b"copied");
    assert_eq!(&copied.slice_ref(&copied[3..])[..], b"ied");
    assert_eq!(whole.slice_ref(&[]).len(), 0);
}
