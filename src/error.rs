//! The one error type, and what a caller needs to know first: whether the command may have run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::command::Refused;
use crate::config::Endpoint;
use crate::engine::{Diagnostics, Stage};
use crate::resp::{ConvertError, ProtocolError, ServerError};

/// The outcome of what did not succeed. Cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    fate: Fate,
    node: Option<Endpoint>,
    command: Option<&'static str>,
    text: String,
    server: Option<ServerError>,
    timeout: Option<Duration>,
    diagnostics: Option<Box<Diagnostics>>,
    source: Option<Source>,
}

type Source = Arc<dyn std::error::Error + Send + Sync>;

/// What went wrong, as far as a program needs to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option or a connection string is not valid; the text names it and what would be right.
    Config,
    /// The command was refused locally, before any byte was written.
    Refused,
    /// The connection could not be made (network, name resolution).
    Connect,
    /// The server refused the connection's set-up: authentication, database, protocol.
    Handshake,
    /// Not connected, and the time or the room to wait for it is used up.
    NotConnected,
    /// Too many commands wait for a connection.
    QueueFull,
    /// A deadline passed.
    Timeout,
    /// The connection was lost with the command in flight, or its bytes could not be written.
    Disconnected,
    /// The server answered with an error.
    Server,
    /// The server broke the protocol; the connection was closed.
    Protocol,
    /// The reply is not of the type that was asked for.
    Convert,
    /// The client was closed.
    Closed,
    /// The machinery below failed: a ring, a thread, a runtime that ended.
    Runtime,
}

/// What became of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// No byte of it was written: it did not run, and may be sent again.
    NotSent,
    /// It was written, in part or whole, and no answer came: it may have run.
    Unknown,
    /// The server answered.
    Answered,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, fate: Fate, text: impl Into<String>) -> Error {
        Error(Arc::new(Inner {
            kind,
            fate,
            node: None,
            command: None,
            text: text.into(),
            server: None,
            timeout: None,
            diagnostics: None,
            source: None,
        }))
    }

    /// An invalid option; `text` names it and says what would be right.
    pub(crate) fn config(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::Config, Fate::NotSent, text)
    }

    pub(crate) fn server(error: ServerError) -> Error {
        // Without the arguments that it may quote.
        let text = error.to_string();
        Error::new(ErrorKind::Server, Fate::Answered, text).with_server(error)
    }

    pub(crate) fn protocol(error: ProtocolError) -> Error {
        let text = error.to_string();
        Error::new(ErrorKind::Protocol, Fate::Unknown, text).with_source(error)
    }

    pub(crate) fn convert(error: ConvertError) -> Error {
        if let Some(server) = error.server_error() {
            return Error::server(server.clone());
        }
        Error::new(ErrorKind::Convert, Fate::Answered, error.to_string()).with_source(error)
    }

    pub(crate) fn closed() -> Error {
        Error::new(ErrorKind::Closed, Fate::NotSent, "the client is closed")
    }

    fn edit(&mut self, change: impl FnOnce(&mut Inner)) {
        // One lost connection fails many commands, so the error may be shared already.
        change(Arc::make_mut(&mut self.0));
    }

    /// The same error with another fate: one lost connection fails many commands differently.
    pub(crate) fn with_fate(&self, fate: Fate) -> Error {
        let mut error = self.clone();
        error.edit(|i| i.fate = fate);
        error
    }

    pub(crate) fn with_node(mut self, node: &Endpoint) -> Error {
        self.edit(|i| i.node = Some(node.clone()));
        self
    }

    pub(crate) fn with_command(mut self, command: Option<&'static str>) -> Error {
        self.edit(|i| i.command = command);
        self
    }

    pub(crate) fn with_server(mut self, server: ServerError) -> Error {
        self.edit(|i| i.server = Some(server));
        self
    }

    pub(crate) fn with_timeout(mut self, timeout: Option<Duration>) -> Error {
        self.edit(|i| i.timeout = timeout);
        self
    }

    pub(crate) fn with_diagnostics(mut self, diagnostics: Diagnostics) -> Error {
        self.edit(|i| i.diagnostics = Some(Box::new(diagnostics)));
        self
    }

    pub(crate) fn with_source(
        mut self,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Error {
        self.edit(|i| i.source = Some(Arc::new(source)));
        self
    }

    /// The plain text, without command, node and diagnostics.
    pub(crate) fn text(&self) -> &str {
        &self.0.text
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What became of the command.
    pub fn fate(&self) -> Fate {
        self.0.fate
    }

    /// The node concerned, if that is known.
    pub fn node(&self) -> Option<&Endpoint> {
        self.0.node.as_ref()
    }

    /// The command concerned, if that is known; `CONNECT` for a connect that took too long.
    pub fn command(&self) -> Option<&'static str> {
        self.0.command
    }

    /// The server's error reply, if that is what this is.
    pub fn server_error(&self) -> Option<&ServerError> {
        self.0.server.as_ref()
    }

    /// The server error's code word, as `WRONGTYPE`.
    pub fn code(&self) -> Option<&str> {
        self.server_error().map(ServerError::code)
    }

    /// The length of the time that ran out, if it was a configured one.
    pub fn timeout(&self) -> Option<Duration> {
        self.0.timeout
    }

    /// What the connection looked like at the moment of the failure; `None` for errors that are
    /// not of a connection.
    pub fn diagnostics(&self) -> Option<&Diagnostics> {
        self.0.diagnostics.as_deref()
    }

    /// How far the command had come.
    pub fn stage(&self) -> Option<Stage> {
        self.diagnostics().map(|d| d.stage)
    }

    /// Whether the same command may succeed a little later without anything being changed: a
    /// transient server state, or a connection that is being made again.
    pub fn is_transient(&self) -> bool {
        match self.kind() {
            ErrorKind::Server => self.server_error().is_some_and(ServerError::is_transient),
            ErrorKind::Connect
            | ErrorKind::NotConnected
            | ErrorKind::QueueFull
            | ErrorKind::Timeout
            | ErrorKind::Disconnected => true,
            _ => false,
        }
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        Error::new(ErrorKind::Refused, Fate::NotSent, refused.to_string()).with_source(refused)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let i = &*self.0;
        if let Some(command) = i.command {
            write!(f, "{command}: ")?;
        }
        f.write_str(&i.text)?;
        if let Some(node) = &i.node {
            write!(f, " ({node})")?;
        }
        if let Some(timeout) = i.timeout {
            write!(f, "; it had {timeout:?}")?;
        }
        match &i.diagnostics {
            Some(diagnostics) => write!(f, "; {diagnostics}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("fate", &self.0.fate)
            .field("text", &self.to_string())
            .finish_non_exhaustive()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|s| s as &(dyn std::error::Error + 'static))
    }
}
