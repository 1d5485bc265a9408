//! The machine that a report was made on.

use hedgerow_runtime::cpu;
use serde::{Deserialize, Serialize};

/// What a reader needs to compare two reports. No name of the machine is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    system: String,
    kernel: String,
    architecture: String,
    cpu: Option<String>,
    /// Cpus that this process may use.
    cpus_allowed: Vec<u32>,
}

impl Machine {
    /// This machine.
    pub(crate) fn new() -> Machine {
        let system = rustix::system::uname();
        Machine {
            system: system.sysname().to_string_lossy().into_owned(),
            kernel: system.release().to_string_lossy().into_owned(),
            architecture: std::env::consts::ARCH.to_string(),
            cpu: cpu_name(),
            cpus_allowed: cpu::allowed().map(|cpus| cpus.iter().collect()).unwrap_or_default(),
        }
    }
}

/// The processor's name, where the kernel tells it.
fn cpu_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}
