//! A real server of its own for one test: free port, temporary folder, gone with its value.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

/// How long a server may take for anything asked of it here; generous, as machines are shared.
const PATIENCE: Duration = Duration::from_secs(20);

/// Lines of its log that a server keeps.
const LOG_LINES: usize = 2000;

/// A server program in the version that `tests/servers/fetch` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavor {
    /// Valkey 9.1.
    Valkey91,
    /// Valkey 9.0.
    Valkey90,
    /// Redis 7.0.
    Redis70,
    /// Redis 8.2.
    Redis82,
}

impl Flavor {
    /// Every flavor.
    pub(crate) const ALL: [Flavor; 4] =
        [Flavor::Valkey91, Flavor::Valkey90, Flavor::Redis70, Flavor::Redis82];

    /// What the server calls itself in HELLO, and how its version begins.
    pub(crate) fn identity(self) -> (&'static str, &'static str) {
        match self {
            Flavor::Valkey91 => ("valkey", "9.1."),
            Flavor::Valkey90 => ("valkey", "9.0."),
            Flavor::Redis70 => ("redis", "7.0."),
            Flavor::Redis82 => ("redis", "8.2."),
        }
    }

    fn folder(self) -> PathBuf {
        let name = match self {
            Flavor::Valkey91 => "valkey91",
            Flavor::Valkey90 => "valkey90",
            Flavor::Redis70 => "redis70",
            Flavor::Redis82 => "redis82",
        };
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/.servers").join(name)
    }

    /// The program and the folder of the libraries that came with it.
    fn program(self) -> (PathBuf, PathBuf) {
        let folder = self.folder();
        let program = folder.join(format!("{}-server", self.identity().0));
        assert!(
            program.exists(),
            "{self:?} is not in place: {} is missing. Run tests/run, or tests/servers/fetch.",
            program.display()
        );
        (program, folder.join("lib"))
    }
}

/// What a server is started with.
#[derive(Debug)]
pub(crate) struct Builder {
    flavor: Flavor,
    password: Option<String>,
    lines: Vec<String>,
}

impl Builder {
    /// `requirepass`: the default user's password.
    pub(crate) fn password(mut self, password: &str) -> Builder {
        self.password = Some(password.to_owned());
        self.line(&format!("requirepass {password}"))
    }

    /// A further user, as `ACL SETUSER` takes it: `app on >secret ~* +@all`.
    pub(crate) fn user(self, rules: &str) -> Builder {
        self.line(&format!("user {rules}"))
    }

    /// Any line of the configuration file.
    pub(crate) fn line(mut self, line: &str) -> Builder {
        self.lines.push(line.to_owned());
        self
    }

    /// Starts the server and returns once it answers. Panics with its log if it does not.
    pub(crate) fn start(self) -> Server {
        let folder = folder();
        let mut server = Server {
            flavor: self.flavor,
            password: self.password,
            lines: self.lines,
            socket: folder.path().join("server.sock"),
            folder,
            port: 0,
            running: None,
        };
        // A port that was free may be taken before the server has it.
        for attempt in 1.. {
            server.port = free_port();
            match server.launch() {
                Ok(()) => break,
                Err(log) if attempt < 5 && log.contains("Address already in use") => {}
                Err(log) => panic!("{:?} did not start:\n{log}", server.flavor),
            }
        }
        server
    }
}

/// Where a server keeps its files: in memory where that can be had. A node of a cluster syncs its view of it
/// to disk before it goes on, and a busy disk would hold up all nodes in each election.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let prefix = "hedgerow-";
    TempDir::with_prefix_in(prefix, memory)
        .or_else(|_| TempDir::with_prefix(prefix))
        .expect("a temporary folder")
}

/// A running server on a TCP port of loopback and on a Unix socket. Dropping it kills it; it also
/// dies with the test process, however that ends.
#[derive(Debug)]
pub(crate) struct Server {
    flavor: Flavor,
    password: Option<String>,
    lines: Vec<String>,
    folder: TempDir,
    socket: PathBuf,
    port: u16,
    running: Option<Running>,
}

impl Server {
    /// A server with nothing configured but where it listens.
    pub(crate) fn start(flavor: Flavor) -> Server {
        Server::builder(flavor).start()
    }

