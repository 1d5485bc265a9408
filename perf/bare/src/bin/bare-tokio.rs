//! tokio's current-thread runtime without any client: one task a connection.

use clap::Parser;
use harness::{Pipeline, Workload, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[derive(Parser)]
#[command(about = "Loop over tokio sockets in a current_thread runtime")]
struct Options {
    #[command(flatten)]
    workload: Workload,
}

async fn drive(workload: &Workload, seed: u64) -> std::io::Result<()> {
    let mut socket = tokio::net::TcpStream::connect(workload.addr).await?;
    socket.set_nodelay(true)?;
    let mut pipeline = Pipeline::new(workload, seed);
    let mut buffer = vec![0; workload.read_buffer_len()];
    pipeline.fill(workload.depth);
    loop {
        socket.write_all(&pipeline.out).await?;
        pipeline.out.clear();
        let len = socket.read(&mut buffer).await?;
        assert!(len > 0, "the server closed the connection");
        pipeline.received(&buffer[..len]);
    }
}

fn main() -> std::io::Result<()> {
    let workload = Options::parse().workload;
    assert!(!workload.is_open(), "closed loop only");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let drivers: Vec<_> = (0..workload.connections)
            .map(|seed| {
                let workload = workload.clone();
                tokio::task::spawn_local(async move { drive(&workload, seed as u64).await })
            })
            .collect();
        start(&workload);
        for driver in drivers {
            driver.await.expect("a panic has ended the process")?;
        }
        Ok(())
    })
}
