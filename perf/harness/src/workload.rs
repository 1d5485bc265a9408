use std::net::SocketAddr;

/// What is asked of the server, and for how long. Flatten it into a program's own arguments.
#[derive(clap::Args, Clone, Debug)]
pub struct Workload {
    /// Server to connect to
    #[arg(long, default_value = "127.0.0.1:7400")]
    pub addr: SocketAddr,
    /// Connections
    #[arg(long, default_value_t = 1)]
    pub connections: usize,
    /// Commands in flight on each connection (closed loop)
    #[arg(long, default_value_t = 1)]
    pub depth: usize,
    /// Length of each value in bytes
    #[arg(long, default_value_t = 64)]
    pub size: usize,
    /// Command to send
    #[arg(long, value_enum, default_value_t = Verb::Get)]
    pub verb: Verb,
    /// Length of the measurement window in seconds
    #[arg(long, default_value_t = 1.0)]
    pub secs: f64,
    /// Seconds before the window opens
    #[arg(long, default_value_t = 0.3)]
    pub warm_secs: f64,
    /// Open loop: commands per second with Poisson arrivals; 0 is a closed loop
    #[arg(long, default_value_t = 0.0)]
    pub rate: f64,
    /// Record the latency of each command (always on in an open loop)
    #[arg(long)]
    pub latency: bool,
    /// Number of keys to draw from
    #[arg(long, default_value_t = 100_000)]
    pub keys: u64,
}

/// The command that a workload repeats.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// GET of a random key.
    Get,
    /// SET of a random key.
    Set,
}

impl Workload {
    /// Whether commands are sent at their arrival times and not when a reply makes room.
    pub fn is_open(&self) -> bool {
        self.rate > 0.0
    }

    /// Whether latencies are recorded.
    pub fn records_latency(&self) -> bool {
        self.latency || self.is_open()
    }

    /// The value that a SET stores.
    pub fn value(&self) -> Vec<u8> {
        vec![b'x'; self.size]
    }

    /// A receive buffer length for loops that read one socket: the whole value if it fits in 256
    /// KiB.
    pub fn read_buffer_len(&self) -> usize {
        (self.size + 64).clamp(64 << 10, 256 << 10)
    }
}
