//! The typed commands on real servers: every flavor, protocol, transport and placement.

use hedgerow::config::ProtocolChoice;
use hedgerow::prelude::*;
use hedgerow::{Client, Endpoint, Options};

use crate::groups;
use crate::placement::{Placement, on_core, on_tokio, one_core, options_for};
use crate::server::{Flavor, Server};

/// Every way to reach a server, in words and as options.
pub(crate) fn every_way(server: &Server) -> Vec<(String, Options)> {
    let tcp = options_for(server.address());
    let mut unix = tcp.clone();
    unix.endpoint = Endpoint::unix(server.socket());
    let mut ways = Vec::new();
    for protocol in [ProtocolChoice::Auto, ProtocolChoice::Resp2, ProtocolChoice::Resp3] {
        for options in [&tcp, &unix] {
            let mut options = options.clone();
            options.protocol = protocol;
            options.allow_admin = true;
            ways.push((format!("{protocol:?} over {}", options.endpoint), options));
        }
    }
    ways
}

async fn round_trips<P: Placement>(place: P, flavor: Flavor) {
    let server = Server::start(flavor);
    for (way, options) in every_way(&server) {
        let client = place.connect(&options).await.unwrap_or_else(|e| panic!("{way}: {e}"));
        eprintln!("{flavor:?}, {way}");
        groups::all(client, flavor).await.unwrap_or_else(|e| panic!("{flavor:?}, {way}: {e}"));
    }
}

macro_rules! on_each_flavor {
    ($($name:ident: $flavor:ident,)*) => {$(
        mod $name {
            use super::*;

            /// R-010, every typed command on a core. Fails if one does not read back what it wrote,
            /// in either protocol, or if the server lacks other commands than are listed.
            #[test]
            fn typed_commands_on_a_core() {
                on_core(|place| round_trips(place, Flavor::$flavor));
            }

            /// R-010, every typed command inside tokio. Fails if a reply does not read as its method
            /// says there.
            #[test]
            fn typed_commands_hosted() {
                on_tokio(|place| round_trips(place, Flavor::$flavor));
            }
        }
    )*};
}

on_each_flavor! {
    valkey91: Valkey91,
    valkey90: Valkey90,
    redis70: Redis70,
    redis82: Redis82,
}

/// R-010, every typed command through the mailbox of a pinned core. Fails if a
/// reply does not read as its method says there.
#[test]
fn typed_commands_over_pinned_cores() {
    let server = Server::start(Flavor::Valkey91);
    let cores = one_core();
    for (way, options) in every_way(&server) {
        futures::executor::block_on(async {
            let client: Client = cores.connect(&options).await.expect("up");
            let done = groups::all(client, Flavor::Valkey91).await;
            done.unwrap_or_else(|e| panic!("{way}: {e}"));
        });
    }
}

/// Fails if a raw reply is not of the negotiated protocol's shape, or the typed one is.
#[test]
fn shapes_differ_only_when_raw() {
    on_tokio(async |place| {
        let server = Server::start(Flavor::Valkey91);
        for (way, options) in every_way(&server) {
            let client = place.connect(&options).await.expect("up");
            client.del(["h", "s", "z"]).await.expect("DEL");
            client.hset("h", ("f", "v")).await.expect("HSET");
            client.sadd("s", "m").await.expect("SADD");
            client.zadd("z", (1.5, "m")).await.expect("ZADD");
            let kinds = kinds_of(&client).await;
            let old = options.protocol == ProtocolChoice::Resp2;
            let expected = if old { ["Array", "Array", "Bulk"] } else { ["Map", "Set", "Double"] };
            assert_eq!(kinds, expected, "{way}");
            let whole: Vec<(String, String)> = client.hgetall("h").await.expect("HGETALL");
            assert_eq!(whole, [("f".to_owned(), "v".to_owned())], "{way}");
            assert_eq!(client.zscore("z", "m").await.expect("ZSCORE"), Some(1.5), "{way}");
        }
    });
}

/// The kinds of three raw replies whose shape depends on the protocol.
async fn kinds_of(client: &Client) -> [String; 3] {
    let hash = client.command("HGETALL").arg("h").send::<hedgerow::resp::Value>();
    let set = client.command("SMEMBERS").arg("s").send::<hedgerow::resp::Value>();
    let score = client.command("ZSCORE").arg("z").arg("m").send::<hedgerow::resp::Value>();
    let replies = futures::join!(hash, set, score);
    [replies.0, replies.1, replies.2].map(|reply| format!("{:?}", reply.expect("a reply").kind()))
}
