//! Values of every size, there and back.

use hedgerow::config::ProtocolChoice;
use hedgerow::prelude::*;
use hedgerow::{Client, LocalClient};

use crate::placement::{Placement, on_core, on_tokio, one_core};
use crate::server::{Flavor, Server};
use crate::typed::every_way;

/// 64 MiB go once each way; the sizes below go several times.
const HUGE: usize = 64 << 20;
const SIZES: [usize; 5] = [0, 16, 4 << 10, 64 << 10, 1 << 20];

/// Bytes that differ at every place and with every seed.
fn bytes_of(size: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; size];
    random.fill(&mut bytes);
    bytes
}

/// Compares without printing megabytes.
fn same(got: &[u8], wanted: &[u8], what: &str) {
    let differs = got.iter().zip(wanted).position(|(a, b)| a != b);
    assert_eq!((got.len(), differs), (wanted.len(), None), "{what}");
}

async fn there_and_back(door: &impl Door, size: usize, times: u64, what: &str) {
    for seed in 0..times {
        let value = bytes_of(size, seed);
        door.set("v", &value).await.unwrap_or_else(|e| panic!("{what}, {size} B: {e}"));
        assert_eq!(door.strlen("v").await.expect("STRLEN"), size as u64);
        let got: Vec<u8> = door.get("v").await.unwrap_or_else(|e| panic!("{what}, {size} B: {e}"));
        same(&got, &value, what);
        let kept: bytes::Bytes = door.get("v").await.expect("GET");
        let pair: [bytes::Bytes; 2] = door.mget(["v", "v"]).await.expect("MGET");
        assert_eq!(door.ping().await.expect("PING"), "PONG");
        // Held while later replies came.
        for held in [&kept, &pair[0], &pair[1]] {
            same(held, &value, what);
        }
    }
}

async fn every_size(door: &impl Door, what: &str) {
    for size in SIZES {
        there_and_back(door, size, 4, what).await;
    }
    door.del("v").await.expect("DEL");
}

async fn values_go_there_and_back<P: Placement>(place: P) {
    let server = Server::start(Flavor::Valkey91);
    for (way, options) in every_way(&server) {
        let client = place.connect(&options).await.expect("up");
        every_size(&client, &way).await;
        // Gigabytes in all the ways would only take time.
        if options.protocol == ProtocolChoice::Auto {
            there_and_back(&client, HUGE, 1, &way).await;
        }
    }
}

/// Trap 6, R-096. Fails if a value of any size comes back other than it went, on a core.
#[test]
fn values_of_every_size_on_a_core() {
    on_core(values_go_there_and_back);
}

/// Trap 6, R-096. Fails if a value of any size comes back other than it went, inside tokio.
#[test]
fn values_of_every_size_hosted() {
    on_tokio(values_go_there_and_back);
}

/// Trap 6. Fails if a value comes back other than it went, through the mailbox of a pinned core.
#[test]
fn values_of_every_size_over_pinned_cores() {
    let server = Server::start(Flavor::Redis82);
    let cores = one_core();
    let (way, options) = every_way(&server).swap_remove(0);
    futures::executor::block_on(async {
        let client: Client = cores.connect(&options).await.expect("up");
        every_size(&client, &way).await;
        there_and_back(&client, HUGE, 1, &way).await;
    });
}

/// Design section 2, the borrowing forms. Fails if they show or append other bytes than were set.
#[test]
fn values_are_shown_in_place() {
    on_core(async |place| {
        let server = Server::start(Flavor::Redis70);
        for (way, options) in every_way(&server) {
            let client: LocalClient = place.connect(&options).await.expect("up");
            let mut into = b"before".to_vec();
            for size in SIZES {
                let value = bytes_of(size, 7);
                client.set("v", &value).await.expect("SET");
                let seen = client.get_with("v", |bytes| bytes == Some(&value[..])).await;
                assert!(seen.expect("GET"), "{way}, {size} B");
                into.truncate(6);
                let length = client.get_into("v", &mut into).await.expect("GET");
                assert_eq!(length, Some(size), "{way}");
                same(&into[6..], &value, &way);
            }
            assert_eq!(client.get_into("none", &mut into).await.expect("GET"), None);
        }
    });
}
