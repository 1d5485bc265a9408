//! Black-box tests of the `hedgerow` program.
