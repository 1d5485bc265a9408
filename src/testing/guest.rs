//! What a server knows of one connection.

use super::reply::Protocol;

/// The state of one connection, apart from its socket.
#[derive(Debug)]
pub(super) struct Guest {
    /// The number that CLIENT ID gives; from 1, never used again.
    pub(super) id: u64,
    /// The address of the client, and the one it connected to.
    pub(super) address: String,
    pub(super) local_address: String,
    pub(super) protocol: Protocol,
    pub(super) database: usize,
    pub(super) authenticated: bool,
    pub(super) user: String,
    pub(super) name: Vec<u8>,
    pub(super) library_name: Vec<u8>,
    pub(super) library_version: Vec<u8>,
    pub(super) no_evict: bool,
    pub(super) no_touch: bool,
    pub(super) created_ms: u64,
    pub(super) last_used_ms: u64,
    /// The command that ran last, as CLIENT LIST spells it.
    pub(super) last_command: &'static str,
    /// Close once everything written so far is sent.
    pub(super) closing: bool,
}

impl Guest {
    /// A fresh connection. `open` says that no password is asked.
    pub(super) fn new(
        id: u64,
        address: String,
        local_address: String,
        now_ms: u64,
        open: bool,
    ) -> Self {
        Self {
            id,
            address,
            local_address,
            protocol: Protocol::Resp2,
            database: 0,
            authenticated: open,
            user: "default".to_owned(),
            name: Vec::new(),
            library_name: Vec::new(),
            library_version: Vec::new(),
            no_evict: false,
            no_touch: false,
            created_ms: now_ms,
            last_used_ms: now_ms,
            last_command: "NULL",
            closing: false,
        }
    }

    /// Back to the state of a fresh connection, as RESET does. `open` says that no password is
    /// asked.
    pub(super) fn reset(&mut self, open: bool) {
        self.protocol = Protocol::Resp2;
        self.database = 0;
        self.authenticated = open;
        "default".clone_into(&mut self.user);
        self.name.clear();
        self.no_evict = false;
        self.no_touch = false;
    }
}
