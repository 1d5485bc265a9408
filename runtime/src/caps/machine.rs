//! Facts about the machine and the box around this process, read from /proc, /sys and the limits.

use std::fmt;
use std::fs;
use std::path::Path;

use crate::cpu::{self, CpuList, Quota, Topology};

/// A resource limit; `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// What is in force.
    pub soft: Option<u64>,
    /// How far an ordinary user may raise it.
    pub hard: Option<u64>,
}

/// Whether system calls are filtered (`Seccomp:` of /proc/self/status).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seccomp {
    /// Not told.
    #[default]
    Unknown,
    /// No filter.
    Off,
    /// A fixed handful of calls.
    Strict,
    /// One or more filters, as container runtimes install them.
    Filter,
}

/// Facts about this machine and process. What could not be read is `None` or empty.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Kernel release, for example `6.18.4`.
    pub kernel: Option<String>,
    /// `kernel.io_uring_disabled`: 0 allowed, 1 only for a group and administrators, 2 forbidden.
    /// `None` where the kernel has no such setting (before 6.6, or without io_uring).
    pub io_uring_disabled: Option<u32>,
    /// `kernel.io_uring_group`: who may use it at level 1; -1 nobody.
    pub io_uring_group: Option<i64>,
    /// Whether system calls are filtered.
    pub seccomp: Seccomp,
    /// Effective capabilities as a bit set.
    pub capabilities: u64,
    /// Locked memory in bytes (`RLIMIT_MEMLOCK`): rings and registered buffers count against it.
    pub memlock: Limit,
    /// Open descriptors (`RLIMIT_NOFILE`).
    pub nofile: Limit,
    /// CPU quota of the control group.
    pub quota: Option<Quota>,
    /// Cpus that this thread may use.
    pub allowed: CpuList,
    /// Cpus that are online, and which share a physical core.
    pub topology: Topology,
    /// Frequency governors of the allowed cpus, without repeats.
    pub governors: Vec<String>,
    /// Idle driver, for example `intel_idle`.
    pub idle_driver: Option<String>,
    /// What hints at a container, for example `docker`.
    pub container: Option<String>,
}

/// Bits of [`Machine::capabilities`] that matter here.
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_ADMIN: u32 = 21;

impl Machine {
    /// Reads this machine.
    pub fn read() -> Machine {
        let mut machine = Machine::read_tree(Path::new("/"));
        machine.memlock = limit(libc::RLIMIT_MEMLOCK);
        machine.nofile = limit(libc::RLIMIT_NOFILE);
        machine.allowed = cpu::allowed().unwrap_or_default();
        machine.governors = governors(Path::new(cpu::SYS_CPU), &machine.allowed);
        machine
    }

    /// Reads what stands in files, from a tree with `proc` and `sys` in it; limits and allowed cpus
    /// stay at their defaults.
    pub fn read_tree(root: &Path) -> Machine {
        let status = word(&root.join("proc/self/status")).unwrap_or_default();
        let sys_cpu = root.join("sys/devices/system/cpu");
        let sysctl = root.join("proc/sys/kernel");
        let topology = Topology::read(&sys_cpu);
        Machine {
            kernel: word(&sysctl.join("osrelease")),
            io_uring_disabled: number(&sysctl.join("io_uring_disabled")),
            io_uring_group: number(&sysctl.join("io_uring_group")),
            seccomp: seccomp(&status),
            capabilities: field(&status, "CapEff")
                .and_then(|hex| u64::from_str_radix(hex, 16).ok())
                .unwrap_or(0),
            quota: Quota::read(&root.join("proc/self/cgroup"), &root.join("sys/fs/cgroup")),
            governors: governors(&sys_cpu, &topology.online()),
            topology,
            idle_driver: word(&sys_cpu.join("cpuidle/current_driver")).filter(|s| s != "none"),
            container: container(root),
            ..Machine::default()
        }
    }

    /// Whether locked memory is not counted for this process (`CAP_IPC_LOCK`).
    pub fn locks_freely(&self) -> bool {
        self.capabilities & 1 << CAP_IPC_LOCK != 0 || self.memlock.soft.is_none()
    }

    /// Whether `kernel.io_uring_disabled` as read keeps this process from making a ring. At level 1
    /// membership of the group is not looked up: an administrator passes, others may not.
    pub(super) fn sysctl_forbids(&self) -> bool {
        match self.io_uring_disabled {
            Some(0) | None => false,
            Some(1) => self.capabilities & 1 << CAP_SYS_ADMIN == 0,
            Some(_) => true,
        }
    }
}

fn word(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn number<N: std::str::FromStr>(path: &Path) -> Option<N> {
    word(path)?.parse().ok()
}

/// The value of `Name:\tvalue` in a status file.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn seccomp(status: &str) -> Seccomp {
    match field(status, "Seccomp") {
        Some("0") => Seccomp::Off,
        Some("1") => Seccomp::Strict,
        Some("2") => Seccomp::Filter,
        _ => Seccomp::Unknown,
    }
}

