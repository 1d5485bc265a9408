//! What only real servers can prove. `tests/run` (or `tests/servers/fetch`) puts them in place.

mod cluster_client;
mod cluster_faults;
mod cluster_fleet;
mod cluster_formed;
mod cluster_keys;
mod cluster_load;
mod cluster_mesh;
mod cluster_reads;
mod cluster_seeds;
#[cfg(feature = "cli")]
mod cluster_tools;
mod command_table;
mod cursors;
mod fleet;
mod groups;
mod hedges;
mod login;
mod outage;
// The other scenarios' placements are the same; they use a little more of them.
#[allow(dead_code)]
#[path = "../scripted/placement.rs"]
mod placement;
#[cfg(feature = "cli")]
mod probe;
mod replicas;
mod server;
mod start;
mod typed;
mod values;
