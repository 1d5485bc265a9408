//! How long the blocks of a socket are: as suits the frames that it receives.

/// Smallest and largest block; sizes follow what the socket receives.
const BLOCK_MIN: usize = 16 << 10;
const BLOCK_MAX: usize = 256 << 10;
/// Shows with only small frames in a row after which blocks shrink again.
const SHRINK_AFTER: u32 = 64;
/// A socket that receives frames of at least this length has one block posted at a time.
const LARGE_MIN: usize = 32 << 10;
/// Such a socket posts blocks of a whole frame up to this length.
const LARGE_BLOCK_MAX: usize = 4 << 20;
/// Where large frames differ in length, blocks are a quarter of one, within these limits, and what
/// a frame then misses is received into an exact buffer: only its head is copied.
const HEAD_MIN: usize = 16 << 10;
const HEAD_MAX: usize = 64 << 10;
/// Frames are alike when their lengths differ by no more than digits of a header do.
const ALIKE: usize = 64;
/// Shows without a large frame after which a socket is treated as one of small frames again.
const LARGE_UNTIL: u32 = 8;

/// The length of the next blocks, and what it follows from.
pub(super) struct BlockSize {
    pub(super) len: usize,
    /// Shows in a row that ask for shorter blocks.
    small_run: u32,
    /// Length of the last large frame, while the socket receives such.
    large: Option<usize>,
}

impl BlockSize {
    pub(super) fn new() -> BlockSize {
        BlockSize { len: BLOCK_MIN, small_run: 0, large: None }
    }

    /// Whether the socket receives large frames.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.large.is_some()
    }

    /// Follows what the socket receives: `whole` is the longest complete frame just shown (0 if none
    /// was worth keeping), `longest` counts an unfinished one too.
    #[inline]
    pub(super) fn follow(&mut self, whole: usize, longest: usize, incremental: bool) {
        if longest >= LARGE_MIN {
            let alike = self.large.is_some_and(|last| last.abs_diff(longest) <= ALIKE);
            self.len = if alike && incremental && longest <= LARGE_BLOCK_MAX {
                longest
            } else {
                (longest / 4).clamp(HEAD_MIN, HEAD_MAX)
            };
            self.large = Some(longest);
            self.small_run = 0;
        } else if self.large.is_none() {
            self.fit(longest);
        } else if whole < LARGE_MIN {
            self.small_run += 1;
            if self.small_run >= LARGE_UNTIL {
                self.large = None;
                self.small_run = 0;
                self.len = BLOCK_MIN;
            }
        }
    }

    /// Blocks hold about four of the longest frames seen lately, inside the two limits.
    fn fit(&mut self, longest: usize) {
        let fit = (longest.min(BLOCK_MAX) * 4).next_power_of_two().clamp(BLOCK_MIN, BLOCK_MAX);
        if fit > self.len {
            self.len = fit;
            self.small_run = 0;
        } else if fit < self.len {
            self.small_run += 1;
            if self.small_run >= SHRINK_AFTER {
                self.len /= 2;
                self.small_run = 0;
            }
        } else {
            self.small_run = 0;
        }
    }
}