fn governors(sys_cpu: &Path, cpus: &CpuList) -> Vec<String> {
    let path = |cpu| sys_cpu.join(format!("cpu{cpu}/cpufreq/scaling_governor"));
    let mut found: Vec<String> = cpus.iter().filter_map(|cpu| word(&path(cpu))).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Marks that container runtimes leave; a hint for the advice, nothing depends on it.
fn container(root: &Path) -> Option<String> {
    if root.join(".dockerenv").exists() {
        return Some("docker".to_owned());
    }
    if root.join("run/.containerenv").exists() {
        return Some("podman".to_owned());
    }
    let groups = word(&root.join("proc/self/cgroup"))?;
    let marks = [("kubepods", "kubernetes"), ("docker", "docker"), ("lxc", "lxc")];
    marks.iter().find(|(mark, _)| groups.contains(mark)).map(|(_, name)| (*name).to_owned())
}

fn limit(resource: libc::__rlimit_resource_t) -> Limit {
    let mut raw = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `raw` is a valid, writable rlimit for the duration of the call, and the call writes
    // nothing else.
    if unsafe { libc::getrlimit(resource, &mut raw) } != 0 {
        return Limit::default();
    }
    let bound = |value: libc::rlim_t| (value != libc::RLIM_INFINITY).then_some(value);
    Limit { soft: bound(raw.rlim_cur), hard: bound(raw.rlim_max) }
}

/// Bytes as people write limits: whole MiB or KiB where it is whole.
pub(super) fn bytes(count: u64) -> String {
    match count {
        0 => "0".to_owned(),
        n if n % (1 << 20) == 0 => format!("{} MiB", n >> 20),
        n if n % (1 << 10) == 0 => format!("{} KiB", n >> 10),
        n => format!("{n} bytes"),
    }
}

fn told(value: Option<impl fmt::Display>) -> String {
    value.map_or_else(|| "not told".to_owned(), |value| value.to_string())
}

impl Limit {
    fn written(self, unit: fn(u64) -> String) -> String {
        let side = |value: Option<u64>| value.map_or_else(|| "unlimited".to_owned(), unit);
        format!("{} (hard limit {})", side(self.soft), side(self.hard))
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "kernel: {}", told(self.kernel.as_ref()))?;
        let disabled = self.io_uring_disabled;
        writeln!(f, "kernel.io_uring_disabled: {}", told(disabled))?;
        writeln!(f, "kernel.io_uring_group: {}", told(self.io_uring_group))?;
        let seccomp = match self.seccomp {
            Seccomp::Unknown => "not told",
            Seccomp::Off => "off",
            Seccomp::Strict => "strict",
            Seccomp::Filter => "filter",
        };
        writeln!(f, "seccomp: {seccomp}")?;
        let free = if self.locks_freely() { ", not counted for this process" } else { "" };
        writeln!(f, "locked memory: {}{free}", self.memlock.written(bytes))?;
        writeln!(f, "open descriptors: {}", self.nofile.written(|n| n.to_string()))?;
        match self.quota {
            Some(Quota { cpus }) => writeln!(f, "CPU quota: {cpus:.2} cpus")?,
            None => writeln!(f, "CPU quota: none")?,
        }
        let online = self.topology.online();
        writeln!(f, "cpus: {} allowed, {} online", self.allowed, online)?;
        let groups = self.topology.siblings(&online);
        let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        let groups = if groups.is_empty() { "none".to_owned() } else { groups.join(" ") };
        writeln!(f, "cpus that share a physical core: {groups}")?;
        let governors = self.governors.join(", ");
        writeln!(f, "governor: {}", told(Some(governors).filter(|g| !g.is_empty())))?;
        writeln!(f, "idle driver: {}", told(self.idle_driver.as_ref()))?;
        writeln!(f, "container: {}", self.container.as_deref().unwrap_or("no sign of one"))
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// Trap 16, case behaviour/26. Fails if a setting is read from the wrong file or a wrong field.
    #[test]
    fn facts_come_from_the_tree() {
        let root = std::env::temp_dir().join(format!("hedgerow-machine-{}", std::process::id()));
        let status = "Name:\tx\nCapEff:\t0000000000004000\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        for (path, text) in [
            ("proc/sys/kernel/osrelease", "6.6.1\n"),
            ("proc/sys/kernel/io_uring_disabled", "1\n"),
            ("proc/sys/kernel/io_uring_group", "-1\n"),
            ("proc/self/status", status),
            ("proc/self/cgroup", "0::/kubepods/pod1\n"),
            ("sys/fs/cgroup/cpu.max", "150000 100000\n"),
            ("sys/devices/system/cpu/online", "0-1\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n"),
        ] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let machine = Machine::read_tree(&root);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(machine.kernel.as_deref(), Some("6.6.1"));
        assert_eq!((machine.io_uring_disabled, machine.io_uring_group), (Some(1), Some(-1)));
        assert_eq!(machine.seccomp, Seccomp::Filter);
        assert!(machine.locks_freely());
        assert!(machine.sysctl_forbids());
        assert_eq!(machine.quota, Some(Quota { cpus: 1.5 }));
        assert_eq!(machine.governors, ["powersave"]);
        assert_eq!(machine.idle_driver.as_deref(), Some("intel_idle"));
        assert_eq!(machine.container.as_deref(), Some("kubernetes"));
    }

    /// Design section 5. Fails if a bare machine panics, or a fact that is not told looks like a value.
    #[test]
    fn an_empty_tree_tells_nothing() {
        let machine = Machine::read_tree(Path::new("/nonexistent"));
        assert!(!machine.sysctl_forbids());
        let text = machine.to_string();
        assert!(
            text.contains("kernel: not told\n") && text.contains("CPU quota: none\n"),
            "{text}"
        );
        let real = Machine::read();
        assert!(!real.allowed.is_empty() && real.kernel.is_some());
    }
}
