//! Runs of operations on a connection: the fuzz corpus as an ordinary test, and random ones.

use std::{fs, path::Path};

#[path = "../fuzz/operations.rs"]
mod run;

/// Trap 13, trap 19. Fails if a run of operations that the fuzzer once found worth keeping panics, does
/// not end, breaks a rule of the kernel or leaves something behind.
#[test]
fn the_fuzz_corpus_replays() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus/connection");
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("the corpus is there") {
        run::run(&fs::read(entry.expect("an entry").path()).expect("it is readable"));
        count += 1;
    }
    assert!(count >= 50, "the corpus has only {count} inputs");
}

/// Trap 13, trap 19. Fails if any of 300 random runs of operations panics, does not end, breaks a rule of
/// the kernel or leaves something behind.
#[test]
fn random_operations_end() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut input = vec![0; random.usize(1..400)];
        random.fill(&mut input);
        run::run(&input);
    }
}
