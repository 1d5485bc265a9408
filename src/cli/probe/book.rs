//! What one pass measured: histograms, and single reads only up to a bound, so that an hour takes no more
//! memory than a minute.

use super::super::record::{Outcome, Times};
use hedgerow::engine::ReadCopy;
use hedgerow_runtime::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Single reads that are kept; of a pass with more only the histogram is.
pub(crate) const SAMPLES_MAX: usize = 20_000;
/// Kinds of errors that are told apart; more count as `other`.
const KINDS_MAX: usize = 32;
/// Significant digits of the histograms of nodes.
const NODE_DIGITS: u8 = 2;
/// Unit of a kept read.
const SAMPLE_NS: u128 = 100;

/// One finished read.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    /// When it was due.
    pub(crate) planned: Instant,
    /// When it was really sent.
    pub(crate) sent: Instant,
    /// When its reply was there.
    pub(crate) at: Instant,
    /// What the reply was.
    pub(crate) outcome: Outcome,
}

/// The figures of one pass.
#[derive(Clone, Debug)]
pub(crate) struct Book {
    /// From the planned instant to the reply; successes only.
    pub(crate) latency: Times,
    /// From the real send to the reply; successes only.
    pub(crate) service: Times,
    /// Latencies in order of their replies, in tenths of a microsecond; empty past the bound.
    samples: Vec<u32>,
    is_past_bound: bool,
    /// Keys that were gone.
    pub(crate) misses: u64,
    /// Errors by kind.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Due, but not sent before the end of their block.
    pub(crate) unsent: u64,
    /// Sent, but without a reply at the end.
    pub(crate) unanswered: u64,
    /// Copies by node, the primary first.
    pub(crate) nodes: Vec<NodeBook>,
    /// Copies that are in no figure of a node, for want of room.
    pub(crate) copies_dropped: u64,
}

impl Book {
    /// An empty one, for so many nodes.
    pub(crate) fn new(nodes: usize) -> Book {
        Book {
            latency: Times::new(),
            service: Times::new(),
            samples: Vec::new(),
            is_past_bound: false,
            misses: 0,
            errors: BTreeMap::new(),
            unsent: 0,
            unanswered: 0,
            nodes: (0..nodes).map(|_| NodeBook::new()).collect(),
            copies_dropped: 0,
        }
    }

    /// All nodes but these get reads for their times only.
    pub(crate) fn served_by(&mut self, serves: impl Fn(usize) -> bool) {
        for (at, node) in self.nodes.iter_mut().enumerate() {
            node.is_spare = !serves(at);
        }
    }

    /// A read ended.
    pub(crate) fn add(&mut self, done: Done) {
        if let Outcome::Failed(kind) | Outcome::Lost(kind) = done.outcome {
            let known = self.errors.len() < KINDS_MAX || self.errors.contains_key(kind.as_ref());
            let kind = if known { kind.into_owned() } else { "other".into() };
            *self.errors.entry(kind).or_default() += 1;
            return;
        }
        self.misses += u64::from(done.outcome == Outcome::Miss);
        let latency = done.at.since(done.planned);
        self.latency.add(latency);
        self.service.add(done.at.since(done.sent));
        self.keep(latency);
    }

    fn keep(&mut self, latency: Duration) {
        if self.is_past_bound {
            return;
        }
        if self.samples.len() >= SAMPLES_MAX {
            // Half of the reads would look like all of them.
            (self.is_past_bound, self.samples) = (true, Vec::new());
            return;
        }
        self.samples.push(u32::try_from(latency.as_nanos() / SAMPLE_NS).unwrap_or(u32::MAX));
    }

    /// A copy was answered.
    pub(crate) fn add_copy(&mut self, copy: &ReadCopy) {
        let Some(node) = self.nodes.get_mut(copy.node as usize) else {
            self.copies_dropped += 1;
            return;
        };
        node.hedges += u64::from(copy.is_hedge);
        node.won += u64::from(copy.won);
        node.times.add(copy.time);
    }

    /// Every latency in microseconds, in the order of the replies; `None` past the bound.
    pub(crate) fn samples_us(&self) -> Option<Vec<f64>> {
        let us = |tenths: &u32| f64::from(*tenths) / 10.0;
        (!self.is_past_bound).then(|| self.samples.iter().map(us).collect())
    }

