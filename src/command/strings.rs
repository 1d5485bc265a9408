//! The string group.
use super::args::{ToArg, ToArgs};
use super::macros::commands;

commands! {
    /// Commands on strings.
    trait StringCommands;

    /// The value of a key.
    fn get(key: impl ToArg) = GET: one(key);

    /// Sets a key.
    fn set(key: impl ToArg, value: impl ToArg) = SET: one(key) one(value);

    /// The values of several keys.
    fn mget(keys: impl ToArgs) = MGET: many(keys);
}
