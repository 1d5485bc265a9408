//! A fixed logarithmic scale of latencies: each doubling is cut into equal buckets.

/// Exponent of the shortest latency that is told apart: 2^14 ns = 16.4 us, less than any round trip.
const FIRST: u32 = 14;
/// Exponent past the longest: 2^36 ns = 68.7 s, more than the longest hedge delay.
const LAST: u32 = 36;

/// A scale of `2^BITS` buckets per doubling. A bucket is between `1 / 2^BITS` and half of that of
/// its latencies wide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale<const BITS: u32>;

impl<const BITS: u32> Scale<BITS> {
    /// How many buckets there are.
    pub(crate) const BUCKETS: usize = ((LAST - FIRST) << BITS) as usize;

    /// The bucket of a latency; shorter ones than 16.4 us and longer ones than 68.7 s are in the
    /// first and last.
    #[inline]
    pub(crate) fn bucket(ns: u64) -> usize {
        let ns = ns.clamp(1 << FIRST, (1 << LAST) - 1);
        let octave = 63 - ns.leading_zeros();
        let part = (ns >> (octave - BITS)) & ((1 << BITS) - 1);
        (u64::from((octave - FIRST) << BITS) | part) as usize
    }

    /// The shortest latency of a bucket; of `BUCKETS`, where the scale ends.
    pub(crate) fn start_ns(bucket: usize) -> u64 {
        let octave = FIRST + (bucket >> BITS) as u32;
        let part = (bucket & ((1 << BITS) - 1)) as u64;
        ((1 << BITS) | part) << (octave - BITS)
    }

    /// The latency at `share` (0 to 1) of a bucket.
    pub(crate) fn within_ns(bucket: usize, share: f64) -> u64 {
        let (start, end) = (Self::start_ns(bucket), Self::start_ns(bucket + 1));
        start + ((end - start) as f64 * share.clamp(0.0, 1.0)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a bucket does not hold its own bounds, or two buckets leave a gap.
    #[test]
    fn buckets_follow_each_other() {
        for bucket in 0..Scale::<3>::BUCKETS {
            let (start, next) = (Scale::<3>::start_ns(bucket), Scale::<3>::start_ns(bucket + 1));
            assert_eq!(Scale::<3>::bucket(start), bucket);
            assert_eq!(Scale::<3>::bucket(next - 1), bucket);
            assert!((next - start) * 8 <= start, "bucket {bucket} is wider than an eighth");
        }
        assert_eq!(Scale::<3>::bucket(0), 0);
        assert_eq!(Scale::<3>::bucket(u64::MAX), Scale::<3>::BUCKETS - 1);
        assert_eq!(Scale::<5>::within_ns(0, 0.0), 1 << FIRST);
    }
}