    /// All errors together.
    pub(crate) fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Bytes that it takes, on the heap and off.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        let nodes: usize = self.nodes.iter().map(|node| node.times.bytes()).sum();
        let kinds: usize = self.errors.keys().map(|kind| kind.capacity() + 64).sum();
        self.latency.bytes() + self.service.bytes() + self.samples.capacity() * 4 + nodes + kinds
    }
}

/// The copies of reads that one node answered: originals and hedges, winners and losers.
#[derive(Clone, Debug)]
pub(crate) struct NodeBook {
    /// From queueing to the reply.
    pub(crate) times: Times,
    /// Hedges among them.
    pub(crate) hedges: u64,
    /// Copies whose reply the caller got.
    pub(crate) won: u64,
    /// It serves no reads of this pass: some were sent there beside them, for its times.
    pub(crate) is_spare: bool,
}

impl NodeBook {
    fn new() -> NodeBook {
        NodeBook { times: Times::with_digits(NODE_DIGITS), hedges: 0, won: 0, is_spare: false }
    }
}

#[cfg(test)]
mod tests {
    use super::super::heat::Heat;
    use super::*;

    /// Memory that a probe of an hour may take for its figures.
    const MEMORY_MAX: usize = 64 << 20;

    fn done(n: u64, latency_ns: u64, outcome: Outcome) -> Done {
        let planned = Instant::from_nanos(n * 100_000);
        let at = Instant::from_nanos(n * 100_000 + latency_ns);
        Done { planned, sent: planned, at, outcome }
    }

    /// An hour at 10,000 reads a second, over five passes of sixteen nodes. Fails if memory grows
    /// with the number of reads or of kinds of errors, so that the figures of such a run pass 64 MiB.
    #[test]
    fn an_hour_fits_into_64_mib() {
        let (passes, nodes, reads) = (5, 16, 36_000_000);
        let mut books: Vec<Book> = (0..passes).map(|_| Book::new(nodes)).collect();
        let mut heat = Heat::new(nodes, Duration::from_secs(3600));
        let mut dice = fastrand::Rng::with_seed(1);
        for n in 0..reads {
            let latency_ns = 100_000 + (dice.u64(..) >> (24 + n % 16));
            let book = &mut books[n as usize % passes];
            let outcome = match n % 1_000 {
                0 => Outcome::Failed(format!("E{}", n % 1_000_000).into()),
                _ => Outcome::Hit,
            };
            book.add(done(n, latency_ns, outcome));
            let node = n as usize % nodes;
            book.nodes[node].times.add(Duration::from_nanos(latency_ns));
            heat.add(node, Duration::from_nanos(n * 100_000), Duration::from_nanos(latency_ns));
        }
        let bytes = books.iter().map(Book::bytes).sum::<usize>() + heat.bytes();
        assert!(bytes < MEMORY_MAX, "{bytes} bytes");
        let reads: u64 = books.iter().map(|book| book.latency.count() + book.error_count()).sum();
        assert_eq!(reads, 36_000_000);
        assert!(books.iter().all(|book| book.samples_us().is_none() && book.errors.len() <= 33));
    }

    /// Fails if a read below the bound is not kept as it was, one past it leaves a part of them
    /// behind, or an error enters the latency.
    #[test]
    fn single_reads_are_kept_up_to_the_bound() {
        let mut book = Book::new(1);
        book.add(done(0, 1_234_567, Outcome::Hit));
        book.add(done(1, 100, Outcome::Miss));
        book.add(done(2, 9_999_999, Outcome::Lost("timeout".into())));
        assert_eq!(book.samples_us(), Some(vec![1_234.5, 0.1]));
        assert_eq!((book.latency.count(), book.misses, book.error_count()), (2, 1, 1));
        (2..SAMPLES_MAX as u64).for_each(|n| book.add(done(n, 1_000, Outcome::Hit)));
        assert_eq!(book.samples_us().map(|samples| samples.len()), Some(SAMPLES_MAX));
        book.add(done(0, 1_000, Outcome::Hit));
        assert_eq!(book.samples_us(), None);
        assert_eq!(book.latency.count(), SAMPLES_MAX as u64 + 1);
    }
}
