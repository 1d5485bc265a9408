//! Finding the end of a frame in bytes that arrive in pieces.
//!
//! The decoder is a scanner: it keeps a position and the counts that are still due, never bytes.
//! A byte that was looked at is not looked at again, whatever the pieces are; a frame that lies
//! whole in the bytes is recognised by [`scalar::whole`] without touching the state.

use super::{
    Fault, Frame, Limits, Protocol, ProtocolError, number,
    scalar::{self, Extent},
    stack::Stack,
};

/// Longest text of a line that carries a number, a length, a bool or a null.
const SHORT_LINE_MAX: usize = 64;

/// What [`Decoder::decode`] found.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// A whole top-level frame; the caller consumes `frame.len_raw()` bytes.
    Frame(Frame<'a>),
    /// The frame is not complete.
    More {
        /// At least so many more bytes (>= 1) before anything can be told. For a string it is
        /// exactly what is missing of it with its CR LF.
        need: usize,
    },
}

/// A resumable scanner for the replies of one connection.
///
/// ```
/// use hedgerow::resp::{Decoder, Limits, Protocol, Step};
///
/// let mut decoder = Decoder::new(Protocol::Resp3, Limits::default());
/// assert!(matches!(decoder.decode(b"$5\r\nhel"), Ok(Step::More { need: 4 })));
/// let Ok(Step::Frame(frame)) = decoder.decode(b"$5\r\nhello\r\n+NEXT\r\n") else { panic!() };
/// assert_eq!(frame.payload(), b"hello");
/// assert_eq!(frame.len_raw(), 11);
/// ```
#[derive(Clone, Debug)]
pub struct Decoder {
    /// First byte not looked at yet; 0 only before anything of a frame was.
    pos: usize,
    /// Greatest string that the short road takes.
    bulk_max: usize,
    protocol: Protocol,
    state: State,
    /// An attribute ended and the value that it decorates has not begun.
    decorates: bool,
    /// Type byte of the item under way.
    start: usize,
    /// Where the top-level value begins, after its attributes.
    value: usize,
    /// Elements announced or seen in this frame.
    elements: u64,
    /// Bytes of the chunks of the streamed string under way.
    chunked: u64,
    levels: Stack,
    limits: Limits,
    failed: Option<ProtocolError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A type byte comes next.
    Item,
    /// In the line that began at `start`.
    Line,
    /// In a string whose payload ends at `end`.
    Body { end: usize },
    /// The `;` of a chunk comes next.
    Chunk,
    /// In a chunk whose payload ends at `end`.
    ChunkBody { end: usize },
}

/// An open aggregate or attribute, packed into a word: what is due of it, and its sort.
struct Level;

impl Level {
    const COUNTED: u64 = 0;
    const ATTRIBUTE: u64 = 1;
    const STREAM: u64 = 2;
    /// Its upper bits hold 1 while a key waits for its value.
    const STREAMED_MAP: u64 = 3;
    const SORT: u64 = 3;
    const ONE: u64 = 4;
    const COUNT_MAX: u64 = u64::MAX / 4;
}

/// `Break`: a top-level value ended.
type Flow = std::ops::ControlFlow<()>;
const GO_ON: Flow = Flow::Continue(());

impl Decoder {
    /// A decoder at the start of a connection.
    pub fn new(protocol: Protocol, limits: Limits) -> Self {
        // A whole string is at most 64 bytes longer than its payload.
        let bulk_max = limits.bulk.min(limits.reply.saturating_sub(64));
        Decoder {
            pos: 0,
            bulk_max: usize::try_from(bulk_max).unwrap_or(usize::MAX),
            protocol,
            state: State::Item,
            decorates: false,
            start: 0,
            value: 0,
            elements: 0,
            chunked: 0,
            levels: Stack::default(),
            limits,
            failed: None,
        }
    }

    /// Changes the protocol, once negotiation is over. Takes effect with the next type byte.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// The protocol that it reads.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Whether part of a frame was seen and its end was not.
    pub fn is_inside(&self) -> bool {
        self.pos > 0
    }

    /// Looks for the end of the current frame.
    ///
    /// `bytes` starts at the first byte of that frame and holds all that came of it so far, and
    /// maybe more. Each call goes on where the last one stopped. After [`Step::Frame`] the decoder
    /// is ready for the next frame, which starts right after this one.
    ///
    /// # Errors
    /// [`ProtocolError`]: the connection must be closed. Further calls give the same error.
    #[inline(always)]
    pub fn decode<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, ProtocolError> {
        match self.whole(bytes) {
            Some(frame) => Ok(Step::Frame(frame)),
            None => self.resume(bytes),
        }
    }

