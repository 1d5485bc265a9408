//! The sorted-set group.

use std::collections::BTreeMap;

use hedgerow::Error;
use hedgerow::command::cursors::ScanOptions;
use hedgerow::command::sorted_sets::{
    Aggregate, Extreme, LexBound, ScoreBound, ZCombine, ZRange, ZaddOptions,
};
use hedgerow::prelude::*;

use super::{Ground, MOMENT, scored, sorted, texts};
use crate::server::Flavor;

type Pairs = Vec<(String, f64)>;
type Popped = Option<(String, Pairs)>;

pub(super) async fn members(d: &Ground<impl Door>) -> Result<(), Error> {
    assert_eq!(d.zadd("z", [(1.5, "a"), (2.0, "b")]).await?, 2);
    assert_eq!(d.zadd("z", [(1.0, "a"), (f64::INFINITY, "c")]).await?, 1);
    let up = ZaddOptions::new().xx().gt().ch();
    assert_eq!(d.zadd_with("z", up, [(0.5, "a"), (3.0, "b")]).await?, 1);
    assert_eq!(d.zadd_incr("z", ZaddOptions::new(), 0.25, "a").await?, Some(1.25));
    assert_eq!(d.zadd_incr("z", ZaddOptions::new().nx(), 1.0, "a").await?, None);
    assert_eq!(d.zincrby("z", -0.25, "a").await?, 1.0);
    assert_eq!((d.zcard("z").await?, d.zcard("none").await?), (3, 0));
    assert_eq!((d.zscore("z", "b").await?, d.zscore("z", "none").await?), (Some(3.0), None));
    assert_eq!(d.zscore("z", "c").await?, Some(f64::INFINITY));
    assert_eq!(d.zmscore("z", ["a", "none"]).await?, [Some(1.0), None]);
    assert_eq!((d.zrank("z", "a").await?, d.zrank("z", "none").await?), (Some(0), None));
    assert_eq!((d.zrevrank("z", "a").await?, d.zrevrank("none", "a").await?), (Some(2), None));
    let newer = [Flavor::Valkey91, Flavor::Valkey90, Flavor::Redis82];
    let rank = d.only_of(&newer, d.zrank_withscore("z", "b")).await?;
    assert!(rank.is_none_or(|rank| rank == Some((1, 3.0))));
    let rank = d.only_of(&newer, d.zrevrank_withscore("z", "b")).await?;
    assert!(rank.is_none_or(|rank| rank == Some((1, 3.0))));
    let none = d.only_of(&newer, d.zrank_withscore("z", "none")).await?;
    assert!(none.is_none_or(|rank| rank.is_none()));
    assert_eq!(d.zcount("z", ScoreBound::Exclusive(1.0), "+inf").await?, 2);
    assert_eq!(d.zrandmember::<Option<String>>("none").await?, None);
    assert!(d.zrandmember::<Option<String>>("z").await?.is_some());
    assert_eq!(sorted(d.zrandmember_count("z", 9).await?), texts(["a", "b", "c"]));
    assert_eq!(d.zrandmember_withscores::<Pairs>("z", -5).await?.len(), 5);
    let page = d.zscan::<(String, f64)>("z", 0).await?;
    assert_eq!((page.is_last(), page.items.len()), (true, 3));
    let options = ScanOptions::new().pattern("b").count(100);
    let page = d.zscan_with::<(String, f64)>("z", 0, options.clone()).await?;
    assert_eq!(page.items, scored([("b", 3.0)]));
    let valkey = [Flavor::Valkey91, Flavor::Valkey90];
    if let Some(page) = d.only_of(&valkey, d.zscan_noscores::<String>("z", 0, options)).await? {
        assert_eq!(page.items, ["b"]);
    }
    assert_eq!((d.zrem("z", ["a", "none"]).await?, d.del("z").await?), (1, 1));
    Ok(())
}

pub(super) async fn ranges(d: &Ground<impl Door>) -> Result<(), Error> {
    d.zadd("z", [(1, "a"), (2, "b"), (3, "c")]).await?;
    d.zadd("lex", [(0, "a"), (0, "b"), (0, "c")]).await?;
    assert_eq!(d.zrange::<Vec<String>>("z", 0, 1).await?, ["a", "b"]);
    assert_eq!(d.zrange_withscores::<Pairs>("z", 1, -1).await?, scored([("b", 2.0), ("c", 3.0)]));
    let map: BTreeMap<String, f64> = d.zrange_withscores("z", 0, 0).await?;
    assert_eq!(map["a"], 1.0);
    let top = || ZRange::by_score(ScoreBound::Min, ScoreBound::Max).rev().limit(0, 2);
    assert_eq!(d.zrange_with::<Vec<String>>("z", top()).await?, ["c", "b"]);
    let pairs: Pairs = d.zrange_with_withscores("z", top()).await?;
    assert_eq!(pairs, scored([("c", 3.0), ("b", 2.0)]));
    let upper = ZRange::by_lex(LexBound::exclusive("a"), LexBound::Max);
    assert_eq!(d.zrange_with::<Vec<String>>("lex", upper.clone()).await?, ["b", "c"]);
    assert_eq!(d.zrangestore("to", "lex", upper).await?, 2);
    assert_eq!(d.zlexcount("lex", LexBound::Min, LexBound::inclusive("b")).await?, 2);
    assert_eq!(d.zrangebylex::<Vec<String>>("lex", "[b", "+").await?, ["b", "c"]);
    assert_eq!(d.zrangebylex_limit::<Vec<String>>("lex", "-", "+", 1, 1).await?, ["b"]);
    assert_eq!(d.zrevrangebylex::<Vec<String>>("lex", "[b", "-").await?, ["b", "a"]);
    assert_eq!(d.zrevrangebylex_limit::<Vec<String>>("lex", "+", "-", 0, 1).await?, ["c"]);
    assert_eq!(d.zrangebyscore::<Vec<String>>("z", "(1", 3).await?, ["b", "c"]);
    assert_eq!(d.zrangebyscore_limit::<Vec<String>>("z", 1, 3, 1, -1).await?, ["b", "c"]);
    let pairs: Pairs = d.zrangebyscore_withscores("z", 1, 1).await?;
    assert_eq!(pairs, scored([("a", 1.0)]));
    assert_eq!(d.zrevrange::<Vec<String>>("z", 0, 1).await?, ["c", "b"]);
    assert_eq!(d.zrevrange_withscores::<Pairs>("z", 0, 0).await?, scored([("c", 3.0)]));
    assert_eq!(d.zrevrangebyscore::<Vec<String>>("z", 2, "-inf").await?, ["b", "a"]);
    assert_eq!(d.zrevrangebyscore_limit::<Vec<String>>("z", 3, 1, 0, 1).await?, ["c"]);
    let pairs: Pairs = d.zrevrangebyscore_withscores("z", 1, 1).await?;
    assert_eq!(pairs, scored([("a", 1.0)]));
    Ok(())
}

