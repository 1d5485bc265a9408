//! Writes a typed command as a free function and as a method of its group's trait.

/// `fn name(args) = HEAD: step(value) step(value);` gives `pub fn name<R>(args) -> Command<R>`,
/// whose bytes are the table's head and then what each step of [`super::Args`] adds, and the same
/// as a provided method of the trait, which sends it.
macro_rules! commands {
    (
        $(#[$trait_doc:meta])*
        trait $trait:ident;
        $(
            $(#[$doc:meta])*
            fn $name:ident($($arg:ident: $type:ty),* $(,)?) = $head:ident$(: $($step:ident($value:expr))+)?;
        )*
    ) => {
        $(
            $(#[$doc])*
            #[inline]
            pub fn $name<R>($($arg: $type),*) -> $crate::command::Command<R> {
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
                #[inline]
                fn $name<R: $crate::resp::FromReply<Self::Kept>>(
                    &self,
                    $($arg: $type),*
                ) -> Self::Request<R> {
                    self.send($name($($arg),*))
                }
            )*
        }

        impl<D: $crate::client::door::Door> $trait for D {}
    };
}
pub(crate) use commands;
