//! What the bare programs share: the receive buffers of the ring loop and the answers of the null
//! server.

#![warn(unsafe_op_in_unsafe_fn)]

pub mod answers;
pub mod pool;
