//! The arguments of a command, written as RESP while they are given.
use super::encoded::Encoded;
use super::put::Put;
use super::table::{PlainWords, only_key};
use super::text::Text;
use super::words::word_at;
use bytes::Bytes;
use std::borrow::Cow;
use std::fmt::Write as _;

/// Longest argument that is sent, in bytes: servers close the connection, and with it everything
/// else in flight there, on a longer one (`proto-max-bulk-len`, 512 MiB unless configured).
pub const ARG_BYTES_MAX: usize = 512 << 20;

/// How a command's bytes begin, from the generated table: `*0\r\n` and the name's words as bulks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    spec: u16,
    words: u8,
    plain_words: PlainWords,
    /// Where the first argument begins, if that is its only key; else 0.
    key_at: u8,
    bytes: &'static [u8],
}

impl Head {
    /// The head of the table's row `spec`, whose name has `words` words.
    pub(crate) const fn new(spec: u16, words: u8, bytes: &'static [u8]) -> Head {
        let is_key = words > 0 && only_key(spec) == words && bytes.len() < 256;
        let key_at = if is_key { bytes.len() as u8 } else { 0 };
        Head { spec, words, plain_words: PlainWords::of(spec), key_at, bytes }
    }
}

/// The arguments of one command on their way into its bytes.
///
/// Handed to [`ToArg::write_arg`] and [`ToArgs::write_args`]; each call of [`Args::bulk`] adds one
/// argument. The memory of short commands is used again, so that nothing is allocated for them.
#[derive(Clone)]
pub struct Args {
    text: Text,
    count: u32,
    spec: u16,
    plain_words: PlainWords,
    /// As [`Head::key_at`].
    key_at: u8,
    /// Complete, and nothing more has to be looked at before it is sent.
    plain: bool,
    oversize: bool,
}

/// The index that stands for "not in the table".
const NO_SPEC: u16 = u16::MAX;

impl Args {
    /// Begins a command of the table.
    #[inline(always)]
    pub(crate) fn start(head: Head) -> Args {
        let mut text = Text::new();
        text.own().extend_from_slice(head.bytes);
        Args {
            text,
            count: u32::from(head.words),
            spec: head.spec,
            plain_words: head.plain_words,
            key_at: head.key_at,
            plain: false,
            oversize: false,
        }
    }

    /// Begins a command whose name is yet to be written.
    pub(crate) fn unnamed() -> Args {
        Args::start(Head::new(NO_SPEC, 0, b"*0\r\n"))
    }

    /// Adds one argument.
    #[inline(always)]
    pub fn bulk(&mut self, arg: &[u8]) {
        self.count = self.count.saturating_add(1);
        let len = arg.len();
        let digit = |value: usize| b'0' + (value % 10) as u8;
        let text = self.text.own();
        match len {
            0..10 => text.extend_from_slice(&[b'$', digit(len), b'\r', b'\n']),
            10..100 => {
                text.extend_from_slice(&[b'$', digit(len / 10), digit(len), b'\r', b'\n']);
            }
            _ => return self.long_bulk(arg),
        }
        text.extend_from_slice(arg);
        text.extend_from_slice(b"\r\n");
    }

    /// Adds an integer argument, in decimal.
    #[inline]
    pub fn int(&mut self, value: i64) {
        let mut digits = [0; 20];
        let text = decimal(value.unsigned_abs(), value < 0, &mut digits);
        self.bulk(text);
    }

    /// Adds an unsigned integer argument, in decimal.
    #[inline]
    pub fn uint(&mut self, value: u64) {
        let mut digits = [0; 20];
        let text = decimal(value, false, &mut digits);
        self.bulk(text);
    }

    /// Adds a float argument: the shortest text that reads back as the same value, `inf`, `-inf`
    /// or `nan` (which servers refuse).
    pub fn float(&mut self, value: f64) {
        self.display_float("", value, format_args!("{value:?}"));
    }

    /// As [`Args::float`], after a prefix.
    pub(crate) fn prefixed_float(&mut self, prefix: &str, value: f64) {
        self.display_float(prefix, value, format_args!("{value:?}"));
    }

    /// As [`Args::float`], with no more digits than an `f32` has.
    pub fn float32(&mut self, value: f32) {
        self.display_float("", f64::from(value), format_args!("{value:?}"));
    }

    /// Adds an argument from its `Display` form.
    pub fn display(&mut self, value: impl std::fmt::Display) {
        let mut text = Short::EMPTY;
        // `Short` takes any length, so only a `Display` that fails by itself ends up cut.
        let _ = write!(text, "{value}");
        self.bulk(text.as_bytes());
    }

