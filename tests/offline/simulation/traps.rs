//! Traps that only a kernel with faults shows for certain.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use hedgerow::prelude::*;
use hedgerow::runtime::park::ParkPolicy;
use hedgerow::testing::{Asked, Reaction, SimConfig, Simulation};
use hedgerow::{Error, ErrorKind, Fate, LocalClient, LocalContext, Options};

use super::books::{Books, Ending};
use super::clock::{Boxed, all, pass, step, unless};
use super::workload::value;

const MS: Duration = Duration::from_millis(1);
/// The first blocks of a connection.
const BLOCK: usize = 16 << 10;

fn faults(seed: u64, with: impl FnOnce(&mut SimConfig)) -> Simulation {
    let mut config = SimConfig { seed, ..SimConfig::default() };
    with(&mut config);
    Simulation::with_faults(config)
}

/// Writes a value of each size and reads all of them back at once, twice.
async fn write_and_read(client: &LocalClient, sizes: &[usize]) -> Result<(), Error> {
    for (id, len) in sizes.iter().enumerate() {
        client.set(format!("k:{id}"), value(id, *len)).await?;
    }
    for _ in 0..2 {
        let mut reads: Vec<Boxed<'_, Result<Bytes, Error>>> = Vec::new();
        for id in 0..sizes.len() {
            reads.push(Box::pin(client.get::<Bytes>(format!("k:{id}"))));
        }
        for (id, got) in all(reads).await.into_iter().enumerate() {
            assert!(got? == value(id, sizes[id]), "value {id} of {} bytes", sizes[id]);
        }
    }
    Ok(())
}

/// [`write_and_read`] over a network with these faults, none of which breaks a connection.
fn survives(seed: u64, sizes: &'static [usize], with: impl FnOnce(&mut SimConfig)) {
    turns_of(&faults(seed, with), seed, sizes);
}

/// The turns that [`write_and_read`] took.
fn turns_of(simulation: &Simulation, seed: u64, sizes: &'static [usize]) -> u64 {
    let server = simulation.server();
    let mut options = server.options();
    options.command_timeout = None;
    let outcome = simulation.run(|core| async move {
        let client = core.connect(&options).await?;
        write_and_read(&client, sizes).await
    });
    let turns = outcome.report.turns;
    outcome.checked().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert_eq!(server.connections(), 1, "seed {seed}");
    turns
}

const SMALL: &[usize] = &[0, 1, 60, 300, 2_000, 5_000, 100, 0, 7];
const LARGE: &[usize] = &[1 << 20, 70, 2_500_000, 300_000, BLOCK, 1 << 20];

/// Trap 1. Fails if an empty buffer group ends a connection, loses bytes, or makes a core spin.
#[test]
fn trap_01_empty_group() {
    for seed in 0..20 {
        let simulation = faults(seed, |c| (c.no_buffers, c.delay_tail) = (0.6, 0.1));
        let turns = turns_of(&simulation.park(ParkPolicy::Park), seed, SMALL);
        assert!(turns < 300, "seed {seed}: {turns} turns");
        survives(seed, LARGE, |c| (c.no_buffers, c.incremental) = (0.6, seed % 2 == 0));
    }
}

/// Trap 2. Fails if a receive that ends for no reason is not armed again, or loses what it brought.
#[test]
fn trap_02_multishot_ends() {
    for seed in 0..20 {
        survives(seed, SMALL, |c| (c.multishot_end, c.split) = (0.9, 0.5));
        survives(seed, LARGE, |c| (c.multishot_end, c.incremental) = (0.5, seed % 2 == 0));
    }
}

/// Trap 3. Fails if the offset inside an incremental buffer is lost, or a block ends too early.
#[test]
fn trap_03_incremental_offset() {
    for seed in 0..20 {
        survives(seed, SMALL, |c| (c.split, c.incremental) = (0.95, true));
        survives(seed, LARGE, |c| (c.split, c.incremental) = (0.7, true));
    }
}

