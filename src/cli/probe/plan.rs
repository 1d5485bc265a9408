//! What a probe is to do: all flags together, checked, with every default filled in.

use super::super::args::{ParkName, RungName};
use super::super::output::is_same_file;
use super::super::reads::ReadArgs;
use super::super::target::one_line;
use super::args::ProbeArgs;
use hedgerow::read::{Delay, Hedging, ReadFrom};
use hedgerow::{Endpoint, Options};
use std::path::PathBuf;
use std::time::Duration;

/// Most blocks of a pass.
pub(crate) const MOST_BLOCKS: u32 = 1_000;
/// Most clients.
pub(crate) const MOST_CLIENTS: u32 = 256;
/// Most keys.
pub(crate) const MOST_KEYS: u32 = 100_000;
/// Most replicas: each has histograms in every pass.
const MOST_REPLICAS: usize = 15;
/// Shortest block: below it the turns cost more than they show.
const SHORTEST_BLOCK: Duration = Duration::from_millis(50);
/// Longest wait for a reply: long, because a read that is given up early hides its latency.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// The delay of the pass with a fixed one.
const FIXED_DELAY: Duration = Duration::from_millis(5);
/// Passes of the measurement.
pub(crate) const PASSES: usize = 4;
/// The percentile that the advice is for.
pub(crate) const GOAL_RANK: f64 = 0.99;

/// One probe, ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The primary; `None` is the embedded deployment.
    pub(crate) url: Option<String>,
    /// Cluster and replicas.
    pub(crate) reads: ReadArgs,
    pub(crate) read_from: ReadFrom,
    pub(crate) zone: Option<String>,
    /// Of the pass with a fixed delay.
    pub(crate) fixed: Hedging,
    pub(crate) rate_per_s: f64,
    /// Clients of each kind of pass.
    pub(crate) clients: u32,
    pub(crate) duration: Duration,
    pub(crate) blocks: u32,
    pub(crate) warmup: Duration,
    pub(crate) seed: u64,
    pub(crate) rung: Option<RungName>,
    pub(crate) park: ParkName,
    pub(crate) named_keys: Vec<String>,
    pub(crate) keys: u32,
    pub(crate) check: bool,
    pub(crate) json: Option<PathBuf>,
    pub(crate) html: Option<PathBuf>,
    pub(crate) reference: bool,
}

impl Plan {
    /// Makes the plan, or says in one line which flag is wrong and what would be right.
    pub(crate) fn new(mut args: ProbeArgs) -> Result<Plan, String> {
        args.reads.heed(args.url.as_deref());
        check_target(&args)?;
        if args.reference {
            check_reference(&args)?;
        }
        let read_from = args.reads.read_from.unwrap_or(ReadFrom::ReplicaPreferred);
        check_policy(&args, read_from)?;
        let fixed = fixed(&args.reads)?;
        let plan = Plan {
            url: args.url,
            read_from,
            zone: args.reads.zone.clone(),
            reads: args.reads,
            fixed,
            rate_per_s: args.rate.unwrap_or(1_000.0),
            clients: within("--clients", args.clients, 16, MOST_CLIENTS)?,
            duration: args.duration.unwrap_or(Duration::from_secs(40)),
            blocks: within("--blocks", args.blocks, 5, MOST_BLOCKS)?,
            warmup: args.warmup.unwrap_or(Duration::from_secs(4)),
            seed: args.seed.unwrap_or_else(|| fastrand::u32(..).into()),
            rung: args.rung,
            park: args.park.unwrap_or(ParkName::Adaptive),
            named_keys: args.key,
            keys: within("--keys", args.keys, 1_000, MOST_KEYS)?,
            check: !args.no_check,
            json: args.json,
            html: args.html,
            reference: args.reference,
        };
        plan.checked()
    }

    fn checked(self) -> Result<Plan, String> {
        if let (Some(json), Some(html)) = (&self.json, &self.html)
            && is_same_file(json, html)
        {
            return Err("--json and --html name the same file".into());
        }
        if self.block() < SHORTEST_BLOCK && !self.reference {
            let least = SHORTEST_BLOCK * self.blocks * PASSES as u32;
            return Err(format!(
                "--duration: {} blocks of {PASSES} passes need {} ms at least",
                self.blocks,
                least.as_millis()
            ));
        }
        Ok(self)
    }

    /// Length of one block.
    pub(crate) fn block(&self) -> Duration {
        self.duration / (self.blocks * PASSES as u32)
    }

