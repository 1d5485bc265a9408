//! Reads that go where replies were quick lately.

use hedgerow::prelude::*;
use hedgerow::read::ReadFrom;
use hedgerow::testing::Reaction;

use super::clock::{pass, step, unless};
use super::fleet::{Fleet, MS, after, always, get, switch};

/// Fails if the quicker of two nodes does not get most of the reads without any probe.
#[test]
fn quickest_learns_from_replies() {
    let fleet = Fleet::new(1);
    fleet.replicas[0].set_duration(5 * MS);
    fleet.run(fleet.options(ReadFrom::Quickest), async |_, client| {
        for _ in 0..200 {
            get(&client).await.expect("an answer");
        }
    });
    let gets = fleet.gets();
    assert!(gets[0] > 150 && gets[0] + gets[1] == 200, "{gets:?}");
}

/// Fails if a node that refuses reads at once (LOADING, MASTERDOWN) draws the reads of Quickest by its
/// speed.
#[test]
fn quick_refusals_draw_no_reads() {
    let fleet = Fleet::new(2);
    fleet.replicas[0].set_duration(2 * MS);
    fleet.primary.set_duration(2 * MS);
    always(&fleet.replicas[1], "GET", Reaction::Answer(b"-LOADING x\r\n".to_vec()));
    let failed = fleet.run(fleet.options(ReadFrom::Quickest), async |_, client| {
        let mut failed = 0;
        for _ in 0..300 {
            failed += usize::from(get(&client).await.is_err());
        }
        failed
    });
    assert!(failed <= 20, "{failed} of 300 reads went to the node that loads");
}

/// Fails if reads that their callers gave up before they were sent count as under way for ever, so that
/// Quickest shuns the node that they were for.
#[test]
fn reads_that_were_never_sent_are_not_under_way() {
    let fleet = Fleet::new(1);
    fleet.primary.set_duration(5 * MS);
    fleet.replicas[0].set_duration(2 * MS);
    let before = fleet.run(fleet.options(ReadFrom::Quickest), {
        let servers = [fleet.primary.clone(), fleet.replicas[0].clone()];
        async move |_, client| {
            for _ in 0..50 {
                get(&client).await.expect("an answer");
            }
            for _ in 0..200 {
                let never = unless(async {}, get(&client)).await;
                assert!(never.is_none());
                step().await;
            }
            let before = servers.each_ref().map(|server| server.count("GET"));
            for _ in 0..100 {
                get(&client).await.expect("an answer");
            }
            before
        }
    });
    let of_replica = fleet.gets()[1] - before[1];
    assert!(of_replica >= 75, "{of_replica} of 100 reads went to the quicker node");
}

/// Fails if a node that stands still goes on getting reads of Quickest, whose times run out there.
#[test]
fn reads_that_run_out_count_against_their_node() {
    let fleet = Fleet::new(2);
    let stalls = switch(&fleet.replicas[0], "GET", after(60_000));
    let late = fleet.run(fleet.options(ReadFrom::Quickest), async move |core, client| {
        for _ in 0..100 {
            get(&client).await.expect("an answer");
        }
        stalls.set(true);
        let mut late = 0;
        for _ in 0..1_000 {
            late += usize::from(client.get::<()>("k").timeout(50 * MS).await.is_err());
            pass(&core, 10 * MS).await;
        }
        late
    });
    assert!(late <= 25, "{late} of 1,000 reads in 10 s");
}
