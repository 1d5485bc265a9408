//! What a server says when it refuses a command.

use std::fmt;

use super::Frame;

/// The code words that servers put first in an error.
pub mod code {
    /// No special code.
    pub const ERR: &str = "ERR";
    /// The server is loading its data set.
    pub const LOADING: &str = "LOADING";
    /// A script or function is running too long.
    pub const BUSY: &str = "BUSY";
    /// The cluster does not serve the slot, or nothing.
    pub const CLUSTERDOWN: &str = "CLUSTERDOWN";
    /// Keys of the command are on two nodes while their slot moves.
    pub const TRYAGAIN: &str = "TRYAGAIN";
    /// The replica has lost its primary and does not serve old data.
    pub const MASTERDOWN: &str = "MASTERDOWN";
    /// The slot lives on another node.
    pub const MOVED: &str = "MOVED";
    /// The key is already on the slot's next node.
    pub const ASK: &str = "ASK";
    /// Keys of the command are in two slots.
    pub const CROSSSLOT: &str = "CROSSSLOT";
    /// A write came to a replica.
    pub const READONLY: &str = "READONLY";
    /// The connection is not authenticated.
    pub const NOAUTH: &str = "NOAUTH";
    /// The user or password is wrong.
    pub const WRONGPASS: &str = "WRONGPASS";
    /// The user may not do this.
    pub const NOPERM: &str = "NOPERM";
    /// The server does not speak the asked protocol version.
    pub const NOPROTO: &str = "NOPROTO";
    /// The key holds another type.
    pub const WRONGTYPE: &str = "WRONGTYPE";
    /// A transaction was discarded because of an earlier error.
    pub const EXECABORT: &str = "EXECABORT";
    /// The script is not known.
    pub const NOSCRIPT: &str = "NOSCRIPT";
    /// Nothing to kill.
    pub const NOTBUSY: &str = "NOTBUSY";
    /// The server is at its memory limit.
    pub const OOM: &str = "OOM";
    /// Writes are off because persistence fails.
    pub const MISCONF: &str = "MISCONF";
    /// Too few replicas are in sync for a write.
    pub const NOREPLICAS: &str = "NOREPLICAS";
    /// The key to restore into exists.
    pub const BUSYKEY: &str = "BUSYKEY";
    /// The consumer group exists.
    pub const BUSYGROUP: &str = "BUSYGROUP";
    /// The stream or consumer group does not exist.
    pub const NOGROUP: &str = "NOGROUP";
    /// A blocked client was released.
    pub const UNBLOCKED: &str = "UNBLOCKED";
    /// Sentinel does not know the primary, or all of it is unreachable.
    pub const NOGOODSLAVE: &str = "NOGOODSLAVE";
    /// The node hands its role over or is demoted: Valkey's redirect of standalone clients.
    pub const REDIRECT: &str = "REDIRECT";
}

/// An error reply: the code word, and the text after it.
///
/// `Display` and `Debug` leave out the arguments that a server quotes in "unknown command" errors.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerError {
    line: Box<str>,
    code_len: usize,
}

impl ServerError {
    /// Splits the line of an error frame (without type byte and CR LF). Bytes that are not UTF-8 are
    /// replaced.
    pub fn new(line: &[u8]) -> Self {
        let line = String::from_utf8_lossy(line).into_owned().into_boxed_str();
        let code_len = line.find(|c: char| c.is_ascii_whitespace()).unwrap_or(line.len());
        ServerError { line, code_len }
    }

    /// The error in `frame`, if it is one.
    pub fn from_frame(frame: &Frame<'_>) -> Option<Self> {
        frame.is_error().then(|| ServerError::new(frame.payload()))
    }

    /// The first word, such as `WRONGTYPE`; constants are in [`code`]. Empty for an empty error.
    pub fn code(&self) -> &str {
        self.line.get(..self.code_len).unwrap_or_default()
    }

    /// What follows the code word, without the blank between. May quote arguments of the command.
    pub fn text(&self) -> &str {
        self.line.get(self.code_len + 1..).unwrap_or_default()
    }

    /// Code and text as sent.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Whether the code is `code`.
    pub fn is(&self, code: &str) -> bool {
        self.code() == code
    }

    /// Whether the same command may well succeed later: LOADING, BUSY, CLUSTERDOWN, TRYAGAIN and
    /// MASTERDOWN.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.code(),
            code::LOADING | code::BUSY | code::CLUSTERDOWN | code::TRYAGAIN | code::MASTERDOWN
        )
    }

    /// The line without quoted arguments.
    fn safe_line(&self) -> &str {
        const QUOTES: [&str; 2] = [", with args beginning with", ", with arguments"];
        let end = QUOTES.iter().filter_map(|words| self.line.find(words)).min();
        self.line.get(..end.unwrap_or(self.line.len())).unwrap_or_default()
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.safe_line())
    }
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerError").field(&self.safe_line()).finish()
    }
}

impl std::error::Error for ServerError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if the code word is split wrongly or another code counts as transient.
    #[test]
    fn code_and_transience() {
        let error = ServerError::new(b"LOADING Redis is loading the dataset in memory");
        assert_eq!(error.code(), code::LOADING);
        assert_eq!(error.text(), "Redis is loading the dataset in memory");
        for line in ["BUSY x", "CLUSTERDOWN", "TRYAGAIN y", "MASTERDOWN z"] {
            assert!(ServerError::new(line.as_bytes()).is_transient(), "{line}");
        }
        for line in ["ERR LOADING", "BUSYKEY x", "MOVED 1 h:1", "", "OOM x"] {
            assert!(!ServerError::new(line.as_bytes()).is_transient(), "{line}");
        }
        assert_eq!(ServerError::new(b"").code(), "");
        assert_eq!(ServerError::new(b"").text(), "");
    }

    /// Fails if an argument that the server quotes reaches a log line.
    #[test]
    fn quoted_arguments_stay_out_of_messages() {
        let line = b"ERR unknown command 'AUHT', with args beginning with: 'secret' ";
        let error = ServerError::new(line);
        assert!(!format!("{error} {error:?}").contains("secret"));
        assert!(error.text().contains("secret"));
    }
}