    /// Where the policy sends every read to one node of its shard although that has `replicas` replicas:
    /// whether it is the primary, and a policy that reaches the others. A prediction needs the times of those
    /// too.
    pub(crate) fn alone(&self, replicas: usize) -> Option<(bool, ReadFrom)> {
        match (self.read_from, replicas) {
            // Not `Primary`: the copies of such reads are not traced.
            (ReadFrom::ReplicaPreferred, 1) => Some((false, ReadFrom::PrimaryPreferred)),
            (ReadFrom::PrimaryPreferred, 1..) => Some((true, ReadFrom::Replica)),
            _ => None,
        }
    }

    /// A client's options for `url`, without hedging.
    pub(crate) fn options(&self, url: &str) -> Result<Options, String> {
        let mut options = Options::from_url(url).map_err(|error| one_line(&error))?;
        options.command_timeout = Some(COMMAND_TIMEOUT);
        options.in_flight_max = options.in_flight_max.max(super::desk::MOST_IN_FLIGHT * 2);
        self.reads.place(self.read_from, &mut options)?;
        Ok(options)
    }
}

/// Flags that belong to a URL, or that a URL needs.
fn check_target(args: &ProbeArgs) -> Result<(), String> {
    let (replicas, url) = (&args.reads.replicas, args.url.is_some());
    let cluster = args.reads.cluster;
    if url && replicas.is_empty() && !cluster {
        let text = "a URL needs --replica HOST:PORT, or --cluster: hedging is about a second node";
        return Err(text.into());
    }
    if replicas.len() > MOST_REPLICAS {
        return Err(format!("--replica: {} of them, at most {MOST_REPLICAS}", replicas.len()));
    }
    let of_url = [
        ("--cluster", cluster),
        ("--seed-node", !args.reads.seed_nodes.is_empty()),
        ("--replica", !replicas.is_empty()),
        ("--key", !args.key.is_empty()),
        ("--pause-replicas", args.pause_replicas),
    ];
    match of_url.into_iter().find(|(_, given)| *given && !url) {
        Some((flag, _)) => Err(format!("{flag} needs the URL of the primary")),
        None if args.keys.is_some() && !args.key.is_empty() => {
            Err("--keys is how many keys to sample: with --key none are".into())
        }
        None => Ok(()),
    }
}

/// The reference run has its own rate, length and settings.
fn check_reference(args: &ProbeArgs) -> Result<(), String> {
    let fixed = [
        ("--rate", args.rate.is_some()),
        ("--duration", args.duration.is_some()),
        ("--blocks", args.blocks.is_some()),
        ("--warmup", args.warmup.is_some()),
        ("--clients", args.clients.is_some()),
        ("--html", args.html.is_some()),
        ("--check", args.check),
        ("--no-check", args.no_check),
        ("--read-from", args.reads.read_from.is_some()),
    ];
    let given = fixed.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag);
    if let Some(flag) = given.or(args.reads.hedges()) {
        return Err(format!("{flag}: the reference run is always the same, drop it"));
    }
    if args.reads.cluster {
        return Err("--reference: it is about one primary and its replica, not a cluster".into());
    }
    if args.url.is_some() && !args.pause_replicas {
        return Err(
            "--reference with a URL needs --pause-replicas: it stalls the replica for all its \
                    clients, 50 ms at a time"
                .into(),
        );
    }
    Ok(())
}

fn check_policy(args: &ProbeArgs, read_from: ReadFrom) -> Result<(), String> {
    if args.pause_replicas && !args.reference {
        return Err("--pause-replicas belongs to --reference".into());
    }
    if read_from == ReadFrom::Primary {
        return Err(
            "--read-from primary: such reads are never hedged, there is nothing to probe".into()
        );
    }
    if read_from == ReadFrom::Replica && args.reads.replicas.len() == 1 {
        return Err(
            "--read-from replica: one replica has no other to hedge to; name a second with \
                    --replica, or say replica-preferred"
                .into(),
        );
    }
    // The embedded deployment has replicas of its own.
    let mut reads = args.reads.clone();
    if args.url.is_none() {
        reads.replicas = vec![Endpoint::tcp("embedded", 1), Endpoint::tcp("embedded", 2)];
    }
    reads.check(read_from)
}

fn fixed(reads: &ReadArgs) -> Result<Hedging, String> {
    let fixed = reads.hedging(Delay::Fixed(FIXED_DELAY))?;
    match fixed.delay {
        Delay::Fixed(_) => Ok(fixed),
        _ => Err("--hedge-delay adaptive: there is a pass of its own for that; say a length of time, such \
                  as 5ms"
            .into()),
    }
}