/// Trap 6. Fails if a reply that is cut at any byte, or has a critical size, comes out different.
#[test]
fn trap_06_critical_sizes() {
    for incremental in [false, true] {
        let simulation = faults(6, |c| c.incremental = incremental);
        let server = simulation.server();
        let cut = Rc::new(Cell::new(0));
        let at = cut.clone();
        server.on_request(move |asked: &Asked<'_>| match asked.args[0] {
            b"GET" => Reaction::SplitAt(at.get()),
            _ => Reaction::Serve,
        });
        let options = server.options();
        let outcome = simulation.run(|core| async move {
            let client = core.connect(&options).await?;
            for (id, len) in
                [0, 1, 20, BLOCK - 1, BLOCK, BLOCK + 1, 256 << 10, 8 << 20].into_iter().enumerate()
            {
                let right = value(id, len);
                client.set("k", &right).await?;
                let all = len + 5 + len.to_string().len();
                let near = |n: usize| n < 30 || n + 5 > all || n.abs_diff(BLOCK) < 3;
                for at in (0..=all.min(40_000)).chain([all - 1, all]).filter(|n| near(*n)) {
                    cut.set(at);
                    let got: Bytes = client.get("k").await?;
                    assert!(got == right, "{len} bytes, cut at {at}");
                }
            }
            Ok::<(), Error>(())
        });
        outcome.checked().expect("all is served");
    }
}

/// Trap 8; case behaviour/22. Fails if a task that always wakes itself holds up replies.
#[test]
fn trap_08_self_waking_task() {
    let simulation = Simulation::new(8);
    let options = simulation.server().options();
    let outcome = simulation.run(|core| async move {
        let client = core.connect(&options).await?;
        let _ever = core.spawn(async {
            loop {
                step().await;
            }
        });
        let began = core.now();
        for _ in 0..100 {
            client.ping().await?;
        }
        Ok::<_, Error>(core.now().since(began))
    });
    assert!(outcome.checked().expect("answers") < 10 * MS);
}

async fn count_once(client: LocalClient, core: LocalContext, books: Books) {
    let key = format!("c:{}", books.next());
    let at = books.open(&core, "INCR", key.clone(), 5_000 * MS, 0);
    let outcome = client.incr(key).timeout(5_000 * MS).await;
    books.close(at, &core, &outcome);
}

/// Trap 9. Fails if a command of which a byte may be on the wire is said to be unsent
/// when the connection breaks, or one that was only queued is said to be unknown.
#[test]
fn trap_09_half_a_pipeline() {
    let simulation = faults(9, |c| (c.send_buffer, c.short_send) = (4 << 10, 0.5));
    let server = simulation.server();
    server.on_request(|asked: &Asked<'_>| match asked.args[0] {
        b"PING" => Reaction::Pause(10_000 * MS),
        _ => Reaction::Serve,
    });
    let (books, cutter) = (Books::default(), server.clone());
    let (options, ledger) = (server.options(), books.clone());
    simulation.after(50 * MS, move || cutter.cut());
    let outcome = simulation.run(|core| async move {
        let client = core.connect(&options).await?;
        client.ping().await?;
        let ask = |count: usize| -> Vec<_> {
            let one = || core.spawn(count_once(client.clone(), core.clone(), ledger.clone()));
            (0..count).map(|_| one()).collect()
        };
        let mut tasks = ask(300);
        pass(&core, MS).await;
        tasks.extend(ask(20));
        for task in tasks {
            task.await.expect("no panic");
        }
        Ok::<_, Error>(())
    });
    outcome.checked().expect("connected");
    assert_eq!(books.check(&server, MS, false), Vec::<String>::new());
    let fates: Vec<Option<Fate>> = books
        .entries()
        .iter()
        .map(|e| match &e.ending {
            Ending::Failed(error) => Some(error.fate()),
            _ => None,
        })
        .collect();
    assert!(fates[..300].iter().all(|f| *f == Some(Fate::Unknown)), "{fates:?}");
    assert!(fates[300..].iter().all(|f| *f == Some(Fate::NotSent)), "{fates:?}");
}

/// Trap 10. Fails if a connect that ends while it is cancelled leaks, stalls or shows the cancel.
#[test]
fn trap_10_cancel_against_complete() {
    for seed in 0..50 {
        let simulation = faults(seed, |c| {
            (c.delay_min, c.delay_extra) = (400 * MS / 1_000, 400 * MS / 1_000);
            (c.late_cancel, c.reorder, c.blackhole) = (0.7, 0.5, 0.2);
        });
        let mut options = simulation.server().options();
        options.connect_timeout = MS;
        options.reconnect.initial = MS;
        options.reconnect.max = 2 * MS;
        let outcome = simulation.run(|core| async move {
            let mut seen = Vec::new();
            for _ in 0..20 {
                let client = core.create(&options)?;
                seen.push(client.ping().timeout(5 * MS).await);
            }
            Ok::<_, Error>(seen)
        });
        for error in outcome.checked().expect("valid options").into_iter().filter_map(Result::err) {
            let text = error.to_string();
            assert!(!text.to_lowercase().contains("cancel"), "seed {seed}: {text}");
        }
    }
}

