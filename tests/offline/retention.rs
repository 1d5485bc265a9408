//! What kept values cost, and that nothing writes into them.

use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use hedgerow::prelude::*;
use hedgerow::testing::{Asked, Reaction, Report, SimConfig, Simulation};
use hedgerow::{Error, LocalContext, Options};

use crate::resp::memory::live;

/// Requests in flight at once.
const DEPTH: usize = 64;

/// Runs `main` against a server that keeps no records, and answers the growth of this thread's
/// memory that it reports.
fn growth<F>(main: impl FnOnce(LocalContext, Options) -> F) -> i64
where
    F: Future<Output = Result<i64, Error>> + 'static,
{
    let simulation = Simulation::new(1).turns_max(u64::MAX);
    let server = simulation.server();
    server.set_recording(false);
    let options = server.options();
    let outcome = simulation.run(|core| main(core, options));
    outcome.checked().expect("all is served")
}

/// A value that tells its number.
fn numbered(n: usize, len: usize) -> Vec<u8> {
    n.to_le_bytes().iter().cycle().take(len).copied().collect()
}

/// Reads `key` `count` times, `DEPTH` at once, and hands every value to `keep`.
async fn read(
    core: &LocalContext,
    options: &Options,
    key: &'static str,
    count: usize,
    keep: impl Fn(usize) -> bool + Copy + 'static,
) -> Result<Vec<Bytes>, Error> {
    let client = core.connect(options).await?;
    let mut tasks = Vec::new();
    for lane in 0..DEPTH {
        let client = client.clone();
        tasks.push(core.spawn(async move {
            let mut kept = Vec::new();
            for n in (lane..count).step_by(DEPTH) {
                let value: Bytes = client.get(key).await?;
                if keep(n) {
                    kept.push(value);
                }
            }
            Ok::<_, Error>(kept)
        }));
    }
    let mut kept = Vec::new();
    for task in tasks {
        kept.extend(task.await.expect("no panic")?);
    }
    Ok(kept)
}

/// Trap 5. Fails if a million kept values of 16 B hold 256 MiB, which they do when each keeps its
/// block.
#[test]
fn trap_05_a_million_small_values() {
    let bytes = growth(|core, options| async move {
        let client = core.connect(&options).await?;
        client.set("small", numbered(5, 16)).await?;
        let before = live();
        let kept = read(&core, &options, "small", 1_000_000, |_| true).await?;
        let bytes = live() - before;
        assert_eq!(kept.len(), 1_000_000);
        assert!(kept.iter().all(|v| *v == numbered(5, 16)));
        Ok(bytes)
    });
    assert!(bytes < 256 << 20, "{bytes} bytes");
}

/// Trap 5. Fails if one value of 4 KiB kept in every 64 holds more than four times its size.
#[test]
fn trap_05_one_in_sixty_four() {
    const KEPT: usize = 10_000;
    let bytes = growth(|core, options| async move {
        let client = core.connect(&options).await?;
        client.set("page", numbered(4, 4 << 10)).await?;
        let before = live();
        // One lane of 64 keeps all of its values.
        let kept = read(&core, &options, "page", KEPT * DEPTH, |n| n % DEPTH == 7).await?;
        let bytes = live() - before;
        assert_eq!(kept.len(), KEPT);
        Ok(bytes)
    });
    let payload = KEPT as i64 * 4096;
    assert!(bytes <= 4 * payload, "{bytes} bytes for {KEPT} values of 4 KiB");
}

/// Fails if waiting for the first connection costs memory with every poll.
#[test]
fn waiting_to_be_connected_costs_nothing() {
    let bytes = growth(|core, mut options| async move {
        options.connect_timeout = Duration::from_secs(5);
        let mut connect = Box::pin(core.connect(&options));
        let mut polls = 0;
        let mut before = 0;
        std::future::poll_fn(|cx| {
            if connect.as_mut().poll(cx).is_ready() || polls == 20_000 {
                return std::task::Poll::Ready(());
            }
            // Once the first turns have made what there is to make.
            if polls == 1 {
                before = live();
            }
            // Polled again and again in one turn, as by a neighbour in the same task.
            for _ in 0..10_000 {
                polls += 1;
                let _ = connect.as_mut().poll(cx);
            }
            cx.waker().wake_by_ref();
            std::task::Poll::Pending
        })
        .await;
        Ok(live() - before)
    });
    assert!(bytes < 256 << 10, "{bytes} bytes");
}

/// Values of all sizes, kept and dropped at random, some of them on another thread.
fn keep_and_drop(seed: u64) -> Report {
    let mut rng = Rng::with_seed(seed);
    let config = SimConfig {
        seed,
        split: 0.3,
        incremental: rng.bool(),
        delay_extra: Duration::from_micros(50),
        ..SimConfig::default()
    };
    let simulation = Simulation::with_faults(config);
    let server = simulation.server();
    server.set_recording(false);
    // `GET n:len` is answered with a value made for it.
    server.on_request(|asked: &Asked<'_>| {
        let key = std::str::from_utf8(asked.args.get(1).copied().unwrap_or_default()).unwrap_or("");
        match (asked.args[0], key.split_once(':').map(|(n, len)| (n.parse(), len.parse()))) {
            (b"GET", Some((Ok(n), Ok(len)))) => {
                let mut answer = format!("${len}\r\n").into_bytes();
                answer.extend(numbered(n, len));
                answer.extend(b"\r\n");
                Reaction::Answer(answer)
            }
            _ => Reaction::Serve,
        }
    });
    let (send, receive) = std::sync::mpsc::channel::<(usize, usize, Bytes)>();
    let other = std::thread::spawn(move || {
        receive.into_iter().filter(|(n, len, v)| *v == numbered(*n, *len)).count()
    });
    let options = server.options();
    let outcome = simulation.run(|core| async move {
        let client = core.connect(&options).await?;
        let (mut kept, mut sent) = (Vec::new(), 0);
        for n in 0..300 {
            let len = match rng.u8(0..8) {
                0 => rng.usize(0..400_000),
                1 | 2 => rng.usize(4_000..70_000),
                _ => rng.usize(0..6_000),
            };
            let value: Bytes = client.get(format!("{n}:{len}")).await?;
            kept.push((n, len, value));
            while kept.len() > 20 || (!kept.is_empty() && rng.bool()) {
                let (n, len, value) = kept.swap_remove(rng.usize(0..kept.len()));
                assert!(value == numbered(n, len), "value {n} of {len} bytes changed");
                if rng.bool() {
                    sent += usize::from(send.send((n, len, value)).is_ok());
                }
            }
        }
        Ok::<_, Error>(sent)
    });
    let report = outcome.report.clone();
    let sent = outcome.checked().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert_eq!(other.join().expect("the other thread"), sent, "seed {seed}: kept values changed");
    report
}

/// Trap 4. Fails if a block with a kept part is posted again, so that a kept value changes.
#[test]
fn trap_04_kept_values_stay() {
    for seed in 0..60 {
        keep_and_drop(seed);
    }
}
