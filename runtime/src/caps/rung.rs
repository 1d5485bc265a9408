//! The three ways of talking to the kernel, and how one is chosen: by trying, best first.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use super::machine::{Machine, Seccomp, bytes};
use super::trial::{self, Fault, What};

/// A way of talking to the kernel, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rung {
    /// io_uring with multishot receives into incremental buffer groups (Linux 6.12).
    U2,
    /// io_uring with multishot receives into buffer groups (Linux 6.1).
    U1,
    /// epoll: everywhere.
    Epoll,
}

impl Rung {
    /// All rungs, best first.
    pub const ALL: [Rung; 3] = [Rung::U2, Rung::U1, Rung::Epoll];
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rung::U2 => "u2",
            Rung::U1 => "u1",
            Rung::Epoll => "epoll",
        })
    }
}

/// A rung's name that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rung {0:?} is not known; write u2, u1 or epoll")]
pub struct RungError(String);

impl FromStr for Rung {
    type Err = RungError;

    /// # Errors
    /// Names the word and the right ones.
    fn from_str(word: &str) -> Result<Rung, RungError> {
        let known = Rung::ALL.into_iter().find(|rung| rung.to_string() == word);
        known.ok_or_else(|| RungError(word.chars().take(40).collect()))
    }
}

/// The rung to use, and why not a better one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The rung.
    pub rung: Rung,
    /// One line for the log.
    pub why: String,
    /// Why the next better rung cannot be used; `None` for the best one and for a forced one.
    pub refused: Option<Refusal>,
}

impl Choice {
    /// Whether epoll serves because io_uring cannot be had: worth one warning with [`Choice::why`].
    pub fn falls_back(&self) -> bool {
        self.rung == Rung::Epoll && self.refused.is_some()
    }
}

/// Why a rung cannot be used: what failed, its cause, and what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rung that was tried.
    pub rung: Rung,
    /// The call that failed.
    pub step: &'static str,
    /// The system's error number, if it was one.
    pub errno: Option<i32>,
    /// The cause as far as can be told.
    pub cause: Cause,
}

/// What lies behind a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The kernel has no io_uring.
    Absent,
    /// A seccomp filter, as container runtimes install it.
    Filter,
    /// `kernel.io_uring_disabled`, with its value.
    Sysctl(u32),
    /// Something else that forbids: a security module, or a restricted group.
    Forbidden,
    /// `RLIMIT_MEMLOCK`, with its value in bytes.
    LockedMemory(u64),
    /// The machine or the control group is out of memory.
    Memory,
    /// `RLIMIT_NOFILE`, with its value; `None` where it is unlimited.
    Descriptors(Option<u64>),
    /// The whole machine is out of descriptors.
    SystemDescriptors,
    /// The kernel does not know what this rung needs.
    TooOld,
    /// It answered, but not as it should.
    Wrong(String),
    /// Epoll was forced and io_uring is required.
    Contradiction,
    /// The system's own words.
    Other(String),
}

impl Refusal {
    /// Explains an error that the system gave in `step` (the name of the call) while `rung` was being
    /// set up, from the limits and filters in force.
    pub fn from_error(rung: Rung, step: &'static str, error: io::Error) -> Refusal {
        Refusal::explain(rung, Fault { step, what: What::System(error) }, &Machine::read())
    }

    pub(super) fn explain(rung: Rung, fault: Fault, machine: &Machine) -> Refusal {
        let (errno, cause) = match fault.what {
            What::Wrong(what) => (None, Cause::Wrong(what)),
            What::System(error) => (error.raw_os_error(), cause(&error, machine)),
        };
        Refusal { rung, step: fault.step, errno, cause }
    }
}

