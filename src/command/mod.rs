//! What is said to a server: commands, their bytes and what is known of them.
//!
//! A [`Command`] is built once, by a typed function (`command::strings::get`) or by [`raw`], into
//! the bytes that go over the wire. Everything downstream asks it for [`Flags`], slot, category
//! and blocking, never for its name. The typed methods of the clients (`client.get("k")`) are
//! traits over [`Door`](crate::client::door::Door), one for each of the server's groups.
//!
//! A reply that has one natural reading has that type: `set` gives `()`, `incr` an `i64`, `expire` a
//! `bool`, a count is a `u64`. A reply that carries the application's own keys, members or values is
//! read as whatever [`FromReply`](crate::resp::FromReply) type the caller names.
//! [`Command::returning`] gives any command another reading.
//!
//! ```
//! use hedgerow::{Error, command::strings, prelude::*};
//! async fn visit(client: &impl Door) -> Result<(), Error> {
//!     client.set("page", "home").await?;
//!     let page: Option<String> = client.get("page").await?;
//!     if client.incr("visits").await? == 1 {
//!         client.expire("visits", 60).await?;
//!     }
//!     // INCR's reply as a float, which is not its natural reading.
//!     let visits = client.send(strings::incr("visits").returning::<f64>()).await?;
//!     # let _ = (page, visits);
//!     Ok(())
//! }
//! ```
pub(crate) mod args;
mod block;
pub mod connection;
pub mod cursors;
mod encoded;
pub mod expiry;
mod flags;
pub mod hashes;
mod key_positions;
pub mod keys;
pub mod lists;
mod macros;
mod merge;
mod put;
mod ranges;
mod raw;
mod refuse;
pub mod retry;
pub mod server;
pub mod sets;
pub mod slot;
pub mod sorted_sets;
mod split;
pub mod strings;
pub mod table;
mod text;
mod words;

pub use args::{ARG_BYTES_MAX, Args, ToArg, ToArgs, ToPairs};
pub use block::Block;
pub(crate) use encoded::Encoded;
pub use flags::Flags;
pub use key_positions::Keys;
pub(crate) use merge::{Merge, Piece};
pub use raw::{Raw, RawCommands, RawRequest, raw};
pub use refuse::Refused;
pub(crate) use split::{Part, Spread, slot_of_one, spread};

use args::Head;
use retry::Category;
use std::marker::PhantomData;
use table::Spec;
use words::Words;

/// One command, complete, with the type that its reply is read as.
///
/// Cheap to build and to move (56 bytes): its RESP is written once, into memory that the thread uses
/// again for the next short command. Nothing is derived from the arguments until it is asked for,
/// so that a client that needs no slots does not pay for them.
#[must_use = "a command does nothing until it is sent"]
pub struct Command<R> {
    said: Said,
    reply: PhantomData<fn() -> R>,
}

/// A command without the type of its reply: one piece, so that another type costs no rebuilding.
#[derive(Clone)]
struct Said {
    args: Args,
    category: Option<Category>,
    raw: bool,
}

impl<R> Command<R> {
    /// Begins a typed command, lets `write` add the arguments, and completes it.
    #[inline(always)]
    pub(crate) fn build(head: Head, write: impl FnOnce(&mut Args)) -> Command<R> {
        let mut args = Args::start(head);
        write(&mut args);
        args.finish();
        Command { said: Said { args, category: None, raw: false }, reply: PhantomData }
    }