    /// Number of words so far, the name's own included.
    pub fn count(&self) -> u32 {
        self.count
    }

    fn display_float(&mut self, prefix: &str, value: f64, debug: std::fmt::Arguments<'_>) {
        let mut text = Short::EMPTY;
        let debug = if value.is_nan() { format_args!("nan") } else { debug };
        // `Short` takes any length.
        let _ = text.write_fmt(format_args!("{prefix}{debug}"));
        let text = text.as_bytes();
        self.bulk(text.strip_suffix(b".0").unwrap_or(text));
    }

    /// Adds an argument whose length has three digits and more.
    #[inline(never)]
    fn long_bulk(&mut self, arg: &[u8]) {
        if arg.len() > ARG_BYTES_MAX {
            // Never sent: the command is refused, so it need not hold the bytes either.
            self.oversize = true;
            return;
        }
        let mut digits = [0; 20];
        let digits = decimal(arg.len() as u64, false, &mut digits);
        let text = self.text.own();
        text.reserve(1 + digits.len() + 2 + arg.len() + 2);
        text.push(b'$');
        text.extend_from_slice(digits);
        text.extend_from_slice(b"\r\n");
        text.extend_from_slice(arg);
        text.extend_from_slice(b"\r\n");
    }

    /// Writes the number of words into the array header: the last step.
    #[inline(always)]
    pub(crate) fn finish(&mut self) {
        self.plain = self.plain_words.fit(self.count) && !self.oversize;
        if self.count < 10 {
            if let Some(digit) = self.text.own().get_mut(1) {
                *digit = b'0' + self.count as u8;
            }
            return;
        }
        self.finish_wide();
    }

    /// As [`Args::finish`] for two digits and more.
    #[cold]
    fn finish_wide(&mut self) {
        let mut digits = [0; 20];
        let digits = decimal(u64::from(self.count), false, &mut digits);
        self.text.own().splice(1..2, digits.iter().copied());
    }

    /// The bytes so far.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.text.bytes()
    }

    /// Its only key, where that is its first argument, as in nearly all commands of one key.
    #[inline]
    pub(crate) fn only_key(&self) -> Option<&[u8]> {
        // Where the number of words takes two digits and more, all has moved.
        let at = usize::from(self.key_at);
        if at == 0 || self.count >= 10 {
            return None;
        }
        let bytes = self.bytes();
        bytes.get(word_at(bytes, at)?)
    }

    /// Lets whoever sends the complete bytes share them: no copy.
    pub(crate) fn share(&mut self) {
        self.text.share();
    }

    /// The bytes are not needed any more; all else that is known of the command stays.
    #[inline(always)]
    pub(crate) fn forget_text(&mut self) {
        self.text.forget();
    }

    /// The bytes, without a copy if they are many.
    pub(crate) fn into_bytes(self) -> Bytes {
        self.text.into_bytes()
    }

    /// The table's row index, which may be past its end.
    #[inline]
    pub(crate) fn spec(&self) -> u16 {
        self.spec
    }

    /// Sets the table's row index of a command that was begun without one.
    pub(crate) fn set_spec(&mut self, spec: Option<u16>) {
        self.spec = spec.unwrap_or(NO_SPEC);
    }

    /// Whether any client may send it as it is on a shared connection: nobody has to look at the
    /// table.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    /// The bytes on their way into a connection.
    #[inline(always)]
    pub(crate) fn encoded(&self) -> Encoded<'_> {
        self.text.encoded()
    }

    /// True if an argument was longer than [`ARG_BYTES_MAX`] and left out.
    pub(crate) fn oversize(&self) -> bool {
        self.oversize
    }
}

/// The steps that typed commands are written with.
impl Args {
    /// One argument.
    #[inline(always)]
    pub(crate) fn one(&mut self, arg: &(impl ToArg + ?Sized)) {
        arg.write_arg(self);
    }

    /// Any number of arguments.
    #[inline]
    pub(crate) fn many(&mut self, args: &(impl ToArgs + ?Sized)) {
        args.write_args(self);
    }

    /// Their number, then the arguments.
    pub(crate) fn counted(&mut self, args: &(impl ToArgs + ?Sized)) {
        self.uint(args.count() as u64);
        args.write_args(self);
    }

    /// Pairs, flattened.
    pub(crate) fn pairs(&mut self, pairs: &(impl ToPairs + ?Sized)) {
        pairs.write_pairs(self);
    }

