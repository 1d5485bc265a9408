//! What was meant: all flags together, checked, with every default filled in.

use super::args::{BenchArgs, DoorName, ParkName, RungName};
use super::arrival::Arrivals;
use super::keys::{KeyDist, KeyName, Keys, MOST_KEYS, NAME_LEN};
use super::mix::{Mix, Verb};
use super::output::is_same_file;
use super::reads::ReadArgs;
use super::size::ValueSize;
use hedgerow::command::slot::slot_of;
use hedgerow::read::Delay;
use hedgerow_runtime::cpu::{self, CpuList};
use std::path::PathBuf;
use std::time::Duration;

/// Most connections of one core, and most requests in flight of one connection.
const MOST_EACH: u32 = 65_536;
/// Most requests in flight of one core.
const MOST_IN_FLIGHT: u64 = 1 << 20;
/// Most runs.
const MOST_RUNS: u32 = 1_000;
/// Loading more bytes than this needs `--load-anyway`.
const LOAD_FREELY: u64 = 1 << 30;
/// In flight per connection of an open loop: a bound that a healthy server never reaches.
const OPEN_DEPTH: u32 = 1024;

/// One benchmark, ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The server; `None` is the embedded one.
    pub(crate) url: Option<String>,
    pub(crate) door: Placement,
    /// Per core; hosted: of the client.
    pub(crate) connections: u32,
    /// In flight per connection, at most.
    pub(crate) depth: u32,
    pub(crate) pace: Pace,
    pub(crate) until: Until,
    pub(crate) warmup: Duration,
    pub(crate) mix: Mix,
    pub(crate) value_size: ValueSize,
    pub(crate) keys: u64,
    pub(crate) key_dist: KeyDist,
    /// What the names of all keys begin with.
    pub(crate) key_prefix: String,
    /// Commands that load the keys first; empty for none.
    pub(crate) loads: Vec<Verb>,
    pub(crate) seed: u64,
    pub(crate) json: Option<PathBuf>,
    pub(crate) hdr: Option<PathBuf>,
    pub(crate) runs: u32,
    /// Replicas, policy and hedging.
    pub(crate) reads: ReadArgs,
}

/// Where the load runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// One pinned core per cpu.
    Cores { cpus: CpuList, rung: Option<RungName>, park: ParkName },
    /// A client in a tokio runtime of so many threads.
    Hosted { workers: u32 },
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// The next one when a reply came.
    Closed,
    /// On a schedule that never looks at replies. Rate: per second, all cores together.
    Open { rate_per_s: f64, arrivals: Arrivals },
}

/// When the measurement ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// After this time.
    Time(Duration),
    /// After so many requests, all cores together.
    Requests(u64),
}

impl Plan {
    /// Makes the plan, or says in one line which flag is wrong and what would be right.
    pub(crate) fn new(mut args: BenchArgs) -> Result<Plan, String> {
        args.reads.heed(args.url.as_deref());
        let pace = pace(&args)?;
        let depth = match pace {
            Pace::Closed => 1,
            Pace::Open { .. } => OPEN_DEPTH,
        };
        let plan = Plan {
            door: placement(&args)?,
            connections: count("--connections", args.connections, 1, MOST_EACH)?,
            depth: count("--depth", args.depth, depth, MOST_EACH)?,
            pace,
            until: until(&args)?,
            warmup: args.warmup.unwrap_or(Duration::from_secs(1)),
            value_size: args.value_size.unwrap_or(ValueSize { min: 64, max: 64 }),
            keys: keys(&args)?,
            key_dist: args.key_dist.unwrap_or(KeyDist::Uniform),
            key_prefix: args.key_prefix.unwrap_or_default(),
            loads: Vec::new(),
            seed: args.seed.unwrap_or_else(|| fastrand::u32(..).into()),
            runs: count("--runs", args.runs, 1, MOST_RUNS)?,
            mix: match args.mix {
                Some(mix) => mix,
                None => Mix::parse("get:80,set:20")?,
            },
            url: args.url,
            json: args.json,
            hdr: args.hdr,
            reads: args.reads,
        };
        plan.checked()?.with_loads(args.no_load, args.load_anyway)
    }

