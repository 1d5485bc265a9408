//! The server under load, and the doors that lead to it.

use super::Failure;
use super::bench::Run;
use super::drive::Measured;
use super::plan::Plan;
use std::sync::Arc;

/// A server that is ready for load.
#[derive(Debug)]
pub(crate) struct Target {
    address: String,
}

impl Target {
    /// The server of the plan: its URL's, or the embedded one, which starts here.
    pub(crate) fn open(plan: &Plan) -> Result<Target, Failure> {
        let _ = plan;
        Err(Failure::Failed("no door to a server is built in yet".into()))
    }

    /// Its address, without credentials.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The rung that the cores run on, as soon as one ran.
    pub(crate) fn rung(&self) -> Option<String> {
        None
    }

    /// Puts one run of load on it; gives each lane's figures.
    pub(crate) fn run(&self, _plan: &Arc<Plan>, _run: &Arc<Run>) -> Result<Vec<Measured>, String> {
        Err("no door to a server is built in yet".into())
    }
}
