//! redis-rs: its MultiplexedConnection.

use peers::{Options, Peer, run};
use redis::{AsyncCommands, AsyncConnectionConfig, Client, aio::MultiplexedConnection};
use std::sync::Arc;

#[derive(Clone)]
struct RedisRs(MultiplexedConnection, Arc<[u8]>);

impl Peer for RedisRs {
    async fn connect(options: &Options) -> Self {
        let client = Client::open(options.url()).expect("a URL");
        let mut config = AsyncConnectionConfig::new();
        if options.no_timeout() {
            config = config.set_response_timeout(None);
        }
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        RedisRs(connection.expect("connect"), options.value().into())
    }

    async fn get(&mut self, key: &str) -> usize {
        self.0.get::<_, Vec<u8>>(key).await.expect("GET").len()
    }

    async fn set(&mut self, key: &str) -> bool {
        self.0.set::<_, _, ()>(key, &self.1[..]).await.is_ok()
    }
}

fn main() -> std::io::Result<()> {
    run::<RedisRs>()
}