fn cause(error: &io::Error, machine: &Machine) -> Cause {
    let filtered = matches!(machine.seccomp, Seccomp::Filter | Seccomp::Strict);
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => match machine.io_uring_disabled {
            Some(level) if machine.sysctl_forbids() => Cause::Sysctl(level),
            _ if filtered => Cause::Filter,
            _ => Cause::Forbidden,
        },
        // A kernel with the setting has io_uring, so a filter must have answered.
        Some(libc::ENOSYS) if filtered || machine.io_uring_disabled.is_some() => Cause::Filter,
        Some(libc::ENOSYS) => Cause::Absent,
        Some(libc::ENOMEM) => match machine.memlock.soft {
            Some(limit) if !machine.locks_freely() => Cause::LockedMemory(limit),
            _ => Cause::Memory,
        },
        Some(libc::EMFILE) => Cause::Descriptors(machine.nofile.soft),
        Some(libc::ENFILE) => Cause::SystemDescriptors,
        Some(libc::EINVAL) => Cause::TooOld,
        _ => Cause::Other(error.to_string()),
    }
}

impl Cause {
    /// What to change, where the cause tells.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Cause::Absent => Some("use Linux 6.1 or later"),
            Cause::Filter => Some(
                "allow io_uring_setup, io_uring_enter and io_uring_register in the container's \
                 seccomp profile",
            ),
            Cause::Sysctl(_) => Some(
                "set it to 0 (sysctl -w kernel.io_uring_disabled=0), or set it to 1 and put this \
                 user's group into kernel.io_uring_group",
            ),
            Cause::Forbidden => Some("look at the rules of the security module"),
            Cause::LockedMemory(_) => {
                Some("raise it (ulimit -l, LimitMEMLOCK=, --ulimit memlock=)")
            }
            Cause::Descriptors(_) => Some("raise it (ulimit -n, LimitNOFILE=, --ulimit nofile=)"),
            Cause::SystemDescriptors => Some("raise the sysctl fs.file-max"),
            Cause::TooOld => Some("use a newer kernel: 6.1 for u1, 6.12 for u2"),
            Cause::Contradiction => Some("drop one of the two"),
            Cause::Memory | Cause::Wrong(_) | Cause::Other(_) => None,
        }
    }
}

impl fmt::Display for Cause {
    /// The cause in words, without the remedy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Absent => f.write_str("this kernel has no io_uring"),
            Cause::Filter => f.write_str("a seccomp filter forbids it"),
            Cause::Sysctl(level) => {
                write!(f, "the sysctl kernel.io_uring_disabled is {level}")
            }
            Cause::Forbidden => f.write_str(
                "something forbids it that is neither the sysctl nor a seccomp filter, perhaps a \
                 security module (SELinux, AppArmor)",
            ),
            Cause::LockedMemory(limit) => {
                let limit = bytes(*limit);
                write!(f, "the locked memory limit (RLIMIT_MEMLOCK) of {limit} is used up")
            }
            Cause::Memory => f.write_str("the machine or its control group is out of memory"),
            Cause::Descriptors(limit) => {
                let limit = limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
                write!(f, "the limit of open descriptors (RLIMIT_NOFILE) of {limit} is used up")
            }
            Cause::SystemDescriptors => f.write_str("the machine is out of descriptors"),
            Cause::TooOld => f.write_str("this kernel does not know what the rung needs"),
            Cause::Wrong(what) | Cause::Other(what) => f.write_str(what),
            Cause::Contradiction => f.write_str("epoll is forced, yet io_uring is required"),
        }
    }
}

/// Names of the error numbers that people search for.
fn name(errno: i32) -> String {
    match errno {
        libc::EPERM => "EPERM".to_owned(),
        libc::EACCES => "EACCES".to_owned(),
        libc::ENOSYS => "ENOSYS".to_owned(),
        libc::ENOMEM => "ENOMEM".to_owned(),
        libc::EINVAL => "EINVAL".to_owned(),
        libc::EMFILE => "EMFILE".to_owned(),
        libc::ENFILE => "ENFILE".to_owned(),
        libc::EOPNOTSUPP => "EOPNOTSUPP".to_owned(),
        other => format!("error {other}"),
    }
}

impl Refusal {
    /// What failed and why, without the remedy.
    pub(super) fn finding(&self) -> String {
        match self.errno {
            Some(errno) => format!("{} failed with {}: {}", self.step, name(errno), self.cause),
            None => format!("{}: {}", self.step, self.cause),
        }
    }
}

