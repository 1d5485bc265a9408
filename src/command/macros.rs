//! Writes a typed command as a free function and as a method of its group's trait.

/// `fn name(args) -> u64 = HEAD: step(value) step(value);` gives `pub fn name(args)` of `Command<u64>`,
/// whose bytes are the table's head and then what each step of [`super::Args`] adds, and the same
/// as a provided method of the trait, which sends it. `fn name<R>(args) -> R` leaves the reply's
/// type to the caller, for replies that carry the user's own keys and values.
macro_rules! commands {
    (
        $(#[$trait_doc:meta])*
        trait $trait:ident;
        $(
            $(#[$doc:meta])*
            fn $name:ident$(<$own:ident>)?($($arg:ident: $type:ty),* $(,)?) -> $reply:ty =
                $head:ident$(: $($step:ident($value:expr))+)?;
        )*
    ) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            pub fn $name$(<$own>)?($($arg: $type),*) -> $crate::command::Command<$reply> {
                $crate::command::Command::build(
                    $crate::command::table::generated::head::$head,
                    |_args| {
                        $($(_args.$step(&$value);)+)?
                    },
                )
            }
        )*

        $(#[$trait_doc])*
        pub trait $trait: $crate::client::door::Door {
            $(
                $(#[$doc])*
                #[inline(always)]
                fn $name$(<$own: $crate::resp::FromReply<Self::Kept>>)?(
                    &self,
                    $($arg: $type),*
                ) -> Self::Request<$reply> {
                    self.send($name($($arg),*))
                }
            )*
        }

        impl<D: $crate::client::door::Door> $trait for D {}
    };
}
pub(crate) use commands;
