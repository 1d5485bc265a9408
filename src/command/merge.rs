//! One reply of several: what the nodes of a cluster answered to the parts or copies of a command.
//!
//! The pieces may come from connections of both protocols. What is taken over from them keeps its wire
//! form, so the result is a frame for readers of RESP3, which take every form of RESP2.
use super::table::{Answer, Spec};
use crate::error::{Error, ErrorKind, Fate};
use crate::resp::{ConvertError, Frame, Kind, Protocol, ServerError, code, encode};

/// How the replies of several nodes become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Merge {
    /// The command, for errors.
    name: &'static str,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Arrays of one element for each key: the elements in the order of so many keys.
    ByKey(u32),
    /// Arrays, sets or maps: one after the other.
    Join,
    /// The first success.
    OneSucceeded,
    /// The first, if all succeeded.
    AllSucceeded,
    /// A number, or a list of them: place by place.
    Tally(Tally),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tally {
    And,
    Or,
    Min,
    Max,
    Sum,
}

/// The reply to one part, or of one node.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    /// One frame that a decoder has checked.
    pub(crate) raw: &'a [u8],
    /// The keys of the part; of no account where a command went to nodes as it was.
    pub(crate) keys: &'a [u32],
}

impl Merge {
    /// For a command that was split by its keys, of which it had so many.
    pub(super) fn of_keys(spec: Spec, keys: u32) -> Merge {
        Merge::of(spec, How::ByKey(keys))
    }

    /// For a command that went to several nodes as it was.
    pub(super) fn of_nodes(spec: Spec) -> Merge {
        Merge::of(spec, How::Join)
    }

    fn of(spec: Spec, without_tip: How) -> Merge {
        let how = match spec.answer() {
            Answer::Default => without_tip,
            Answer::OneSucceeded => How::OneSucceeded,
            Answer::AllSucceeded => How::AllSucceeded,
            Answer::AggLogicalAnd => How::Tally(Tally::And),
            Answer::AggLogicalOr => How::Tally(Tally::Or),
            Answer::AggMin => How::Tally(Tally::Min),
            Answer::AggMax => How::Tally(Tally::Max),
            Answer::AggSum => How::Tally(Tally::Sum),
            // Has no rule, and so is asked of one node; its answer is the first.
            Answer::Special => How::AllSucceeded,
        };
        Merge { name: spec.name(), how }
    }

    /// Whether one success is all that is asked for, whatever became of the rest.
    pub(crate) fn takes_one(&self) -> bool {
        self.how == How::OneSucceeded
    }

