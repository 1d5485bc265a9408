//! The set group.

use std::collections::{BTreeSet, HashSet};

use hedgerow::Error;
use hedgerow::command::cursors::ScanOptions;
use hedgerow::prelude::*;

use super::{Ground, sorted, texts};

pub(super) async fn members(d: &Ground<impl Door>) -> Result<(), Error> {
    assert_eq!(d.sadd("s", ["a", "b", "a", "c"]).await?, 3);
    assert_eq!((d.scard("s").await?, d.scard("none").await?), (3, 0));
    assert!(d.sismember("s", "a").await? && !d.sismember("s", "z").await?);
    assert_eq!(d.smismember("s", ["a", "z", "c"]).await?, [true, false, true]);
    let all: BTreeSet<String> = d.smembers("s").await?;
    assert_eq!(all.into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(d.smembers::<HashSet<String>>("none").await?.is_empty());
    assert!(d.smove("s", "t", "c").await? && !d.smove("s", "t", "z").await?);
    assert_eq!(d.srem("s", ["b", "z"]).await?, 1);
    assert_eq!(d.srandmember::<Option<String>>("s").await?.as_deref(), Some("a"));
    assert_eq!(d.srandmember::<Option<String>>("none").await?, None);
    assert_eq!(d.srandmember_count::<Vec<String>>("s", -3).await?, ["a", "a", "a"]);
    assert_eq!(d.spop::<Option<String>>("s").await?.as_deref(), Some("a"));
    assert_eq!(d.spop::<Option<String>>("s").await?, None);
    d.sadd("s", ["p", "q"]).await?;
    assert_eq!(sorted(d.spop_count("s", 9).await?), texts(["p", "q"]));
    let numbers: Vec<u32> = (0..600).collect();
    assert_eq!(d.sadd("many", &numbers).await?, 600);
    let (mut cursor, mut seen) = (0, BTreeSet::<u32>::new());
    loop {
        let page = d.sscan::<u32>("many", cursor).await?;
        seen.extend(&page.items);
        if page.is_last() {
            break;
        }
        cursor = page.cursor;
    }
    assert!(seen.into_iter().eq(numbers));
    let options = ScanOptions::new().pattern("59?").count(1000);
    assert_eq!(d.sscan_with::<u32>("many", 0, options).await?.items.len(), 10);
    Ok(())
}

pub(super) async fn joins(d: &Ground<impl Door>) -> Result<(), Error> {
    d.sadd("a", ["1", "2", "3"]).await?;
    d.sadd("b", ["2", "3", "4"]).await?;
    let both = ["a", "b"];
    assert_eq!(sorted(d.sdiff(both).await?), texts(["1"]));
    assert_eq!(sorted(d.sinter(both).await?), texts(["2", "3"]));
    assert_eq!(sorted(d.sunion(both).await?), texts(["1", "2", "3", "4"]));
    assert_eq!((d.sintercard(both).await?, d.sintercard_limit(both, 1).await?), (2, 1));
    assert_eq!(d.sdiffstore("to", both).await?, 1);
    assert_eq!(d.sinterstore("to", both).await?, 2);
    assert_eq!(d.sunionstore("to", both).await?, 4);
    assert_eq!(d.scard("to").await?, 4);
    Ok(())
}