/// Trap 11; case behaviour/24. Fails if a completion that comes after its cell got a new tenant
/// reaches that one.
#[test]
fn trap_11_stale_completion() {
    for seed in 0..30 {
        let simulation = faults(seed, |c| {
            (c.late_cancel, c.reorder, c.split, c.spurious) = (0.9, 0.8, 0.3, 0.3)
        });
        let options = simulation.server().options();
        let outcome = simulation.run(|core| async move {
            for round in 0..40 {
                let client = core.connect(&options).await?;
                let left = client.echo::<String>("of an earlier tenant");
                assert_eq!(unless(step(), left).await.map(|r| r.is_ok()), None);
                client.set("k", value(round, 300_000)).await?;
                let read = client.get::<Bytes>("k");
                let read = unless(pass(&core, 100 * MS / 1_000), read).await;
                assert!(read.is_none_or(|r| r.is_ok_and(|v| v == value(round, 300_000))));
            }
            Ok::<_, Error>(())
        });
        outcome.checked().expect("nothing breaks a connection");
    }
}

/// Trap 13; R-076. Fails if a panic, or a future dropped in mid-command, costs another task its reply
/// or the connection.
#[test]
fn trap_13_panic_and_drop() {
    let simulation = Simulation::new(13);
    let server = simulation.server();
    let options = server.options();
    let outcome = simulation.run(|core| async move {
        let client = core.connect(&options).await?;
        for round in 0..50 {
            let theirs = client.clone();
            let panics = core.spawn(async move {
                let request = theirs.echo::<String>("of a task that panics");
                let _under_way = unless(step(), request).await;
                std::panic::resume_unwind(Box::new("on purpose"));
            });
            drop(client.echo::<String>("never polled"));
            let queued = unless(std::future::ready(()), client.echo::<String>("queued")).await;
            assert!(queued.is_none());
            let mine = format!("mine {round}");
            assert_eq!(client.echo::<String>(&mine).await?, mine);
            assert_eq!(panics.await.expect_err("it panics").message(), "on purpose");
        }
        // Behind the replies to those that were left.
        client.ping().await?;
        Ok::<_, Error>(client.live_requests())
    });
    assert_eq!(outcome.checked().expect("all is served"), 0);
    assert_eq!(server.connections(), 1);
    let queued = server.seen().into_iter().filter(|s| s.key == b"queued").count();
    assert_eq!(queued, 0, "a command that was dropped before its send went out");
}

/// Trap 19. Fails if a push, an attribute or the reply to an abandoned request shifts replies.
#[test]
fn trap_19_between_replies() {
    let simulation = Simulation::new(19);
    let server = simulation.server();
    server.on_request(|asked: &Asked<'_>| match (asked.args[0], asked.number % 3) {
        (b"ECHO", 0) => Reaction::Before(b">2\r\n+message\r\n$3\r\nabc\r\n".to_vec()),
        (b"ECHO", 1) => Reaction::Before(b"|1\r\n+ttl\r\n:3\r\n".to_vec()),
        _ => Reaction::Serve,
    });
    let options = server.options();
    let outcome = simulation.run(|core| async move {
        let client = core.connect(&options).await?;
        for round in 0..60 {
            let left = client.echo::<String>(format!("abandoned {round}"));
            assert!(unless(step(), left).await.is_none());
            let mine = format!("mine {round}");
            assert_eq!(client.echo::<String>(&mine).await?, mine);
        }
        Ok::<_, Error>(client.counters().pushes)
    });
    assert_eq!(outcome.checked().expect("all is served"), 40);
    assert_eq!(server.connections(), 1);
}

