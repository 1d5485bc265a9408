//! The histograms as an HdrHistogram V2 interval log, in nanoseconds.

use super::drive::Measured;
use super::record::Part;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriter, IntervalLogWriterBuilder, Tag};
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

type Log<'a, 'b, 'c> = IntervalLogWriter<'a, 'b, &'c mut dyn Write, V2DeflateSerializer>;

/// Writes the log: one interval per run and histogram. The untagged one is the latency of all
/// commands; tags are `service`, `get`, `get-service` and so on.
pub(crate) fn write(
    mut out: &mut dyn Write,
    began: SystemTime,
    runs: &[Measured],
) -> io::Result<()> {
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[hedgerow bench; nanoseconds; untagged: latency of all commands]")
        .with_start_time(began)
        .with_base_time(began)
        // The column for people: the greatest value in milliseconds.
        .with_max_value_divisor(1e6)
        .begin_log_with(&mut out, &mut serializer)?;
    let mut at = Duration::ZERO;
    for run in runs {
        let span = (at, run.load.elapsed);
        write_part(&mut log, span, "", &run.load.recorder.total())?;
        for (verb, part) in run.load.recorder.parts() {
            write_part(&mut log, span, verb.name(), part)?;
        }
        at += run.load.elapsed;
    }
    Ok(())
}

fn write_part(
    log: &mut Log<'_, '_, '_>,
    (at, length): (Duration, Duration),
    name: &str,
    part: &Part,
) -> io::Result<()> {
    let service = if name.is_empty() { "service".to_string() } else { format!("{name}-service") };
    for (tag, times) in [(name, &part.latency), (service.as_str(), &part.service)] {
        let tag = if tag.is_empty() { None } else { Tag::new(tag) };
        let written = log.write_histogram(times.histogram(), at, length, tag);
        written.map_err(|error| match error {
            hdrhistogram::serialization::interval_log::IntervalLogWriterError::IoError(error) => {
                error
            }
            other => io::Error::other(format!("{other:?}")),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::mix::Verb;
    use super::super::record::{Done, Outcome, Recorder};
    use super::*;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    use hedgerow_runtime::time::Instant;

    /// The log reads back with every tag and count. Fails if an interval is lost or the histogram
    /// is written in another unit.
    #[test]
    fn log_reads_back() {
        let mut run = Measured::default();
        let mut recorder = Recorder::new([Verb::Get].into_iter());
        let at = Instant::from_nanos(5_000_000);
        let (verb, sent, outcome) = (Verb::Get, Instant::from_nanos(1_000_000), Outcome::Hit);
        recorder.add(Done { verb, planned: Instant::ZERO, sent, at, outcome }, Instant::ZERO);
        run.load.recorder = recorder;
        run.load.elapsed = Duration::from_secs(2);
        let mut bytes = Vec::new();
        write(&mut bytes, SystemTime::UNIX_EPOCH, &[run]).unwrap();
        let mut found = Vec::new();
        for entry in IntervalLogIterator::new(&bytes) {
            if let LogEntry::Interval(interval) = entry.unwrap() {
                let tag = interval.tag().map(|tag| tag.as_str().to_string());
                found.push((tag.unwrap_or_default(), interval.max()));
            }
        }
        let tags: Vec<&str> = found.iter().map(|(tag, _)| tag.as_str()).collect();
        assert_eq!(tags, ["", "service", "get", "get-service"]);
        assert!((found[0].1 - 5.0).abs() < 0.01, "5 ms: {}", found[0].1);
        assert!((found[1].1 - 4.0).abs() < 0.01, "4 ms: {}", found[1].1);
    }
}
