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

/// CRC16/XMODEM (polynomial 0x1021, start 0, no reflection).
fn crc16(bytes: &[u8]) -> u16 {
    let (eights, rest) = bytes.as_chunks::<8>();
    let mut crc = 0u16;
    for eight in eights {
        let [high, low] = crc.to_be_bytes();
        crc = TABLES[7][usize::from(eight[0] ^ high)]
            ^ TABLES[6][usize::from(eight[1] ^ low)]
            ^ TABLES[5][usize::from(eight[2])]
            ^ TABLES[4][usize::from(eight[3])]
            ^ TABLES[3][usize::from(eight[4])]
            ^ TABLES[2][usize::from(eight[5])]
            ^ TABLES[1][usize::from(eight[6])]
            ^ TABLES[0][usize::from(eight[7])];
    }
    for byte in rest {
        crc = crc << 8 ^ TABLES[0][usize::from((crc >> 8) as u8 ^ byte)];
    }
    crc
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
    // Nearly every key has none, which this finds out by words instead of bytes.
    if !key.contains(&b'{') {
        return key;
    }
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
    crc16(hash_tag(key)) % SLOT_COUNT
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
            assert_eq!(crc16(&bytes[..end]), plain, "{end} bytes");
        }
    }
}
