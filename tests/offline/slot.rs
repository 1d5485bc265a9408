//! Hash slots against the corpus of key vectors.
use hedgerow::command::raw;
use hedgerow::command::slot::{SLOT_COUNT, slot_of};

const VECTORS: &str = include_str!("../cases/cluster/06-key-slots.txt");

/// One vector: its label, the key, the slot.
struct Vector {
    label: &'static str,
    key: Vec<u8>,
    slot: u16,
}

/// The bytes of a quoted text with `\r \n \t \\ \" \xHH`.
fn unescape(quoted: &str) -> Vec<u8> {
    let inner = quoted.trim().strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let mut bytes = inner.expect("a quoted key").bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'r') => b'\r',
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(b'x') => {
                    let hex = [bytes.next().unwrap(), bytes.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap()
                }
                Some(other) => other,
                None => panic!("an escape at the end of {quoted}"),
            },
            plain => plain,
        });
    }
    out
}

fn vectors() -> Vec<Vector> {
    let mut all: Vec<Vector> = Vec::new();
    for line in VECTORS.lines() {
        if let Some(label) = line.strip_prefix("= ") {
            all.push(Vector { label, key: Vec::new(), slot: SLOT_COUNT });
        } else if let (Some(key), Some(last)) = (line.strip_prefix("key "), all.last_mut()) {
            last.key = unescape(key);
        } else if let (Some(slot), Some(last)) = (line.strip_prefix("slot "), all.last_mut()) {
            last.slot = slot.parse().expect("a slot");
        }
    }
    all
}

/// Proves case cluster/06. Fails if the polynomial, the hash tag rule or the modulus is another one.
#[test]
fn every_vector_has_its_slot() {
    let vectors = vectors();
    assert!(vectors.len() >= 15, "the corpus was read: {}", vectors.len());
    for Vector { label, key, slot } in vectors {
        assert_eq!(slot_of(&key), slot, "{label}");
    }
}

/// Proves case cluster/06. Fails if a command takes its slot from anything but its first key.
#[test]
fn a_command_has_the_slot_of_its_key() {
    for Vector { label, key, slot } in vectors() {
        assert_eq!(raw("GET").arg(&key).build::<()>().slot(), Some(slot), "{label}");
        let sharded = raw("SPUBLISH").arg(&key).arg("message").build::<()>();
        assert_eq!(sharded.slot(), Some(slot), "{label}");
        let counted = raw("eval").arg("return 1").arg(1).arg(&key).build::<()>();
        assert_eq!(counted.slot(), Some(slot), "{label}");
    }
}
