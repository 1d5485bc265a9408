//! A Redis and Valkey client on io_uring, one thread per core.
#![forbid(unsafe_code)]

pub mod resp;
