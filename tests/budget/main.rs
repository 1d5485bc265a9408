//! What a warm command of `LocalClient` may cost: allocations, system calls, copies, timers.

mod allocations;
mod allocator;
mod calls;
mod copies;
mod hedging;
mod place;
mod reads;