/// Trap 24. Fails if a peer that stops reading delays another connection of its core.
#[test]
fn trap_24_full_socket() {
    let simulation = faults(24, |c| c.send_buffer = 64 << 10);
    let (deaf, other) = (simulation.server(), simulation.server());
    deaf.on_request(|asked: &Asked<'_>| match asked.args[0] {
        b"PING" => Reaction::Pause(1_000 * MS),
        _ => Reaction::Serve,
    });
    let (deaf, other) = (deaf.options(), other.options());
    let outcome = simulation.run(|core| async move {
        let (deaf, other) = (core.connect(&deaf).await?, core.connect(&other).await?);
        deaf.ping().await?;
        let stuck = core.spawn(async move { deaf.set("k", value(1, 4 << 20)).await });
        let began = core.now();
        for _ in 0..200 {
            other.ping().await?;
        }
        let took = core.now().since(began);
        assert!(!stuck.is_finished(), "the full socket took 4 MiB");
        stuck.await.expect("no panic")?;
        Ok::<_, Error>(took)
    });
    assert!(outcome.checked().expect("all is served") < 20 * MS);
}

/// Trap 25. Fails if bytes that a cancelled multishot still brings are lost, doubled or misplaced
/// before an exact receive.
#[test]
fn trap_25_exact_after_multishot() {
    for seed in 0..40 {
        survives(seed, LARGE, |c| {
            (c.late_cancel, c.split, c.incremental) = (0.9, 0.5, seed % 2 == 0);
            (c.no_buffers, c.multishot_end) = (0.1 * (seed % 3) as f64, 0.05 * (seed % 5) as f64);
        });
    }
}

/// Case behaviour/23. Fails if a clock that jumps, or a server that was stopped for 10 s, ends a
/// connection, or a deadline that passed meanwhile ends its call twice or never.
#[test]
fn a_clock_that_jumps() {
    for seed in 0..20 {
        let simulation = faults(seed, |c| {
            (c.clock_jump, c.clock_jump_max) = (0.02, Duration::from_secs(10));
        });
        let server = simulation.server();
        server.on_request(|asked: &Asked<'_>| match asked.args[0] {
            b"ECHO" => Reaction::Pause(10_000 * MS),
            _ => Reaction::Serve,
        });
        let mut options = server.options();
        options.command_timeout = Some(Duration::from_secs(60));
        let outcome = simulation.run(|core| async move {
            let client = core.connect(&options).await?;
            let mut late = 0;
            for round in 0..300 {
                if round % 100 == 50 {
                    client.echo::<()>("stop").await?;
                }
                match client.ping().timeout(500 * MS).await {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::Timeout => late += 1,
                    Err(error) => return Err(error),
                }
            }
            pass(&core, Duration::from_secs(30)).await;
            client.ping().await?;
            assert_eq!((client.live_requests(), client.counters().timeouts), (0, late));
            Ok::<_, Error>(late)
        });
        let late = outcome.checked().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(late >= 3, "seed {seed}");
        assert_eq!(server.connections(), 1, "seed {seed}");
    }
}

fn impatient(mut options: Options, attempts: u32) -> Options {
    options.command_timeout = None;
    options.reconnect.initial = MS;
    options.reconnect.max = MS;
    options.reconnect.attempts = Some(attempts);
    options
}

/// Fails if a request without a deadline hangs when its connection is given up just as it was
/// to be queued.
#[test]
fn given_up_while_admitted() {
    let simulation = Simulation::new(1);
    let server = simulation.server();
    server.on_request(|asked: &Asked<'_>| match asked.args[0] {
        b"HELLO" => Reaction::ServeAndClose,
        _ => Reaction::Serve,
    });
    let options = impatient(server.options(), 2);
    let outcome = simulation.run(|core| async move {
        let client = core.create(&options)?;
        client.ping().await
    });
    let error = outcome.checked().expect_err("the server always closes");
    assert_eq!(error.fate(), Fate::NotSent);
}

/// Design 2. Fails if a closed client whose last request outlives it is not let go of.
#[test]
fn a_request_outlives_its_client() {
    let simulation = Simulation::new(2);
    let options = simulation.server().options();
    let outcome = simulation.run(|core| async move {
        for _ in 0..20 {
            let client = core.connect(&options).await?;
            let request = client.ping();
            let mut request = Box::pin(request);
            let first = unless(std::future::ready(()), request.as_mut()).await;
            assert!(first.is_none());
            drop(client);
            let error = request.await.expect_err("the client is gone");
            assert_eq!(error.kind(), ErrorKind::Closed);
        }
        Ok::<_, Error>(())
    });
    outcome.checked().expect("connected");
}
