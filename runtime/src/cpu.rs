//! Which cpus there are, which of them we may use, and pinning a thread to one.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

pub use crate::quota::Quota;

/// Where Linux describes its cpus; the root for [`Topology::read`].
pub const SYS_CPU: &str = "/sys/devices/system/cpu";

/// Highest cpu number that the affinity calls take, plus one.
const CPU_END: u32 = libc::CPU_SETSIZE as u32;

/// A set of cpu numbers, ascending, each below 1,024.
///
/// Text form as the kernel's: numbers and ranges, `1` or `2-3,6`.
///
/// ```
/// use hedgerow_runtime::cpu::CpuList;
///
/// let list: CpuList = "6,2-3".parse().unwrap();
/// assert_eq!(list.iter().collect::<Vec<_>>(), [2, 3, 6]);
/// assert_eq!(list.to_string(), "2-3,6");
/// assert!("2-x".parse::<CpuList>().unwrap_err().to_string().contains("\"2-x\""));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuList(Vec<u32>);

/// A cpu list that cannot be read: names the part and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cpu list {list:?}: {why}; write numbers and ranges, as in \"1\" or \"2-3,6\"")]
pub struct CpuListError {
    list: String,
    why: String,
}

impl CpuList {
    /// The cpus in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// How many cpus.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `cpu` is in the list.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }

    /// Adds `low..=high`; the error says why not.
    fn add(&mut self, low: u32, high: u32) -> Result<(), String> {
        if high >= CPU_END {
            return Err(format!("cpu {high} is beyond the highest, {}", CPU_END - 1));
        }
        if low > high {
            return Err(format!("\"{low}-{high}\" runs downwards"));
        }
        for cpu in low..=high {
            match self.0.binary_search(&cpu) {
                Ok(_) => return Err(format!("cpu {cpu} is named twice")),
                Err(at) => self.0.insert(at, cpu),
            }
        }
        Ok(())
    }
}

impl FromIterator<u32> for CpuList {
    /// Repeats are merged; numbers of 1,024 and above are left out.
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuList {
        let mut cpus: Vec<u32> = cpus.into_iter().filter(|&cpu| cpu < CPU_END).collect();
        cpus.sort_unstable();
        cpus.dedup();
        CpuList(cpus)
    }
}

impl FromStr for CpuList {
    type Err = CpuListError;

    /// # Errors
    /// Names the first bad part: not a number, a range that runs downwards, a cpu named twice or
    /// beyond 1,023, or nothing at all.
    fn from_str(list: &str) -> Result<CpuList, CpuListError> {
        let mut cpus = CpuList::default();
        for part in list.split(',') {
            let added = parse_part(part.trim()).and_then(|(low, high)| cpus.add(low, high));
            if let Err(why) = added {
                // Bounded, because a list can come from anywhere.
                return Err(CpuListError { list: list.chars().take(80).collect(), why });
            }
        }
        Ok(cpus)
    }
}

/// `"3"` as (3, 3), `"2-5"` as (2, 5).
fn parse_part(part: &str) -> Result<(u32, u32), String> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse().unwrap_or(u32::MAX))
    };
    let (low, high) = part.split_once('-').unwrap_or((part, part));
    match (number(low), number(high)) {
        _ if part.is_empty() => Err("a part is empty".to_owned()),
        (Some(low), Some(high)) => Ok((low, high)),
        _ => {
            let part: String = part.chars().take(20).collect();
            Err(format!("{part:?} is neither a cpu number nor a range"))
        }
    }
}