    /// A scalar that lies whole at the start of `bytes`, if a frame begins there and it is of the
    /// common sorts (a string, a status, an integer, a null). `None` says nothing: see
    /// [`Decoder::decode`].
    #[inline(always)]
    pub(crate) fn whole<'a>(&self, bytes: &'a [u8]) -> Option<Frame<'a>> {
        if self.pos != 0 {
            return None;
        }
        let extent = scalar::whole(bytes, self.bulk_max, self.protocol == Protocol::Resp3)?;
        Some(Frame::scalar(bytes.get(..extent.len)?, extent))
    }

    #[cold]
    #[inline(never)]
    fn resume<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, ProtocolError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        match self.run(bytes) {
            Ok(Some(need)) => Ok(Step::More { need }),
            Ok(None) => Ok(Step::Frame(self.finish(bytes))),
            Err(error) => {
                self.failed = Some(error);
                self.pos = self.pos.max(1);
                Err(error)
            }
        }
    }

    /// Runs to the end of the frame (`None`) or of the bytes (how many more are needed).
    fn run(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        loop {
            let flow = match self.state {
                State::Item => {
                    self.pass_scalars(bytes)?;
                    if self.pos >= bytes.len() {
                        return Ok(Some(1));
                    }
                    self.item(bytes)?
                }
                State::Line => match self.line_end(bytes)? {
                    Some(end) => self.line(bytes, end)?,
                    None => return Ok(Some(1)),
                },
                State::Body { end } => match self.body_end(bytes, end)? {
                    None => self.string(bytes, end)?,
                    need => return Ok(need),
                },
                State::Chunk => match bytes.get(self.pos) {
                    Some(b';') => self.begin_line(),
                    Some(_) => return Err(self.fault(Fault::BadChunk)),
                    None => return Ok(Some(1)),
                },
                State::ChunkBody { end } => match self.body_end(bytes, end)? {
                    None => {
                        self.state = State::Chunk;
                        GO_ON
                    }
                    need => return Ok(need),
                },
            };
            if flow.is_break() {
                return Ok(None);
            }
        }
    }

    fn finish<'a>(&mut self, bytes: &'a [u8]) -> Frame<'a> {
        let raw = bytes.get(..self.pos).unwrap_or(bytes);
        let frame = Frame::at(raw, self.value);
        self.pos = 0;
        self.value = 0;
        self.elements = 0;
        self.state = State::Item;
        self.levels.clear();
        frame
    }

    /// Passes whole scalars while more than one is due of a counted level: most of what long
    /// replies are made of.
    fn pass_scalars(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        let resp3 = self.protocol == Protocol::Resp3;
        let (bulk_max, start) = (self.bulk_max, self.pos);
        let Some(level) = self.levels.top_mut() else { return Ok(()) };
        if matches!(*level & Level::SORT, Level::STREAM | Level::STREAMED_MAP) {
            return Ok(());
        }
        while *level >= 2 * Level::ONE
            && let Some(extent) =
                bytes.get(self.pos..).and_then(|rest| scalar::whole(rest, bulk_max, resp3))
        {
            *level -= Level::ONE;
            self.pos += extent.len;
        }
        self.decorates &= self.pos == start;
        self.check_reply_len(self.pos)
    }

    /// A type byte is at `pos`.
    fn item(&mut self, bytes: &[u8]) -> Result<Flow, ProtocolError> {
        let rest = bytes.get(self.pos..).unwrap_or_default();
        if let Some(Extent { len, .. }) =
            scalar::whole(rest, self.bulk_max, self.protocol == Protocol::Resp3)
        {
            self.decorates = false;
            self.pos += len;
            return self.value_ended();
        }
        match rest.first() {
            Some(b'+' | b'-' | b':' | b'$' | b'*') => {}
            Some(b'_' | b'#' | b',' | b'(' | b'!' | b'=' | b'%' | b'~' | b'>' | b'|') => {
                if self.protocol == Protocol::Resp2 {
                    return Err(self.fault(Fault::NotInResp2));
                }
            }
            Some(b'.') => self.check_stream_end()?,
            Some(b';') => return Err(self.fault(Fault::StrayChunk)),
            Some(b'H') if self.pos == 0 => return Err(self.fault(Fault::Http)),
            Some(0x15 | 0x16) if self.pos == 0 => return Err(self.fault(Fault::Tls)),
            _ => return Err(self.fault(Fault::UnknownType)),
        }
        Ok(self.begin_line())
    }

    fn begin_line(&mut self) -> Flow {
        self.start = self.pos;
        self.pos += 1;
        self.state = State::Line;
        GO_ON
    }

    /// The offset of the CR that ends the line under way, once its LF is here too. A CR alone is
    /// refused; an LF alone ends nothing and stays text, since some modules send it.
    fn line_end(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let fresh = bytes.get(self.pos..).unwrap_or_default();
        let found = fresh.iter().position(|byte| *byte == b'\r');
        self.pos += found.unwrap_or(fresh.len());
        self.check_line_len(bytes)?;
        if found.is_none() {
            return Ok(None);
        }
        match bytes.get(self.pos + 1) {
            Some(b'\n') => Ok(Some(self.pos)),
            Some(_) => Err(self.fault(Fault::BareCarriageReturn)),
            None => Ok(None),
        }
    }

    fn check_line_len(&self, bytes: &[u8]) -> Result<(), ProtocolError> {
        let len = self.pos - self.start - 1;
        let long = matches!(bytes.get(self.start), Some(b'+' | b'-' | b',' | b'('));
        if !long && len > SHORT_LINE_MAX {
            return Err(self.fault(Fault::LongLine));
        }
        if len as u64 > self.limits.bulk {
            return Err(self.fault(Fault::StringTooLong));
        }
        self.check_reply_len(self.pos)
    }

    fn check_reply_len(&self, len: usize) -> Result<(), ProtocolError> {
        if len as u64 > self.limits.reply {
            return Err(self.fault(Fault::ReplyTooLong));
        }
        Ok(())
    }

    /// The line from `start` to the CR at `end` is whole.
    fn line(&mut self, bytes: &[u8], end: usize) -> Result<Flow, ProtocolError> {
        let text = bytes.get(self.start + 1..end).unwrap_or_default();
        let tag = bytes.get(self.start).copied().unwrap_or_default();
        self.pos = end + 2;
        if !matches!(tag, b'.' | b';') {
            self.decorates = false;
        }
        match tag {
            b'+' | b'-' => self.value_ended(),
            b':' => self.checked(number::int(text).is_some(), Fault::BadInteger),
            b',' => self.checked(number::is_double(text), Fault::BadDouble),
            b'(' => self.checked(number::is_big(text), Fault::BadBigNumber),
            b'#' => self.checked(matches!(text, b"t" | b"f"), Fault::BadBool),
            b'_' => self.checked(text.is_empty(), Fault::BadNull),
            b'$' | b'*' if text == b"-1" => self.value_ended(),
            b'$' if text == b"?" && self.protocol == Protocol::Resp3 => {
                self.chunked = 0;
                self.state = State::Chunk;
                Ok(GO_ON)
            }
            b'$' | b'!' | b'=' => self.begin_string(tag, text),
            b';' => self.begin_chunk(text),
            b'.' => self.end_stream(text),
            _ => self.open(tag, text),
        }
    }

    fn checked(&mut self, good: bool, fault: Fault) -> Result<Flow, ProtocolError> {
        if good { self.value_ended() } else { Err(self.fault_in_line(fault)) }
    }

    fn length(&self, text: &[u8]) -> Result<u64, ProtocolError> {
        number::length(text).ok_or_else(|| self.fault_in_line(Fault::BadLength))
    }

    fn begin_string(&mut self, tag: u8, text: &[u8]) -> Result<Flow, ProtocolError> {
        let len = self.length(text)?;
        if tag == b'=' && len < 4 {
            return Err(self.fault_in_line(Fault::BadVerbatim));
        }
        let end = self.payload_end(len, len)?;
        self.state = State::Body { end };
        Ok(GO_ON)
    }

    fn begin_chunk(&mut self, text: &[u8]) -> Result<Flow, ProtocolError> {
        let len = self.length(text)?;
        if len == 0 {
            self.state = State::Item;
            return self.value_ended();
        }
        self.chunked = self.chunked.saturating_add(len);
        let end = self.payload_end(len, self.chunked)?;
        self.state = State::ChunkBody { end };
        Ok(GO_ON)
    }

    /// Where a payload of `len` bytes at `pos` ends; `whole` is what counts against the limit.
    fn payload_end(&self, len: u64, whole: u64) -> Result<usize, ProtocolError> {
        if whole > self.limits.bulk {
            return Err(self.fault_in_line(Fault::StringTooLong));
        }
        let end = usize::try_from(len).ok().and_then(|len| self.pos.checked_add(len));
        match end {
            Some(end) if end < usize::MAX - 2 => {
                self.check_reply_len(end + 2)?;
                Ok(end)
            }
            _ => Err(self.fault_in_line(Fault::StringTooLong)),
        }
    }

    /// `None` when the payload up to `end` and its CR LF are here, else how many bytes are missing.
    fn body_end(&mut self, bytes: &[u8], end: usize) -> Result<Option<usize>, ProtocolError> {
        match bytes.get(end..end + 2) {
            Some(b"\r\n") => {
                self.pos = end + 2;
                Ok(None)
            }
            Some(_) => Err(ProtocolError::new(Fault::BadTerminator, end)),
            None => Ok(Some(end + 2 - bytes.len())),
        }
    }

    /// A whole string ended whose payload ends at `end`.
    fn string(&mut self, bytes: &[u8], end: usize) -> Result<Flow, ProtocolError> {
        if bytes.get(self.start) == Some(&b'=') {
            let header = bytes.get(self.start..end).unwrap_or_default();
            let line = header.iter().position(|byte| *byte == b'\n').unwrap_or_default();
            if header.get(line + 4) != Some(&b':') {
                return Err(ProtocolError::new(Fault::BadVerbatim, self.start + line + 4));
            }
        }
        self.value_ended()
    }

    /// An aggregate or an attribute begins.
    fn open(&mut self, tag: u8, text: &[u8]) -> Result<Flow, ProtocolError> {
        self.state = State::Item;
        if self.levels.len() as u64 >= u64::from(self.limits.depth) {
            return Err(self.fault_in_line(Fault::TooDeep));
        }
        if text == b"?" && self.protocol == Protocol::Resp3 {
            match tag {
                b'*' | b'~' => self.levels.push(Level::STREAM),
                b'%' => self.levels.push(Level::STREAMED_MAP),
                _ => return Err(self.fault_in_line(Fault::BadLength)),
            }
            return Ok(GO_ON);
        }
        let len = self.length(text)?;
        let due = if matches!(tag, b'%' | b'|') { len.checked_mul(2) } else { Some(len) };
        let due = due.unwrap_or(u64::MAX);
        self.announce(due)?;
        match (tag, due) {
            (b'|', 0) => {
                self.attribute_ended()?;
                Ok(GO_ON)
            }
            (_, 0) => self.value_ended(),
            (b'|', _) => {
                self.levels.push((due * Level::ONE) | Level::ATTRIBUTE);
                Ok(GO_ON)
            }
            _ => {
                self.levels.push((due * Level::ONE) | Level::COUNTED);
                Ok(GO_ON)
            }
        }
    }

    /// Counts elements against the limit before anything relies on them.
    fn announce(&mut self, due: u64) -> Result<(), ProtocolError> {
        self.elements = self.elements.saturating_add(due);
        if self.elements > self.limits.elements.min(Level::COUNT_MAX) {
            return Err(self.fault_in_line(Fault::TooManyElements));
        }
        Ok(())
    }

    /// A value ended at `pos`; so may the levels that it was the last of.
    fn value_ended(&mut self) -> Result<Flow, ProtocolError> {
        self.state = State::Item;
        self.check_reply_len(self.pos)?;
        while let Some(level) = self.levels.top_mut() {
            match *level & Level::SORT {
                Level::STREAM => {
                    self.announce(1)?;
                    return Ok(GO_ON);
                }
                Level::STREAMED_MAP => {
                    *level ^= Level::ONE;
                    self.announce(1)?;
                    return Ok(GO_ON);
                }
                sort => {
                    *level -= Level::ONE;
                    if *level >= Level::ONE {
                        return Ok(GO_ON);
                    }
                    self.levels.pop();
                    if sort == Level::ATTRIBUTE {
                        self.attribute_ended()?;
                        return Ok(GO_ON);
                    }
                }
            }
        }
        Ok(Flow::Break(()))
    }

    /// An attribute ended at `pos`: it is no value of the level around it.
    fn attribute_ended(&mut self) -> Result<(), ProtocolError> {
        self.decorates = true;
        if self.levels.len() == 0 {
            // A frame keeps this offset in 32 bits.
            if u32::try_from(self.pos).is_err() {
                return Err(self.fault(Fault::ReplyTooLong));
            }
            self.value = self.pos;
        }
        Ok(())
    }

    /// A `.` is at `pos`.
    fn check_stream_end(&mut self) -> Result<(), ProtocolError> {
        let fault = match self.levels.top_mut().copied() {
            _ if self.protocol == Protocol::Resp2 => Fault::UnknownType,
            Some(Level::STREAM | Level::STREAMED_MAP) if self.decorates => Fault::DanglingAttribute,
            Some(Level::STREAM | Level::STREAMED_MAP) => return Ok(()),
            Some(level) if level & Level::SORT == Level::STREAMED_MAP => Fault::OddMap,
            _ => Fault::StrayEnd,
        };
        Err(self.fault(fault))
    }

    fn end_stream(&mut self, text: &[u8]) -> Result<Flow, ProtocolError> {
        if !text.is_empty() {
            return Err(self.fault_in_line(Fault::StrayEnd));
        }
        self.levels.pop();
        self.value_ended()
    }

    fn fault(&self, fault: Fault) -> ProtocolError {
        ProtocolError::new(fault, self.pos)
    }

    /// A fault in what follows the type byte of the item under way.
    fn fault_in_line(&self, fault: Fault) -> ProtocolError {
        ProtocolError::new(fault, self.start + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLIES: [&[u8]; 6] = [
        b"$5\r\nhello\r\n",
        b"*3\r\n:1\r\n$-1\r\n|1\r\n+ttl\r\n,1.5\r\n%1\r\n+a\r\n*0\r\n",
        b"*?\r\n$?\r\n;2\r\nab\r\n;0\r\n%?\r\n_\r\n#t\r\n.\r\n.\r\n",
        b"|1\r\n+k\r\n(12\r\n=7\r\ntxt:abc\r\n",
        b">2\r\n+invalidate\r\n~1\r\n!3\r\nERR\r\n",
        b"-MOVED 1 h:1\r\n",
    ];

    /// trap 6. Fails if a border anywhere loses the place, or asks for bytes that are not needed.
    #[test]
    fn goes_on_at_every_border() {
        for whole in REPLIES {
            let mut decoder = Decoder::new(Protocol::Resp3, Limits::default());
            for end in 0..whole.len() {
                match decoder.decode(&whole[..end]) {
                    Ok(Step::More { need }) => assert!((1..=whole.len() - end).contains(&need)),
                    other => panic!("{other:?} at {end}"),
                }
            }
            let Ok(Step::Frame(frame)) = decoder.decode(whole) else { panic!("no frame") };
            assert_eq!((frame.raw(), decoder.is_inside()), (whole, false));
        }
    }

    /// R-096. Fails if an error's offset is not that of what was wrong, or shows bytes of the reply.
    #[test]
    fn errors_say_what_and_where() {
        let cases: [(&[u8], Fault, u64); 8] = [
            (b"*2\r\n:1\r\n@", Fault::UnknownType, 8),
            (b"*1\r\n:x\r\n", Fault::BadInteger, 5),
            (b"$3\r\nabcd\r\n", Fault::BadTerminator, 7),
            (b"+a\rb", Fault::BareCarriageReturn, 2),
            (b"%?\r\n+a\r\n.\r\n", Fault::OddMap, 8),
            (b"*?\r\n|0\r\n.\r\n", Fault::DanglingAttribute, 8),
            (b"$4294967296\r\n", Fault::StringTooLong, 1),
            (b"HTTP/1.1 400 Bad Request\r\n", Fault::Http, 0),
        ];
        for (whole, fault, offset) in cases {
            let mut decoder = Decoder::new(Protocol::Resp3, Limits::default());
            let error = decoder.decode(whole).expect_err("it is wrong");
            assert_eq!((error.fault(), error.offset()), (fault, offset));
        }
    }

    /// R-096, trap 6. Fails if the greatest string is refused, a greater one is not, or what is
    /// missing of it is not counted to the byte.
    #[test]
    fn the_greatest_string_is_512_mib() {
        let mut decoder = Decoder::new(Protocol::Resp3, Limits::default());
        let step = decoder.decode(b"*1\r\n$536870912\r\n");
        assert!(matches!(step, Ok(Step::More { need: 536_870_914 })), "{step:?}");
        let step = decoder.decode(b"*1\r\n$536870912\r\nabcd");
        assert!(matches!(step, Ok(Step::More { need: 536_870_910 })), "{step:?}");
        let mut decoder = Decoder::new(Protocol::Resp3, Limits::default());
        let error = decoder.decode(b"$536870913\r\n").expect_err("one byte too long");
        assert_eq!(error.fault(), Fault::StringTooLong);
    }

    /// Design section 2. Fails if a frame or a step grows.
    #[test]
    fn views_stay_small() {
        assert_eq!(size_of::<Frame<'_>>(), 24);
        assert_eq!(size_of::<Result<Step<'_>, ProtocolError>>(), 24);
    }
}
