//! Feeding bytes to a decoder as a connection does.

use bytes::Bytes;
use hedgerow::resp::{Decoder, Frame, Limits, Protocol, Reply, Step, Value};

use super::canon;

/// What a run of reads gave.
#[derive(Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) frames: Vec<String>,
    pub(super) state: &'static str,
}

/// Feeds `reads` one after the other; `on_frame` sees each frame.
pub(super) fn feed(
    protocol: Protocol,
    reads: &[&[u8]],
    mut on_frame: impl FnMut(Frame<'_>),
) -> &'static str {
    let mut decoder = Decoder::new(protocol, Limits::default());
    let mut buffer = Vec::with_capacity(reads.iter().map(|read| read.len()).sum());
    // No answer but "more" may come before so many bytes are there.
    let mut promised = 0;
    for read in reads {
        buffer.extend_from_slice(read);
        loop {
            match decoder.decode(&buffer) {
                Ok(Step::Frame(frame)) => {
                    assert!(buffer.len() >= promised, "a frame came before the bytes asked for");
                    on_frame(frame);
                    let len = frame.len_raw();
                    buffer.drain(..len);
                    promised = 0;
                }
                Ok(Step::More { need }) => {
                    assert!(need > 0, "nothing was asked for");
                    promised = buffer.len() + need;
                    break;
                }
                Err(error) => {
                    assert!(buffer.len() >= promised, "an error came before the bytes asked for");
                    assert_eq!(decoder.decode(&buffer).err(), Some(error), "errors stay");
                    assert_eq!(decoder.decode(b"+OK\r\n").err(), Some(error), "errors stay");
                    return "error";
                }
            }
        }
    }
    assert_eq!(decoder.is_inside(), !buffer.is_empty(), "an empty buffer is the start of a frame");
    if buffer.is_empty() { "end" } else { "more" }
}

/// Frames in canonical notation and the state at the end. Each frame is also built as a value, read
/// again from its raw bytes, and compared.
pub(super) fn outcome(protocol: Protocol, reads: &[&[u8]]) -> Outcome {
    let mut frames = Vec::new();
    let state = feed(protocol, reads, |frame| {
        let text = canon::frame(frame);
        assert_eq!(canon::frame(Frame::from_validated(frame.raw())), text, "raw bytes suffice");
        assert_eq!(canon::value(&value(frame)), text, "a value keeps the shape");
        frames.push(text);
    });
    Outcome { frames, state }
}

/// The frame as a value that shares nothing.
pub(super) fn value(frame: Frame<'_>) -> Value {
    Reply::<Bytes>::new(frame, None).convert().expect("a value of every reply")
}

/// The value of exactly one RESP3 reply.
pub(super) fn value_of(whole: &[u8]) -> Value {
    let mut values = Vec::new();
    let state = feed(Protocol::Resp3, &[whole], |frame| values.push(value(frame)));
    assert_eq!((values.len(), state), (1, "end"));
    values.remove(0)
}
