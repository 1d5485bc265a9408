//! Any bytes, whole and cut in two at every place that the first byte names: no panic, the same
//! frames, and a value of each.
#![no_main]

use bytes::Bytes;
use hedgerow::resp::{Decoder, Frame, Limits, Protocol, Reply, Step, Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let whole = frames(&[input]);
    let pieces: Vec<_> = input.chunks(1).collect();
    assert_eq!(frames(&pieces), whole);
    let cut = input.first().map_or(0, |byte| usize::from(*byte) % input.len());
    let (left, right) = input.split_at(cut);
    assert_eq!(frames(&[left, right]), whole);
    // Bytes that no decoder has checked.
    let frame = Frame::from_validated(input);
    let _ = (frame.text(), frame.elements().count(), frame.attributes().count());
    let _ = Reply::<Bytes>::new(frame, None).convert::<Value>();
});

/// The raw bytes of all frames, and whether the run ended in an error.
fn frames(reads: &[&[u8]]) -> (Vec<Vec<u8>>, bool) {
    let mut decoder = Decoder::new(Protocol::Resp3, Limits::default());
    let (mut buffer, mut frames) = (Vec::new(), Vec::new());
    for read in reads {
        buffer.extend_from_slice(read);
        loop {
            match decoder.decode(&buffer) {
                Ok(Step::Frame(frame)) => {
                    let value = Reply::<Bytes>::new(frame, None).convert::<Value>();
                    assert!(value.is_ok());
                    frames.push(frame.raw().to_vec());
                    let len = frame.len_raw();
                    buffer.drain(..len);
                }
                Ok(Step::More { need }) => {
                    assert!(need > 0);
                    break;
                }
                Err(_) => return (frames, true),
            }
        }
    }
    (frames, false)
}
