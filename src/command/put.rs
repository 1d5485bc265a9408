//! How options write themselves: words that may be none.
use super::args::Args;

/// Part of a typed command that adds as many words as it needs.
pub(crate) trait Put {
    /// Adds the words.
    fn put(&self, args: &mut Args);
}

impl<T: Put> Put for Option<T> {
    fn put(&self, args: &mut Args) {
        if let Some(option) = self {
            option.put(args);
        }
    }
}

impl<T: Put + ?Sized> Put for &T {
    fn put(&self, args: &mut Args) {
        (**self).put(args);
    }
}

/// Options that are one keyword each: `pub enum Name { Variant = "WORD", .. }`.
macro_rules! keywords {
    ($(
        $(#[$doc:meta])*
        $vis:vis enum $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $crate::command::put::Put for $name {
            fn put(&self, args: &mut $crate::command::args::Args) {
                args.word(match self { $($name::$variant => $word,)* });
            }
        }
    )*};
}
pub(crate) use keywords;