impl fmt::Display for CpuList {
    /// Ranges where two or more follow each other; nothing for an empty list.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|a, b| a + 1 == *b);
        for (at, run) in runs.enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match run {
                [low, .., high] => write!(f, "{comma}{low}-{high}")?,
                [one] => write!(f, "{comma}{one}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

/// The cpus on which the calling thread may run (`sched_getaffinity`). A pinned thread, and every
/// thread that it starts, sees only its own: ask before pinning.
///
/// # Errors
/// The system's error.
pub fn allowed() -> io::Result<CpuList> {
    match core_affinity::get_core_ids() {
        Some(ids) => Ok(ids.into_iter().filter_map(|id| u32::try_from(id.id).ok()).collect()),
        None => Err(io::Error::last_os_error()),
    }
}

/// Why a thread could not be pinned.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// No machine has this number.
    #[error("cpu {0} is beyond the highest number, 1023")]
    Beyond(u32),
    /// The system refused: the cpu is offline, absent, or outside the process's cpuset.
    #[error("cannot run on cpu {cpu}: {source}; this thread may use {usable}")]
    Refused {
        /// The cpu asked for.
        cpu: u32,
        /// The cpus that the thread may use at present, as text.
        usable: String,
        /// The system's error.
        source: io::Error,
    },
}

/// Pins the calling thread to `cpu`.
///
/// # Errors
/// [`PinError`] names the cpu and those that may be used.
pub fn pin(cpu: u32) -> Result<(), PinError> {
    if cpu >= CPU_END {
        return Err(PinError::Beyond(cpu));
    }
    if core_affinity::set_for_current(core_affinity::CoreId { id: cpu as usize }) {
        return Ok(());
    }
    let source = io::Error::last_os_error();
    let usable =
        allowed().map_or_else(|_| "unknown cpus".to_owned(), |list| format!("cpus {list}"));
    Err(PinError::Refused { cpu, usable, source })
}

/// Whether `threads` busy threads must share cpus when only `allowed` may be used.
pub fn shared(allowed: &CpuList, threads: usize) -> bool {
    threads > allowed.len()
}

/// Where one cpu sits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub cpu: u32,
    /// Number of its physical core within the package, where told.
    pub core: Option<u32>,
    /// Number of its package (socket), where told.
    pub package: Option<u32>,
    /// The cpus that share its physical core, itself included.
    pub siblings: CpuList,
}

/// The online cpus and where they sit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// In ascending order of cpu.
    pub places: Vec<Place>,
}

impl Topology {
    /// Reads the tree at `root` ([`SYS_CPU`] on a real machine). What cannot be read is left out: a
    /// cpu without a told place counts as a core of its own.
    pub fn read(root: &Path) -> Topology {
        let online = read_list(&root.join("online")).unwrap_or_default();
        Topology { places: online.iter().map(|cpu| read_place(root, cpu)).collect() }
    }

    /// The online cpus.
    pub fn online(&self) -> CpuList {
        self.places.iter().map(|place| place.cpu).collect()
    }

    /// The groups of two or more cpus of `among` that share a physical core.
    pub fn siblings(&self, among: &CpuList) -> Vec<CpuList> {
        let shared = |place: &Place| -> CpuList {
            place.siblings.iter().filter(|&cpu| among.contains(cpu)).collect()
        };
        let mut groups: Vec<CpuList> =
            self.places.iter().map(shared).filter(|group| group.len() > 1).collect();
        groups.sort_by(|a, b| a.0.cmp(&b.0));
        groups.dedup();
        groups
    }

    /// One cpu of each physical core of `among`: the lowest of each.
    pub fn one_per_core(&self, among: &CpuList) -> CpuList {
        let groups = self.siblings(among);
        let spare =
            |cpu: u32| groups.iter().any(|g| g.contains(cpu) && g.iter().next() < Some(cpu));
        among.iter().filter(|&cpu| !spare(cpu)).collect()
    }
}

