//! Black-box tests of the `hedgerow` program: the real binary, each test in a fresh folder.

mod cases;
mod cluster;
mod failures;
mod probe;
mod program;
mod report;
mod server;
mod topology;
mod usage;
