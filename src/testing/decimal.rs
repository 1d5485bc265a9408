//! Sums of decimals as INCRBYFLOAT forms them.
//!
//! Servers add in a wider float and print 17 places, so 0.1 plus 0.2 is 0.3. Plain decimals are
//! added exactly here, which prints the same; anything else (exponents, more digits) is added as
//! `f64`.

/// Digits behind the point that are added exactly.
const PLACES: usize = 17;

/// The sum of two numbers as text; `None` when it is not finite.
pub(super) fn sum(left: &[u8], right: &[u8]) -> Option<String> {
    if let (Some(left), Some(right)) = (scaled(left), scaled(right))
        && let Some(sum) = left.checked_add(right)
    {
        return Some(print(sum));
    }
    let parse = |bytes| std::str::from_utf8(bytes).ok()?.parse::<f64>().ok();
    let sum = parse(left)? + parse(right)?;
    sum.is_finite().then(|| format!("{sum}"))
}

/// A plain decimal times 10 to the power of [`PLACES`].
fn scaled(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !plain(whole) || !plain(fraction) || whole.len() > 19 || fraction.len() > PLACES {
        return None;
    }
    let value: i128 = format!("0{whole}{fraction:0<PLACES$}").parse().ok()?;
    Some(if negative { -value } else { value })
}

fn print(scaled: i128) -> String {
    let digits = format!("{:0>width$}", scaled.unsigned_abs(), width = PLACES + 1);
    let (whole, fraction) = digits.split_at(digits.len() - PLACES);
    let fraction = fraction.trim_end_matches('0');
    let sign = if scaled < 0 { "-" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{fraction}")
}
