//! The `hedgerow` program: a load generator and a machine check for Redis and Valkey services.
#![forbid(unsafe_code)]

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