    /// Makes one reply of all pieces, in the order in which they are given: the bytes of one frame. An
    /// error among them is the outcome, and is that frame, as a server alone would have answered; of
    /// several the first.
    ///
    /// # Errors
    /// Without pieces, and if a piece is not what the rule for this command is about.
    pub(crate) fn merge(&self, pieces: &[Piece<'_>]) -> Result<Vec<u8>, Error> {
        let frames: Vec<Frame<'_>> =
            pieces.iter().map(|piece| Frame::from_validated(piece.raw)).collect();
        let merged = match frames.first() {
            Some(first) => self.merge_frames(first, &frames, pieces),
            None => Err(Error::new(ErrorKind::NotConnected, Fate::NotSent, "no node was asked")),
        };
        merged.map_err(|error| error.with_command(Some(self.name)))
    }

    fn merge_frames(
        &self,
        first: &Frame<'_>,
        frames: &[Frame<'_>],
        pieces: &[Piece<'_>],
    ) -> Result<Vec<u8>, Error> {
        if self.how == How::OneSucceeded {
            return Ok(one_success(first, frames).raw().to_vec());
        }
        if let Some(error) = frames.iter().find(|frame| frame.is_error()) {
            return Ok(error.raw().to_vec());
        }
        match self.how {
            How::OneSucceeded | How::AllSucceeded => Ok(first.raw().to_vec()),
            How::ByKey(keys) => by_key(keys, frames, pieces),
            How::Join => join(frames).map_err(Error::convert),
            How::Tally(tally) => tally.merge(first, frames),
        }
    }
}

/// The first success, or the error that tells most: that a node has nothing to kill (NOTBUSY) tells
/// nothing of the others.
fn one_success<'f, 'a>(first: &'f Frame<'a>, frames: &'f [Frame<'a>]) -> &'f Frame<'a> {
    let told = |frame: &&Frame<'_>| {
        ServerError::from_frame(frame).is_some_and(|error| !error.is(code::NOTBUSY))
    };
    let success = frames.iter().find(|frame| !frame.is_error());
    success.or_else(|| frames.iter().find(told)).unwrap_or(first)
}

/// The elements of all pieces in the order of the keys, each in its own wire form.
fn by_key(keys: u32, frames: &[Frame<'_>], pieces: &[Piece<'_>]) -> Result<Vec<u8>, Error> {
    // No element is empty, so an empty cell is one that is due.
    let mut cells: Vec<&[u8]> = vec![&[]; keys as usize];
    for (frame, piece) in frames.iter().zip(pieces) {
        let due = piece.keys.len();
        if frame.kind() != Kind::Array || frame.count() != due {
            return Err(Error::convert(not_so_many(due, frame)));
        }
        for (key, element) in piece.keys.iter().zip(frame.elements()) {
            if let Some(cell) = cells.get_mut(*key as usize) {
                *cell = element.raw();
            }
        }
    }
    if cells.iter().any(|cell| cell.is_empty()) {
        let text = "the replies to its parts do not cover all keys";
        return Err(Error::new(ErrorKind::Convert, Fate::Answered, text));
    }
    let mut out = Vec::with_capacity(room(frames));
    encode::array_header(&mut out, cells.len());
    cells.iter().for_each(|cell| out.extend_from_slice(cell));
    Ok(out)
}

fn not_so_many(due: usize, frame: &Frame<'_>) -> ConvertError {
    let expected = format!("an array of {due}");
    match frame.kind() {
        Kind::Array => {
            ConvertError::with_came(expected, format!("an array of {}", frame.count()), frame)
        }
        _ => ConvertError::new(expected, frame),
    }
}

/// Bytes that will do for a frame with all that is in these.
fn room(frames: &[Frame<'_>]) -> usize {
    frames.iter().map(Frame::len_raw).sum::<usize>() + encode::header_len(usize::MAX)
}

/// The elements of all pieces. A set or map of RESP3 makes one of the arrays that RESP2 has for both;
/// null, for nothing at all, adds nothing.
fn join(frames: &[Frame<'_>]) -> Result<Vec<u8>, ConvertError> {
    let mut sort = Kind::Null;
    for frame in frames {
        sort = match (sort, frame.kind()) {
            (sort, Kind::Null) => sort,
            (Kind::Null | Kind::Array, kind @ (Kind::Array | Kind::Set | Kind::Map)) => kind,
            (Kind::Set | Kind::Map, Kind::Array) => sort,
            (sort, kind) if sort == kind => sort,
            (Kind::Set | Kind::Map, _) => return Err(ConvertError::new(sort.words(), frame)),
            _ => return Err(ConvertError::new("an array, a set or a map", frame)),
        };
    }
    let odd = |frame: &&Frame<'_>| sort == Kind::Map && !frame.count().is_multiple_of(2);
    if let Some(frame) = frames.iter().find(odd) {
        let came = format!("an array of {}", frame.count());
        return Err(ConvertError::with_came("a map or an even array", came, frame));
    }
    let count = frames.iter().map(Frame::count).sum();
    let mut out = Vec::with_capacity(room(frames));
    match sort {
        Kind::Set => encode::set_header(&mut out, Protocol::Resp3, count),
        Kind::Map => encode::map_header(&mut out, Protocol::Resp3, count / 2),
        Kind::Array => encode::array_header(&mut out, count),
        // Nothing but nulls.
        _ => out.extend_from_slice(frames.first().map_or(&[][..], Frame::raw)),
    }
    let elements = frames.iter().flat_map(Frame::elements);
    elements.for_each(|element| out.extend_from_slice(element.raw()));
    Ok(out)
}

impl Tally {
    fn merge(self, first: &Frame<'_>, frames: &[Frame<'_>]) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        if first.kind() != Kind::Array {
            let mut numbers = frames.iter().map(|frame| self.number(frame));
            encode::int(&mut out, self.total(&mut numbers)?);
            return Ok(out);
        }
        let due = first.count();
        let odd = |frame: &&Frame<'_>| frame.kind() != Kind::Array || frame.count() != due;
        if let Some(frame) = frames.iter().find(odd) {
            return Err(Error::convert(not_so_many(due, frame)));
        }
        encode::array_header(&mut out, due);
        let mut lists: Vec<_> = frames.iter().map(Frame::elements).collect();
        for place in 0..due {
            let elements = lists.iter_mut().filter_map(Iterator::next);
            let mut numbers = elements
                .map(|element| self.number(&element).map_err(|error| error.in_element(place)));
            encode::int(&mut out, self.total(&mut numbers)?);
        }
        Ok(out)
    }

    /// What a piece counts for.
    fn number(self, frame: &Frame<'_>) -> Result<i64, ConvertError> {
        match (self, frame.bool()) {
            (Tally::And | Tally::Or, Some(truth)) => Ok(i64::from(truth)),
            _ => frame.int().ok_or_else(|| ConvertError::new("an integer", frame)),
        }
    }

    fn total(
        self,
        numbers: &mut dyn Iterator<Item = Result<i64, ConvertError>>,
    ) -> Result<i64, Error> {
        let mut total = None;
        for number in numbers {
            let number = number.map_err(Error::convert)?;
            total = Some(match total {
                None => self.alone(number),
                Some(total) => self.both(total, number).ok_or_else(overflow)?,
            });
        }
        Ok(total.unwrap_or_default())
    }

    /// A truth is 0 or 1.
    fn alone(self, number: i64) -> i64 {
        match self {
            Tally::And | Tally::Or => i64::from(number != 0),
            Tally::Min | Tally::Max | Tally::Sum => number,
        }
    }

    /// `None` beyond the range of an integer.
    fn both(self, a: i64, b: i64) -> Option<i64> {
        match self {
            Tally::And => Some(i64::from(a != 0 && b != 0)),
            Tally::Or => Some(i64::from(a != 0 || b != 0)),
            Tally::Min => Some(a.min(b)),
            Tally::Max => Some(a.max(b)),
            Tally::Sum => a.checked_add(b),
        }
    }
}

fn overflow() -> Error {
    Error::new(ErrorKind::Convert, Fate::Answered, "the sum of the replies is no 64-bit integer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{Decoder, Limits, Step};

    fn of(name: &str) -> Merge {
        Merge::of_nodes(Spec::find(name).expect("a row"))
    }

    fn tally(tally: Tally) -> Merge {
        Merge { name: "X", how: How::Tally(tally) }
    }

    fn pieces<'a>(raws: &[&'a str]) -> Vec<Piece<'a>> {
        raws.iter().map(|raw| Piece { raw: raw.as_bytes(), keys: &[] }).collect()
    }

    /// What is made of these frames: one whole frame, as text, or the text of the error.
    fn merged(merge: Merge, raws: &[&str]) -> String {
        text(merge, &pieces(raws))
    }

    fn text(merge: Merge, pieces: &[Piece<'_>]) -> String {
        let raw = match merge.merge(pieces) {
            Ok(raw) => raw,
            Err(error) => {
                assert_eq!((error.kind(), error.fate()), (ErrorKind::Convert, Fate::Answered));
                return error.to_string();
            }
        };
        let mut decoder = Decoder::new(Protocol::Resp3, Limits::default());
        let whole = decoder.decode(&raw);
        assert!(matches!(whole, Ok(Step::Frame(frame)) if frame.len_raw() == raw.len()), "{raw:?}");
        String::from_utf8(raw).expect("text")
    }

    /// Fails if numbers, or lists of them place by place, are not counted together by their rule.
    #[test]
    fn numbers_are_counted_together() {
        assert_eq!(merged(of("DBSIZE"), &[":3\r\n", ":0\r\n", ":40\r\n"]), ":43\r\n");
        assert_eq!(merged(of("LATENCY RESET"), &[":7\r\n"]), ":7\r\n");
        assert_eq!(merged(of("WAIT"), &[":3\r\n", ":1\r\n", ":2\r\n"]), ":1\r\n");
        assert_eq!(merged(tally(Tally::Max), &[":-3\r\n", ":-1\r\n", ":-2\r\n"]), ":-1\r\n");
        let lists = ["*2\r\n:1\r\n:5\r\n", "*2\r\n:0\r\n:7\r\n"];
        assert_eq!(merged(of("WAITAOF"), &lists), "*2\r\n:0\r\n:5\r\n");
        let lists = ["*3\r\n:1\r\n:1\r\n:0\r\n", "*3\r\n:1\r\n:0\r\n:0\r\n"];
        assert_eq!(merged(of("SCRIPT EXISTS"), &lists), "*3\r\n:1\r\n:0\r\n:0\r\n");
        assert_eq!(merged(tally(Tally::Or), &lists), "*3\r\n:1\r\n:1\r\n:0\r\n");
        assert_eq!(merged(tally(Tally::And), &[":1\r\n", "#t\r\n"]), ":1\r\n");
        assert_eq!(merged(tally(Tally::Or), &["#f\r\n", ":0\r\n"]), ":0\r\n");
        // An attribute in front is no part of the number.
        assert_eq!(merged(of("DBSIZE"), &["|1\r\n+a\r\n+b\r\n:3\r\n", ":4\r\n"]), ":7\r\n");
    }

    /// Fails if a reply that its rule is not about panics, is passed over, or if the error does not name
    /// the command and what came.
    #[test]
    fn a_piece_of_another_kind_is_an_error() {
        let came = merged(of("DBSIZE"), &[":3\r\n", "+OK\r\n"]);
        assert_eq!(came, "DBSIZE: expected an integer, but a simple string came");
        for raw in
            ["$-1\r\n", "_\r\n", "*1\r\n:1\r\n", "%1\r\n:1\r\n:1\r\n", "#t\r\n", "$1\r\n1\r\n"]
        {
            assert!(
                merged(of("DBSIZE"), &[":3\r\n", raw]).starts_with("DBSIZE: expected an integer")
            );
        }
        assert!(merged(of("DBSIZE"), &["+3\r\n"]).contains("an integer"));
        let max = format!(":{}\r\n", i64::MAX);
        assert!(merged(of("DBSIZE"), &[&max, ":1\r\n"]).contains("64-bit"), "beyond the range");
        let came = merged(of("SCRIPT EXISTS"), &["*2\r\n:1\r\n:1\r\n", "*1\r\n:1\r\n"]);
        assert_eq!(came, "SCRIPT EXISTS: expected an array of 2, but an array of 1 came");
        let came = merged(of("SCRIPT EXISTS"), &["*1\r\n:1\r\n", "*1\r\n$1\r\n1\r\n"]);
        assert_eq!(came, "SCRIPT EXISTS: expected an integer, but a bulk string came in element 0");
        assert!(merged(of("SCRIPT EXISTS"), &["*1\r\n:1\r\n", ":1\r\n"]).contains("an array of 1"));
        let none = of("DBSIZE").merge(&[]).expect_err("no piece");
        assert_eq!((none.kind(), none.fate()), (ErrorKind::NotConnected, Fate::NotSent));
    }

    /// Fails if an error among the pieces is lost, or is not the first; with either protocol's form.
    #[test]
    fn the_first_error_is_the_outcome() {
        for name in ["DBSIZE", "KEYS", "CONFIG SET", "SCRIPT EXISTS", "WAIT"] {
            let raws = ["+OK\r\n", "-OOM a\r\n", "!5\r\nERR b\r\n"];
            assert_eq!(merged(of(name), &raws), "-OOM a\r\n", "{name}");
            assert_eq!(merged(of(name), &raws[2..]), "!5\r\nERR b\r\n", "{name}");
        }
        assert_eq!(merged(of("CONFIG SET"), &["+OK\r\n", "+OK\r\n"]), "+OK\r\n");
        let names = ["$3\r\nlib\r\n", "$3\r\nlib\r\n"];
        assert_eq!(merged(of("FUNCTION LOAD"), &names), "$3\r\nlib\r\n");
    }

    /// Fails if one success does not do where one does, or if all that nodes say is that they had nothing
    /// to do while one of them says more.
    #[test]
    fn one_success_is_enough() {
        let (idle, stuck) = ("-NOTBUSY none\r\n", "-UNKILLABLE it wrote\r\n");
        assert_eq!(merged(of("SCRIPT KILL"), &[idle, stuck, "+OK\r\n", idle]), "+OK\r\n");
        assert_eq!(merged(of("FUNCTION KILL"), &[idle, stuck, idle]), stuck);
        assert_eq!(merged(of("FUNCTION KILL"), &[idle, idle]), idle);
    }

    /// Fails if an element is lost or altered on the way into one collection, in RESP2, RESP3 or both.
    #[test]
    fn collections_are_joined() {
        let keys = of("KEYS");
        let raws = ["*1\r\n$1\r\na\r\n", "*0\r\n", "*?\r\n+b\r\n$-1\r\n.\r\n", "*-1\r\n"];
        assert_eq!(merged(keys, &raws), "*3\r\n$1\r\na\r\n+b\r\n$-1\r\n");
        assert_eq!(merged(keys, &["~1\r\n:1\r\n", "*1\r\n:2\r\n"]), "~2\r\n:1\r\n:2\r\n");
        let raws = ["*2\r\n+a\r\n:1\r\n", "%1\r\n+b\r\n*1\r\n_\r\n"];
        assert_eq!(merged(keys, &raws), "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n");
        assert_eq!(merged(keys, &["_\r\n", "$-1\r\n"]), "_\r\n");
        assert_eq!(merged(keys, &["_\r\n", "~0\r\n"]), "~0\r\n");
        let came = merged(keys, &["%1\r\n+b\r\n:1\r\n", "*1\r\n:1\r\n"]);
        assert_eq!(came, "KEYS: expected a map or an even array, but an array of 1 came");
        let came = merged(keys, &["~1\r\n+b\r\n", "%0\r\n"]);
        assert_eq!(came, "KEYS: expected a set, but a map came");
        let came = merged(keys, &["*0\r\n", ":1\r\n"]);
        assert_eq!(came, "KEYS: expected an array, a set or a map, but an integer came");
    }

    /// Fails if an element of MGET is not that of its key, loses its wire form, or if parts that answer
    /// for too few keys make a reply.
    #[test]
    fn elements_come_back_in_the_order_of_the_keys() {
        let mget = Merge::of_keys(Spec::find("MGET").expect("a row"), 4);
        let first = Piece { raw: b"*3\r\n$1\r\na\r\n$-1\r\n$1\r\nb\r\n", keys: &[0, 2, 3] };
        let second = Piece { raw: b"*1\r\n_\r\n", keys: &[1] };
        let whole = "*4\r\n$1\r\na\r\n_\r\n$-1\r\n$1\r\nb\r\n";
        assert_eq!(text(mget, &[first, second]), whole);
        assert_eq!(text(mget, &[second, first]), whole);
        assert!(text(mget, &[first]).contains("do not cover all keys"));
        let odd = Piece { raw: b"*2\r\n_\r\n_\r\n", keys: &[1] };
        assert_eq!(
            text(mget, &[first, odd]),
            "MGET: expected an array of 1, but an array of 2 came"
        );
        let odd = Piece { raw: b"+OK\r\n", keys: &[1] };
        assert_eq!(
            text(mget, &[first, odd]),
            "MGET: expected an array of 1, but a simple string came"
        );
        let beyond = Piece { raw: b"*1\r\n_\r\n", keys: &[9] };
        assert!(text(mget, &[first, beyond]).contains("do not cover all keys"));
        let failed = Piece { raw: b"-TRYAGAIN x\r\n", keys: &[1] };
        assert_eq!(text(mget, &[first, failed]), "-TRYAGAIN x\r\n");
    }
}
