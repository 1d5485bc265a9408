//! redis-rs: its MultiplexedConnection, and its ClusterConnection.

use peers::{Options, Peer, run};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, Client};
use std::sync::Arc;

#[derive(Clone)]
enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

#[derive(Clone)]
struct RedisRs(Connection, Arc<[u8]>);

async fn one(options: &Options) -> MultiplexedConnection {
    let client = Client::open(options.url()).expect("a URL");
    let mut config = AsyncConnectionConfig::new();
    if options.no_timeout() {
        config = config.set_response_timeout(None);
    }
    client.get_multiplexed_async_connection_with_config(&config).await.expect("connect")
}

async fn get<C: ConnectionLike + Send + Sync>(connection: &mut C, key: &str) -> usize {
    connection.get::<_, Vec<u8>>(key).await.expect("GET").len()
}

async fn set<C: ConnectionLike + Send + Sync>(connection: &mut C, key: &str, value: &[u8]) -> bool {
    connection.set::<_, _, ()>(key, value).await.is_ok()
}

impl Peer for RedisRs {
    async fn connect(options: &Options) -> Self {
        let connection = match options.in_cluster() {
            true => {
                let client = ClusterClient::new(vec![options.url()]).expect("a URL");
                Connection::Cluster(client.get_async_connection().await.expect("connect"))
            }
            false => Connection::One(one(options).await),
        };
        RedisRs(connection, options.value().into())
    }

    async fn get(&mut self, key: &str) -> usize {
        match &mut self.0 {
            Connection::One(connection) => get(connection, key).await,
            Connection::Cluster(connection) => get(connection, key).await,
        }
    }

    async fn set(&mut self, key: &str) -> bool {
        match &mut self.0 {
            Connection::One(connection) => set(connection, key, &self.1).await,
            Connection::Cluster(connection) => set(connection, key, &self.1).await,
        }
    }
}

fn main() -> std::io::Result<()> {
    run::<RedisRs>()
}
