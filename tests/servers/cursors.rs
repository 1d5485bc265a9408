//! Scans over real replicas.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use hedgerow::client::Pages;
use hedgerow::command::cursors::{ScanOptions, ScanPage};
use hedgerow::command::{Command, hashes, keys};
use hedgerow::prelude::*;
use hedgerow::read::ReadFrom;
use hedgerow::{Error, ErrorKind, LocalClient};

use crate::fleet::Fleet;
use crate::placement::{Client, Placement, on_every_placement};
use crate::server::{Flavor, Server};

const KEYS: usize = 10_000;

/// A client that can be scanned, of either placement.
pub(crate) trait Scans: Client {
    /// A scan of all keys, of about `count` a page.
    fn key_pages(&self, count: u64) -> Box<dyn KeyPages>;
    /// A scan of a hash, whose fields and values follow each other.
    fn hash_pages(&self, key: &'static str) -> Box<dyn KeyPages>;
}

impl Scans for LocalClient {
    fn key_pages(&self, count: u64) -> Box<dyn KeyPages> {
        Box::new(self.pages(page_of(count)))
    }

    fn hash_pages(&self, key: &'static str) -> Box<dyn KeyPages> {
        Box::new(self.pages(move |cursor| hashes::hscan::<String>(key, cursor)))
    }
}

impl Scans for hedgerow::Client {
    fn key_pages(&self, count: u64) -> Box<dyn KeyPages> {
        Box::new(self.pages(page_of(count)))
    }

    fn hash_pages(&self, key: &'static str) -> Box<dyn KeyPages> {
        Box::new(self.pages(move |cursor| hashes::hscan::<String>(key, cursor)))
    }
}

/// A scan under way.
pub(crate) trait KeyPages {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Vec<String>>, Error>>;
}

impl<F> KeyPages for Pages<LocalClient, F>
where
    F: FnMut(u64) -> Command<ScanPage<String>>,
{
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Vec<String>>, Error>> {
        Box::pin(self.next_page())
    }
}

impl<F> KeyPages for Pages<hedgerow::Client, F>
where
    F: FnMut(u64) -> Command<ScanPage<String>>,
{
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Vec<String>>, Error>> {
        Box::pin(self.next_page())
    }
}

fn page_of(count: u64) -> impl FnMut(u64) -> Command<ScanPage<String>> {
    move |cursor| keys::scan_with(cursor, ScanOptions::new().count(count))
}

/// How many SCANs a server has run.
fn scans(server: &Server) -> u64 {
    let seen = server.tell(&["INFO", "commandstats"]);
    let line = seen.lines().find_map(|line| line.strip_prefix("cmdstat_scan:calls="));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or_default()
}

/// Fails if scans at the same time over two replicas miss a key or name one twice, do not
/// spread, or if one whose server is gone goes on elsewhere.
async fn scans_stay_on_their_replica<P: Placement<Client: Scans>>(place: P) {
    for flavor in [Flavor::Valkey91, Flavor::Redis70] {
        let mut fleet = Fleet::start(&place, flavor, 2).await;
        let client = fleet.client(&place, &fleet.options(ReadFrom::Replica)).await;
        for first in (0..KEYS).step_by(1_000) {
            let pairs = (first..first + 1_000).map(|n| (format!("k:{n}"), "v"));
            client.mset(pairs.collect::<Vec<_>>()).await.expect("MSET");
        }
        fleet.in_step(&place).await;
        let scan = |client: P::Client| async move {
            let mut pages = client.key_pages(100);
            let mut found = BTreeMap::new();
            while let Some(page) = pages.next().await.expect("a page") {
                page.into_iter().for_each(|key| *found.entry(key).or_insert(0) += 1);
            }
            found
        };
        let before: Vec<_> = fleet.replicas.iter().map(scans).collect();
        let tasks: Vec<_> = (0..4).map(|_| place.spawn(scan(client.clone()))).collect();
        for task in tasks {
            let found = task.await.expect("its end");
            assert_eq!(found.len(), KEYS, "{flavor:?}");
            assert!(found.values().all(|times| *times == 1), "{flavor:?}");
        }
        let now: Vec<_> = fleet.replicas.iter().map(scans).collect();
        let pages = [0, 1].map(|n| now[n] - before[n]);
        // Two scans each; how many pages one takes depends on the server's table.
        assert!(pages[0].abs_diff(pages[1]) < pages[0] / 4, "{flavor:?}: {pages:?}");
        let mut pages = [client.key_pages(10), client.key_pages(10)];
        for pages in &mut pages {
            pages.next().await.expect("a page").expect("a first one");
        }
        fleet.replicas[0].kill();
        place.pause(Duration::from_millis(100)).await;
        let mut lost = 0;
        for pages in &mut pages {
            match pages.next().await {
                Ok(page) => assert!(page.is_some()),
                Err(error) => {
                    lost += 1;
                    assert_eq!(error.kind(), ErrorKind::NotConnected, "{flavor:?}: {error}");
                    assert!(error.to_string().contains("cursor 0"), "{flavor:?}: {error}");
                }
            }
        }
        assert_eq!(lost, 1, "{flavor:?}");
        assert_eq!(scan(client.clone()).await.len(), KEYS, "{flavor:?}");
    }
}

on_every_placement!(scans_stay_on_their_replica);
