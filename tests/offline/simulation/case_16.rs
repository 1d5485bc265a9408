//! Case 16: the first error does not beat a later success.

use hedgerow::Error;
use hedgerow::prelude::*;
use hedgerow::read::ReadFrom;
use hedgerow::testing::{Asked, Reaction};

use super::clock::pass;
use super::fleet::{Fleet, MS, after, does, get, hedging};

/// Runs one GET that is hedged after 20 ms from the primary to the only replica, and answers what came of
/// it, after how many milliseconds, and how many GETs each node has read.
fn race(
    primary: Reaction,
    replica: Option<Reaction>,
) -> (Result<Option<String>, Error>, u128, Vec<usize>) {
    let fleet = Fleet::new(1);
    fleet.primary.set_value("k", "v");
    does(&fleet.primary, [primary]);
    match replica {
        Some(reaction) => does(&fleet.replicas[0], [reaction]),
        None => fleet.replicas[0].stop(),
    }
    let mut options = fleet.options(ReadFrom::PrimaryPreferred);
    options.hedging = Some(hedging(20 * MS));
    options.command_timeout = Some(500 * MS);
    let (got, ms, ledger) = fleet.run(options, async |core, client| {
        let begun = core.now();
        let got = get(&client).await;
        let ms = core.now().since(begun).as_millis();
        // The loser ends without harm: its connection serves on.
        pass(&core, 300 * MS).await;
        let _ = get(&client).await;
        (got, ms, client.hedges())
    });
    assert_eq!(ledger.sent, ledger.won + ledger.lost + ledger.both_failed, "{ledger:?}");
    let mut gets = fleet.gets();
    gets[0] -= 1;
    (got, ms, gets)
}

fn error_after(ms: u32, text: &str) -> Reaction {
    Reaction::AnswerAfter(ms * MS, format!("-{text}\r\n").into_bytes())
}

/// Case 16 A. R-260. Fails if the hedge's lost connection beats the original's later success.
#[test]
fn case_16_a_the_hedge_is_closed() {
    let (got, ms, gets) = race(after(200), Some(Reaction::Close));
    assert_eq!(got.expect("a value").as_deref(), Some("v"));
    assert_eq!((ms, gets), (200, vec![1, 1]));
}

/// Case 16 B. R-260. Fails if the original's lost connection beats the hedge's later success.
#[test]
fn case_16_b_the_original_is_closed() {
    let (got, ms, gets) = race(Reaction::CloseAfter(40 * MS), Some(after(80)));
    assert_eq!(got.expect("a value").as_deref(), Some("v"));
    assert_eq!((ms, gets), (100, vec![1, 1]));
}

/// Case 16 C. R-260. Fails if the original's error beats the hedge's later success.
#[test]
fn case_16_c_the_original_loads() {
    let (got, ms, _) = race(error_after(30, "LOADING x"), Some(after(40)));
    assert_eq!(got.expect("a value").as_deref(), Some("v"));
    assert_eq!(ms, 60);
}

/// Case 16 D. R-261. Fails if of two failures another error than the original's is returned, whichever
/// came first.
#[test]
fn case_16_d_both_fail() {
    for (original, hedge, ms) in [(30, 40, 60), (90, 10, 90)] {
        let (got, took, _) =
            race(error_after(original, "LOADING x"), Some(error_after(hedge, "BUSY y")));
        assert_eq!(got.expect_err("an error").code(), Some("LOADING"));
        assert_eq!(took, ms);
    }
}

/// Case 16 E. Fails if an error that every node would give waits for the other copy.
#[test]
fn case_16_e_both_say_the_same() {
    let (got, ms, _) = race(error_after(30, "WRONGTYPE x"), Some(error_after(40, "WRONGTYPE x")));
    assert_eq!(got.expect_err("an error").code(), Some("WRONGTYPE"));
    assert_eq!(ms, 30);
}

/// Case 16 F. R-263. Fails if a hedge that has nowhere to go harms the original.
#[test]
fn case_16_f_no_second_node() {
    let (got, ms, gets) = race(after(100), None);
    assert_eq!(got.expect("a value").as_deref(), Some("v"));
    assert_eq!((ms, gets), (100, vec![1, 0]));
}

/// Case 16 G. R-258. Fails if a read that is answered within the delay is hedged.
#[test]
fn case_16_g_within_the_delay() {
    let (got, ms, gets) = race(after(10), Some(Reaction::Serve));
    assert_eq!(got.expect("a value").as_deref(), Some("v"));
    assert_eq!((ms, gets), (10, vec![1, 0]));
}

/// Case 16. Fails if a command that writes, is random, a script, or that the table does not
/// know goes out twice, or to a replica.
#[test]
fn case_16_only_idempotent_reads_are_hedged() {
    let words: &[&[&str]] = &[
        &["SET", "k", "v"],
        &["INCR", "n"],
        &["GETEX", "k"],
        &["GETDEL", "k"],
        &["EVAL", "return 1", "0"],
        &["NOSUCH", "k"],
        &["TOUCH", "k"],
        &["SRANDMEMBER", "k"],
    ];
    for words in words {
        let fleet = Fleet::new(1);
        fleet.primary.on_request(move |asked: &Asked<'_>| match asked.args[0] {
            b"HELLO" | b"CLIENT" => Reaction::Serve,
            _ => after(100),
        });
        let mut options = fleet.options(ReadFrom::PrimaryPreferred);
        options.hedging = Some(hedging(20 * MS));
        let name = words[0];
        fleet.run(options, async move |_, client| {
            let args = words[1..].to_vec();
            let _ = client.command(name).args(args).send::<hedgerow::resp::Value>().await;
        });
        assert_eq!(fleet.primary.count(name), 1, "{name}");
        assert_eq!(fleet.replicas[0].count(name), 0, "{name}");
    }
}

/// Fails if the error of an original that failed is forgotten when the time of its hedge runs out.
#[test]
fn the_originals_error_outlives_the_deadline() {
    let fleet = Fleet::new(1);
    does(&fleet.primary, [Reaction::AnswerAfter(30 * MS, b"-LOADING x\r\n".to_vec())]);
    does(&fleet.replicas[0], [after(60_000)]);
    let mut options = fleet.options(ReadFrom::PrimaryPreferred);
    options.hedging = Some(hedging(20 * MS));
    options.command_timeout = Some(500 * MS);
    let (error, ledger) = fleet.run(options, async |_, client| {
        (get(&client).await.expect_err("both failed"), client.hedges())
    });
    assert_eq!(error.code(), Some("LOADING"), "{error}");
    assert_eq!((ledger.sent, ledger.both_failed), (1, 1));
}
