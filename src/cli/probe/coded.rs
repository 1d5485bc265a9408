//! Histograms as text: HdrHistogram V2, deflated, in base64, as logs of every HdrHistogram library hold
//! them. Values are nanoseconds.

use base64::prelude::{BASE64_STANDARD, Engine};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

/// Longest text that is read: a histogram of three digits has a few thousand.
const TEXT_MAX: usize = 4 << 20;

/// A histogram as text.
pub(crate) fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    // Into memory, and with counts that are whole numbers, nothing can fail.
    let _ = V2DeflateSerializer::new().serialize(histogram, &mut bytes);
    BASE64_STANDARD.encode(bytes)
}

/// A histogram of such a text; an error says what is wrong with it.
pub(crate) fn decode(text: &str) -> Result<Histogram<u64>, String> {
    if text.len() > TEXT_MAX {
        return Err("is too long for a histogram".into());
    }
    let bytes = BASE64_STANDARD.decode(text).map_err(|error| format!("is no base64: {error}"))?;
    let histogram = Deserializer::new().deserialize(&mut bytes.as_slice());
    histogram.map_err(|error| format!("is no histogram: {error:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a histogram is not read back as it was written, or a wrong text is one.
    #[test]
    fn histograms_are_read_back() {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
        for n in 1..1_000 {
            histogram.record(n * n * 1_000).unwrap();
        }
        let text = encode(&histogram);
        assert!(text.starts_with("HIST"), "as HdrHistogram writes it: {text}");
        assert_eq!(decode(&text).unwrap(), histogram);
        for wrong in ["", "HISTFAAAA", "!", &text[..text.len() / 2]] {
            assert!(decode(wrong).is_err(), "{wrong}");
        }
    }
}
