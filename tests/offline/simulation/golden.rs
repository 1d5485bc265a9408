//! What happens, and in which order, in a few situations that a reader can follow.

use std::time::Duration;

use hedgerow::prelude::*;
use hedgerow::testing::{Asked, Reaction, Simulation};
use hedgerow::{Error, Fate};

const MS: Duration = Duration::from_millis(1);

#[track_caller]
fn happened(simulation: &Simulation, golden: &str) {
    let happened = simulation.happened().join("\n").replace("server 10.0.0.1", "server");
    let golden: Vec<&str> = golden.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert_eq!(happened, golden.join("\n"));
}

/// Design 2. Fails if set-up takes another round trip, or anything is sent that nobody asked for.
#[test]
fn a_first_conversation() {
    let simulation = Simulation::new(1);
    let server = simulation.server();
    server.set_password("right");
    let mut options = server.options();
    options.password = Some(hedgerow::config::Secret::new("right"));
    options.database = 3;
    let note = simulation.notes();
    let outcome = simulation.run(|core| async move {
        let client = core.connect(&options).await?;
        note("connected");
        client.set("greeting", "hello").await?;
        let value: String = client.get("greeting").await?;
        note(&format!("read {value}"));
        client.close(MS).await;
        note("closed");
        Ok::<_, Error>(())
    });
    outcome.checked().expect("all is served");
    happened(
        &simulation,
        "
        server: connection 1
        server: HELLO 3 on connection 1
        server: SELECT 3 on connection 1
        client: connected
        server: CLIENT SETINFO on connection 1
        server: CLIENT SETINFO on connection 1
        server: SET greeting on connection 1
        server: GET greeting on connection 1
        client: read hello
        client: closed
        ",
    );
}

/// Fails if a lost connection sends anything again, or keeps what waits from its turn
/// on the next one.
#[test]
fn a_connection_is_lost() {
    let simulation = Simulation::new(2);
    let server = simulation.server();
    server.on_request(|asked: &Asked<'_>| match (asked.args[0], asked.connection) {
        (b"INCR", 1) => Reaction::RunAndReset,
        _ => Reaction::Serve,
    });
    let (options, note) = (server.options(), simulation.notes());
    let outcome = simulation.run(|core| async move {
        let client = core.connect(&options).await?;
        let error = client.incr("a").await.expect_err("it is cut off");
        assert_eq!(error.fate(), Fate::Unknown);
        note("a: unknown");
        let b: i64 = client.incr("b").await?;
        note(&format!("b: {b}"));
        let a: String = client.get("a").await?;
        note(&format!("a was {a} after all"));
        Ok::<_, Error>(())
    });
    outcome.checked().expect("the second connection holds");
    happened(
        &simulation,
        "
        server: connection 1
        server: HELLO 3 on connection 1
        server: CLIENT SETINFO on connection 1
        server: CLIENT SETINFO on connection 1
        server: INCR a on connection 1
        server: end of connection 1
        client: a: unknown
        server: connection 2
        server: HELLO 3 on connection 2
        server: CLIENT SETINFO on connection 2
        server: CLIENT SETINFO on connection 2
        server: INCR b on connection 2
        client: b: 1
        server: GET a on connection 2
        client: a was 1 after all
        ",
    );
}

/// R-076; case behaviour/01. Fails if a late reply reaches another request, or costs the connection.
#[test]
fn a_reply_comes_late() {
    let simulation = Simulation::new(3);
    let server = simulation.server();
    server.on_request(|asked: &Asked<'_>| match asked.args.get(1) {
        Some(&b"slow") => Reaction::ServeAfter(20 * MS),
        _ => Reaction::Serve,
    });
    let (options, note) = (server.options(), simulation.notes());
    let outcome = simulation.run(|core| async move {
        let client = core.connect(&options).await?;
        let error = client.echo::<String>("slow").timeout(5 * MS).await.expect_err("too slow");
        note(&format!("slow: {:?}, {:?}", error.kind(), error.fate()));
        let quick: String = client.echo("quick").await?;
        note(&quick);
        Ok::<_, Error>(())
    });
    outcome.checked().expect("the connection holds");
    happened(
        &simulation,
        "
        server: connection 1
        server: HELLO 3 on connection 1
        server: CLIENT SETINFO on connection 1
        server: CLIENT SETINFO on connection 1
        server: ECHO slow on connection 1
        client: slow: Timeout, Unknown
        server: ECHO quick on connection 1
        client: quick
        ",
    );
}
