//! The string group.

use std::collections::BTreeMap;
use std::time::Duration;

use hedgerow::Error;
use hedgerow::command::expiry::ReadExpiry;
use hedgerow::command::strings::{LcsOptions, MsetexOptions, SetOptions};
use hedgerow::prelude::*;
use hedgerow::resp::Value;

use super::{Ground, some};
use crate::server::Flavor;

pub(super) async fn strings(d: &Ground<impl Door>) -> Result<(), Error> {
    d.set("s", "hello").await?;
    assert_eq!(d.get::<Option<String>>("s").await?, some("hello"));
    assert_eq!(d.get::<Option<String>>("none").await?, None);
    assert_eq!(d.append("s", " world").await?, 11);
    assert_eq!((d.strlen("s").await?, d.strlen("none").await?), (11, 0));
    assert_eq!(d.getrange::<String>("s", 0, 4).await?, "hello");
    assert_eq!(d.substr::<Vec<u8>>("s", -5, -1).await?, b"world");
    assert_eq!(d.getrange::<String>("none", 0, -1).await?, "");
    assert_eq!(d.setrange("s", 6, "WORLD").await?, 11);
    assert_eq!(d.getset::<Option<String>>("s", "b").await?, some("hello WORLD"));
    assert_eq!(d.getset::<Option<String>>("new", "v").await?, None);
    assert_eq!(d.getdel::<Option<String>>("s").await?, some("b"));
    assert_eq!(d.getdel::<Option<String>>("s").await?, None);
    assert_eq!((d.incr("n").await?, d.incrby("n", 9).await?), (1, 10));
    assert_eq!((d.decr("n").await?, d.decrby("n", 19).await?), (9, -10));
    assert_eq!(d.incrbyfloat("n", 0.5).await?, -9.5);
    let refused = d.incr("n").await.expect_err("no integer");
    assert_eq!(refused.code(), Some("ERR"));
    let binary: Vec<u8> = (0..=255).collect();
    d.set(&binary, &binary).await?;
    assert_eq!(d.get::<Vec<u8>>(&binary).await?, binary);
    assert_eq!(d.lcs::<String>("new", "none").await?, "");
    d.mset([("a", "ohmytext"), ("b", "mynewtext")]).await?;
    assert_eq!(d.lcs::<String>("a", "b").await?, "mytext");
    assert_eq!(d.lcs_len("a", "b").await?, 6);
    let how = LcsOptions::new().min_match_len(4).with_match_len();
    let idx: BTreeMap<String, Value> = d.lcs_idx("a", "b", how).await?;
    let pair = |a, b| Value::Array(vec![Value::Int(a), Value::Int(b)]);
    let found = Value::Array(vec![pair(4, 7), pair(5, 8), Value::Int(4)]);
    assert_eq!(idx["matches"], Value::Array(vec![found]));
    assert_eq!(idx["len"], Value::Int(6));
    Ok(())
}

pub(super) async fn conditions(d: &Ground<impl Door>) -> Result<(), Error> {
    let valkey = [Flavor::Valkey91, Flavor::Valkey90];
    assert!(d.setnx("c", "1").await? && !d.setnx("c", "2").await?);
    assert!(!d.set_with("c", "2", SetOptions::new().nx()).await?);
    assert!(d.set_with("c", "2", SetOptions::new().xx().ex(100)).await?);
    assert!((1..=100).contains(&d.ttl("c").await?));
    assert!(d.set_with("c", "3", SetOptions::new().keep_ttl()).await?);
    assert!((1..=100).contains(&d.ttl("c").await?));
    assert_eq!(d.set_get::<Option<String>>("c", "4", SetOptions::new()).await?, some("3"));
    assert_eq!(d.ttl("c").await?, -1);
    let only_new = SetOptions::new().nx().expiry(Duration::from_millis(90_500));
    assert_eq!(d.set_get::<Option<String>>("c", "5", only_new).await?, some("4"));
    assert_eq!(d.get::<String>("c").await?, "4");
    let if_four = || SetOptions::new().ifeq("4");
    let compared = d.only_of(&valkey, d.set_with("c", "5", if_four())).await?;
    assert!(compared != Some(false));
    let compared = d.only_of(&valkey, d.set_with("c", "6", if_four())).await?;
    assert!(compared != Some(true));
    d.setex("c", 100, "7").await?;
    assert_eq!(d.getex::<String>("c", ReadExpiry::Keep).await?, "7");
    assert!((1..=100).contains(&d.ttl("c").await?));
    assert_eq!(d.getex::<String>("c", ReadExpiry::Persist).await?, "7");
    assert_eq!(d.ttl("c").await?, -1);
    assert_eq!(d.getex::<String>("c", Duration::from_secs(50)).await?, "7");
    assert!((1..=50).contains(&d.ttl("c").await?));
    d.psetex("c", 90_000, "8").await?;
    assert!((60_000..=90_000).contains(&d.pttl("c").await?));
    if d.has("DELIFEQ") {
        assert!(!d.delifeq("c", "other").await? && d.delifeq("c", "8").await?);
    }
    Ok(())
}

pub(super) async fn together(d: &Ground<impl Door>) -> Result<(), Error> {
    d.mset([("m1", 1), ("m2", 2)]).await?;
    let values: Vec<Option<i64>> = d.mget(["m1", "none", "m2"]).await?;
    assert_eq!(values, [Some(1), None, Some(2)]);
    let array: [Option<String>; 1] = d.mget("m1").await?;
    assert_eq!(array, [some("1")]);
    assert!(!d.msetnx([("m2", 3), ("m3", 3)]).await? && d.msetnx(("m3", 3)).await?);
    if d.has("MSETEX") {
        assert!(d.msetex([("m1", 4), ("m2", 5)], MsetexOptions::new().xx().ex(100)).await?);
        assert!(!d.msetex(("m1", 6), MsetexOptions::new().nx()).await?);
        assert!((1..=100).contains(&d.ttl("m2").await?));
    }
    Ok(())
}
