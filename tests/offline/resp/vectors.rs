//! The case files: inputs, and the outcomes that are right.

use std::{collections::HashMap, fs, path::Path};

use hedgerow::resp::Protocol;

use super::feed::Outcome;

/// One input with what it may give.
pub(super) struct Vector {
    pub(super) label: String,
    pub(super) protocol: Protocol,
    reads: Vec<Vec<u8>>,
    pub(super) expected: Vec<Expected>,
}

impl Vector {
    pub(super) fn reads(&self) -> Vec<&[u8]> {
        self.reads.iter().map(Vec::as_slice).collect()
    }

    pub(super) fn whole(&self) -> Vec<u8> {
        self.reads.concat()
    }
}

/// One right outcome.
#[derive(Debug, Default)]
pub(super) struct Expected {
    frames: Vec<String>,
    state: String,
}

impl Expected {
    pub(super) fn fits(&self, got: &Outcome) -> bool {
        match self.state.as_str() {
            "any" => true,
            "no-frame" => got.frames.is_empty() && got.state != "end",
            state => got.state == state && got.frames == self.frames,
        }
    }
}

/// All vectors of `tests/cases/resp`.
pub(super) fn cases() -> Vec<Vector> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/resp");
    let mut inputs: Vec<_> = fs::read_dir(folder)
        .expect("the case folder is there")
        .map(|entry| entry.expect("an entry is readable").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "txt"))
        .collect();
    inputs.sort();
    inputs.iter().flat_map(|path| file(path)).collect()
}

fn file(path: &Path) -> Vec<Vector> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut expected: HashMap<String, Vec<Expected>> = sections(&path.with_extension("expect"))
        .into_iter()
        .map(|(l, s)| (l, outcomes(&s)))
        .collect();
    let vectors: Vec<_> = sections(path)
        .into_iter()
        .map(|(label, lines)| {
            let expected = expected.remove(&label).expect("each input has its outcome");
            vector(format!("{name} {label}"), &lines, expected)
        })
        .collect();
    assert!(expected.is_empty(), "outcomes without inputs in {name}: {:?}", expected.keys());
    vectors
}

/// Label and lines of each vector.
fn sections(path: &Path) -> Vec<(String, Vec<String>)> {
    let text = fs::read_to_string(path).expect("a case file is readable");
    let mut sections: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("= ") {
            Some(label) => sections.push((label.to_owned(), Vec::new())),
            None => sections.last_mut().expect("a label comes first").1.push(line.to_owned()),
        }
    }
    sections
}

fn vector(label: String, lines: &[String], expected: Vec<Expected>) -> Vector {
    let mut protocol = Protocol::Resp3;
    let mut reads = Vec::new();
    for line in lines {
        let (word, rest) = line.split_once(' ').expect("a word and its text");
        match word {
            "proto" if rest == "2" => protocol = Protocol::Resp2,
            "proto" => assert_eq!(rest, "3"),
            "<" => reads.push(unescape(rest)),
            repeat => {
                let count = repeat.strip_prefix("<x").and_then(|count| count.parse().ok());
                reads.push(unescape(rest).repeat(count.expect("a known line")));
            }
        }
    }
    Vector { label, protocol, reads, expected }
}

fn outcomes(lines: &[String]) -> Vec<Expected> {
    let mut outcomes = vec![Expected::default()];
    for line in lines {
        let last = outcomes.last_mut().expect("never empty");
        match line.split_once(' ').unwrap_or((line, "")) {
            (">", frame) => last.frames.push(expand(frame)),
            ("state", state) => last.state = state.to_owned(),
            ("or", _) => outcomes.push(Expected::default()),
            ("Debatable", _) => {}
            _ => panic!("an unknown line: {line}"),
        }
    }
    outcomes
}

/// Writes `nest(N, array set) v` out.
fn expand(frame: &str) -> String {
    let Some(rest) = frame.strip_prefix("nest(") else { return frame.to_owned() };
    let (arguments, value) = rest.split_once(") ").expect("a value follows");
    let (count, kinds) = arguments.split_once(", ").expect("a count and kinds");
    let count: usize = count.parse().expect("a count");
    let kinds: Vec<_> = kinds.split(' ').collect();
    let open: String = (0..count).map(|i| format!("{} [", kinds[i % kinds.len()])).collect();
    format!("{open}{value}{}", "]".repeat(count))
}

fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match bytes.next().expect("an escape") {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'x' => {
                let digits = [bytes.next(), bytes.next()].map(|digit| digit.expect("two digits"));
                let digits = std::str::from_utf8(&digits).expect("hexadecimal");
                u8::from_str_radix(digits, 16).expect("hexadecimal")
            }
            plain => plain,
        });
    }
    out
}
