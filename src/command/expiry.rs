//! When a key or a field expires, and on which condition.
use super::args::Args;
use super::put::{Put, keywords};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An expiration time: so long from now, or a point in Unix time by the server's clock.
///
/// A [`Duration`] becomes [`Expiry::Seconds`] when it is whole seconds, else [`Expiry::Millis`]
/// rounded up, so that a value above zero never becomes the zero that servers refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// `EX`: seconds from now.
    Seconds(u64),
    /// `PX`: milliseconds from now.
    Millis(u64),
    /// `EXAT`: Unix time in seconds.
    AtSeconds(u64),
    /// `PXAT`: Unix time in milliseconds.
    AtMillis(u64),
}

impl From<Duration> for Expiry {
    fn from(after: Duration) -> Expiry {
        if after.subsec_nanos() == 0 {
            return Expiry::Seconds(after.as_secs());
        }
        Expiry::Millis(u64::try_from(after.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}

impl From<SystemTime> for Expiry {
    /// In milliseconds; a time before 1970 becomes 1970.
    fn from(at: SystemTime) -> Expiry {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        Expiry::AtMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

impl Put for Expiry {
    fn put(&self, args: &mut Args) {
        let (word, value) = match *self {
            Expiry::Seconds(value) => ("EX", value),
            Expiry::Millis(value) => ("PX", value),
            Expiry::AtSeconds(value) => ("EXAT", value),
            Expiry::AtMillis(value) => ("PXAT", value),
        };
        args.word(word);
        args.uint(value);
    }
}

/// What a write does with the expiration time: sets one, or keeps the present one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WriteExpiry {
    Set(Expiry),
    Keep,
}

impl Put for WriteExpiry {
    fn put(&self, args: &mut Args) {
        match self {
            WriteExpiry::Set(expiry) => expiry.put(args),
            WriteExpiry::Keep => args.word("KEEPTTL"),
        }
    }
}

/// What a read with GETEX or HGETEX does with the expiration time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadExpiry {
    /// Leaves it alone.
    Keep,
    /// Sets it.
    Set(Expiry),
    /// Removes it.
    Persist,
}

impl<E: Into<Expiry>> From<E> for ReadExpiry {
    fn from(expiry: E) -> ReadExpiry {
        ReadExpiry::Set(expiry.into())
    }
}

impl Put for ReadExpiry {
    fn put(&self, args: &mut Args) {
        match self {
            ReadExpiry::Keep => {}
            ReadExpiry::Set(expiry) => expiry.put(args),
            ReadExpiry::Persist => args.word("PERSIST"),
        }
    }
}

keywords! {
    /// When EXPIRE and its kin may set an expiration time (servers from 7.0).
    pub enum ExpireCondition {
        /// Only if there is none.
        Nx = "NX",
        /// Only if there is one.
        Xx = "XX",
        /// Only if it is later than the present one; none counts as never.
        Gt = "GT",
        /// Only if it is earlier than the present one; none counts as never.
        Lt = "LT",
    }

    /// When a write may happen.
    pub(crate) enum WriteCondition {
        /// Only if it does not exist.
        Nx = "NX",
        /// Only if it exists.
        Xx = "XX",
    }
}

/// The setters of an expiration time, for option types with a field `expiry`.
macro_rules! write_expiry_setters {
    () => {
        /// Expires in so many seconds (`EX`); [`expiry`](Self::expiry) takes a `Duration`.
        pub fn ex(self, seconds: u64) -> Self {
            self.expiry($crate::command::expiry::Expiry::Seconds(seconds))
        }

        /// Expires in so many milliseconds (`PX`).
        pub fn px(self, millis: u64) -> Self {
            self.expiry($crate::command::expiry::Expiry::Millis(millis))
        }

        /// Expires at this Unix time in seconds (`EXAT`).
        pub fn exat(self, unix_seconds: u64) -> Self {
            self.expiry($crate::command::expiry::Expiry::AtSeconds(unix_seconds))
        }

        /// Expires at this Unix time in milliseconds (`PXAT`).
        pub fn pxat(self, unix_millis: u64) -> Self {
            self.expiry($crate::command::expiry::Expiry::AtMillis(unix_millis))
        }

        /// Expires so long after now (a `Duration`: whole seconds, else milliseconds rounded up),
        /// at that time (a `SystemTime`), or as an
        /// [`Expiry`](crate::command::expiry::Expiry) says.
        pub fn expiry(mut self, expiry: impl Into<$crate::command::expiry::Expiry>) -> Self {
            self.expiry = Some($crate::command::expiry::WriteExpiry::Set(expiry.into()));
            self
        }

        /// Keeps the present expiration time, which a write removes otherwise (`KEEPTTL`).
        pub fn keep_ttl(mut self) -> Self {
            self.expiry = Some($crate::command::expiry::WriteExpiry::Keep);
            self
        }
    };
}
pub(crate) use write_expiry_setters;
