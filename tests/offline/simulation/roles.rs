//! What nodes say of their role, and how long that holds.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use hedgerow::read::ReadFrom;
use hedgerow::testing::{Asked, ModelServer, Reaction};

use super::clock::{pass, unless};
use super::fleet::{Fleet, MS, after, does, get, switch};

/// Fails if a node that reports the role of a primary serves replica reads, or if the error does
/// not say why.
#[test]
fn a_replica_must_say_that_it_is_one() {
    let fleet = Fleet::new(1);
    fleet.replicas[0].promote();
    let got = fleet.run(fleet.options(ReadFrom::Replica), async |_, client| get(&client).await);
    let error = got.expect_err("no replica");
    assert!(error.to_string().contains("role of a primary"), "{error}");
    assert_eq!(fleet.gets(), [0, 0]);
}

/// Fails if an unlinked replica serves while a linked one is there, or if it does not when nothing
/// else is left.
#[test]
fn linked_replicas_come_first() {
    let fleet = Fleet::new(2);
    fleet.replicas[0].set_linked(false);
    let other = fleet.replicas[1].clone();
    let unlinked = fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        for _ in 0..10 {
            get(&client).await.expect("an answer");
        }
        other.stop();
        pass(&core, 5 * MS).await;
        get(&client).await
    });
    assert!(unlinked.is_ok());
    assert_eq!(fleet.gets(), [0, 1, 10]);
}

/// Fails if a promoted node serves replica reads for longer than an interval, or is closed before it
/// answered what it had accepted.
#[test]
fn a_promoted_node_serves_no_more() {
    let fleet = Fleet::new(2);
    let promoted = fleet.replicas[0].clone();
    promoted.set_duration(2 * MS);
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        promoted.promote();
        let mut reads = Vec::new();
        for _ in 0..2_200 {
            let client = client.clone();
            reads.push(core.spawn(async move { get(&client).await }));
            pass(&core, MS / 2).await;
        }
        for read in reads {
            read.await.expect("no panic").expect("an answer");
        }
        let before = promoted.count("GET");
        assert!(before > 900, "{before}");
        for _ in 0..10 {
            get(&client).await.expect("an answer");
        }
        assert_eq!(promoted.count("GET"), before);
    });
}

/// Fails if with an interval of zero a read goes to a replica that was not asked for its role just
/// before it.
#[test]
fn zero_asks_before_every_read() {
    let fleet = Fleet::new(1);
    let mut options = fleet.options(ReadFrom::ReplicaPreferred);
    options.replica_refresh_interval = Duration::ZERO;
    fleet.run(options, async |_, client| {
        for _ in 0..5 {
            get(&client).await.expect("an answer");
        }
    });
    let seen = fleet.replicas[0].seen();
    let names: Vec<&str> = seen.iter().map(|seen| &seen.name[..]).collect();
    let reads = names.iter().position(|name| *name == "GET").expect("a read");
    let rest: Vec<&str> = names[reads - 1..].to_vec();
    assert_eq!(rest, ["ROLE", "GET"].repeat(5));
    assert_eq!(fleet.gets()[0], 0);
}

/// Fails if a replica that refuses connections is tried more than once in an interval, or if it
/// costs reads their time.
#[test]
fn a_dead_replica_is_left_alone() {
    let fleet = Fleet::new(2);
    fleet.replicas[0].stop();
    let mut options = fleet.options(ReadFrom::Replica);
    options.replica_refresh_interval = Duration::from_secs(4);
    let attempts = fleet.run(options, async |core, client| {
        let begun = core.now();
        for _ in 0..100 {
            get(&client).await.expect("an answer");
        }
        assert!(core.now().since(begun) < 100 * MS);
        let mut states = client.states();
        let mut attempts = 0;
        let count = async {
            while let Some(change) = states.next().await {
                let begins = change.state == hedgerow::client::ConnectionState::Connecting;
                attempts += usize::from(begins);
            }
        };
        unless(pass(&core, Duration::from_secs(9)), count).await;
        attempts
    });
    assert!(attempts > 0, "no attempt was seen");
    assert!(attempts <= 3, "{attempts} attempts in 9 s");
}

