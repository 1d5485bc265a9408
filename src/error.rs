//! The error of every request.

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The command was not sent.
    #[error(transparent)]
    Refused(#[from] crate::command::Refused),
}