fn read_list(path: &Path) -> Option<CpuList> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn read_place(root: &Path, cpu: u32) -> Place {
    let folder = root.join(format!("cpu{cpu}")).join("topology");
    let number = |name: &str| std::fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok();
    // The first name is the present one, the second that of older kernels.
    let siblings = ["core_cpus_list", "thread_siblings_list"]
        .iter()
        .find_map(|name| read_list(&folder.join(name)))
        .filter(|list| list.contains(cpu));
    Place {
        cpu,
        core: number("core_id"),
        package: number("physical_package_id"),
        siblings: siblings.unwrap_or_else(|| CpuList(vec![cpu])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(not(miri))]
    use std::fs;

    /// Design section 5. Fails if a list is read or written in another form than the kernel's.
    #[test]
    fn lists_round_trip() {
        for (text, cpus) in [
            ("1", vec![1]),
            ("2-3,6", vec![2, 3, 6]),
            ("0-1,3-4,1023", vec![0, 1, 3, 4, 1023]),
            ("0", vec![0]),
        ] {
            let list: CpuList = text.parse().unwrap();
            assert_eq!(list.iter().collect::<Vec<_>>(), cpus);
            assert_eq!(list.to_string(), text);
        }
        assert_eq!("6, 2-3".parse::<CpuList>().unwrap().to_string(), "2-3,6");
    }

    /// Design section 10. Fails if a bad list is taken, panics, or its error does not name the bad part.
    #[test]
    fn a_bad_list_names_its_part() {
        for (text, part) in [
            ("", "empty"),
            ("1,,2", "empty"),
            ("1,x", "\"x\""),
            ("-1", "\"-1\""),
            ("+1", "\"+1\""),
            ("1-2-3", "\"1-2-3\""),
            ("5-2", "\"5-2\" runs downwards"),
            ("1024", "cpu 1024 is beyond"),
            ("0-99999999999999999999", "beyond"),
            ("1,0-2", "cpu 1 is named twice"),
            ("\u{661}", "neither"),
        ] {
            let error = text.parse::<CpuList>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
            assert!(error.contains("2-3,6"), "{error}");
        }
    }

    /// A tree as /sys/devices/system/cpu with two cores of two threads, cpu 3 without topology.
    #[cfg(not(miri))]
    fn tree(name: &str) -> std::path::PathBuf {
        let root = std::env::temp_dir().join(format!("hedgerow-cpu-{name}-{}", std::process::id()));
        for (cpu, core, siblings) in [(0, 0, "0,2"), (1, 1, "1,3"), (2, 0, "0,2")] {
            let folder = root.join(format!("cpu{cpu}/topology"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("core_id"), format!("{core}\n")).unwrap();
            fs::write(folder.join("physical_package_id"), "0\n").unwrap();
            fs::write(folder.join("thread_siblings_list"), format!("{siblings}\n")).unwrap();
        }
        fs::write(root.join("online"), "0-3\n").unwrap();
        root
    }

    /// Design section 5. Fails if siblings are not found, or a cpu whose place is unreadable is lost.
    #[test]
    #[cfg(not(miri))]
    fn siblings_come_from_the_tree() {
        let root = tree("siblings");
        let topology = Topology::read(&root);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(topology.online().to_string(), "0-3");
        assert_eq!(topology.places[2].core, Some(0));
        assert_eq!(topology.places[3].siblings.to_string(), "3");
        let all = topology.online();
        let groups: Vec<_> = topology.siblings(&all).iter().map(ToString::to_string).collect();
        assert_eq!(groups, ["0,2", "1,3"]);
        assert_eq!(topology.one_per_core(&all).to_string(), "0-1");
        assert_eq!(topology.siblings(&"0-1".parse().unwrap()), []);
        assert_eq!(Topology::read(Path::new("/nonexistent")), Topology::default());
    }

    /// Design section 5. Fails if pinning does not take hold, or a cpu that cannot be had panics or
    /// gives an error that does not name it.
    #[test]
    #[cfg(not(miri))]
    fn pins_or_names_the_cpu() {
        let before = allowed().unwrap();
        let first = before.iter().next().unwrap();
        std::thread::spawn(move || {
            pin(first).unwrap();
            assert_eq!(allowed().unwrap().iter().collect::<Vec<_>>(), [first]);
            assert!(shared(&allowed().unwrap(), 2));
            assert!(!shared(&allowed().unwrap(), 1));
        })
        .join()
        .unwrap();
        assert_eq!(allowed().unwrap(), before, "other threads keep theirs");
        for cpu in [1023, 1024, u32::MAX] {
            let error = pin(cpu).unwrap_err().to_string();
            assert!(error.contains(&format!("cpu {cpu}")), "{error}");
        }
    }
}
