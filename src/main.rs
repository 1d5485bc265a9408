//! The `hedgerow` program: a probe of hedged reads, a load generator and a machine check for Redis and
//! Valkey.
#![forbid(unsafe_code)]

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