    /// Their number, then the pairs, flattened.
    pub(crate) fn counted_pairs(&mut self, pairs: &(impl ToPairs + ?Sized)) {
        self.uint(pairs.pair_count() as u64);
        pairs.write_pairs(self);
    }

    /// Options.
    #[inline]
    pub(crate) fn put(&mut self, options: &impl Put) {
        options.put(self);
    }

    /// A keyword.
    #[inline]
    pub(crate) fn word(&mut self, word: &str) {
        self.bulk(word.as_bytes());
    }
}

/// `value` in decimal at the end of `digits`.
#[inline]
fn decimal(mut value: u64, negative: bool, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    for place in digits.iter_mut().rev() {
        *place = b'0' + (value % 10) as u8;
        value /= 10;
        at -= 1;
        if value == 0 {
            break;
        }
    }
    if negative && at > 0 {
        at -= 1;
        digits[at] = b'-';
    }
    digits.get(at..).unwrap_or_default()
}

/// Text that is nearly always short: no allocation up to 40 bytes.
struct Short {
    held: [u8; 40],
    len: usize,
    long: String,
}

impl Short {
    const EMPTY: Short = Short { held: [0; 40], len: 0, long: String::new() };

    fn as_bytes(&self) -> &[u8] {
        if self.long.is_empty() {
            self.held.get(..self.len).unwrap_or_default()
        } else {
            self.long.as_bytes()
        }
    }
}

impl std::fmt::Write for Short {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        if self.long.is_empty()
            && let Some(room) = self.held.get_mut(self.len..end)
        {
            room.copy_from_slice(text.as_bytes());
            self.len = end;
            return Ok(());
        }
        if self.long.is_empty() {
            self.long = String::from_utf8_lossy(self.as_bytes()).into_owned();
        }
        self.long.push_str(text);
        Ok(())
    }
}

/// A value that can be one argument of a command.
///
/// Text and bytes are sent as they are, numbers in decimal. An implementation adds **exactly one**
/// argument: the positions of the keys, and so the route, are counted from it.
///
/// ```
/// use hedgerow::command::{Args, ToArg};
///
/// struct UserId(u64);
/// impl ToArg for UserId {
///     fn write_arg(&self, args: &mut Args) {
///         args.display(format_args!("user:{}", self.0));
///     }
/// }
/// let get = hedgerow::command::strings::get::<()>(UserId(7));
/// assert_eq!(get.bytes(), b"*2\r\n$3\r\nGET\r\n$6\r\nuser:7\r\n");
/// ```
pub trait ToArg {
    /// Adds the argument.
    fn write_arg(&self, args: &mut Args);

    /// Adds a slice of such values: one argument each, but bytes are one argument together.
    #[doc(hidden)]
    fn write_slice(items: &[Self], args: &mut Args)
    where
        Self: Sized,
    {
        for item in items {
            item.write_arg(args);
        }
    }

    /// Number of arguments that `write_slice` adds.
    #[doc(hidden)]
    fn slice_count(items: &[Self]) -> usize
    where
        Self: Sized,
    {
        items.len()
    }
}

/// A value that can be any number of arguments: one value, or an array, slice, `Vec` or set of them.
///
/// ```
/// use hedgerow::command::keys::del;
/// assert_eq!(del("a").bytes(), del(["a"]).bytes());
/// assert_eq!(del(vec!["a", "b"]).arg_count(), 3);
/// ```
pub trait ToArgs {
    /// Adds the arguments.
    fn write_args(&self, args: &mut Args);

    /// Number of arguments that [`ToArgs::write_args`] adds.
    fn count(&self) -> usize;
}

/// A value that can be pairs of arguments: one pair, or an array, slice, `Vec` or map of them.
pub trait ToPairs {
    /// Adds the pairs, flattened.
    fn write_pairs(&self, args: &mut Args);

    /// Number of pairs.
    fn pair_count(&self) -> usize;
}

macro_rules! bytes_arg {
    ($($({const $n:ident: usize})? $type:ty;)*) => {$(
        impl $(<const $n: usize>)? ToArg for $type {
            #[inline(always)]
            fn write_arg(&self, args: &mut Args) {
                args.bulk(self.as_ref());
            }
        }
    )*};
}

macro_rules! text_arg {
    ($($type:ty)*) => {$(
        impl ToArg for $type {
            #[inline(always)]
            fn write_arg(&self, args: &mut Args) {
                args.bulk(self.as_bytes());
            }
        }
    )*};
}

