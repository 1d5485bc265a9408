//! What every client is to the typed commands: something that a command can be sent through.
use crate::Error;
use crate::command::Command;
use crate::resp::{FromReply, Kept};

/// A client, a pinned core's client, or a user's own stand-in for one.
///
/// The typed commands are provided methods over [`Door::send`], in one trait for each of the
/// server's groups; each such trait is implemented for every door.
pub trait Door {
    /// The owner of a reply's bytes that a large value is sliced from.
    type Kept: Kept;

    /// The passage of one command.
    type Request<R: FromReply<Self::Kept>>: Future<Output = Result<R, Error>>;

    /// Sends a command. Nothing of it is waited for here: the reply, or why there is none, comes
    /// from the request.
    fn send<R: FromReply<Self::Kept>>(&self, command: Command<R>) -> Self::Request<R>;
}
