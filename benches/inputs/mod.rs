//! What both kinds of benches measure, so that instructions and wall time are of the same work.

use std::hint::black_box;

use hedgerow::Options;
use hedgerow::command::{Command, strings};
use hedgerow::prelude::*;
use hedgerow::read::{Hedging, ReadFrom};
use hedgerow::resp::{Decoder, Limits, Protocol, Step, encode};
use hedgerow::testing::Simulation;

/// A key as the load generator makes them.
pub(crate) const KEY: &[u8] = b"key:000000012345";
/// Commands of one simulated run.
pub(crate) const GETS: u64 = 2_000;

/// Builds a GET.
pub(crate) fn get() -> Command<()> {
    strings::get(black_box(KEY))
}

/// Builds a SET of 64 bytes.
pub(crate) fn set() -> Command<()> {
    strings::set(black_box(KEY), black_box(&[b'x'; 64][..]))
}

/// Finds the slot of a GET.
pub(crate) fn slot(command: &Command<()>) -> Option<u16> {
    black_box(command).slot()
}

/// 100 replies of 64 bytes.
pub(crate) fn bulks() -> Vec<u8> {
    let mut bytes = Vec::new();
    (0..100).for_each(|_| encode::bulk(&mut bytes, &[b'x'; 64]));
    bytes
}

/// An array of 100 strings of 64 bytes.
pub(crate) fn array() -> Vec<u8> {
    let mut bytes = Vec::new();
    encode::array_header(&mut bytes, 100);
    bytes.extend(bulks());
    bytes
}

/// Decodes `bytes` in pieces of at most `piece` bytes; answers how many frames there were.
pub(crate) fn decode(bytes: &[u8], piece: usize) -> usize {
    let mut decoder = Decoder::new(Protocol::Resp3, Limits::default());
    let (mut start, mut end, mut frames) = (0, 0, 0);
    while end < bytes.len() {
        end = (end + piece).min(bytes.len());
        while let Ok(Step::Frame(frame)) = decoder.decode(black_box(&bytes[start..end])) {
            start += black_box(frame).len_raw();
            frames += 1;
        }
    }
    frames
}

/// `GETS` GETs through client, engine, turn and model server on the simulated kernel, by `tasks`
/// tasks at once. Includes making the client and its connection.
pub(crate) fn simulated(tasks: u64) -> u64 {
    let simulation = Simulation::new(1);
    let options = simulation.server().options();
    gets(&simulation, options, tasks)
}

/// The same with a replica beside, and each GET armed for a hedge that never starts.
pub(crate) fn armed(tasks: u64) -> u64 {
    let simulation = Simulation::new(1);
    let primary = simulation.server();
    let mut options = primary.options();
    options.replica_endpoints = vec![simulation.replica(&primary).endpoint()];
    options.read_from = ReadFrom::PrimaryPreferred.into();
    options.hedging = Some(Hedging::default());
    gets(&simulation, options, tasks)
}

fn gets(simulation: &Simulation, options: Options, tasks: u64) -> u64 {
    let run = async move |core: hedgerow::LocalContext| {
        let client = core.connect(&options).await.ok()?;
        client.set(KEY, &[b'x'; 64][..]).await.ok()?;
        let each = GETS / tasks;
        let work = |client: hedgerow::LocalClient| async move {
            let mut got = 0;
            for _ in 0..each {
                got += u64::from(client.get::<Option<Vec<u8>>>(KEY).await.is_ok());
            }
            got
        };
        let running: Vec<_> = (0..tasks).map(|_| core.spawn(work(client.clone()))).collect();
        let mut got = 0;
        for task in running {
            got += task.await.ok()?;
        }
        Some(got)
    };
    simulation.run(run).output.flatten().unwrap_or(0)
}
