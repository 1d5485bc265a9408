//! System calls and timers of warm commands.

use futures::future::join_all;
use hedgerow::runtime::caps::Rung;
use hedgerow::testing::Simulation;
use hedgerow::{LocalClient, LocalContext};

use crate::place::on_core;

const TASKS: u64 = 64;
const EACH: u64 = 200;

/// Enters of `tasks` times `EACH` commands, after as many to warm up.
async fn enters_of(context: &LocalContext, client: &LocalClient, tasks: u64) -> u64 {
    let mut before = 0;
    for _ in 0..2 {
        before = context.counters().enters;
        let all = (0..tasks).map(|_| context.spawn(gets(client.clone())));
        join_all(all).await.into_iter().for_each(|ended| ended.expect("no panic"));
    }
    context.counters().enters - before
}

async fn gets(client: LocalClient) {
    for _ in 0..EACH {
        client.get_with("key", |_| ()).await.expect("an answer");
    }
}

fn simulated(tasks: u64) -> u64 {
    let simulation = Simulation::new(1);
    let options = simulation.server().options();
    let run = async move |context: LocalContext| {
        let client = context.connect(&options).await.expect("a connection");
        let enters = enters_of(&context, &client, tasks).await;
        drop(client);
        enters
    };
    simulation.run(run).output.expect("an end")
}

/// Design section 2. Fails if commands of tasks that run in the same turn are not sent together, or
/// if a turn costs more than one enter.
#[test]
fn commands_that_share_a_turn_share_its_enter() {
    let enters = simulated(TASKS);
    assert!(enters * 10 < TASKS * EACH, "{enters} enters");
    let enters =
        on_core(Rung::U2, async |context, client| enters_of(&context, &client, TASKS).await);
    assert!(enters * 10 < TASKS * EACH, "{enters} enters on a ring");
}

/// Performance finding 2. Fails if the end of a send ends a wait, or if the deadline of each
/// command is told to the system.
#[test]
fn one_command_at_a_time_costs_one_enter() {
    // The first turn of a task and the last, which ends it, have one each.
    let slack = 4;
    let enters = simulated(1);
    assert!((EACH..=EACH + slack).contains(&enters), "{enters} enters");
    let enters = on_core(Rung::U2, async |context, client| enters_of(&context, &client, 1).await);
    assert!((EACH..=EACH + slack).contains(&enters), "{enters} enters on a ring");
}
