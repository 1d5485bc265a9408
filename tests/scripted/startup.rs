//! Cores that cannot start say why, and leave nothing behind.

use hedgerow::client::CoresBuilder;
use hedgerow::runtime::caps::Rung;
use hedgerow::runtime::cpu;
use hedgerow::{Cores, Error, ErrorKind};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::alone::{alone, descriptors, soon, threads};

fn cores(count: usize) -> CoresBuilder {
    let allowed = cpu::allowed().expect("the allowed cpus");
    let first = allowed.iter().next().expect("a cpu");
    Cores::builder().cpus(std::iter::repeat_n(first, count))
}

fn limit(resource: Resource, most: u64) {
    let maximum = getrlimit(resource).maximum;
    let limits = Rlimit { current: Some(most), maximum };
    setrlimit(resource, limits).expect("a lower limit");
}

/// Nothing of a failed or ended start is left.
#[track_caller]
fn nothing_is_left(before: usize) {
    assert!(soon(|| threads("hedgerow-") == 0), "{} threads are left", threads("hedgerow-"));
    assert_eq!(descriptors(), before);
}

/// Whether the error names its cause and what to change.
fn names(error: &Error, words: &[&str]) -> bool {
    let text = error.to_string().to_lowercase();
    error.kind() == ErrorKind::Runtime && words.iter().all(|w| text.contains(w))
}

fn little_locked_memory() {
    for most in [64 << 10, 8 << 20] {
        limit(Resource::Memlock, most);
        for count in [1, 16] {
            let before = descriptors();
            match cores(count).rung(Rung::U2).require_uring(true).build() {
                Ok(running) => assert_eq!(running.len(), count),
                Err(error) => {
                    assert!(names(&error, &["memory", "memlock"]), "{count}, {most}: {error}");
                }
            }
            nothing_is_left(before);
            let running = cores(count).build();
            let running = running.unwrap_or_else(|e| panic!("no fallback, {count}, {most}: {e}"));
            assert_eq!(
                running.run(|core| async move { core.core_index() }).expect("run").len(),
                count
            );
            drop(running);
            nothing_is_left(before);
        }
    }
}

/// case behaviour/26, trap 15. Fails if cores neither start under a small limit of locked memory nor
/// name it, or if those that started are left when one cannot.
#[test]
fn little_locked_memory_is_lived_with_or_named() {
    alone("startup::little_locked_memory_is_lived_with_or_named", little_locked_memory);
}

fn few_descriptors() {
    for rung in [None, Some(Rung::Epoll)] {
        let before = descriptors();
        let roomy = getrlimit(Resource::Nofile).current.expect("a limit");
        // Room for some of sixteen cores.
        limit(Resource::Nofile, before as u64 + 12);
        let error = cores(16).rung(rung).build().expect_err("too few descriptors");
        assert!(names(&error, &["open files"]) || names(&error, &["nofile"]), "{error}");
        limit(Resource::Nofile, roomy);
        nothing_is_left(before);
        let running = cores(16).rung(rung).build().expect("room enough");
        drop(running);
        nothing_is_left(before);
    }
}

/// case behaviour/26, trap 18. Fails if the ninth of sixteen cores cannot start and the others live
/// on, or the error does not name the limit.
#[test]
fn too_few_descriptors_stop_all_cores() {
    alone("startup::too_few_descriptors_stop_all_cores", few_descriptors);
}