impl fmt::Display for Refusal {
    /// One line: the call, its error, the cause and what to change.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.finding())?;
        self.cause.remedy().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

impl std::error::Error for Refusal {}

/// Tries what `rung` needs on a tiny scale: for a ring, two receives through a multishot into a buffer
/// group and the end of the stream. Takes well under a millisecond where it works; blocks for up to 40 ms
/// where locked memory is short, in case it is only late in coming back.
///
/// # Errors
/// [`Refusal`] names the cause and what to change.
pub fn self_test(rung: Rung) -> Result<(), Refusal> {
    try_rung(rung).map_err(|fault| Refusal::explain(rung, fault, &Machine::read()))
}

pub(super) fn try_on(rung: Rung, machine: &Machine) -> Result<(), Refusal> {
    try_rung(rung).map_err(|fault| Refusal::explain(rung, fault, machine))
}

/// How often a trial that ran out of locked memory is made again, and how long it waits before: the
/// system gives back the memory of a ring some milliseconds after it was closed, and the ring just
/// closed may be the one of the trial before.
const AGAIN_AFTER: [Duration; 3] =
    [Duration::from_millis(2), Duration::from_millis(10), Duration::from_millis(25)];

fn try_rung(rung: Rung) -> Result<(), Fault> {
    let once = || match rung {
        Rung::U2 => trial::ring_works(true),
        Rung::U1 => trial::ring_works(false),
        Rung::Epoll => trial::epoll_works(),
    };
    for pause in AGAIN_AFTER {
        match once() {
            Err(fault) if fault.out_of_memory() => std::thread::sleep(pause),
            end => return end,
        }
    }
    once()
}

/// Chooses the best rung that works, or tests the one that is `forced`. With `require_uring`, epoll is
/// not an answer.
///
/// # Errors
/// The forced rung does not work, or io_uring is required and cannot be had, or nothing works.
///
/// ```
/// use hedgerow_runtime::caps::{Rung, choose};
///
/// let choice = choose(None, false).unwrap();
/// println!("rung {}: {}", choice.rung, choice.why);
/// assert_eq!(choose(Some(Rung::Epoll), false).unwrap().rung, Rung::Epoll);
/// assert!(choose(Some(Rung::Epoll), true).is_err());
/// ```
pub fn choose(forced: Option<Rung>, require_uring: bool) -> Result<Choice, Refusal> {
    pick(forced, require_uring, self_test)
}

pub(super) fn pick(
    forced: Option<Rung>,
    require_uring: bool,
    test: impl Fn(Rung) -> Result<(), Refusal>,
) -> Result<Choice, Refusal> {
    if let Some(rung) = forced {
        if rung == Rung::Epoll && require_uring {
            let (step, cause) = ("choice of a rung", Cause::Contradiction);
            return Err(Refusal { rung, step, errno: None, cause });
        }
        test(rung)?;
        return Ok(Choice { rung, why: "forced".to_owned(), refused: None });
    }
    let Err(no_u2) = test(Rung::U2) else {
        let why = "incremental buffer groups work".to_owned();
        return Ok(Choice { rung: Rung::U2, why, refused: None });
    };
    let Err(no_u1) = test(Rung::U1) else {
        let why = format!("buffer groups work; no incremental ones: {no_u2}");
        return Ok(Choice { rung: Rung::U1, why, refused: Some(no_u2) });
    };
    if require_uring {
        return Err(no_u1);
    }
    test(Rung::Epoll)?;
    let why = format!("io_uring cannot be used: {no_u1}");
    Ok(Choice { rung: Rung::Epoll, why, refused: Some(no_u1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::Limit;

    fn refusal(rung: Rung, errno: i32, machine: &Machine) -> Refusal {
        let error = io::Error::from_raw_os_error(errno);
        Refusal::explain(rung, Fault { step: "io_uring_setup", what: What::System(error) }, machine)
    }

    /// Trap 16, case behaviour/26. Fails if two different reasons for one error number get the same words.
    #[test]
    fn each_message_names_its_cause() {
        let plain = Machine { seccomp: Seccomp::Off, ..Machine::default() };
        let modern = Machine { io_uring_disabled: Some(0), ..plain.clone() };
        let filter = Machine { seccomp: Seccomp::Filter, ..modern.clone() };
        let group = Machine { io_uring_disabled: Some(1), ..plain.clone() };
        let admin = Machine { capabilities: 1 << 21, ..group.clone() };
        let never = Machine { io_uring_disabled: Some(2), ..admin.clone() };
        for (errno, machine, cause, words) in [
            (libc::ENOSYS, &plain, Cause::Absent, "ENOSYS: this kernel has no io_uring"),
            (libc::ENOSYS, &modern, Cause::Filter, "ENOSYS: a seccomp filter"),
            (libc::ENOSYS, &filter, Cause::Filter, "ENOSYS: a seccomp filter"),
            (libc::EPERM, &filter, Cause::Filter, "EPERM: a seccomp filter"),
            (libc::EPERM, &group, Cause::Sysctl(1), "kernel.io_uring_disabled is 1"),
            (libc::EPERM, &never, Cause::Sysctl(2), "kernel.io_uring_disabled is 2"),
            (libc::EPERM, &admin, Cause::Forbidden, "SELinux"),
            (libc::EINVAL, &plain, Cause::TooOld, "does not know"),
        ] {
            let refusal = refusal(Rung::U1, errno, machine);
            assert_eq!(refusal.cause, cause);
            assert!(refusal.to_string().contains(words), "{refusal}");
        }
    }

    /// Traps 15 and 18, case behaviour/26. Fails if an exhausted limit is not named with its value.
    #[test]
    fn limits_are_named_with_their_value() {
        let limit = |soft| Limit { soft: Some(soft), hard: None };
        let mut machine =
            Machine { memlock: limit(64 << 10), nofile: limit(256), ..Machine::default() };
        let text = refusal(Rung::U2, libc::ENOMEM, &machine).to_string();
        assert!(text.contains("RLIMIT_MEMLOCK) of 64 KiB"), "{text}");
        let text = refusal(Rung::U2, libc::EMFILE, &machine).to_string();
        assert!(text.contains("RLIMIT_NOFILE) of 256"), "{text}");
        machine.capabilities = 1 << 14;
        assert_eq!(refusal(Rung::U2, libc::ENOMEM, &machine).cause, Cause::Memory);
    }

    /// Trap 16. Fails if a better rung that works is passed over, `require_uring` yields epoll, or the
    /// fallback does not say why.
    #[test]
    fn the_best_rung_that_works_is_chosen() {
        let machine = Machine { seccomp: Seccomp::Filter, ..Machine::default() };
        let up_to = |last: Rung| {
            let machine = machine.clone();
            move |rung: Rung| match rung >= last {
                true => Ok(()),
                false => Err(refusal(rung, libc::EPERM, &machine)),
            }
        };
        for rung in Rung::ALL {
            assert_eq!(pick(None, false, up_to(rung)).unwrap().rung, rung);
            assert_eq!(pick(None, true, up_to(rung)).is_ok(), rung != Rung::Epoll);
            assert_eq!(pick(Some(Rung::U2), false, up_to(rung)).is_ok(), rung == Rung::U2);
        }
        let choice = pick(None, false, up_to(Rung::Epoll)).unwrap();
        assert!(choice.falls_back() && choice.why.contains("seccomp"), "{}", choice.why);
        assert!(!pick(Some(Rung::Epoll), false, up_to(Rung::U2)).unwrap().falls_back());
        let contradiction = pick(Some(Rung::Epoll), true, up_to(Rung::U2)).unwrap_err();
        assert_eq!(contradiction.cause, Cause::Contradiction);
    }

    /// Design section 10. Fails if a rung's word is not read back, or a wrong one is not named.
    #[test]
    fn words_round_trip() {
        for rung in Rung::ALL {
            assert_eq!(rung.to_string().parse::<Rung>(), Ok(rung));
        }
        let error = "u3".parse::<Rung>().unwrap_err().to_string();
        assert_eq!(error, "rung \"u3\" is not known; write u2, u1 or epoll");
    }
}
