//! The generic group: commands on keys of any type.
use super::args::ToArgs;
use super::macros::commands;

commands! {
    /// Commands on keys of any type.
    trait KeyCommands;

    /// Deletes keys.
    fn del(keys: impl ToArgs) = DEL: many(keys);
}