    /// A server with options.
    pub(crate) fn builder(flavor: Flavor) -> Builder {
        Builder { flavor, password: None, lines: Vec::new() }
    }

    /// Where it listens; the same after a restart.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Its Unix socket; the same after a restart.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// What it logged of late.
    pub(crate) fn log(&self) -> String {
        self.running.as_ref().map(|running| running.log.text()).unwrap_or_default()
    }

    /// One command over a connection of its own, as the default user; gives the reply's raw bytes
    /// as text. For what the client under test must not be trusted with.
    pub(crate) fn tell(&self, arguments: &[&str]) -> String {
        self.tell_in_turn(&[arguments])
    }

    /// Commands one after another over one connection, as [`Server::tell`]; all their replies in turn.
    pub(crate) fn tell_in_turn(&self, commands: &[&[&str]]) -> String {
        self.try_tell(commands).unwrap_or_else(|problem| {
            panic!("{:?} gave no reply to {commands:?}: {problem}\n{}", self.flavor, self.log())
        })
    }

    /// Stops the process (SIGSTOP): connections stay up and nothing answers. Returns once it is
    /// stopped.
    pub(crate) fn pause(&self) {
        self.signal_and_wait(Signal::STOP, WaitOptions::UNTRACED);
    }

    /// Lets a paused process go on. Returns once it does.
    pub(crate) fn resume(&self) {
        self.signal_and_wait(Signal::CONT, WaitOptions::CONTINUED);
    }

    /// Kills the process (SIGKILL): the kernel resets its connections. Returns once it is gone.
    pub(crate) fn kill(&mut self) {
        self.running = None;
    }

    /// Starts it again at the same addresses, with empty memory; kills it first if it still runs.
    pub(crate) fn restart(&mut self) {
        self.kill();
        if let Err(log) = self.launch() {
            panic!("{:?} did not come back:\n{log}", self.flavor);
        }
    }

    /// Starts the process and waits until it answers; the error is its log.
    fn launch(&mut self) -> Result<(), String> {
        let running = Running::spawn(self.flavor, &self.configuration());
        running.log.wait_for("Ready to accept connections")?;
        self.running = Some(running);
        let reply = self.try_tell(&[&["PING"]]).map_err(|problem| problem + "\n" + &self.log())?;
        if reply == "+PONG\r\n" { Ok(()) } else { Err(format!("PING gave {reply:?}")) }
    }

    /// Writes the configuration file.
    fn configuration(&self) -> PathBuf {
        let mut text = format!(
            "port {}\nbind 127.0.0.1 -::1\nunixsocket {}\ndir {}\n",
            self.port,
            self.socket.display(),
            self.folder.path().display()
        );
        text += "save \"\"\nappendonly no\ndaemonize no\nlogfile \"\"\nenable-debug-command yes\n";
        for line in &self.lines {
            text += line;
            text += "\n";
        }
        let path = self.folder.path().join("server.conf");
        std::fs::write(&path, text).expect("the server's configuration is written");
        path
    }

    fn try_tell(&self, commands: &[&[&str]]) -> Result<String, String> {
        // Whatever the replies' shape, they end where the echo after it begins.
        let mark = "hedgerow-end";
        let mut request = Vec::new();
        if let Some(password) = &self.password {
            encode(&mut request, &["AUTH", password]);
        }
        for arguments in commands {
            encode(&mut request, arguments);
        }
        encode(&mut request, &["ECHO", mark]);
        let end = format!("${}\r\n{mark}\r\n", mark.len());
        let mut stream = UnixStream::connect(&self.socket).map_err(|e| e.to_string())?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
        stream.write_all(&request).map_err(|e| e.to_string())?;
        let reply = read_until(&mut stream, end.as_bytes())?;
        let reply = reply.strip_suffix(end.as_str()).unwrap_or(&reply);
        match self.password {
            Some(_) => reply.strip_prefix("+OK\r\n").map(str::to_owned).ok_or(reply.to_owned()),
            None => Ok(reply.to_owned()),
        }
    }

