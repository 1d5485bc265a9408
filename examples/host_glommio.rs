//! 10,000 GETs from inside glommio: one after the other, then 64 at a time.
//!
//! `cargo run --release --example host_glommio --features host-glommio`. glommio locks 512 KiB of
//! memory and more: an ordinary user needs a higher `ulimit -l`.

use std::error::Error;
use std::time::Instant;

use hedgerow::testing::Server;
use hedgerow::{Embedded, LocalClient, LocalContext, Options, host, prelude::*};

const GETS: usize = 10_000;
const TASKS: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start()?;
    let options = Options::from_url(&server.url())?;
    let executor = glommio::LocalExecutorBuilder::default()
        .make()
        .map_err(|e| format!("glommio does not start (does `ulimit -l` suffice?): {e}"))?;
    executor.run(async move {
        // On the thread that will drive it: a ring belongs to one thread.
        let (context, driver) = Embedded::builder().build()?;
        println!("rung {}", driver.rung());
        let driving = host::glommio::spawn(driver)?;
        let outcome = load(&context, &options).await;
        driving.cancel().await;
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
    let task = |task| {
        let (client, share) = (client.clone(), GETS * (task + 1) / TASKS - GETS * task / TASKS);
        glommio::spawn_local(async move { gets(&client, share).await })
    };
    for task in (0..TASKS).map(task).collect::<Vec<_>>() {
        task.await?;
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
