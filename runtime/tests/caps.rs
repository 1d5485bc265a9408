//! What a process is told that may not make a ring: case behaviour/26 with real limits and filters.
//!
//! Each test starts this binary again as a child under a limit or a filter; the child runs
//! `reports_this_machine` alone, which prints what it found, and the parent reads that.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use hedgerow_runtime::caps::{Refusal, Rung, caps, choose, self_test};
use hedgerow_runtime::ring::{Config, Ring};

/// Trap 16, case behaviour/26. Fails if finding out what the machine offers panics, if the rung that is
/// chosen is not the best one that works, or if a rung fails that needs less than one that works.
#[test]
fn reports_this_machine() {
    let found = caps();
    println!("{found}");
    found.advice().iter().for_each(|advice| println!("advice: {advice}"));
    let chosen = choose(None, false);
    match &chosen {
        Ok(choice) => println!("chosen: {} {}", choice.rung, choice.why),
        Err(refusal) => println!("chosen: none {refusal}"),
    }
    match choose(None, true) {
        Ok(choice) => println!("required: {}", choice.rung),
        Err(refusal) => println!("required: refused: {refusal}"),
    }
    let ring = Ring::new(Config::default());
    println!("ring: {}", ring.map_or_else(explained, |_| "made".to_owned()));
    let works = Rung::ALL.map(|rung| self_test(rung).is_ok());
    assert!(works.is_sorted(), "{works:?}");
    let best = Rung::ALL.into_iter().zip(works).find(|(_, works)| *works);
    assert_eq!(best.map(|(rung, _)| rung), chosen.ok().map(|choice| choice.rung));
}

fn explained(error: io::Error) -> String {
    Refusal::from_error(Rung::U1, "io_uring_setup", error).to_string()
}

/// The output of `reports_this_machine` in a child that ran `restrict` before it started. Locked memory
/// is counted by user and given back late: rings that something else of this user has just closed may
/// stand in a child's way between two of its steps, and in that of the next one no more.
fn child(restrict: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "reports_this_machine", "--nocapture"]);
    // SAFETY: `restrict` makes only system calls through libc's thin wrappers: it takes no lock and
    // allocates nothing, as must be between fork and exec.
    unsafe { command.pre_exec(restrict) };
    let mut outputs = (0..8).map(|_| command.output().unwrap());
    let output = outputs.find(|output| output.status.success());
    let last = output.unwrap_or_else(|| command.output().unwrap());
    let text = String::from_utf8_lossy(&last.stdout).into_owned();
    assert!(last.status.success(), "{text}\n{}", String::from_utf8_lossy(&last.stderr));
    text
}

/// The value of the line `name: value`.
fn line<'a>(text: &'a str, name: &str) -> &'a str {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    found.unwrap_or_else(|| panic!("no line {name:?} in:\n{text}"))
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set_limit(resource: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: `limit` is valid and only read.
    checked(unsafe { libc::setrlimit(resource, &limit) })
}

/// Limits locked memory, and gives up the capability that lifts that limit: after exec even root has
/// only what is in its bounding set.
fn limit_memlock(bytes: u64) -> io::Result<()> {
    const CAP_IPC_LOCK: libc::c_ulong = 14;
    // SAFETY: takes numbers only.
    let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0) };
    // An ordinary user may not drop it and does not have it.
    if dropped != 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EPERM) {
        return Err(io::Error::last_os_error());
    }
    set_limit(libc::RLIMIT_MEMLOCK, bytes)
}

