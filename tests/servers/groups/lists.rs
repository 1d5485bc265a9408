//! The list group.

use hedgerow::Error;
use hedgerow::command::lists::{End, LposOptions, Side};
use hedgerow::prelude::*;

use super::{Ground, MOMENT, some, texts};

type Popped = Option<(String, Vec<String>)>;

pub(super) async fn ends(d: &Ground<impl Door>) -> Result<(), Error> {
    assert_eq!((d.lpushx("l", "x").await?, d.rpushx("l", "x").await?), (0, 0));
    assert_eq!(d.rpush("l", ["b", "c"]).await?, 2);
    assert_eq!((d.lpush("l", "a").await?, d.rpushx("l", "d").await?), (3, 4));
    assert_eq!((d.lpushx("l", "_").await?, d.llen("l").await?), (5, 5));
    assert_eq!(d.lpop::<Option<String>>("l").await?, some("_"));
    assert_eq!(d.rpop::<Option<String>>("l").await?, some("d"));
    assert_eq!(d.lpop::<Option<String>>("none").await?, None);
    assert_eq!(d.rpop::<Option<String>>("none").await?, None);
    assert_eq!(d.lrange::<Vec<String>>("l", 0, -1).await?, ["a", "b", "c"]);
    assert_eq!(d.lpop_count::<Vec<String>>("l", 2).await?, ["a", "b"]);
    assert_eq!(d.lpop_count::<Option<Vec<String>>>("none", 2).await?, None);
    assert_eq!(d.rpop_count::<Vec<String>>("l", 9).await?, ["c"]);
    assert_eq!(d.rpop_count::<Option<Vec<String>>>("l", 9).await?, None);
    d.rpush("l", ["a", "b", "c", "d"]).await?;
    let moved: Option<String> = d.lmove("l", "m", End::Left, End::Right).await?;
    assert_eq!(moved, some("a"));
    let moved: Option<String> = d.lmove("none", "m", End::Left, End::Right).await?;
    assert_eq!(moved, None);
    assert_eq!(d.rpoplpush::<Option<String>>("l", "m").await?, some("d"));
    assert_eq!(d.lrange::<Vec<String>>("m", 0, -1).await?, ["d", "a"]);
    assert_eq!(
        d.lmpop::<Popped>(["none", "l"], End::Left).await?,
        Some(("l".into(), texts(["b"])))
    );
    let popped: Popped = d.lmpop_count(["none", "m"], End::Right, 9).await?;
    assert_eq!(popped, Some(("m".into(), texts(["a", "d"]))));
    assert_eq!(d.lmpop::<Popped>("none", End::Left).await?, None);
    assert_eq!(d.del("l").await?, 1);
    Ok(())
}

pub(super) async fn inside(d: &Ground<impl Door>) -> Result<(), Error> {
    d.rpush("l", ["a", "b", "a", "c", "a"]).await?;
    assert_eq!(d.lindex::<Option<String>>("l", -2).await?, some("c"));
    assert_eq!(d.lindex::<Option<String>>("l", 9).await?, None);
    assert_eq!(d.linsert("l", Side::Before, "b", "x").await?, 6);
    assert_eq!(d.linsert("l", Side::After, "none", "x").await?, -1);
    assert_eq!(d.linsert("none", Side::After, "b", "x").await?, 0);
    assert_eq!((d.lpos("l", "a").await?, d.lpos("l", "none").await?), (Some(0), None));
    let last = LposOptions::new().rank(-1).maxlen(3);
    assert_eq!(d.lpos_with("l", "a", last).await?, Some(5));
    assert_eq!(d.lpos_count("l", "a", 0, LposOptions::new()).await?, [0, 3, 5]);
    assert_eq!(d.lpos_count("l", "none", 0, LposOptions::new()).await?, [0; 0]);
    d.lset("l", 1, "y").await?;
    assert_eq!(d.lset("l", 99, "y").await.expect_err("no such index").code(), Some("ERR"));
    assert_eq!(d.lrem("l", -2, "a").await?, 2);
    d.ltrim("l", 1, -1).await?;
    assert_eq!(d.lrange::<Vec<String>>("l", 0, -1).await?, ["y", "b", "c"]);
    assert_eq!(d.lrange::<Vec<String>>("none", 0, -1).await?, [""; 0]);
    assert_eq!(d.del("l").await?, 1);
    Ok(())
}

pub(super) async fn waits(d: &Ground<impl Door>) {
    d.refuses(d.blpop::<Option<(String, String)>>(["l", "m"], MOMENT)).await;
    d.refuses(d.brpop::<Option<(String, String)>>(["l", "m"], MOMENT)).await;
    d.refuses(d.blmove::<Option<String>>("l", "m", End::Left, End::Left, MOMENT)).await;
    d.refuses(d.brpoplpush::<Option<String>>("l", "m", MOMENT)).await;
    d.refuses(d.blmpop::<Popped>(["l", "m"], End::Left, MOMENT)).await;
    d.refuses(d.blmpop_count::<Popped>(["l", "m"], End::Right, 2, MOMENT)).await;
}
