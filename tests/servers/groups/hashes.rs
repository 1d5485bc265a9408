//! The hash group.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use hedgerow::Error;
use hedgerow::command::cursors::ScanOptions;
use hedgerow::command::expiry::{ExpireCondition, ReadExpiry};
use hedgerow::command::hashes::HsetexOptions;
use hedgerow::prelude::*;

use super::{Ground, some, sorted, texts};
use crate::server::Flavor;

pub(super) async fn fields(d: &Ground<impl Door>) -> Result<(), Error> {
    assert_eq!(d.hset("h", [("f", "1"), ("g", "2")]).await?, 2);
    assert_eq!(d.hset("h", ("f", "3")).await?, 0);
    assert!(!d.hsetnx("h", "f", "4").await? && d.hsetnx("h", "i", "5").await?);
    d.hmset("h", [("j", "text")]).await?;
    assert_eq!(d.hget::<Option<String>>("h", "f").await?, some("3"));
    assert_eq!(d.hget::<Option<String>>("h", "none").await?, None);
    let values: Vec<Option<i64>> = d.hmget("h", ["g", "none", "i"]).await?;
    assert_eq!(values, [Some(2), None, Some(5)]);
    let whole: BTreeMap<String, String> = d.hgetall("h").await?;
    assert_eq!(whole.len(), 4);
    assert_eq!(whole["j"], "text");
    assert!(d.hgetall::<HashMap<String, String>>("none").await?.is_empty());
    assert!(d.hexists("h", "f").await? && !d.hexists("h", "none").await?);
    assert_eq!((d.hlen("h").await?, d.hlen("none").await?), (4, 0));
    assert_eq!(d.hstrlen("h", "j").await?, 4);
    assert_eq!(d.hincrby("h", "f", -5).await?, -2);
    assert_eq!(d.hincrbyfloat("h", "f", 0.25).await?, -1.75);
    assert_eq!(sorted(d.hkeys("h").await?), texts(["f", "g", "i", "j"]));
    assert_eq!(sorted(d.hvals("h").await?), texts(["-1.75", "2", "5", "text"]));
    assert_eq!(d.hdel("h", ["f", "g", "none"]).await?, 2);
    let some_field: Option<String> = d.hrandfield("h").await?;
    assert!(some_field.is_some_and(|field| field == "i" || field == "j"));
    assert_eq!(d.hrandfield::<Option<String>>("none").await?, None);
    assert_eq!(sorted(d.hrandfield_count("h", 5).await?), texts(["i", "j"]));
    assert_eq!(d.hrandfield_count::<Vec<String>>("h", -5).await?.len(), 5);
    let drawn: Vec<(String, String)> = d.hrandfield_withvalues("h", 9).await?;
    let drawn: BTreeMap<_, _> = drawn.into_iter().collect();
    assert_eq!(drawn, d.hgetall("h").await?);
    let page = d.hscan::<(String, String)>("h", 0).await?;
    assert!(page.is_last());
    assert_eq!(page.items.len(), 2);
    let options = ScanOptions::new().pattern("j*").count(100);
    let page = d.hscan_with::<(String, String)>("h", 0, options.clone()).await?;
    assert_eq!(page.items, [("j".to_owned(), "text".to_owned())]);
    let newer = [Flavor::Valkey91, Flavor::Valkey90, Flavor::Redis82];
    let names = d.hscan_novalues::<String>("h", 0, options);
    if let Some(page) = d.only_of(&newer, names).await? {
        assert_eq!(page.items, ["j"]);
    }
    Ok(())
}

pub(super) async fn expiry(d: &Ground<impl Door>) -> Result<(), Error> {
    d.hset("e", [("f", 1), ("g", 2)]).await?;
    let both = ["f", "none"];
    if d.has("HEXPIRE") {
        assert_eq!(d.httl("e", both).await?, [-1, -2]);
        assert_eq!(d.hexpire("e", 100, both).await?, [1, -2]);
        assert_eq!(d.hexpire_with("e", 90, ExpireCondition::Nx, "f").await?, [0]);
        assert!((1..=100).contains(&d.httl("e", "f").await?[0]));
        assert_eq!(d.hpexpire("e", 90_000, "f").await?, [1]);
        assert_eq!(d.hpexpire_with("e", 80_000, ExpireCondition::Lt, "f").await?, [1]);
        assert!((1..=80_000).contains(&d.hpttl("e", "f").await?[0]));
        let far = 4_000_000_000;
        assert_eq!(d.hexpireat("e", far, "f").await?, [1]);
        assert_eq!(d.hexpiretime("e", both).await?, [far, -2]);
        assert_eq!(d.hexpireat_with("e", far, ExpireCondition::Nx, "f").await?, [0]);
        assert_eq!(d.hpexpireat("e", far * 1000 + 5, "f").await?, [1]);
        assert_eq!(d.hpexpiretime("e", "f").await?, [far * 1000 + 5]);
        assert_eq!(d.hpexpireat_with("e", far * 1000, ExpireCondition::Gt, "f").await?, [0]);
        assert_eq!(d.hpersist("e", ["f", "g", "none"]).await?, [1, -1, -2]);
        assert_eq!(d.hexpire("e", 0, "g").await?, [2]);
    }
    if d.has("HGETEX") {
        let values: Vec<Option<i64>> = d.hgetex("e", Duration::from_secs(50), both).await?;
        assert_eq!(values, [Some(1), None]);
        assert!((1..=50).contains(&d.httl("e", "f").await?[0]));
        let kept: [i64; 1] = d.hgetex("e", ReadExpiry::Persist, "f").await?;
        assert_eq!((kept, d.httl("e", "f").await?), ([1], vec![-1]));
    }
    if d.has("HSETEX") {
        assert!(d.hsetex("e", HsetexOptions::new().fxx().ex(100), ("f", 7)).await?);
        assert!(!d.hsetex("e", HsetexOptions::new().fnx(), ("f", 8)).await?);
        assert!((1..=100).contains(&d.httl("e", "f").await?[0]));
    }
    if d.has("HGETDEL") {
        let values: Vec<Option<i64>> = d.hgetdel("e", both).await?;
        assert_eq!(values, [Some(7), None]);
        assert_eq!(d.exists("e").await?, 0);
    }
    Ok(())
}
