//! What the owner of a service could change, in words: what is so, what it costs, what to do.

use std::fmt;

use super::machine::{Machine, bytes};
use super::rung::{Cause, Refusal};

/// What a piece of advice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Topic {
    /// io_uring cannot be used.
    Ring,
    /// A CPU quota, which turns spinning off.
    Quota,
    /// Locked memory.
    Memlock,
    /// Open descriptors.
    Nofile,
    /// Which cpus to pin cores to.
    Pinning,
    /// The frequency governor.
    Governor,
}

/// One thing that could be better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What it is about.
    pub topic: Topic,
    /// What is so, as one sentence.
    pub finding: String,
    /// What it costs, as one sentence.
    pub cost: String,
    /// The command or setting that changes it.
    pub change: String,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.finding, self.cost, self.change)
    }
}

fn advice(topic: Topic, finding: String, cost: &str, change: String) -> Advice {
    Advice { topic, finding, cost: cost.to_owned(), change }
}

/// Locked memory below which many cores or large rings run out: 8 MiB, or 1 MiB for each cpu.
fn memlock_wanted(machine: &Machine) -> u64 {
    (machine.allowed.len() as u64).max(8) << 20
}

/// Descriptors below which a pool to a large fleet runs out.
const NOFILE_WANTED: u64 = 4_096;

/// All advice for a machine whose ring was refused (or not), the most important first.
pub(super) fn advise(machine: &Machine, refusal: Option<&Refusal>) -> Vec<Advice> {
    let all = [
        refusal.map(ring),
        quota(machine),
        memlock(machine),
        nofile(machine),
        pinning(machine),
        governor(machine),
    ];
    all.into_iter().flatten().collect()
}

fn ring(refusal: &Refusal) -> Advice {
    let change = match refusal.cause {
        Cause::Filter => {
            "Allow io_uring_setup, io_uring_enter and io_uring_register: Docker: \
             --security-opt seccomp=PROFILE.json; Kubernetes: securityContext.seccompProfile of \
             type Localhost."
        }
        Cause::Sysctl(_) => "Run: sysctl -w kernel.io_uring_disabled=0",
        Cause::Descriptors(_) => NOFILE_CHANGE,
        Cause::LockedMemory(_) => MEMLOCK_CHANGE,
        Cause::Absent | Cause::TooOld => "Use Linux 6.1 or later (6.12 for incremental buffers).",
        _ => "Remove that cause, then run this again.",
    };
    advice(
        Topic::Ring,
        format!("io_uring cannot be used: {}.", refusal.finding()),
        "The epoll rung serves instead: all features, but each receive and each send is a system \
         call of its own.",
        change.to_owned(),
    )
}

fn quota(machine: &Machine) -> Option<Advice> {
    let cpus = machine.quota?.cpus;
    Some(advice(
        Topic::Quota,
        format!("A CPU quota of {cpus:.2} cpus is set on this process."),
        "Spinning is off, so a lone GET takes two to three times as long as it could; and a \
         process that uses its quota up stands still for tens of milliseconds.",
        "Give it whole cpus instead: Docker: --cpuset-cpus in place of --cpus; Kubernetes: the \
         static CPU manager policy with whole numbers; systemd: AllowedCPUs= in place of CPUQuota=."
            .to_owned(),
    ))
}

const MEMLOCK_CHANGE: &str = "Raise it: systemd: LimitMEMLOCK=infinity; Docker: --ulimit \
                              memlock=-1; a shell: ulimit -l unlimited.";

fn memlock(machine: &Machine) -> Option<Advice> {
    let limit = machine.memlock.soft?;
    if machine.locks_freely() || limit >= memlock_wanted(machine) {
        return None;
    }
    Some(advice(
        Topic::Memlock,
        format!("The limit of locked memory (RLIMIT_MEMLOCK) is {}.", bytes(limit)),
        "Each core's ring counts against it on recent kernels, together with those of this user's \
         other processes: when it is used up rings become smaller, and then epoll serves instead.",
        MEMLOCK_CHANGE.to_owned(),
    ))
}

const NOFILE_CHANGE: &str = "Raise it: systemd: LimitNOFILE=65536; Docker: --ulimit nofile=65536; \
                             a shell: ulimit -n 65536.";

