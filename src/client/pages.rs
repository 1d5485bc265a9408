//! A whole scan, page by page, from one server.

use std::future::Future;

use super::door::Door;
use crate::command::Command;
use crate::command::cursors::ScanPage;
use crate::error::Error;
use crate::resp::FromReply;
use crate::route::PinId;

/// A client whose scans can be tied to a server.
pub(crate) trait Pins: Door + Sized {
    /// A view of it whose cursor commands all go to one server.
    fn pinned(&self, pin: PinId) -> Self;
    /// The scan is over.
    fn unpin(&self, pin: PinId);
}

/// The pages of a SCAN, HSCAN, SSCAN or ZSCAN, all from the server that gave the first one, since no other
/// knows its cursor. Scans at the same time spread over the replicas that the client's policy
/// allows. Made by [`LocalClient::pages`](super::LocalClient::pages) and
/// [`Client::pages`](super::Client::pages).
#[allow(private_bounds)] // Only our own clients can be tied to a server.
pub struct Pages<C: Pins, F> {
    client: C,
    pin: PinId,
    step: F,
    /// The next one to ask for; `None` after the last page.
    cursor: Option<u64>,
}

#[allow(private_bounds)]
impl<C: Pins, F> Pages<C, F> {
    pub(crate) fn new(client: &C, step: F) -> Pages<C, F> {
        let pin = PinId::unique();
        Pages { client: client.pinned(pin), pin, step, cursor: Some(0) }
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
        let request = self.cursor.map(|cursor| self.client.send((self.step)(cursor)));
        async move {
            let Some(request) = request else { return Ok(None) };
            let page = request.await?;
            self.cursor = Some(page.cursor).filter(|cursor| *cursor != 0);
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
