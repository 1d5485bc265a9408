//! Commands by name, for what has no typed method.
use super::args::{Args, ToArg, ToArgs};
use super::retry::Category;
use super::table::Spec;
use super::words::Words;
use super::{Command, Flags, Said};
use crate::client::door::Door;
use crate::resp::FromReply;
use std::marker::PhantomData;

/// A command by name: `raw("OBJECT").arg("FREQ").arg("key")`.
///
/// The name is looked up in the table when the command is built, so that route, read policy and
/// blocking are those of the typed command. An unknown name (a module's) has no keys and no flags:
/// it goes to a primary and is never retried (R-222, R-354).
///
/// ```
/// use hedgerow::command::raw;
/// let command = raw("get").arg("k").build::<Option<String>>();
/// assert_eq!(command.bytes(), b"*2\r\n$3\r\nget\r\n$1\r\nk\r\n");
/// assert_eq!(command.name(), Some("GET"));
/// assert_eq!(command.slot(), Some(7629));
/// ```
pub fn raw(name: &str) -> Raw {
    let mut args = Args::unnamed();
    for word in name.split_ascii_whitespace() {
        args.bulk(word.as_bytes());
    }
    Raw { args }
}

/// A raw command on the way; made by [`raw`].
#[derive(Clone)]
#[must_use = "a command does nothing until it is sent"]
pub struct Raw {
    args: Args,
}

impl Raw {
    /// Adds one argument.
    pub fn arg(mut self, arg: impl ToArg) -> Raw {
        arg.write_arg(&mut self.args);
        self
    }

    /// Adds any number of arguments.
    pub fn args(mut self, args: impl ToArgs) -> Raw {
        args.write_args(&mut self.args);
        self
    }

    /// Completes the command.
    pub fn build<R>(mut self) -> Command<R> {
        self.args.finish();
        let spec = find(self.args.bytes());
        self.args.set_spec(spec.map(Spec::index));
        let said = Said { args: self.args, category: None, raw: true };
        Command { said, reply: PhantomData }
    }
}

impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Raw").field("words", &self.args.count()).finish_non_exhaustive()
    }
}

/// Commands by name, sent through a client.
///
/// ```
/// use hedgerow::{Error, prelude::*};
/// async fn load(client: &impl Door) -> Result<String, Error> {
///     client.command("OBJECT").arg("ENCODING").arg("key").send().await
/// }
/// ```
pub trait RawCommands: Door {
    /// Begins a command by name; see [`raw`].
    fn command(&self, name: &str) -> RawRequest<'_, Self> {
        RawRequest { door: self, raw: raw(name), category: None }
    }
}

impl<D: Door + ?Sized> RawCommands for D {}

/// A raw command on the way through a client; made by [`RawCommands::command`].
#[must_use = "a command does nothing until it is sent"]
pub struct RawRequest<'a, D: ?Sized> {
    door: &'a D,
    raw: Raw,
    category: Option<Category>,
}

impl<D: Door + ?Sized> RawRequest<'_, D> {
    /// Adds one argument.
    pub fn arg(mut self, arg: impl ToArg) -> Self {
        self.raw = self.raw.arg(arg);
        self
    }

    /// Adds any number of arguments.
    pub fn args(mut self, args: impl ToArgs) -> Self {
        self.raw = self.raw.args(args);
        self
    }

    /// Says how much harm a second run does (R-354).
    pub fn category(mut self, category: Category) -> Self {
        self.category = Some(category);
        self
    }

    /// Sends it.
    pub fn send<R: FromReply<D::Kept>>(self) -> D::Request<R> {
        let command = self.raw.build();
        self.door.send(match self.category {
            Some(category) => command.with_category(category),
            None => command,
        })
    }
}

impl<D: ?Sized> std::fmt::Debug for RawRequest<'_, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.raw.fmt(f)
    }
}

/// The table row of a command's bytes. A container with a subcommand that the table does not know
/// (a newer server's) is unknown altogether.
fn find(bytes: &[u8]) -> Option<Spec> {
    let mut words = Words::of(bytes);
    let first = words.next_word()?;
    let spec = Spec::find_words(first, None)?;
    if !spec.flags().contains(Flags::CONTAINER) {
        return Some(spec);
    }
    match words.next_word() {
        Some(second) => Spec::find_words(first, Some(second)),
        None => Some(spec),
    }
}
