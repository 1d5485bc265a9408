//! Ranges of sorted sets: by position, by score, by member.
use super::args::{Args, ToArg};
use super::put::Put;

/// An end of a range of scores. A plain number is inclusive.
///
/// ```
/// use hedgerow::command::sorted_sets::{ScoreBound, zcount};
/// let above_one = zcount("z", ScoreBound::Exclusive(1.0), ScoreBound::Max);
/// assert!(above_one.bytes().ends_with(b"$2\r\n(1\r\n$4\r\n+inf\r\n"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScoreBound {
    /// Below every score (`-inf`).
    Min,
    /// This score and on.
    Inclusive(f64),
    /// From next to this score on (`(`).
    Exclusive(f64),
    /// Above every score (`+inf`).
    Max,
}

impl From<f64> for ScoreBound {
    fn from(score: f64) -> ScoreBound {
        ScoreBound::Inclusive(score)
    }
}

impl From<i32> for ScoreBound {
    fn from(score: i32) -> ScoreBound {
        ScoreBound::Inclusive(f64::from(score))
    }
}

impl ToArg for ScoreBound {
    fn write_arg(&self, args: &mut Args) {
        match *self {
            ScoreBound::Min => args.bulk(b"-inf"),
            ScoreBound::Inclusive(score) => args.float(score),
            ScoreBound::Exclusive(score) => args.prefixed_float("(", score),
            ScoreBound::Max => args.bulk(b"+inf"),
        }
    }
}

/// An end of a range of members in byte order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LexBound {
    /// Before every member (`-`).
    Min,
    /// This member and on (`[`).
    Inclusive(Vec<u8>),
    /// From next to this member on (`(`).
    Exclusive(Vec<u8>),
    /// After every member (`+`).
    Max,
}

impl LexBound {
    /// This member and on.
    pub fn inclusive(member: impl AsRef<[u8]>) -> LexBound {
        LexBound::Inclusive(member.as_ref().to_vec())
    }

    /// From next to this member on.
    pub fn exclusive(member: impl AsRef<[u8]>) -> LexBound {
        LexBound::Exclusive(member.as_ref().to_vec())
    }
}

impl ToArg for LexBound {
    fn write_arg(&self, args: &mut Args) {
        match self {
            LexBound::Min => args.bulk(b"-"),
            LexBound::Inclusive(member) => args.bulk(&[b"[", member.as_slice()].concat()),
            LexBound::Exclusive(member) => args.bulk(&[b"(", member.as_slice()].concat()),
            LexBound::Max => args.bulk(b"+"),
        }
    }
}

/// What a range goes by, with its two ends.
#[derive(Clone, Debug, PartialEq)]
enum By {
    Index(i64, i64),
    Score(ScoreBound, ScoreBound),
    Lex(LexBound, LexBound),
}

/// A range of a sorted set, for ZRANGE and ZRANGESTORE (servers from 6.2).
///
/// The ends are always given from the lower to the higher; [`ZRange::rev`] turns them around as
/// the server wants it.
///
/// ```
/// use hedgerow::command::sorted_sets::{ScoreBound, ZRange, zrange_with};
/// let top = ZRange::by_score(ScoreBound::Min, ScoreBound::Max).rev().limit(0, 10);
/// let command = zrange_with::<Vec<String>>("z", top);
/// assert_eq!(command.arg_count(), 9);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ZRange {
    by: By,
    rev: bool,
    limit: Option<(i64, i64)>,
}

impl ZRange {
    /// By position, both ends included, counted from 0, or from the end when negative.
    pub fn by_index(start: i64, stop: i64) -> ZRange {
        ZRange { by: By::Index(start, stop), rev: false, limit: None }
    }

    /// By score (`BYSCORE`).
    pub fn by_score(min: impl Into<ScoreBound>, max: impl Into<ScoreBound>) -> ZRange {
        ZRange { by: By::Score(min.into(), max.into()), rev: false, limit: None }
    }

    /// By member, for sets whose scores are all the same (`BYLEX`).
    pub fn by_lex(min: LexBound, max: LexBound) -> ZRange {
        ZRange { by: By::Lex(min, max), rev: false, limit: None }
    }

    /// From the highest to the lowest (`REV`); positions then count from the highest.
    pub fn rev(mut self) -> ZRange {
        self.rev = true;
        self
    }

    /// Only `count` members from `offset` on, a negative count meaning all (`LIMIT`). Servers
    /// refuse it by position.
    pub fn limit(mut self, offset: i64, count: i64) -> ZRange {
        self.limit = Some((offset, count));
        self
    }

    fn put_ends<T: ToArg>(&self, low: &T, high: &T, args: &mut Args) {
        let (first, second) = if self.rev { (high, low) } else { (low, high) };
        first.write_arg(args);
        second.write_arg(args);
    }
}

impl Put for ZRange {
    fn put(&self, args: &mut Args) {
        match &self.by {
            By::Index(start, stop) => {
                args.int(*start);
                args.int(*stop);
            }
            By::Score(min, max) => {
                self.put_ends(min, max, args);
                args.word("BYSCORE");
            }
            By::Lex(min, max) => {
                self.put_ends(min, max, args);
                args.word("BYLEX");
            }
        }
        if self.rev {
            args.word("REV");
        }
        self.limit.map(|(offset, count)| Limit(offset, count)).put(args);
    }
}

/// `LIMIT offset count`.
#[derive(Clone, Copy)]
pub(crate) struct Limit(pub(crate) i64, pub(crate) i64);

impl Put for Limit {
    fn put(&self, args: &mut Args) {
        args.word("LIMIT");
        args.int(self.0);
        args.int(self.1);
    }
}
