//! A whole scan, page by page, from one server.

use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::door::Door;
use crate::command::cursors::ScanPage;
use crate::command::slot::SLOT_COUNT;
use crate::command::{Command, raw};
use crate::error::{Error, ErrorKind, Fate};
use crate::resp::FromReply;
use crate::route::PinId;
use crate::topology::{NodeIndex, Topology};

/// A client whose scans can be tied to a server.
pub(crate) trait Pins: Door + Sized {
    /// A view of it whose cursor commands all go to one server, of the shard of `node` if there is one.
    fn pinned(&self, pin: PinId, node: Option<NodeIndex>) -> Self;
    /// What is known of the nodes, if it is a cluster.
    fn topology(&self) -> Option<Arc<Topology>>;
    /// The scan is over.
    fn unpin(&self, pin: PinId);
}

/// The pages of a SCAN, HSCAN, SSCAN or ZSCAN, all from the server that gave the first one, since no other
/// knows its cursor. Scans at the same time spread over the replicas that the client's policy
/// allows. In a cluster a SCAN goes through all shards, one after the other.
///
/// Made by [`LocalClient::pages`](super::LocalClient::pages) and [`Client::pages`](super::Client::pages).
#[allow(private_bounds)] // Only our own clients can be tied to a server.
pub struct Pages<C: Pins, F> {
    client: C,
    pin: PinId,
    step: F,
    /// The next one to ask for; `None` after the last page.
    cursor: Option<u64>,
    /// Of a SCAN of a cluster: the shard that it is at.
    shard: Option<Shard>,
    /// By slot, whether all of it was seen.
    seen: Vec<bool>,
}

/// A shard under way.
struct Shard {
    node: NodeIndex,
    /// The slots that it had when its scan began.
    slots: Vec<RangeInclusive<u16>>,
}

#[allow(private_bounds)]
impl<C: Pins, F> Pages<C, F> {
    pub(crate) fn new(client: &C, step: F) -> Pages<C, F> {
        let pin = PinId::unique();
        let client = client.pinned(pin, None);
        Pages { client, pin, step, cursor: Some(0), shard: None, seen: Vec::new() }
    }

    /// Where the next page comes from. In a cluster each shard has a scan of its own, one after the other,
    /// until every slot was seen.
    fn request<T>(&mut self) -> Result<Option<C::Request<ScanPage<T>>>, Error>
    where
        F: FnMut(u64) -> Command<ScanPage<T>>,
        T: FromReply<C::Kept>,
    {
        let Some(cursor) = self.cursor else { return Ok(None) };
        let command = (self.step)(cursor);
        let Some(topology) = self.client.topology() else {
            return Ok(Some(self.client.send(command)));
        };
        if cursor == 0 && command.slot().is_none() && self.shard.is_none() {
            self.shard = self.next_shard(&topology)?;
            self.client.unpin(self.pin);
            self.pin = PinId::unique();
            let node = self.shard.as_ref().map(|shard| shard.node);
            self.client = self.client.pinned(self.pin, node);
        }
        Ok(Some(self.client.send(command)))
    }

    /// The shard of the first slot that was not seen; `None` while nothing is known yet.
    fn next_shard(&mut self, topology: &Topology) -> Result<Option<Shard>, Error> {
        let Some(table) = topology.slots() else { return Ok(None) };
        self.seen.resize(SLOT_COUNT.into(), false);
        let Some(slot) = self.seen.iter().position(|seen| !seen) else { return Ok(None) };
        let Some(node) = table.owner(slot as u16) else {
            let text = format!("slot {slot} is served by no node: the scan cannot go on");
            return Err(Error::new(ErrorKind::NotConnected, Fate::NotSent, text));
        };
        let own = table.ranges().into_iter().filter(|(_, owner)| *owner == node);
        Ok(Some(Shard { node, slots: own.map(|(slots, _)| slots).collect() }))
    }

    /// A page came, after which the scan of its server goes on at `cursor`.
    fn turned(&mut self, cursor: u64) {
        self.cursor = Some(cursor).filter(|cursor| *cursor != 0);
        let Some(shard) = self.shard.take_if(|_| cursor == 0) else { return };
        for slots in shard.slots {
            self.seen[usize::from(*slots.start())..=usize::from(*slots.end())].fill(true);
        }
        if self.seen.contains(&false) {
            self.cursor = Some(0);
        }
    }

    /// The next page, which may be empty before the last one too; `None` after that.
    ///
    /// # Errors
    /// As [`Door::send`]. When the server of the first page is gone
    /// [`ErrorKind::NotConnected`](crate::ErrorKind::NotConnected): its cursor means nothing elsewhere, so
    /// begin a new scan.
    pub fn next_page<T>(&mut self) -> impl Future<Output = Result<Option<Vec<T>>, Error>>
    where
        F: FnMut(u64) -> Command<ScanPage<T>>,
        T: FromReply<C::Kept>,
    {
        let unknown = self.client.topology().filter(|topology| topology.slots().is_none());
        let discovered = unknown.map(|_| self.client.send(raw("PING").build::<()>()));
        async move {
            if let Some(discovered) = discovered {
                discovered.await?;
            }
            let Some(request) = self.request()? else { return Ok(None) };
            let page = request.await?;
            self.turned(page.cursor);
            Ok(Some(page.items))
        }
    }
}

impl<C: Pins, F> Drop for Pages<C, F> {
    fn drop(&mut self) {
        self.client.unpin(self.pin);
    }
}

impl<C: Pins, F> std::fmt::Debug for Pages<C, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pages").field("is_over", &self.cursor.is_none()).finish_non_exhaustive()
    }
}
