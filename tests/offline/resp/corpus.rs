//! The fuzz corpus as an ordinary test.

use std::{fs, path::Path};

use hedgerow::resp::{Decoder, Frame, Limits, Protocol, Step};

use super::{feed, outcome};

/// Fails if an input of the corpus panics, or gives something else when it comes byte by byte.
#[test]
fn the_fuzz_corpus_replays() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus/decode");
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("the corpus is there") {
        let input = fs::read(entry.expect("an entry is readable").path()).expect("it is readable");
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let pieces: Vec<_> = input.chunks(1).collect();
            assert_eq!(outcome(protocol, &[&input]), outcome(protocol, &pieces));
        }
        count += 1;
    }
    assert!(count >= 100, "the corpus has only {count} inputs");
}

/// Fails if a view over bytes that no decoder has checked panics or never ends.
#[test]
fn unchecked_bytes_are_harmless() {
    for vector in super::vectors::cases() {
        let whole = vector.whole();
        for end in 0..whole.len().min(200) {
            let frame = Frame::from_validated(&whole[..end]);
            let _ = (frame.text(), frame.count(), frame.int(), frame.double(), frame.format());
            assert!(frame.elements().count() <= end);
            assert!(frame.attributes().count() <= end);
        }
    }
}

/// Fails if a limit of the caller's own is not kept to the byte.
#[test]
fn own_limits_are_exact() {
    let tight = Limits { depth: 1, bulk: 4, reply: 16, elements: 3 };
    let fits: [&[u8]; 5] = [
        b"$4\r\nabcd\r\n",
        b"+abcd\r\n",
        b"*3\r\n_\r\n_\r\n_\r\n",
        b"*?\r\n:1\r\n.\r\n",
        b"$?\r\n;1\r\na\r\n;0\r\n",
    ];
    let breaks: [&[u8]; 6] = [
        b"$5\r\nabcde\r\n",
        b"+abcde\r\n",
        b"*4\r\n",
        b"*1\r\n*0\r\n",
        b"*2\r\n$4\r\nabcd\r\n:1\r\n",
        b"$?\r\n;3\r\nabc\r\n;2\r\n",
    ];
    for (inputs, wanted) in [(&fits[..], true), (&breaks[..], false)] {
        for input in inputs {
            let mut limits = tight;
            if *input == fits[4] {
                limits.reply = 32;
            }
            let step = Decoder::new(Protocol::Resp3, limits).decode(input);
            assert_eq!(matches!(step, Ok(Step::Frame(_))), wanted, "{input:?}: {step:?}");
            assert_eq!(step.is_err(), !wanted, "{input:?}: {step:?}");
        }
    }
}

/// Fails if a RESP2 connection takes a RESP3 type for a reply.
#[test]
fn resp2_refuses_resp3_types() {
    for input in [
        "_\r\n",
        "#t\r\n",
        ",1\r\n",
        "(1\r\n",
        "!3\r\nERR\r\n",
        "=5\r\ntxt:a\r\n",
        "%0\r\n",
        "~0\r\n",
        ">0\r\n",
        "|0\r\n+a\r\n",
        "*?\r\n.\r\n",
        "$?\r\n;0\r\n",
        "*1\r\n_\r\n",
    ] {
        assert_eq!(outcome(Protocol::Resp2, &[input.as_bytes()]).state, "error", "{input:?}");
        assert_eq!(outcome(Protocol::Resp3, &[input.as_bytes()]).state, "end", "{input:?}");
    }
    let nulls = feed::feed(Protocol::Resp2, &[b"$-1\r\n*-1\r\n"], |frame| assert!(frame.is_null()));
    assert_eq!(nulls, "end");
}
