//! fred: one Client a connection, defaults but for Nagle's delay, which fred leaves on.

use bytes::Bytes;
use fred::prelude::*;
use peers::{Options, Peer, run};

#[derive(Clone)]
struct Fred(Client, Bytes);

impl Peer for Fred {
    async fn connect(options: &Options) -> Self {
        let client = Builder::from_config(Config::from_url(&options.url()).expect("a URL"))
            .with_connection_config(|config| {
                config.tcp = TcpConfig { nodelay: Some(true), ..TcpConfig::default() };
            })
            .build()
            .expect("a client");
        client.init().await.expect("connect");
        Fred(client, options.value().into())
    }

    async fn get(&mut self, key: &str) -> usize {
        self.0.get::<Bytes, _>(key).await.expect("GET").len()
    }

    async fn set(&mut self, key: &str) -> bool {
        self.0.set::<(), _, _>(key, self.1.clone(), None, None, false).await.is_ok()
    }
}

fn main() -> std::io::Result<()> {
    run::<Fred>()
}
