//! Scans stay on the server of their first page.

use std::time::Duration;

use hedgerow::ErrorKind;
use hedgerow::command::cursors::ScanOptions;
use hedgerow::command::keys;
use hedgerow::prelude::*;
use hedgerow::read::ReadFrom;
use hedgerow::testing::ModelServer;

use super::clock::pass;
use super::fleet::{Fleet, MS, after, does, get};

/// Fails if a scan goes on elsewhere than it began, if scans do not spread over replicas, or
/// if one whose server is gone goes on.
#[test]
fn scans_stay_on_their_server() {
    let fleet = Fleet::new(2);
    for key in ["a", "b", "c", "d"] {
        fleet.primary.set_value(key, "v");
    }
    let gone = fleet.replicas.clone();
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        let scan = |cursor| keys::scan_with::<String>(cursor, ScanOptions::new());
        let (mut one, mut two) = (client.pages(scan), client.pages(scan));
        let mut found = Vec::new();
        while let (Some(a), Some(b)) =
            (one.next_page().await.expect("a page"), two.next_page().await.expect("a page"))
        {
            assert_eq!(a, b);
            found.extend(a);
        }
        assert_eq!(found, ["a", "b", "c", "d"]);
        assert_eq!(gone.iter().map(|s| s.count("SCAN")).collect::<Vec<_>>(), [4, 4]);
        let mut third = client.pages(scan);
        third.next_page().await.expect("a page");
        let at = usize::from(gone[1].count("SCAN") == 5);
        gone[at].cut();
        pass(&core, Duration::from_secs(2)).await;
        let error = third.next_page().await.expect_err("its connection is another");
        assert!(error.to_string().contains("cursor 0"), "{error}");
    });
}

/// Fails if plain cursor commands of a policy go to different servers, or if after its loss a
/// cursor goes on or a new scan does not begin.
#[test]
fn plain_cursors_share_a_server() {
    let fleet = Fleet::new(2);
    for key in ["a", "b", "c"] {
        fleet.primary.set_value(key, "v");
    }
    let servers = fleet.replicas.clone();
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        let mut cursor = 0;
        for _ in 0..6 {
            cursor = client.scan::<String>(cursor).await.expect("a page").cursor;
        }
        let counts = servers.iter().map(|s| s.count("SCAN")).collect::<Vec<_>>();
        assert!(counts == [6, 0] || counts == [0, 6], "{counts:?}");
        let page = client.scan::<String>(0).await.expect("a page");
        servers.iter().for_each(ModelServer::cut);
        pass(&core, Duration::from_secs(2)).await;
        let error = client.scan::<String>(page.cursor).await.expect_err("a lost cursor");
        assert_eq!(error.kind(), ErrorKind::NotConnected);
        assert!(client.scan::<String>(0).await.is_ok());
    });
}

/// Fails if with an interval of zero a node that was promoted goes on with a scan.
#[test]
fn zero_asks_before_every_page() {
    let fleet = Fleet::new(1);
    for key in ["a", "b", "c"] {
        fleet.primary.set_value(key, "v");
    }
    let mut options = fleet.options(ReadFrom::Replica);
    options.replica_refresh_interval = Duration::ZERO;
    let promoted = fleet.replicas[0].clone();
    fleet.run(options, async move |_, client| {
        let page = client.scan::<String>(0).await.expect("a page");
        promoted.promote();
        client.scan::<String>(page.cursor).await.expect_err("its server serves no reads any more");
    });
    assert_eq!(fleet.replicas[0].count("SCAN"), 1);
}

/// Fails if a bounded scan begins on a replica that is too far behind since one without a bound did.
#[test]
fn a_bounded_scan_begins_within_its_bound() {
    let fleet = Fleet::new(2);
    fleet.primary.set_offset(10_000);
    fleet.replicas[0].set_offset(9_000);
    fleet.replicas[1].set_offset(9_990);
    fleet.primary.set_value("a", "v");
    let servers = fleet.replicas.clone();
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        let close = client.read_from(ReadFrom::Replica.behind_at_most(100)).expect("a view");
        get(&close).await.expect("an answer");
        pass(&core, MS).await;
        // Whichever the unbounded scan takes, the bounded one takes the one that is close.
        for _ in 0..2 {
            client.scan::<String>(0).await.expect("a page");
            let before = servers[1].count("SCAN");
            close.scan::<String>(0).await.expect("a page");
            assert_eq!(servers[1].count("SCAN"), before + 1);
            if servers[0].count("SCAN") > 0 {
                return;
            }
            servers[1].cut();
            pass(&core, 50 * MS).await;
            client.scan::<String>(0).await.expect("a page");
            pass(&core, 1_500 * MS).await;
        }
    });
}

/// Fails if the plain cursor commands of one policy follow those of another, or if a new scan begins
/// on a server that was removed while it still answers what it took.
#[test]
fn each_policy_has_its_own_server() {
    let fleet = Fleet::new(2);
    for key in ["a", "b", "c"] {
        fleet.primary.set_value(key, "v");
    }
    let (primary, servers) = (fleet.primary.clone(), fleet.replicas.clone());
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        let of_primary = client.read_from(ReadFrom::Primary).expect("a view");
        let page = client.scan::<String>(0).await.expect("a page");
        let other = of_primary.scan::<String>(0).await.expect("a page");
        client.scan::<String>(page.cursor).await.expect("a page");
        of_primary.scan::<String>(other.cursor).await.expect("a page");
        assert_eq!(primary.count("SCAN"), 2);
        let at = usize::from(servers[1].count("SCAN") > 0);
        assert_eq!(servers[at].count("SCAN"), 2);
        // It drains: a read that it took is still to be answered.
        does(&servers[at], [after(300)]);
        let reads = [0, 1].map(|_| {
            let client = client.clone();
            core.spawn(async move { get(&client).await })
        });
        pass(&core, MS).await;
        client.set_replicas(vec![servers[1 - at].endpoint()]).expect("addresses");
        pass(&core, 100 * MS).await;
        let page = client.scan::<String>(0).await.expect("a page");
        client.scan::<String>(page.cursor).await.expect("a page");
        assert_eq!([at, 1 - at].map(|at| servers[at].count("SCAN")), [2, 2]);
        for read in reads {
            read.await.expect("no panic").expect("an answer");
        }
    });
}

/// Fails if a scan of a zone policy begins outside of the zone, or goes on elsewhere.
#[test]
fn scans_begin_in_the_own_zone() {
    let fleet = Fleet::new(3);
    for key in ["a", "b", "c"] {
        fleet.primary.set_value(key, "v");
    }
    ["b", "a", "b"].iter().zip(&fleet.replicas).for_each(|(zone, replica)| replica.set_zone(*zone));
    let mut options = fleet.options(ReadFrom::AzAffinity);
    options.client_availability_zone = Some("a".into());
    fleet.run(options, async |_, client| {
        for _ in 0..4 {
            let mut cursor = client.scan::<String>(0).await.expect("a page").cursor;
            while cursor != 0 {
                cursor = client.scan::<String>(cursor).await.expect("a page").cursor;
            }
        }
    });
    let counts: Vec<_> = fleet.replicas.iter().map(|replica| replica.count("SCAN")).collect();
    assert_eq!((counts[0], counts[2], fleet.primary.count("SCAN")), (0, 0, 0), "{counts:?}");
    assert!(counts[1] >= 4);
}