/// Fails if a replica that refuses ROLE for a while is given up for good.
#[test]
fn a_refused_role_is_asked_again() {
    let fleet = Fleet::new(1);
    let refuses = Rc::new(Cell::new(true));
    let refused = refuses.clone();
    fleet.replicas[0].on_request(move |asked: &Asked<'_>| match asked.args[0] {
        b"ROLE" if refused.get() => Reaction::Answer(b"-NOPERM no\r\n".to_vec()),
        _ => Reaction::Serve,
    });
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        let error = get(&client).await.expect_err("no replica");
        assert!(error.to_string().contains("NOPERM"), "{error}");
        refuses.set(false);
        pass(&core, Duration::from_secs(5)).await;
        get(&client).await.expect("from the replica");
    });
}

/// While the switch is on, a server leaves everything unanswered for a minute.
fn silence(server: &ModelServer) -> Rc<Cell<bool>> {
    let silent = Rc::new(Cell::new(false));
    let is_silent = silent.clone();
    server.on_request(move |_: &Asked<'_>| match is_silent.get() {
        true => after(60_000),
        false => Reaction::Serve,
    });
    silent
}

/// Fails if with an interval of zero a replica that does not say what it is keeps reads from
/// the primary that would serve them.
#[test]
fn zero_does_not_wait_for_a_silent_replica() {
    let fleet = Fleet::new(1);
    let silent = silence(&fleet.replicas[0]);
    let mut options = fleet.options(ReadFrom::ReplicaPreferred);
    options.replica_refresh_interval = Duration::ZERO;
    options.command_timeout = Some(Duration::from_secs(5));
    fleet.run(options, async move |core, client| {
        silent.set(true);
        for _ in 0..3 {
            get(&client).await.expect("from the primary");
        }
        let begun = core.now();
        get(&client).await.expect("from the primary");
        let took = core.now().since(begun);
        assert!(took < 10 * MS, "{took:?}");
    });
}

/// Fails if a read waits for a replica that was lost and does not finish its set-up.
#[test]
fn a_replica_that_failed_is_not_waited_for() {
    let fleet = Fleet::new(1);
    let silent = silence(&fleet.replicas[0]);
    let replica = fleet.replicas[0].clone();
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        let before = replica.connections();
        silent.set(true);
        replica.cut();
        // It connects again meanwhile.
        pass(&core, 600 * MS).await;
        assert!(replica.connections() > before);
        let begun = core.now();
        get(&client).await.expect_err("no replica");
        assert!(core.now().since(begun) < MS, "{:?}", core.now().since(begun));
    });
}

/// Fails if a replica that does not say any more what it is goes on serving reads.
#[test]
fn a_role_holds_for_two_intervals() {
    let fleet = Fleet::new(1);
    let silent = switch(&fleet.replicas[0], "ROLE", after(60_000));
    fleet.run(fleet.options(ReadFrom::ReplicaPreferred), async move |core, client| {
        silent.set(true);
        pass(&core, 2_500 * MS).await;
        for _ in 0..10 {
            get(&client).await.expect("an answer");
        }
    });
    assert_eq!(fleet.gets(), [10, 0]);
}

/// Fails if a replica that has lost its primary, by its own word, is not asked about its link at once.
#[test]
fn masterdown_is_looked_into() {
    let fleet = Fleet::new(1);
    does(&fleet.replicas[0], [Reaction::Answer(b"-MASTERDOWN x\r\n".to_vec())]);
    let replica = fleet.replicas[0].clone();
    fleet.run(fleet.options(ReadFrom::Replica), async move |core, client| {
        pass(&core, 100 * MS).await;
        let before = replica.count("ROLE");
        get(&client).await.expect_err("it serves no old data");
        pass(&core, 10 * MS).await;
        assert!(replica.count("ROLE") > before);
    });
}