text_arg! { str String Box<str> std::sync::Arc<str> std::rc::Rc<str> Cow<'_, str> }

bytes_arg! {
    [u8];
    Vec<u8>;
    Box<[u8]>;
    std::sync::Arc<[u8]>;
    Cow<'_, [u8]>;
    Bytes;
    bytes::BytesMut;
    {const N: usize} [u8; N];
}

macro_rules! number_arg {
    ($($step:ident as $wide:ty: $($type:ty)*;)*) => {$($(
        impl ToArg for $type {
            #[inline]
            fn write_arg(&self, args: &mut Args) {
                args.$step(*self as $wide);
            }
        }
    )*)*};
}

number_arg! {
    int as i64: i8 i16 i32 i64 isize;
    uint as u64: u16 u32 u64 usize;
    display as i128: i128;
    display as u128: u128;
    float as f64: f64;
    float32 as f32: f32;
}

impl ToArg for u8 {
    fn write_arg(&self, args: &mut Args) {
        args.uint(u64::from(*self));
    }

    fn write_slice(items: &[u8], args: &mut Args) {
        args.bulk(items);
    }

    fn slice_count(_: &[u8]) -> usize {
        1
    }
}

impl ToArg for char {
    fn write_arg(&self, args: &mut Args) {
        args.bulk(self.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

impl<T: ToArg + ?Sized> ToArg for &T {
    #[inline(always)]
    fn write_arg(&self, args: &mut Args) {
        (**self).write_arg(args);
    }
}

macro_rules! single_args {
    ($($type:ty)*) => {$(
        impl ToArgs for $type {
            #[inline]
            fn write_args(&self, args: &mut Args) {
                self.write_arg(args);
            }

            #[inline]
            fn count(&self) -> usize {
                1
            }
        }
    )*};
}

single_args! {
    str String Box<str> std::sync::Arc<str> std::rc::Rc<str> Cow<'_, str> Box<[u8]>
    std::sync::Arc<[u8]> Cow<'_, [u8]> Bytes bytes::BytesMut char
    i8 i16 i32 i64 isize u8 u16 u32 u64 usize i128 u128 f32 f64
}

impl<T: ToArg> ToArgs for [T] {
    #[inline]
    fn write_args(&self, args: &mut Args) {
        T::write_slice(self, args);
    }

    #[inline]
    fn count(&self) -> usize {
        T::slice_count(self)
    }
}

macro_rules! slice_args {
    ($($({const $n:ident})? $type:ty;)*) => {$(
        impl<T: ToArg $(, const $n: usize)?> ToArgs for $type {
            #[inline]
            fn write_args(&self, args: &mut Args) {
                T::write_slice(self, args);
            }

            #[inline]
            fn count(&self) -> usize {
                T::slice_count(self)
            }
        }
    )*};
}

slice_args! {
    Vec<T>;
    {const N} [T; N];
}

macro_rules! set_args {
    ($($({$hasher:ident})? $type:ty;)*) => {$(
        impl<T: ToArg $(, $hasher)?> ToArgs for $type {
            fn write_args(&self, args: &mut Args) {
                for item in self {
                    item.write_arg(args);
                }
            }

            fn count(&self) -> usize {
                self.len()
            }
        }
    )*};
}

set_args! {
    std::collections::VecDeque<T>;
    std::collections::BTreeSet<T>;
    {S} std::collections::HashSet<T, S>;
}

impl<T: ToArgs + ?Sized> ToArgs for &T {
    #[inline]
    fn write_args(&self, args: &mut Args) {
        (**self).write_args(args);
    }

    #[inline]
    fn count(&self) -> usize {
        (**self).count()
    }
}

impl<A: ToArg, B: ToArg> ToPairs for (A, B) {
    #[inline]
    fn write_pairs(&self, args: &mut Args) {
        self.0.write_arg(args);
        self.1.write_arg(args);
    }

    #[inline]
    fn pair_count(&self) -> usize {
        1
    }
}

macro_rules! list_pairs {
    ($($({const $n:ident})? $type:ty;)*) => {$(
        impl<A: ToArg, B: ToArg $(, const $n: usize)?> ToPairs for $type {
            fn write_pairs(&self, args: &mut Args) {
                for pair in self {
                    pair.write_pairs(args);
                }
            }

            fn pair_count(&self) -> usize {
                self.len()
            }
        }
    )*};
}

list_pairs! {
    [(A, B)];
    Vec<(A, B)>;
    {const N} [(A, B); N];
}

macro_rules! map_pairs {
    ($($({$hasher:ident})? $type:ty;)*) => {$(
        impl<A: ToArg, B: ToArg $(, $hasher)?> ToPairs for $type {
            fn write_pairs(&self, args: &mut Args) {
                for (first, second) in self {
                    first.write_arg(args);
                    second.write_arg(args);
                }
            }

            fn pair_count(&self) -> usize {
                self.len()
            }
        }
    )*};
}

map_pairs! {
    std::collections::BTreeMap<A, B>;
    {S} std::collections::HashMap<A, B, S>;
}

impl<T: ToPairs + ?Sized> ToPairs for &T {
    fn write_pairs(&self, args: &mut Args) {
        (**self).write_pairs(args);
    }

    fn pair_count(&self) -> usize {
        (**self).pair_count()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Command, Refused, raw, strings::get};
    use super::*;

    fn one(arg: impl ToArg) -> String {
        let command = raw("X").arg(arg).build::<()>();
        let text = String::from_utf8_lossy(command.bytes()).into_owned();
        let rest = text.strip_prefix("*2\r\n$1\r\nX\r\n$").expect("one argument");
        let (len, rest) = rest.split_once("\r\n").expect("a length");
        let arg = rest.strip_suffix("\r\n").expect("an end");
        assert_eq!(len, arg.len().to_string());
        arg.to_owned()
    }

    /// Fails if a number is not written in full, or a float not as its shortest text.
    #[test]
    fn numbers_are_written_in_decimal() {
        assert_eq!(one(0u8), "0");
        assert_eq!(one(i64::MIN), "-9223372036854775808");
        assert_eq!(one(u64::MAX), "18446744073709551615");
        assert_eq!(one(i128::MIN), i128::MIN.to_string());
        assert_eq!(one(u128::MAX), u128::MAX.to_string());
        assert_eq!(one(1.0), "1");
        assert_eq!(one(0.1f32), "0.1");
        assert_eq!(one(-2.5e-300), "-2.5e-300");
        assert_eq!(one(f64::NEG_INFINITY), "-inf");
        assert_eq!(one(f64::NAN), "nan");
        assert_eq!(one('é'), "é");
    }

    /// Fails if some kind of text or bytes is not sent as it is, as one argument.
    #[test]
    fn text_and_bytes_are_sent_as_they_are() {
        assert_eq!(one("a b"), "a b");
        assert_eq!(one(String::from("s")), "s");
        let borrowed = &"r";
        assert_eq!(one(borrowed), "r");
        assert_eq!(one(b"four"), "four");
        assert_eq!(one(vec![b'v'; 3]), "vvv");
        assert_eq!(one(Bytes::from_static(b"x\r\ny")), "x\r\ny");
        assert_eq!(one(""), "");
        assert_eq!(raw("X").args(vec![b'v'; 3]).build::<()>().arg_count(), 2);
        assert_eq!(raw("X").args(["v"; 3]).build::<()>().arg_count(), 4);
    }

    /// Fails if a command changes where it moves to the heap, or where its count gets more digits.
    #[test]
    fn every_length_and_count_has_the_same_form() {
        for len in 0..300 {
            let key = "k".repeat(len);
            let plain = format!("*2\r\n$3\r\nGET\r\n${len}\r\n{key}\r\n");
            let command = get::<()>(&key);
            assert_eq!(command.bytes(), plain.as_bytes(), "{len} bytes");
            assert_eq!(command.into_bytes(), plain.as_bytes(), "{len} bytes");
        }
        for count in 0..1_200 {
            for arg in ["", "abc"] {
                let command = raw("X").args(vec![arg; count]).build::<()>();
                let words = format!("${}\r\n{arg}\r\n", arg.len()).repeat(count);
                let plain = format!("*{}\r\n$1\r\nX\r\n{words}", count + 1);
                assert_eq!(command.bytes(), plain.as_bytes(), "{count} arguments");
            }
        }
    }

    /// Fails if an argument that makes servers close the connection is sent, or its bytes are held.
    #[test]
    fn an_argument_beyond_the_servers_limit_is_refused() {
        let command = get::<()>(vec![0; ARG_BYTES_MAX + 1]);
        assert_eq!(command.check(true), Err(Refused::Oversize));
        assert!(command.bytes().len() < 100);
    }

    /// Fails if a command grows: it is moved several times on its way.
    #[test]
    fn a_command_is_less_than_a_cache_line() {
        assert_eq!(size_of::<Command<()>>(), 56);
    }
}