    fn signal_and_wait(&self, signal: Signal, until: WaitOptions) {
        let running = self.running.as_ref().expect("a server that runs");
        kill_process(running.pid(), signal).expect("the server is there to be signalled");
        let (_, status) = waitpid(Some(running.pid()), until)
            .expect("the server is a child of this process")
            .expect("waiting without NOHANG gives a status");
        assert!(status.stopped() || status.continued(), "the server ended:\n{}", self.log());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of {:?} on port {} ---\n{}", self.flavor, self.port, self.log());
        }
    }
}

/// The process. Dropping it kills and reaps it.
#[derive(Debug)]
struct Running {
    child: Child,
    log: Arc<Log>,
}

impl Running {
    fn spawn(flavor: Flavor, configuration: &Path) -> Running {
        let (program, libraries) = flavor.program();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).arg(configuration);
        command.env("LD_LIBRARY_PATH", libraries);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = spawn_for_good(command);
        let log = Arc::new(Log::default());
        if let Some(stdout) = child.stdout.take() {
            let log = Arc::clone(&log);
            std::thread::spawn(move || log.collect(stdout));
        }
        Running { child, log }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only for a process that is gone already. SIGKILL also ends a paused one.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Spawns on a thread that lives as long as the process: the parent-death signal is sent when the
/// spawning *thread* ends, and a test's thread ends before a server that tests share.
fn spawn_for_good(command: Command) -> Child {
    type Order = (Command, mpsc::Sender<std::io::Result<Child>>);
    static SPAWNER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in inbox {
                let _ = answer.send(command.spawn());
            }
        });
        orders
    });
    let (answer, child) = mpsc::channel();
    SPAWNER.send((command, answer)).expect("the spawner lives as long as the process");
    child
        .recv()
        .expect("the spawner answers every order")
        .unwrap_or_else(|error| panic!("setpriv (Debian: util-linux) cannot be run: {error}"))
}

/// The server's output, line by line.
#[derive(Debug, Default)]
struct Log {
    lines: Mutex<(VecDeque<String>, bool)>,
    changed: Condvar,
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<String>, bool)> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads until the server ends.
    fn collect(&self, stdout: ChildStdout) {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let mut state = self.lock();
            if state.0.len() == LOG_LINES {
                state.0.pop_front();
            }
            state.0.push_back(line);
            self.changed.notify_all();
        }
        self.lock().1 = true;
        self.changed.notify_all();
    }

    fn text(&self) -> String {
        self.lock().0.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Waits for a line that holds `text`; the error, if the server ends first or takes too long,
    /// is the log.
    fn wait_for(&self, text: &str) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.lock();
        while !state.0.iter().any(|line| line.contains(text)) {
            let rest = deadline.saturating_duration_since(Instant::now());
            if state.1 || rest.is_zero() {
                drop(state);
                return Err(self.text());
            }
            state = self
                .changed
                .wait_timeout(state, rest)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
        Ok(())
    }
}

/// A port that nothing listens on. It and the port 10,000 above it (a cluster node's bus) lie
/// below the range from which the kernel takes outgoing ports, so that a killed server finds its
/// port free when it comes back.
fn free_port() -> u16 {
    const FIRST: u32 = 12_000;
    const COUNT: u32 = 10_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Test binaries that run at the same time start at different ports.
    let start = std::process::id().wrapping_mul(97);
    for _ in 0..COUNT {
        let step = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = (FIRST + step % COUNT) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port in {FIRST}..{}", FIRST + COUNT)
}

/// Appends a command as an array of bulks.
pub(crate) fn encode(out: &mut Vec<u8>, arguments: &[&str]) {
    out.extend(format!("*{}\r\n", arguments.len()).into_bytes());
    for argument in arguments {
        out.extend(format!("${}\r\n{argument}\r\n", argument.len()).into_bytes());
    }
}

/// Reads until what came ends in `end`.
pub(crate) fn read_until(stream: &mut impl Read, end: &[u8]) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut block = [0; 4096];
    while !bytes.ends_with(end) {
        let count = match stream.read(&mut block) {
            // A ring of the same thread has something to do.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            outcome => outcome.map_err(|error| error.to_string())?,
        };
        if count == 0 {
            return Err(format!("closed after {:?}", String::from_utf8_lossy(&bytes)));
        }
        bytes.extend_from_slice(&block[..count]);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
