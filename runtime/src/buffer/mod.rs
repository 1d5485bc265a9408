//! Receive memory: blocks that the kernel fills, and the slices of them that users keep.
//!
//! A buffer id is only an index; memory is a block. While nobody keeps a part of a finished block
//! it is posted again; otherwise it is given away for good and its index gets a fresh one, so the
//! kernel never writes into memory that a user can see. A block's first holder is its core (a plain
//! count); a slice that leaves the core takes a hold of its own on the memory (an atomic count).

mod block;
mod pool;
mod slice;
mod small;
#[cfg(test)]
mod tests;

pub(crate) use block::Block;
pub(crate) use pool::Pool;
pub use slice::LocalBytes;
pub(crate) use slice::Slice;