    /// Checks what no flag can tell by itself.
    fn checked(self) -> Result<Plan, String> {
        if u64::from(self.connections) * u64::from(self.depth) > MOST_IN_FLIGHT {
            return Err(format!(
                "--connections times --depth: at most {MOST_IN_FLIGHT} requests in flight"
            ));
        }
        if let (Some(json), Some(hdr)) = (&self.json, &self.hdr)
            && is_same_file(json, hdr)
        {
            return Err("--json and --hdr name the same file".into());
        }
        Keys::new(self.keys, self.key_dist)?;
        self.check_reads()?;
        Ok(self)
    }

    fn with_loads(mut self, no_load: bool, load_anyway: bool) -> Result<Plan, String> {
        if no_load && load_anyway {
            return Err("--no-load and --load-anyway contradict each other".into());
        }
        if no_load {
            return Ok(self);
        }
        self.loads = self.mix.loads();
        let bytes = self.load_bytes();
        if bytes > LOAD_FREELY && !load_anyway {
            return Err(format!(
                "loading {} keys of {} takes {:.1} GiB: say --load-anyway, or --no-load",
                self.keys,
                self.value_size,
                bytes as f64 / f64::from(1 << 30)
            ));
        }
        Ok(self)
    }

    fn check_reads(&self) -> Result<(), String> {
        match (self.reads.given(), &self.url) {
            (Some(flag), None) => {
                Err(format!("{flag} needs a URL: the in-process server is alone"))
            }
            _ => {
                self.reads.check(self.reads.read_from.unwrap_or_default())?;
                self.reads.hedging(Delay::default()).map(|_| ())
            }
        }
    }

    /// The slot of all keys, where they have one in common.
    pub(crate) fn only_slot(&self) -> Option<u16> {
        let verbs = self.mix.parts().iter().map(|(verb, _)| verb.prefix());
        let names = verbs.filter(|word| !word.is_empty()).flat_map(|word| {
            // So many keys have one slot in common by their hash tag only.
            (0..self.keys.min(64)).map(|number| KeyName::new(&self.key_prefix, word, number))
        });
        let mut slots = names.map(|name| slot_of(name.as_bytes()));
        let first = slots.next()?;
        slots.all(|slot| slot == first).then_some(first)
    }

    /// Bytes of names and values that loading sends.
    pub(crate) fn load_bytes(&self) -> u64 {
        let each = |verb: &Verb| {
            ((self.key_prefix.len() + verb.prefix().len()) as u64
                + NAME_LEN
                + self.value_size.mean())
            .saturating_mul(self.keys)
        };
        self.loads.iter().map(each).fold(0, u64::saturating_add)
    }

    /// How many lanes put on load: cores, or threads of the runtime (each with a task at least).
    pub(crate) fn lanes(&self) -> usize {
        match &self.door {
            Placement::Cores { cpus, .. } => cpus.len(),
            Placement::Hosted { workers } => u64::from(*workers).min(self.in_flight()) as usize,
        }
    }

    /// Requests in flight of all lanes together, at most.
    pub(crate) fn in_flight(&self) -> u64 {
        let each = u64::from(self.connections) * u64::from(self.depth);
        match &self.door {
            Placement::Cores { cpus, .. } => each * cpus.len() as u64,
            Placement::Hosted { .. } => each,
        }
    }

    /// Tasks that send on lane `lane`, each with one request in flight.
    pub(crate) fn tasks(&self, lane: usize) -> usize {
        share(self.in_flight(), lane, self.lanes()) as usize
    }

    /// The asked rate of all cores, per second; `None` in a closed loop.
    pub(crate) fn asked_per_s(&self) -> Option<f64> {
        match self.pace {
            Pace::Closed => None,
            Pace::Open { rate_per_s, .. } => Some(rate_per_s),
        }
    }

    /// Whether the loop is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.pace == Pace::Closed
    }
}

impl std::fmt::Display for Plan {
    /// One line: the load, without the server.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lanes = match &self.door {
            Placement::Cores { cpus, .. } => format!("cpu {cpus}"),
            Placement::Hosted { workers } => format!("tokio, {workers} workers"),
        };
        let (connections, depth, mix) = (self.connections, self.depth, &self.mix);
        let each = if matches!(self.door, Placement::Cores { .. }) { " each" } else { "" };
        write!(f, "{lanes}; {connections} connections{each}, {depth} in flight on each; ")?;
        write!(f, "{mix}; {} keys, {}", self.keys, self.key_dist)?;
        if !self.key_prefix.is_empty() {
            write!(f, ", names begin with {}", self.key_prefix)?;
        }
        write!(f, "; values {}; ", self.value_size)?;
        write!(f, "seed {}", self.seed)
    }
}

