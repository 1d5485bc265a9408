//! Blocking sockets of the standard library, one connection: the simplest loop there is.

use clap::Parser;
use harness::{Pipeline, Workload, connect, start};
use std::io::{Read, Write};

#[derive(Parser)]
#[command(about = "Blocking loop over one socket of the standard library")]
struct Options {
    #[command(flatten)]
    workload: Workload,
}

fn main() -> std::io::Result<()> {
    let workload = Options::parse().workload;
    assert!(workload.connections == 1 && !workload.is_open(), "one connection, closed loop only");
    let mut socket = connect(&workload);
    let mut pipeline = Pipeline::new(&workload, 0);
    let mut buffer = vec![0; workload.read_buffer_len()];
    start(&workload);
    pipeline.fill(workload.depth);
    loop {
        socket.write_all(&pipeline.out)?;
        pipeline.out.clear();
        let len = socket.read(&mut buffer)?;
        assert!(len > 0, "the server closed the connection");
        pipeline.received(&buffer[..len]);
    }
}
