//! 10,000 GETs from inside a tokio current-thread runtime: one after the other, then 64 at a time.
//!
//! `cargo run --release --example host_tokio --features host-tokio`

use std::error::Error;
use std::time::Instant;

use hedgerow::testing::Server;
use hedgerow::{Embedded, LocalClient, LocalContext, Options, host, prelude::*};
use tokio::task::{JoinSet, LocalSet, spawn_local};

const GETS: usize = 10_000;
const TASKS: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start()?;
    let options = Options::from_url(&server.url())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    LocalSet::new().block_on(&runtime, async move {
        // On the thread that will drive it: a ring belongs to one thread.
        let (context, driver) = Embedded::builder().build()?;
        println!("rung {}", driver.rung());
        let driving = spawn_local(host::tokio::drive(driver));
        let outcome = load(&context, &options).await;
        driving.abort();
        outcome
    })
}

async fn load(context: &LocalContext, options: &Options) -> Result<(), Box<dyn Error>> {
    let client = context.connect(options).await?;
    client.set("greeting", "hello").await?;
    let start = Instant::now();
    gets(&client, GETS).await?;
    println!("sequential: {GETS} GETs in {:?}", start.elapsed());
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (client, share) = (client.clone(), GETS * (task + 1) / TASKS - GETS * task / TASKS);
        tasks.spawn_local(async move { gets(&client, share).await });
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome??;
    }
    println!("{TASKS} at a time: {GETS} GETs in {:?}", start.elapsed());
    Ok(())
}

async fn gets(client: &LocalClient, count: usize) -> Result<(), hedgerow::Error> {
    for _ in 0..count {
        let value: String = client.get("greeting").await?;
        assert_eq!(value, "hello");
    }
    Ok(())
}