    /// The whole command as a RESP array of bulk strings.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        self.said.args.bytes()
    }

    /// The bytes as their own owner: no copy of a command of more than 1 KiB.
    pub fn into_bytes(self) -> bytes::Bytes {
        self.said.args.into_bytes()
    }

    /// Lets whoever sends the bytes share them: no copy.
    pub(crate) fn share(&mut self) {
        self.said.args.share();
    }

    /// The bytes are not needed any more; all else that is known of the command stays.
    #[inline(always)]
    pub(crate) fn forget_text(&mut self) {
        self.said.args.forget_text();
    }

    /// The cursor that a command with [`Flags::CURSOR`] goes on from; `None` for one that has it in no
    /// known place.
    pub(crate) fn cursor(&self) -> Option<&[u8]> {
        let at = match self.name()? {
            "SCAN" => 1,
            "HSCAN" | "SSCAN" | "ZSCAN" => 2,
            _ => return None,
        };
        let range = Words::of(self.bytes()).nth(at)?;
        self.bytes().get(range)
    }

    /// Whether any client may send it as it is, without a closer look, on a shared connection.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.said.args.is_plain()
    }

    /// Its only key, where that is known without a look at its words.
    #[inline]
    pub(crate) fn only_key(&self) -> Option<&[u8]> {
        self.said.args.only_key()
    }

    /// The bytes on their way into a connection.
    #[inline(always)]
    pub(crate) fn encoded(&self) -> Encoded<'_> {
        self.said.args.encoded()
    }

    /// The command's row in the table; `None` for a name that the table does not have.
    #[inline]
    pub fn spec(&self) -> Option<Spec> {
        Spec::from_index(self.said.args.spec())
    }

    /// The name in upper case, a subcommand's with its container's (`CLIENT INFO`); `None` if it
    /// is not in the table.
    pub fn name(&self) -> Option<&'static str> {
        self.spec().map(Spec::name)
    }

    /// What is known of the command; [`Flags::NONE`] if it is not in the table.
    #[inline]
    pub fn flags(&self) -> Flags {
        self.spec().map_or(Flags::NONE, Spec::flags)
    }

    /// Number of words, those of the name included.
    pub fn arg_count(&self) -> u32 {
        self.said.args.count()
    }

    /// Where the keys are in [`Command::bytes`], in order; none if the command is not in the table.
    pub fn keys(&self) -> Keys<'_> {
        Keys::new(self.spec(), self.bytes(), self.arg_count(), false)
    }

    /// The hash slot of the first key, or of the channel of SPUBLISH and SSUBSCRIBE; `None` without
    /// one. Computed at each call: a client without slots never pays for it.
    pub fn slot(&self) -> Option<u16> {
        let spec = self.spec()?;
        let range = match spec.first_key_index() {
            // Nearly every command: no need to look at anything but its place.
            Some(index) => Words::of(self.bytes()).nth(index)?,
            None => Keys::new(Some(spec), self.bytes(), self.arg_count(), true).next()?,
        };
        self.bytes().get(range).map(slot::slot_of)
    }

    /// How long the command asks the server to wait; `None` if it does not wait (R-094). Read from
    /// the arguments at each call, and only if [`Flags::BLOCKING`] is set.
    #[inline]
    pub fn block(&self) -> Option<Block> {
        if !self.flags().contains(Flags::BLOCKING) {
            return None;
        }
        block::block_of(self.spec()?, self.bytes())
    }

    /// How much harm a second run does (R-353), the arguments looked at; [`Category::Never`] if the
    /// command is not in the table (R-354), and what [`Command::with_category`] said otherwise.
    pub fn category(&self) -> Category {
        match (self.said.category, self.spec()) {
            (Some(told), _) => told,
            (None, Some(spec)) => retry::category_of(spec, self.bytes()),
            (None, None) => Category::Never,
        }
    }

    /// Says how much harm a second run does, for a command that the caller knows better (R-354).
    pub fn with_category(mut self, category: Category) -> Command<R> {
        self.said.category = Some(category);
        self
    }

    /// The same command with its reply read as another type: `incr("n").returning::<f64>()`.
    #[inline(always)]
    pub fn returning<T>(self) -> Command<T> {
        Command { said: self.said, reply: PhantomData }
    }
}

impl<R> Clone for Command<R> {
    fn clone(&self) -> Command<R> {
        Command { said: self.said.clone(), reply: PhantomData }
    }
}

/// The name and the sizes; never an argument, which may be a key, a value or a credential.
impl<R> std::fmt::Debug for Command<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Command")
            .field("name", &self.name())
            .field("words", &self.arg_count())
            .field("bytes", &self.bytes().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if the short way to the slot finds another key than the long one, for any command.
    #[test]
    fn the_slot_is_that_of_the_first_key() {
        for spec in Spec::all() {
            // With fewer words a command is refused.
            let least = usize::from(spec.arity().unsigned_abs());
            for count in least..least + 8 {
                let count = count - spec.name().split(' ').count();
                let command = raw(spec.name()).args(vec!["1"; count]).build::<()>();
                let all = Keys::new(command.spec(), command.bytes(), command.arg_count(), true);
                let first = all.clone().next().map(|range| slot::slot_of(&command.bytes()[range]));
                assert_eq!(command.slot(), first, "{command:?}");
            }
        }
    }
}
