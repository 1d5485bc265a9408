//! The generic group: keys of any type.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hedgerow::Error;
use hedgerow::command::cursors::ScanOptions;
use hedgerow::command::expiry::ExpireCondition;
use hedgerow::command::keys::{CopyOptions, RestoreOptions, SortOptions};
use hedgerow::prelude::*;

use super::{Ground, some, sorted, texts};

pub(super) async fn lives(d: &Ground<impl Door>) -> Result<(), Error> {
    d.mset([("a", 1), ("b", 2)]).await?;
    assert_eq!(d.exists(["a", "b", "a", "none"]).await?, 3);
    assert_eq!(d.touch(["a", "none"]).await?, 1);
    assert_eq!((d.ttl("a").await?, d.ttl("none").await?), (-1, -2));
    assert_eq!((d.pttl("a").await?, d.pttl("none").await?), (-1, -2));
    assert!(d.expire("a", 100).await? && !d.expire("none", 100).await?);
    assert!((1..=100).contains(&d.ttl("a").await?));
    assert!(!d.expire_with("a", 90, ExpireCondition::Nx).await?);
    assert!(d.expire_with("a", 200, ExpireCondition::Gt).await?);
    assert!(d.pexpire("a", 50_000).await?);
    assert!(d.pexpire_with("a", 40_000, ExpireCondition::Lt).await?);
    assert!((1..=40_000).contains(&d.pttl("a").await?));
    assert!(d.persist("a").await? && !d.persist("a").await?);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let later = (now + Duration::from_secs(1000)).as_secs() as i64;
    assert_eq!((d.expiretime("a").await?, d.pexpiretime("none").await?), (-1, -2));
    assert!(d.expireat("a", later).await?);
    assert_eq!(d.expiretime("a").await?, later);
    assert!(d.expireat_with("a", later + 1, ExpireCondition::Xx).await?);
    assert!(d.pexpireat("a", later * 1000 + 7).await?);
    assert_eq!(d.pexpiretime("a").await?, later * 1000 + 7);
    assert!(!d.pexpireat_with("a", later * 1000 + 9, ExpireCondition::Lt).await?);
    assert!(d.expire("a", -1).await?);
    assert_eq!((d.del(["a", "b"]).await?, d.unlink("b").await?), (1, 0));
    Ok(())
}

pub(super) async fn names(d: &Ground<impl Door>) -> Result<(), Error> {
    assert_eq!(d.randomkey::<Option<String>>().await?, None);
    d.set("a", "1").await?;
    assert_eq!(d.randomkey::<Option<String>>().await?, some("a"));
    assert!(d.copy("a", "b").await? && !d.copy("a", "b").await?);
    assert!(d.copy_with("a", "b", CopyOptions::new().replace()).await?);
    assert!(d.copy_with("a", "a", CopyOptions::new().database(1)).await?);
    assert!(!d.move_key("a", 1).await? && d.move_key("b", 1).await?);
    d.rename("a", "c").await?;
    assert_eq!(d.rename("a", "c").await.expect_err("no such key").code(), Some("ERR"));
    d.set("a", "2").await?;
    assert!(!d.renamenx("a", "c").await? && d.renamenx("a", "d").await?);
    assert_eq!(sorted(d.keys("*").await?), texts(["c", "d"]));
    let kinds = (d.key_type("c").await?, d.key_type("none").await?);
    assert_eq!(kinds, ("string".to_owned(), "none".to_owned()));
    let dumped: Vec<u8> = d.dump("c").await?;
    assert_eq!(d.dump::<Option<Vec<u8>>>("none").await?, None);
    d.restore("e", 0, &dumped).await?;
    assert_eq!(d.get::<String>("e").await?, "1");
    assert_eq!(d.restore("e", 0, &dumped).await.expect_err("taken").code(), Some("BUSYKEY"));
    let over = RestoreOptions::new().replace().idletime(40);
    d.restore_with("e", 60_000, &dumped, over).await?;
    assert!((1..=60_000).contains(&d.pttl("e").await?));
    assert_eq!(d.unlink(["c", "d", "e"]).await?, 3);
    Ok(())
}

pub(super) async fn objects(d: &Ground<impl Door>) -> Result<(), Error> {
    d.set("n", 5).await?;
    assert_eq!(d.object_encoding("n").await?, some("int"));
    assert_eq!(d.object_encoding("none").await?, None);
    assert!(d.object_refcount("n").await?.is_some_and(|count| count >= 1));
    assert!(d.object_idletime("n").await?.is_some_and(|seconds| seconds < 60));
    assert_eq!(d.object_idletime("none").await?, None);
    // Without an LFU policy there is no frequency.
    assert_eq!(d.object_freq("n").await.expect_err("no LFU").code(), Some("ERR"));
    d.config_set(("maxmemory-policy", "allkeys-lfu")).await?;
    assert!(d.object_freq("n").await?.is_some());
    d.config_set(("maxmemory-policy", "noeviction")).await?;
    assert_eq!(d.del("n").await?, 1);
    Ok(())
}

pub(super) async fn scans_and_sorts(d: &Ground<impl Door>) -> Result<(), Error> {
    for number in 0..50 {
        d.set(format!("k{number}"), number).await?;
    }
    d.rpush("l", [3, 1, 2]).await?;
    let (mut cursor, mut seen) = (0, BTreeSet::<String>::new());
    loop {
        let page = d.scan::<String>(cursor).await?;
        seen.extend(page.items.iter().cloned());
        if page.is_last() {
            break;
        }
        cursor = page.cursor;
    }
    assert_eq!(seen.len(), 51);
    let ones = d.scan_with::<String>(0, ScanOptions::new().pattern("k1*").count(1000)).await?;
    assert_eq!((ones.cursor, ones.items.len()), (0, 11));
    let lists = d.scan_type::<String>(0, "list", ScanOptions::new().count(1000)).await?;
    assert_eq!(lists.items, ["l"]);
    assert_eq!(d.sort::<Vec<i64>>("l").await?, [1, 2, 3]);
    let down = SortOptions::new().desc().get("#").get("k*").limit(0, 2);
    let pairs: Vec<(i64, i64)> = d.sort_with("l", down.clone()).await?;
    assert_eq!(pairs, [(3, 3), (2, 2)]);
    assert_eq!(d.sort_ro::<Vec<i64>>("l").await?, [1, 2, 3]);
    let none: Vec<Option<String>> = d.sort_ro_with("l", SortOptions::new().get("x*")).await?;
    assert_eq!(none, [None, None, None]);
    assert_eq!(d.sort_store("l", SortOptions::new().alpha(), "sorted").await?, 3);
    assert_eq!(d.key_type("sorted").await?, "list");
    Ok(())
}