fn nofile(machine: &Machine) -> Option<Advice> {
    let limit = machine.nofile.soft.filter(|&limit| limit < NOFILE_WANTED)?;
    Some(advice(
        Topic::Nofile,
        format!("The limit of open descriptors (RLIMIT_NOFILE) is {limit}."),
        "Each connection takes one, each core three or four; beyond it connecting fails.",
        NOFILE_CHANGE.to_owned(),
    ))
}

fn pinning(machine: &Machine) -> Option<Advice> {
    if machine.allowed.len() == 1 {
        return Some(advice(
            Topic::Pinning,
            format!("This process may use only cpu {}.", machine.allowed),
            "A core shares it with the rest of the program; with two cores spinning is off.",
            "Allow more: taskset -c LIST PROGRAM; Docker: --cpuset-cpus=LIST; systemd: \
             AllowedCPUs=."
                .to_owned(),
        ));
    }
    let groups = machine.topology.siblings(&machine.allowed);
    let first = groups.first()?;
    let apart = machine.topology.one_per_core(&machine.allowed);
    Some(advice(
        Topic::Pinning,
        format!("Some cpus share a physical core, as {first}."),
        "Two busy cores on one physical core slow each other down, and a spinning one slows the \
         thread beside it.",
        format!("Pin cores to one cpu of each: choose from {apart}."),
    ))
}

fn governor(machine: &Machine) -> Option<Advice> {
    let slow = machine.governors.iter().find(|name| *name != "performance")?;
    Some(advice(
        Topic::Governor,
        format!("The frequency governor is {slow}."),
        "A cpu that was idle answers at a low clock first, which shows in the tail latency.",
        "Run: cpupower frequency-set -g performance".to_owned(),
    ))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::caps::{Limit, Rung};
    use crate::cpu::{Place, Quota, Topology};

    fn place(cpu: u32, siblings: &str) -> Place {
        Place { cpu, core: None, package: None, siblings: siblings.parse().unwrap() }
    }

    fn topics(machine: &Machine, refusal: Option<&Refusal>) -> Vec<Topic> {
        advise(machine, refusal).iter().map(|advice| advice.topic).collect()
    }

    /// Design section 5. Fails if a machine with nothing to change gets advice.
    #[test]
    fn a_good_machine_gets_none() {
        let machine = Machine {
            allowed: "0-3".parse().unwrap(),
            governors: vec!["performance".to_owned()],
            nofile: Limit { soft: Some(65_536), hard: None },
            memlock: Limit { soft: Some(8 << 20), hard: None },
            ..Machine::default()
        };
        assert_eq!(topics(&machine, None), []);
    }

    /// Traps 15, 16 and 23, case behaviour/26. Fails if one of the findings is not reported, or is
    /// reported without its value, its cost or the command that changes it.
    #[test]
    fn each_finding_is_reported_with_its_remedy() {
        let places = [(0, "0,2"), (1, "1"), (2, "0,2")];
        let machine = Machine {
            allowed: "0-2".parse().unwrap(),
            topology: Topology { places: places.map(|(cpu, list)| place(cpu, list)).to_vec() },
            governors: vec!["powersave".to_owned()],
            nofile: Limit { soft: Some(1_024), hard: None },
            memlock: Limit { soft: Some(64 << 10), hard: None },
            quota: Some(Quota { cpus: 1.5 }),
            ..Machine::default()
        };
        let (rung, step) = (Rung::U1, "io_uring_setup");
        let refusal = Refusal { rung, step, errno: Some(libc::EPERM), cause: Cause::Sysctl(2) };
        let all = advise(&machine, Some(&refusal));
        for (advice, finding, change) in [
            (&all[0], "io_uring_disabled is 2", "sysctl -w kernel.io_uring_disabled=0"),
            (&all[1], "1.50 cpus", "--cpuset-cpus"),
            (&all[2], "64 KiB", "LimitMEMLOCK"),
            (&all[3], "1024", "LimitNOFILE"),
            (&all[4], "0,2", "choose from 0-1."),
            (&all[5], "powersave", "cpupower"),
        ] {
            assert!(advice.finding.contains(finding), "{advice}");
            assert!(advice.change.contains(change), "{advice}");
            assert!(advice.cost.ends_with('.') && advice.cost.len() > 20, "{advice}");
        }
        assert_eq!(all.len(), 6);
    }

    /// Design section 5. Fails if a process that may use a single cpu is not told.
    #[test]
    fn a_single_cpu_is_reported() {
        let machine = Machine { allowed: "3".parse().unwrap(), ..Machine::default() };
        assert_eq!(topics(&machine, None), [Topic::Pinning]);
    }
}