fn within(flag: &str, typed: Option<u32>, default: u32, most: u32) -> Result<u32, String> {
    match typed.unwrap_or(default) {
        n if (1..=most).contains(&n) => Ok(n),
        n => Err(format!("{flag} {n}: between 1 and {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::args::{Args, Task};
    use super::*;
    use clap::Parser;

    fn plan(typed: &str) -> Result<Plan, String> {
        let words = ["hedgerow", "probe"].into_iter().chain(typed.split_whitespace());
        match Args::try_parse_from(words).map_err(|error| error.to_string())?.task {
            Task::Probe(args) => Plan::new(*args),
            _ => unreachable!("the word probe was given"),
        }
    }

    /// Fails if the documented defaults and the plan part ways.
    #[test]
    fn defaults() {
        let plan = plan("").unwrap();
        assert_eq!((plan.rate_per_s, plan.blocks, plan.keys), (1000.0, 5, 1000));
        assert_eq!((plan.duration, plan.warmup), (Duration::from_secs(40), Duration::from_secs(4)));
        assert_eq!(plan.block(), Duration::from_secs(2));
        assert_eq!(plan.fixed.delay, Delay::Fixed(Duration::from_millis(5)));
        assert_eq!((plan.fixed.max_extra_load_percent, plan.fixed.burst), (5, 1));
        assert!(plan.check && plan.url.is_none() && plan.read_from == ReadFrom::ReplicaPreferred);
    }

    /// Fails if a contradiction is accepted, or its line does not name the flag.
    #[test]
    fn contradictions() {
        let cases = [
            ("redis://h", "--replica"),
            ("--replica a:1", "--replica needs the URL"),
            ("--cluster", "--cluster needs the URL"),
            ("redis://h --cluster --replica a:1", "--replica"),
            ("redis://h?cluster=true --reference --pause-replicas", "--reference"),
            ("--key k", "--key"),
            ("--pause-replicas", "--pause-replicas"),
            ("redis://h --replica a:1 --key k --keys 5", "--keys"),
            ("redis://h --replica a:1 --replica a:1", "named twice"),
            ("redis://h --replica a:1 --read-from primary", "--read-from primary"),
            ("redis://h --replica a:1 --read-from replica", "replica-preferred"),
            ("redis://h --replica a:1 --read-from az-affinity", "--zone"),
            ("redis://h --replica a:1 --pause-replicas", "--reference"),
            ("redis://h --replica a:1 --reference", "--pause-replicas"),
            ("--read-from nearby", "replica-preferred"),
            ("--hedge-delay 10us", "50us"),
            ("--hedge-delay adaptive", "--hedge-delay"),
            ("--hedge-budget 0", "--hedge-budget 0"),
            ("--hedge-budget 101", "--hedge-budget 101"),
            ("--hedge-burst 0", "--hedge-burst 0"),
            ("--blocks 0", "--blocks 0"),
            ("--clients 257", "--clients 257"),
            ("--keys 0", "--keys 0"),
            ("--duration 100ms", "--duration"),
            ("--rate 0", "--rate"),
            ("--json a --html a", "--html"),
            ("--reference --rate 5", "--rate"),
            ("--reference --hedge-budget 5", "--hedge-budget"),
        ];
        for (typed, named) in cases {
            let error = plan(typed).unwrap_err();
            assert!(error.contains(named), "{typed}: {error}");
        }
    }

    /// Fails if a policy under which one node serves all reads is taken for one that spreads them, so that
    /// nothing can be predicted.
    #[test]
    fn nodes_that_serve_alone() {
        let alone = |policy: &str, replicas| {
            let plan = plan(&format!("redis://h --replica a:1 --read-from {policy}")).unwrap();
            plan.alone(replicas)
        };
        assert_eq!(alone("replica-preferred", 1), Some((false, ReadFrom::PrimaryPreferred)));
        assert_eq!(alone("replica-preferred", 2), None);
        assert_eq!(alone("primary-preferred", 2), Some((true, ReadFrom::Replica)));
        assert_eq!(alone("nearest", 1), None);
    }

    /// Fails if a right command line is refused.
    #[test]
    fn right_command_lines() {
        let cases = [
            "redis://h --replica a:1 --replica [::1]:6380 --read-from replica",
            "redis://h --replica a:1 --read-from az-affinity --zone eu-1a --hedge-delay 50us",
            "redis://h --replica a:1 --key k --key l --no-check --hedge-budget 100 --hedge-burst 9",
            "redis://h --replica a:1 --reference --pause-replicas --json f",
            "--reference",
            "--read-from replica --duration 1s --blocks 1 --rate 5000 --seed 1 --warmup 0s",
        ];
        for typed in cases {
            assert!(plan(typed).is_ok(), "{typed}: {:?}", plan(typed));
        }
    }
}