pub(super) async fn removals(d: &Ground<impl Door>) -> Result<(), Error> {
    assert_eq!(d.zremrangebylex("lex", "[a", "[a").await?, 1);
    assert_eq!(d.zremrangebyrank("z", 0, 0).await?, 1);
    assert_eq!(d.zremrangebyscore("z", 3, "+inf").await?, 1);
    assert_eq!(d.zrange::<Vec<String>>("z", 0, -1).await?, ["b"]);
    assert_eq!(d.del(["z", "lex", "to"]).await?, 3);
    Ok(())
}

pub(super) async fn joins(d: &Ground<impl Door>) -> Result<(), Error> {
    d.zadd("a", [(1, "x"), (2, "y")]).await?;
    d.zadd("b", [(10, "y"), (20, "z")]).await?;
    let both = ["a", "b"];
    let how = || ZCombine::new().weights([2.0, 1.0]).aggregate(Aggregate::Max);
    assert_eq!(d.zdiff::<Vec<String>>(both).await?, ["x"]);
    assert_eq!(d.zdiff_withscores::<Pairs>(both).await?, scored([("x", 1.0)]));
    assert_eq!(d.zinter::<Vec<String>>(both).await?, ["y"]);
    assert_eq!(d.zinter_with::<Vec<String>>(both, how()).await?, ["y"]);
    assert_eq!(d.zinter_withscores::<Pairs>(both, how()).await?, scored([("y", 10.0)]));
    assert_eq!((d.zintercard(both).await?, d.zintercard_limit(["a", "a"], 1).await?), (1, 1));
    assert_eq!(d.zunion::<Vec<String>>(both).await?, ["x", "y", "z"]);
    assert_eq!(d.zunion_with::<Vec<String>>(both, how()).await?, ["x", "y", "z"]);
    let pairs: Pairs = d.zunion_withscores(both, ZCombine::new()).await?;
    assert_eq!(pairs, scored([("x", 1.0), ("y", 12.0), ("z", 20.0)]));
    assert_eq!(d.zdiffstore("to", both).await?, 1);
    assert_eq!(d.zinterstore("to", both).await?, 1);
    assert_eq!(d.zinterstore_with("to", both, how()).await?, 1);
    assert_eq!(d.zscore("to", "y").await?, Some(10.0));
    assert_eq!(d.zunionstore("to", both).await?, 3);
    assert_eq!(d.zunionstore_with("to", both, how()).await?, 3);
    assert_eq!(d.zscore("to", "x").await?, Some(2.0));
    assert_eq!(d.del(["a", "b", "to"]).await?, 3);
    Ok(())
}

pub(super) async fn pops(d: &Ground<impl Door>) -> Result<(), Error> {
    let numbers: Vec<(u32, String)> = (1..=12).map(|n| (n, format!("m{n}"))).collect();
    assert_eq!(d.zadd("z", &numbers).await?, 12);
    assert_eq!(d.zpopmin::<Pairs>("z").await?, scored([("m1", 1.0)]));
    assert_eq!(d.zpopmax::<(String, f64)>("z").await?, ("m12".to_owned(), 12.0));
    assert_eq!(d.zpopmin::<Pairs>("none").await?, scored([]));
    assert_eq!(d.zpopmin_count::<Pairs>("z", 2).await?, scored([("m2", 2.0), ("m3", 3.0)]));
    assert_eq!(d.zpopmax_count::<Pairs>("z", 2).await?, scored([("m11", 11.0), ("m10", 10.0)]));
    let one: Popped = d.zmpop(["none", "z"], Extreme::Min).await?;
    assert_eq!(one, Some(("z".into(), scored([("m4", 4.0)]))));
    let two: Popped = d.zmpop_count("z", Extreme::Max, 2).await?;
    assert_eq!(two, Some(("z".into(), scored([("m9", 9.0), ("m8", 8.0)]))));
    assert_eq!(d.zmpop::<Popped>("none", Extreme::Min).await?, None);
    Ok(())
}

pub(super) async fn waits(d: &Ground<impl Door>) {
    type One = Option<(String, String, f64)>;
    d.refuses(d.bzpopmin::<One>(["z", "y"], MOMENT)).await;
    d.refuses(d.bzpopmax::<One>("z", MOMENT)).await;
    d.refuses(d.bzmpop::<Popped>("z", Extreme::Min, MOMENT)).await;
    d.refuses(d.bzmpop_count::<Popped>("z", Extreme::Max, 2, MOMENT)).await;
}
