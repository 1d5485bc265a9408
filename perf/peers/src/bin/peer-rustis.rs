//! rustis: its multiplexed Client, defaults.

use peers::{Options, Peer, run};
use rustis::{client::Client, commands::StringCommands, resp::BulkString};
use std::sync::Arc;

#[derive(Clone)]
struct Rustis(Client, Arc<str>);

impl Peer for Rustis {
    async fn connect(options: &Options) -> Self {
        let value = String::from_utf8(options.value()).expect("the value is ASCII");
        Rustis(Client::connect(options.url()).await.expect("connect"), value.into())
    }

    async fn get(&mut self, key: &str) -> usize {
        self.0.get::<BulkString>(key).await.expect("GET").len()
    }

    async fn set(&mut self, key: &str) -> bool {
        self.0.set(key, &*self.1).await.is_ok()
    }
}

fn main() -> std::io::Result<()> {
    run::<Rustis>()
}