/// Lane `lane`'s part of `total`: parts differ by one at most and add up.
pub(crate) fn share(total: u64, lane: usize, lanes: usize) -> u64 {
    let (lane, lanes) = (lane as u64, (lanes as u64).max(1));
    total / lanes + u64::from(lane < total % lanes)
}

fn count(flag: &str, typed: Option<u32>, default: u32, most: u32) -> Result<u32, String> {
    match typed.unwrap_or(default) {
        n if (1..=most).contains(&n) => Ok(n),
        n => Err(format!("{flag} {n}: between 1 and {most}")),
    }
}

fn keys(args: &BenchArgs) -> Result<u64, String> {
    match args.keys.unwrap_or(10_000) {
        n if (1..=MOST_KEYS).contains(&n) => Ok(n),
        n => Err(format!("--keys {n}: between 1 and {MOST_KEYS}")),
    }
}

fn pace(args: &BenchArgs) -> Result<Pace, String> {
    match (args.rate, args.arrivals) {
        (None, None) => Ok(Pace::Closed),
        (None, Some(_)) => Err("--arrivals needs --rate: a closed loop has no schedule".into()),
        (Some(rate_per_s), arrivals) => {
            Ok(Pace::Open { rate_per_s, arrivals: arrivals.unwrap_or(Arrivals::Poisson) })
        }
    }
}

fn until(args: &BenchArgs) -> Result<Until, String> {
    match (args.duration, args.requests) {
        (Some(_), Some(_)) => Err("--duration and --requests: give only one of them".into()),
        (Some(Duration::ZERO), _) => Err("--duration 0: measure for some time, say 10s".into()),
        (_, Some(0)) => Err("--requests 0: at least one request is needed".into()),
        (_, Some(requests)) => Ok(Until::Requests(requests)),
        (time, None) => Ok(Until::Time(time.unwrap_or(Duration::from_secs(10)))),
    }
}

fn placement(args: &BenchArgs) -> Result<Placement, String> {
    match args.door.unwrap_or(DoorName::Cores) {
        DoorName::Cores if args.workers.is_some() => {
            Err("--workers needs --door hosted: cores are named by --cores".into())
        }
        DoorName::Cores => Ok(Placement::Cores {
            cpus: cpus(args.cores.clone())?,
            rung: args.rung,
            park: args.park.unwrap_or(ParkName::Adaptive),
        }),
        DoorName::Hosted => {
            let cores_only = [
                ("--cores", args.cores.is_some()),
                ("--rung", args.rung.is_some()),
                ("--park", args.park.is_some()),
            ];
            match cores_only.into_iter().find(|(_, given)| *given) {
                Some((flag, _)) => Err(format!("{flag} belongs to --door cores, not to hosted")),
                None => {
                    Ok(Placement::Hosted { workers: count("--workers", args.workers, 2, 1024)? })
                }
            }
        }
    }
}

