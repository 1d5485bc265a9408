//! The grammars of numbers on the wire. All of them take the text without type byte and CR LF.

/// Decimal digits only: a length or a count. `None` for anything else or above `u64`.
#[inline]
pub(super) fn length(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |n, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        n.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// An optional sign and digits that fit `i64`.
#[inline]
pub(super) fn int(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    if digits.len() <= UNCHECKED_MAX {
        let magnitude = short(digits)?;
        return Some(if negative { -magnitude } else { magnitude });
    }
    let magnitude = length(digits)?;
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// So many digits fit whatever they are.
const UNCHECKED_MAX: usize = 18;

#[inline]
fn short(digits: &[u8]) -> Option<i64> {
    let mut number = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + i64::from(digit);
    }
    (!digits.is_empty()).then_some(number)
}

/// An optional sign and at least one digit.
pub(super) fn is_big(text: &[u8]) -> bool {
    let digits = unsigned(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// A double: `[+-]digits[.digits][e[+-]digits]`, or infinity or not-a-number in the spellings that
/// C libraries print. Not valid: hexadecimal, a bare dot, blanks.
pub(super) fn double(text: &[u8]) -> Option<f64> {
    match double_shape(text)? {
        Shape::Nan => Some(f64::NAN),
        Shape::Infinite if text.first() == Some(&b'-') => Some(f64::NEG_INFINITY),
        Shape::Infinite => Some(f64::INFINITY),
        Shape::Finite => std::str::from_utf8(text).ok()?.parse().ok(),
    }
}

/// Whether [`double`] would give a number, without computing it.
pub(super) fn is_double(text: &[u8]) -> bool {
    double_shape(text).is_some()
}

enum Shape {
    Finite,
    Infinite,
    Nan,
}

fn unsigned(text: &[u8]) -> &[u8] {
    match text {
        [b'+' | b'-', rest @ ..] => rest,
        _ => text,
    }
}

fn double_shape(text: &[u8]) -> Option<Shape> {
    let text = unsigned(text);
    match text.first()? {
        b'0'..=b'9' => is_finite(text).then_some(Shape::Finite),
        b'i' | b'I' => (text.eq_ignore_ascii_case(b"inf")
            || text.eq_ignore_ascii_case(b"infinity"))
        .then_some(Shape::Infinite),
        b'n' | b'N' => is_nan(text).then_some(Shape::Nan),
        _ => None,
    }
}

/// `nan`, or `nan(payload)` as glibc prints it.
fn is_nan(text: &[u8]) -> bool {
    let Some((name, payload)) = text.split_at_checked(3) else { return false };
    name.eq_ignore_ascii_case(b"nan")
        && match payload {
            [] => true,
            [b'(', inner @ .., b')'] => {
                inner.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
            }
            _ => false,
        }
}

fn is_finite(text: &[u8]) -> bool {
    let text = skip_digits(text);
    let text = match text {
        [b'.', b'0'..=b'9', rest @ ..] => skip_digits(rest),
        _ => text,
    };
    match text {
        [] => true,
        [b'e' | b'E', exponent @ ..] => is_big(exponent),
        _ => false,
    }
}

fn skip_digits(text: &[u8]) -> &[u8] {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    text.get(digits..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// case resp/02. Fails if the edges of `i64` wrap or are refused.
    #[test]
    fn int_covers_exactly_i64() {
        assert_eq!(int(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(int(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(int(b"+7"), Some(7));
        for bad in [&b"9223372036854775808"[..], b"-9223372036854775809", b"", b"-", b" 7", b"7 "] {
            assert_eq!(int(bad), None, "{bad:?}");
        }
    }

    /// case resp/03. Fails if a spelling outside the grammar becomes a number.
    #[test]
    fn double_follows_the_grammar() {
        assert_eq!(double(b"1.5E-7"), Some(1.5e-7));
        assert_eq!(double(b"+10"), Some(10.0));
        assert_eq!(double(b"-inf"), Some(f64::NEG_INFINITY));
        assert!(double(b"-nan(0x7)").is_some_and(f64::is_nan));
        for bad in [&b".5"[..], b"5.", b"", b"1,5", b"1e", b" 1", b"0x10", b"3.14x", b"nanx", b"-"]
        {
            assert_eq!(double(bad), None, "{bad:?}");
        }
    }
}
