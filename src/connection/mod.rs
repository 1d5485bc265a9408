//! One connection as a state machine: what is queued, in flight and set up. No socket, no clock.

mod handshake;
mod in_flight;
mod push;
mod role;

pub(crate) use handshake::{
    Handshake, Learnt, Progress as SetupProgress, Spoken, full, is_full, not_a_replica,
};
pub(crate) use in_flight::{InFlight, Owner, Unit};
pub(crate) use push::Push;
pub(crate) use role::RoleReply;
use role::field_of_info;

use bytes::Bytes;
use hedgerow_runtime::Batch;

use crate::command::Encoded;
use crate::resp::{Decoder, Limits, Protocol};

/// Commands of at least this length are sent from their own memory, without a copy.
const LARGE_MIN: usize = 16 << 10;

/// The protocol side of one connection.
pub(crate) struct Connection {
    pub(crate) decoder: Decoder,
    pub(crate) in_flight: InFlight,
    /// What the next send takes.
    pub(crate) out: Batch,
}

impl Connection {
    pub(crate) fn new(limits: Limits) -> Connection {
        Connection {
            decoder: Decoder::new(Protocol::Resp3, limits),
            in_flight: InFlight::default(),
            out: Batch::new(),
        }
    }

    /// Queues a command with another one right before it, as one unit with two replies.
    pub(crate) fn enqueue_after(
        &mut self,
        first: &[u8],
        command: &Encoded<'_>,
        owner: Owner,
    ) -> u64 {
        self.out.small().extend_from_slice(first);
        self.put(command);
        self.in_flight.push(Unit { owner, bytes: (first.len() + command.len()) as u32, due: 2 })
    }

    /// Queues one unit; returns its ordinal. The caller has checked that its length fits 32 bits.
    #[inline(always)]
    pub(crate) fn enqueue(&mut self, command: &Encoded<'_>, owner: Owner, due: u32) -> u64 {
        self.put(command);
        self.in_flight.push(Unit { owner, bytes: command.len() as u32, due })
    }

    #[inline(always)]
    fn put(&mut self, command: &Encoded<'_>) {
        match command {
            Encoded::Short(bytes) => self.out.small().extend_from_slice(bytes),
            Encoded::Long(bytes) if bytes.len() < LARGE_MIN => {
                self.out.small().extend_from_slice(bytes);
            }
            Encoded::Long(bytes) => self.out.push_large(Bytes::clone(bytes)),
        }
    }
}