/// Makes `io_uring_setup` fail with `errno`, as the profiles of container runtimes do.
fn deny_ring(errno: i32) -> io::Result<()> {
    let statement = |code: u32, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let (load, answer) = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_RET | libc::BPF_K);
    let is_ring = libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 0,
        jf: 1,
        k: libc::SYS_io_uring_setup as u32,
    };
    // Word 0 of what a filter sees is the number of the system call.
    let mut program = [
        statement(load, 0),
        is_ring,
        statement(answer, libc::SECCOMP_RET_ERRNO | errno as u32),
        statement(answer, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let mode = libc::SECCOMP_MODE_FILTER as libc::c_ulong;
    // SAFETY: the first call takes numbers only; `filter` and the program that it points to are valid
    // for the second, which copies them.
    unsafe {
        checked(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        checked(libc::prctl(libc::PR_SET_SECCOMP, mode, &filter))
    }
}

/// Trap 16, case behaviour/26. Fails if a filter that denies io_uring stops the start, or the one line
/// that is said does not name it, or `require_uring` is ignored.
#[test]
fn a_seccomp_filter_is_named() {
    for (errno, name) in [(libc::EPERM, "EPERM"), (libc::ENOSYS, "ENOSYS")] {
        let text = child(move || deny_ring(errno));
        let chosen = line(&text, "chosen");
        assert!(chosen.starts_with("epoll io_uring cannot be used"), "{chosen}");
        for words in [name, "a seccomp filter forbids it", "seccomp profile"] {
            assert!(chosen.contains(words), "{words}: {chosen}");
            assert!(line(&text, "required").contains(words), "{text}");
            assert!(line(&text, "ring").contains(words), "{text}");
        }
        assert_eq!(line(&text, "seccomp"), "filter");
        assert!(line(&text, "advice").contains("--security-opt seccomp="), "{text}");
    }
}

/// Trap 15, case behaviour/26. Fails if a locked memory limit that leaves no room for any ring stops the
/// start, or is not named with its value and what to change (or, on kernels that do not count ring
/// memory, if no ring is made).
#[test]
fn an_exhausted_memlock_limit_is_named() {
    let text = child(|| limit_memlock(0));
    assert!(line(&text, "locked memory").starts_with("0 (hard limit 0)"), "{text}");
    let chosen = line(&text, "chosen");
    if chosen.starts_with("epoll") {
        for words in ["ENOMEM", "locked memory limit (RLIMIT_MEMLOCK) of 0", "LimitMEMLOCK="] {
            assert!(chosen.contains(words), "{words}: {chosen}");
            assert!(line(&text, "required").contains(words), "{text}");
            assert!(line(&text, "ring").contains(words), "{text}");
        }
    } else {
        assert_eq!(line(&text, "ring"), "made");
    }
    assert!(text.contains("advice: The limit of locked memory (RLIMIT_MEMLOCK) is 0."), "{text}");
}

/// Trap 15, case behaviour/26. Fails if under 64 KiB or 8 MiB of locked memory an ordinary user gets
/// no rung on a ring (a small one fits), or a ring that does not fit is refused without the limit's name.
#[test]
fn a_small_memlock_limit_is_lived_with() {
    for (bytes, words) in [(64 << 10, "64 KiB"), (8 << 20, "8 MiB")] {
        let text = child(move || limit_memlock(bytes));
        assert!(!line(&text, "chosen").starts_with("epoll"), "{text}");
        let ring = line(&text, "ring");
        assert!(ring == "made" || ring.contains(words), "{ring}");
        assert!(line(&text, "locked memory").starts_with(words), "{text}");
    }
}

/// Trap 18. Fails if running out of descriptors at start-up panics, or is not named with the limit's
/// value and what to change.
#[test]
fn an_exhausted_descriptor_limit_is_named() {
    let text = child(|| {
        // SAFETY: takes numbers only. All but the standard descriptors close at exec, so that exactly
        // one is left: files can be read one by one, and a pair of sockets cannot be made.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        set_limit(libc::RLIMIT_NOFILE, 4)
    });
    let chosen = line(&text, "chosen");
    for words in ["none", "EMFILE", "open descriptors (RLIMIT_NOFILE) of 4", "LimitNOFILE="] {
        assert!(chosen.contains(words), "{words}: {chosen}");
    }
    assert!(text.contains("advice: The limit of open descriptors (RLIMIT_NOFILE) is 4."), "{text}");
}

/// case behaviour/26. Fails if trying the rungs leaves a descriptor or a mapping behind.
#[test]
fn the_self_test_leaves_nothing_behind() {
    let before = descriptors_of_rings();
    for _ in 0..20 {
        for rung in Rung::ALL {
            _ = self_test(rung);
        }
    }
    assert!(descriptors_of_rings() <= before + 6, "20 rounds left {}", descriptors_of_rings());
}

/// Rings and epolls that are open in this process (other tests of this binary may hold a few).
fn descriptors_of_rings() -> usize {
    let names = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    names
        .filter_map(|name| std::fs::read_link(name.path()).ok())
        .filter(|path| {
            let name = path.to_string_lossy();
            name.contains("io_uring") || name.contains("eventpoll")
        })
        .count()
}
