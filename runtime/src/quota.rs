//! The CPU quota that a container or service manager puts on this process.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// How much CPU time the process may use, in cpus: 1.5 means 150 ms in every 100 ms.
///
/// A process over its quota stands still until the next period, for tens of milliseconds: a core
/// that spins would use it up while waiting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quota {
    /// Cpus' worth of time; above zero.
    pub cpus: f64,
}

impl Quota {
    /// The quota of this process, `None` if there is none.
    pub fn detect() -> Option<Quota> {
        Quota::read(Path::new("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"))
    }

    /// The tightest quota of all control groups on the way from the process's own to the root.
    /// `membership` is a file as `/proc/self/cgroup`, `mount` a tree as `/sys/fs/cgroup` (version 1,
    /// version 2, or both). What cannot be read sets no quota.
    ///
    /// A container often sees a membership path that does not exist in its own mount; the mount's root
    /// is then its group, which is why the walk always ends there.
    pub fn read(membership: &Path, mount: &Path) -> Option<Quota> {
        let text = fs::read_to_string(membership).unwrap_or_default();
        let mut tightest: Option<f64> = None;
        for line in text.lines() {
            let Some((controllers, path)) = parse_line(line) else { continue };
            for (base, limit) in hierarchies(mount, controllers) {
                for folder in way_up(&base, path) {
                    if let Some(cpus) = limit(&folder) {
                        tightest = Some(tightest.map_or(cpus, |least| least.min(cpus)));
                    }
                }
            }
        }
        tightest.map(|cpus| Quota { cpus })
    }
}

/// `4:cpu,cpuacct:/a/b` as (`cpu,cpuacct`, `/a/b`).
fn parse_line(line: &str) -> Option<(&str, &str)> {
    let mut fields = line.splitn(3, ':').skip(1);
    Some((fields.next()?, fields.next()?))
}

/// Reads the quota of one group's folder.
type Limit = fn(&Path) -> Option<f64>;

/// Where the groups of a membership line may be mounted, and how their quota is read.
fn hierarchies(mount: &Path, controllers: &str) -> Vec<(PathBuf, Limit)> {
    if controllers.is_empty() {
        return vec![(mount.to_owned(), version_2), (mount.join("unified"), version_2)];
    }
    if !controllers.split(',').any(|name| name == "cpu") {
        return Vec::new();
    }
    let names = [controllers, "cpu", "cpu,cpuacct", "cpuacct,cpu"];
    names.iter().map(|name| (mount.join(name), version_1 as Limit)).collect()
}

/// The folder of `path` under `base`, its parent, and so on up to `base` itself.
fn way_up(base: &Path, path: &str) -> Vec<PathBuf> {
    let mut folder = base.to_owned();
    let mut folders = vec![folder.clone()];
    for part in Path::new(path).components() {
        // A path that leads out of the namespace has `..` in front; it must not lead out of `base`.
        if let Component::Normal(name) = part {
            folder.push(name);
            folders.push(folder.clone());
        }
    }
    folders
}

/// `cpu.max`: `150000 100000`, or `max 100000` for none.
fn version_2(folder: &Path) -> Option<f64> {
    let text = fs::read_to_string(folder.join("cpu.max")).ok()?;
    let mut words = text.split_ascii_whitespace();
    ratio(words.next()?, words.next()?)
}

/// `cpu.cfs_quota_us` (-1 for none) over `cpu.cfs_period_us`.
fn version_1(folder: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    ratio(read("cpu.cfs_quota_us")?.trim(), read("cpu.cfs_period_us")?.trim())
}

fn ratio(quota_us: &str, period_us: &str) -> Option<f64> {
    let (quota_us, period_us): (u64, u64) = (quota_us.parse().ok()?, period_us.parse().ok()?);
    (quota_us > 0 && period_us > 0).then(|| quota_us as f64 / period_us as f64)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// A membership file and a mount with the given files, read and removed again.
    fn quota(name: &str, membership: &str, files: &[(&str, &str)]) -> Option<f64> {
        let root =
            std::env::temp_dir().join(format!("hedgerow-quota-{name}-{}", std::process::id()));
        let mount = root.join("mount");
        fs::create_dir_all(&mount).unwrap();
        fs::write(root.join("cgroup"), membership).unwrap();
        for (path, text) in files {
            let path = mount.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = Quota::read(&root.join("cgroup"), &mount);
        fs::remove_dir_all(&root).unwrap();
        found.map(|quota| quota.cpus)
    }

    /// Trap 23. Fails if a version 2 quota is missed in the group, in a parent, or at a container's
    /// own root, or if `max` counts as one.
    #[test]
    fn version_2_groups() {
        let line = "0::/service/app\n";
        assert_eq!(quota("a", line, &[("service/app/cpu.max", "150000 100000\n")]), Some(1.5));
        assert_eq!(quota("b", line, &[("service/cpu.max", "50000 100000\n")]), Some(0.5));
        assert_eq!(quota("c", line, &[("cpu.max", "200000 100000\n")]), Some(2.0));
        assert_eq!(quota("d", line, &[("service/app/cpu.max", "max 100000\n")]), None);
        let both = [("cpu.max", "100000 100000"), ("service/app/cpu.max", "300000 100000")];
        assert_eq!(quota("e", line, &both), Some(1.0));
        assert_eq!(quota("f", line, &[("unified/service/cpu.max", "70000 100000")]), Some(0.7));
    }

    /// Trap 23. Fails if a version 1 quota is missed, also where the path that is told does not exist
    /// in the container's mount, or if -1 counts as one.
    #[test]
    fn version_1_groups() {
        let line = "9:name=systemd:/\n4:cpu,cpuacct:/docker/0123abcd\n3:memory:/x\n";
        let files = |folder: &str, quota: &'static str| {
            [
                (format!("{folder}/cpu.cfs_quota_us"), quota),
                (format!("{folder}/cpu.cfs_period_us"), "100000\n"),
            ]
        };
        let read = |name: &str, folder: &str, limit: &'static str| {
            let files = files(folder, limit);
            let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
            quota(name, line, &files)
        };
        assert_eq!(read("g", "cpu,cpuacct/docker/0123abcd", "150000\n"), Some(1.5));
        assert_eq!(read("h", "cpu,cpuacct", "250000\n"), Some(2.5));
        assert_eq!(read("i", "cpu", "100000\n"), Some(1.0));
        assert_eq!(read("j", "cpu,cpuacct", "-1\n"), None);
        assert_eq!(read("k", "memory", "100000\n"), None);
    }

    /// Trap 23. Fails if nonsense in these files panics, divides by zero or leads out of the mount.
    #[test]
    fn nonsense_sets_no_quota() {
        for (at, text) in ["", "1", "0 0", "5 0", "-5 100", "a b", "\0\n"].iter().enumerate() {
            assert_eq!(quota(&format!("n{at}"), "0::/\n", &[("cpu.max", text)]), None, "{text:?}");
        }
        let escape = [("../cpu.max", "100000 100000")];
        assert_eq!(quota("o", "0::/../..\n", &escape), None);
        assert_eq!(quota("p", "nonsense\n:::\n\n", &[]), None);
        assert_eq!(Quota::read(Path::new("/nonexistent"), Path::new("/nonexistent")), None);
    }
}
