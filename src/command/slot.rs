//! Hash slots: CRC16/XMODEM of the key, or of its hash tag, modulo 16384.

/// Number of hash slots in a cluster.
pub const SLOT_COUNT: u16 = 16384;

const POLYNOMIAL: u16 = 0x1021;

/// CRC tables for eight bytes at a time: `TABLES[k][b]` is the CRC of byte `b` followed by `k`
/// zero bytes.
static TABLES: [[u16; 256]; 8] = tables();

const fn tables() -> [[u16; 256]; 8] {
    let mut tables = [[0u16; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { crc << 1 ^ POLYNOMIAL } else { crc << 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[zeros - 1][byte];
            tables[zeros][byte] = before << 8 ^ tables[0][(before >> 8) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

/// CRC16/XMODEM (polynomial 0x1021, start 0, no reflection), and whether any byte is a `{`.
#[inline]
fn crc16(bytes: &[u8]) -> (u16, bool) {
    let (rest, eights) = bytes.as_rchunks::<8>();
    // Zeros in front change nothing, so that what is over needs but one step as well.
    let first = match bytes.first_chunk() {
        // It is taken with what comes after it, at once.
        Some(chunk) if !rest.is_empty() => u64::from_be_bytes(*chunk) >> (64 - 8 * rest.len()),
        _ => rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    let crc = if rest.is_empty() { 0 } else { eight(0, first.to_be_bytes()) };
    eights.iter().fold((crc, has_brace(first)), |(crc, found), bytes| {
        (eight(crc, *bytes), found | has_brace(u64::from_be_bytes(*bytes)))
    })
}

/// Whether any byte of a word is a `{`: all are compared at once, as what becomes zero borrows from above.
#[inline]
fn has_brace(word: u64) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let differs = word ^ (ONES * b'{' as u64);
    differs.wrapping_sub(ONES) & !differs & (ONES << 7) != 0
}

/// The CRC after eight more bytes.
#[inline]
fn eight(crc: u16, bytes: [u8; 8]) -> u16 {
    let [high, low] = crc.to_be_bytes();
    TABLES[7][usize::from(bytes[0] ^ high)]
        ^ TABLES[6][usize::from(bytes[1] ^ low)]
        ^ TABLES[5][usize::from(bytes[2])]
        ^ TABLES[4][usize::from(bytes[3])]
        ^ TABLES[3][usize::from(bytes[4])]
        ^ TABLES[2][usize::from(bytes[5])]
        ^ TABLES[1][usize::from(bytes[6])]
        ^ TABLES[0][usize::from(bytes[7])]
}

/// The part of a key that its slot is made of: the bytes between the first `{` and the first `}`
/// after it if there is at least one, else the whole key (cluster specification, hash tags).
///
/// ```
/// use hedgerow::command::slot::hash_tag;
/// assert_eq!(hash_tag(b"{user1000}.following"), b"user1000");
/// assert_eq!(hash_tag(b"foo{}{bar}"), b"foo{}{bar}");
/// ```
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let tag = || {
        let open = key.iter().position(|byte| *byte == b'{')?;
        let inner = key.get(open + 1..)?;
        let close = inner.iter().position(|byte| *byte == b'}')?;
        inner.get(..close)
    };
    tag().filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// The hash slot of a key, 0 to 16383 (cluster specification, key distribution model).
///
/// ```
/// use hedgerow::command::slot::slot_of;
/// assert_eq!(slot_of(b"123456789"), 12739);
/// assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"{user1000}.followers"));
/// ```
pub fn slot_of(key: &[u8]) -> u16 {
    // Nearly every key has no tag, which is found out on the way.
    let crc = match crc16(key) {
        (crc, false) => crc,
        (_, true) => crc16(hash_tag(key)).0,
    };
    crc % SLOT_COUNT
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves the eight-byte step against the plain one. Fails if any table is built wrong.
    #[test]
    fn crc_of_eight_at_a_time_is_the_crc_of_one() {
        let bytes: Vec<u8> = (0..100u8).map(|n| n.wrapping_mul(37).wrapping_add(11)).collect();
        for end in 0..bytes.len() {
            let plain = bytes[..end]
                .iter()
                .fold(0u16, |crc, byte| crc << 8 ^ TABLES[0][usize::from((crc >> 8) as u8 ^ byte)]);
            assert_eq!(crc16(&bytes[..end]), (plain, false), "{end} bytes");
        }
    }

    /// Fails if a brace is missed or seen where none is, which would put a key into another slot.
    #[test]
    fn braces_are_found_everywhere() {
        for len in 0..40 {
            for other in [0, b'z', b'|', 0xfb, 0xff, b'}'] {
                assert!(!crc16(&vec![other; len]).1, "{len} of {other}");
                for at in 0..len {
                    let mut bytes = vec![other; len];
                    bytes[at] = b'{';
                    assert!(crc16(&bytes).1, "{at} of {len} among {other}");
                }
            }
        }
    }
}