/// The asked cpus, each of which must be allowed; else the last allowed one.
fn cpus(asked: Option<CpuList>) -> Result<CpuList, String> {
    let allowed = cpu::allowed().map_err(|e| format!("--cores: no cpus can be told: {e}"))?;
    let Some(asked) = asked else { return Ok(allowed.iter().last().into_iter().collect()) };
    let refused = asked.iter().find(|cpu| !allowed.contains(*cpu));
    match refused {
        Some(cpu) => Err(format!("--cores: this process may not use cpu {cpu}, only {allowed}")),
        None => Ok(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::{Args, Task};
    use super::*;
    use clap::Parser;

    /// The plan of a command line.
    fn plan(typed: &str) -> Result<Plan, String> {
        let words = ["hedgerow", "bench"].into_iter().chain(typed.split_whitespace());
        match Args::try_parse_from(words).map_err(|e| e.to_string())?.task {
            Task::Bench(args) => Plan::new(*args),
            _ => unreachable!("the word bench was given"),
        }
    }

    /// Defaults. Fails if the documented defaults and the plan part ways.
    #[test]
    fn defaults() {
        let plan = plan("").unwrap();
        assert_eq!((plan.connections, plan.depth, plan.runs, plan.keys), (1, 1, 1, 10_000));
        assert_eq!(plan.until, Until::Time(Duration::from_secs(10)));
        assert_eq!(plan.warmup, Duration::from_secs(1));
        assert_eq!(plan.mix.to_string(), "get:80,set:20");
        assert_eq!(plan.loads, [Verb::Set]);
        assert!(plan.is_closed() && plan.url.is_none() && plan.lanes() == 1);
    }

    /// Open loop, hosted door, loads. Fails if one flag changes another's meaning unseen.
    #[test]
    fn meanings() {
        let open = plan("--rate 1000").unwrap();
        assert_eq!((open.depth, open.asked_per_s()), (1024, Some(1000.0)));
        let hosted = plan("--door hosted --workers 3 --connections 2 --depth 5").unwrap();
        assert_eq!((hosted.lanes(), hosted.in_flight()), (3, 10));
        assert_eq!((0..3).map(|lane| hosted.tasks(lane)).collect::<Vec<_>>(), [4, 3, 3]);
        assert!(plan("--mix set").unwrap().loads.is_empty());
        assert!(plan("--no-load").unwrap().loads.is_empty());
        assert_eq!(plan("--mix hget,get").unwrap().loads, [Verb::Hset, Verb::Set]);
        assert!(plan("--keys 2000000 --value-size 1KiB --load-anyway").is_ok());
        assert!(plan("--keys 2000000 --value-size 1KiB --mix set").is_ok());
    }

    /// Contradictions get one line that names the flag. Fails if one is accepted.
    #[test]
    fn contradictions() {
        let cases = [
            ("--duration 1s --requests 5", "--requests"),
            ("--duration 0s", "--duration"),
            ("--requests 0", "--requests"),
            ("--arrivals poisson", "--rate"),
            ("--workers 2", "--door hosted"),
            ("--door hosted --cores 0", "--cores"),
            ("--door hosted --rung u1", "--rung"),
            ("--door hosted --park spin", "--park"),
            ("--connections 0", "--connections"),
            ("--depth 65537", "--depth"),
            ("--connections 60000 --depth 60000", "--depth"),
            ("--runs 0", "--runs"),
            ("--keys 0", "--keys"),
            ("--keys 2000000 --value-size 1KiB", "--load-anyway"),
            ("--keys 1000000000000 --value-size 512MiB", "--load-anyway"),
            ("--no-load --load-anyway", "--no-load"),
            ("--json a --hdr a", "--hdr"),
            ("--cores 1023", "1023"),
            ("--hedge-delay 5ms", "--hedge-delay needs a URL"),
            ("redis://h --read-from replica", "--replica"),
            ("--cluster", "--cluster needs a URL"),
            ("redis://h --cluster --replica a:1", "--replica"),
            ("redis://h?cluster=true --replica a:1", "--replica"),
            ("redis://h --seed-node a:1", "--seed-node needs --cluster"),
            ("redis://h --cluster --hedge-delay 5ms", "--read-from"),
            ("redis://h --replica a:1 --hedge-delay 5ms", "--read-from"),
            ("redis://h --replica a:1 --read-from replica --hedge-budget 0", "--hedge-budget"),
        ];
        for (typed, named) in cases {
            let error = plan(typed).unwrap_err();
            assert!(error.contains(named) && !error.contains('\n'), "{typed}: {error}");
        }
    }

    /// Case behaviour/29. Fails if keys of one slot are not told from those of many.
    #[test]
    fn one_slot_is_told() {
        let tagged = plan("--key-prefix {acct} --mix get,hset").unwrap();
        assert_eq!(tagged.only_slot(), Some(slot_of(b"acct")));
        assert!(plan("--keys 1").unwrap().only_slot().is_some());
        for many in ["", "--key-prefix acct", "--mix ping", "--keys 1 --mix get,hset"] {
            assert_eq!(plan(many).unwrap().only_slot(), None, "{many}");
        }
    }

    /// Parts add up. Fails if a remainder is lost.
    #[test]
    fn shares_add_up() {
        for (total, lanes) in [(10, 3), (2, 4), (0, 2), (7, 1)] {
            assert_eq!((0..lanes).map(|lane| share(total, lane, lanes)).sum::<u64>(), total);
        }
    }
}
