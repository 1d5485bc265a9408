//! Replies: every case in `tests/cases/resp` at every split, random trees, the fuzz corpus.

mod canon;
mod conversions;
mod corpus;
mod feed;
pub(crate) mod memory;
mod random;
mod vectors;

use std::time::{Duration, Instant};

use feed::{Outcome, outcome};
use vectors::{Vector, cases};

fn check(vector: &Vector, reads: &[&[u8]], how: &str) {
    let got = outcome(vector.protocol, reads);
    let fits = vector.expected.iter().any(|expected| expected.fits(&got));
    assert!(fits, "{} {how}: got {got:#?}\nexpected one of {:#?}", vector.label, vector.expected);
}

fn each_byte(whole: &[u8]) -> Vec<&[u8]> {
    whole.chunks(1).collect()
}

/// R-096, trap 6; case resp/01, case resp/02, case resp/03, case resp/04, case resp/05, case resp/06,
/// case resp/07, case resp/08, case resp/09. Fails if a split anywhere changes what a vector gives,
/// or if a vector gives anything but what its file says.
#[test]
fn every_case_at_every_split() {
    let cases = cases();
    assert_eq!(cases.len(), 120, "a case file is missing or has grown");
    for vector in &cases {
        let whole = vector.whole();
        check(vector, &vector.reads(), "with the given borders");
        check(vector, &[&whole], "in one piece");
        if whole.len() < 4096 {
            check(vector, &each_byte(&whole), "byte by byte");
        }
        if whole.len() < 400 {
            for border in 0..=whole.len() {
                let (left, right) = whole.split_at(border);
                check(vector, &[left, right], &format!("with a border at {border}"));
            }
        }
    }
}

/// Fails if a header makes the decoder or a `Value` reserve memory for what it
/// only announces, or if a vector takes longer than 2 s.
#[test]
fn every_case_within_memory_and_time() {
    for vector in &cases() {
        let whole = vector.whole();
        let began = Instant::now();
        memory::check(&vector.label, vector.protocol, &vector.reads());
        memory::check(&vector.label, vector.protocol, &[&whole]);
        assert!(began.elapsed() < Duration::from_secs(2), "{} took too long", vector.label);
    }
}

/// Fails if many small elements make a `Value` more than 64 times as large as its bytes.
#[test]
fn values_of_tiny_elements_stay_within_memory() {
    use hedgerow::resp::Protocol::Resp3;
    const COUNT: usize = 100_000;
    for element in [
        "_\r\n",
        "*0\r\n",
        "$0\r\n\r\n",
        "+a\r\n",
        "|0\r\n+\r\n",
        "*1\r\n_\r\n",
        "*?\r\n_\r\n.\r\n",
    ] {
        let streamed = format!("*?\r\n{}.\r\n", element.repeat(COUNT));
        let counted = format!("*{COUNT}\r\n{}", element.repeat(COUNT));
        let map = format!("%{}\r\n{}", COUNT / 2, element.repeat(COUNT));
        for whole in [streamed, counted, map] {
            memory::check(element, Resp3, &[whole.as_bytes()]);
        }
    }
}

/// R-096, case resp/04. Fails if a reply at the depth limit exhausts a stack of 1 MiB when its value
/// is built, compared, cloned, printed or dropped.
#[test]
fn the_deepest_value_needs_little_stack() {
    let levels = "|1\r\n+k\r\n+v\r\n*1\r\n".repeat(511);
    let deep = move || {
        for whole in [format!("{levels}:1\r\n"), format!("{}:1\r\n", "%1\r\n+k\r\n".repeat(512))] {
            let value = feed::value_of(whole.as_bytes());
            assert_eq!(value, value.clone());
            assert!(format!("{value:?} {value:#?}").len() > 512);
        }
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(deep);
    thread.expect("a thread starts").join().expect("the value fits the stack");
}

/// Fails if the default depth limit is not exactly 512.
#[test]
fn depth_limit_is_exact() {
    use hedgerow::resp::Protocol::Resp3;
    let nest = |depth: usize| format!("{}:1\r\n", "*1\r\n".repeat(depth));
    let Outcome { frames, state } = outcome(Resp3, &[nest(512).as_bytes()]);
    assert_eq!((frames.len(), state), (1, "end"));
    assert_eq!(outcome(Resp3, &[nest(513).as_bytes()]).state, "error");
}
