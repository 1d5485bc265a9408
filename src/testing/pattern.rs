//! Glob patterns of KEYS and the SCAN family.

/// True when the whole of `text` fits `pattern`: `*`, `?`, `[a-c]`, `[^a]` and `\` for a literal.
///
/// Only the last star is ever tried again, so the time is at most the product of both lengths.
pub(super) fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // Where to go on after the last star, and the text it has not swallowed.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', after @ ..] = pattern {
            retry = Some((after, text));
            pattern = after;
            continue;
        }
        if pattern.is_empty() && text.is_empty() {
            return true;
        }
        let step = text.split_first().and_then(|(&byte, rest)| Some((one(pattern, byte)?, rest)));
        if let Some((after, rest)) = step {
            (pattern, text) = (after, rest);
            continue;
        }
        match retry {
            Some((after, [_, rest @ ..])) => {
                retry = Some((after, rest));
                (pattern, text) = (after, rest);
            }
            _ => return false,
        }
    }
}

/// Matches one byte against the first part of a pattern and returns the rest of the pattern.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', after @ ..] => Some(after),
        [b'[', after @ ..] => class(after, byte),
        [b'\\', literal, after @ ..] | [literal, after @ ..] => (*literal == byte).then_some(after),
    }
}

/// Matches a byte against a class whose opening bracket is gone. A class left open ends with the
/// pattern.
fn class(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    let (negated, mut rest) = match pattern {
        [b'^', after @ ..] => (true, after),
        _ => (false, pattern),
    };
    let mut found = false;
    loop {
        rest = match rest {
            [] | [b']', ..] => break,
            [b'\\', literal, after @ ..] => {
                found |= *literal == byte;
                after
            }
            [low, b'-', high, after @ ..] => {
                found |= (*low.min(high)..=*low.max(high)).contains(&byte);
                after
            }
            [literal, after @ ..] => {
                found |= *literal == byte;
                after
            }
        };
    }
    (found != negated).then_some(rest.get(1..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::fits;

    /// Server documentation of KEYS. Fails if a kind of wildcard is read otherwise than the servers
    /// do.
    #[test]
    fn globs_match_as_the_servers_match() {
        let yes = [
            ("*", ""),
            ("h?llo", "hallo"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hello"),
            ("h[^e]llo", "hallo"),
            ("h[a-c]llo", "hbllo"),
            ("\\*x", "*x"),
            ("a*b*c", "a-b-b-c"),
        ];
        for (pattern, text) in yes {
            assert!(fits(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in
            [("", "a"), ("a", ""), ("h[^e]llo", "hello"), ("a*b", "a-b-c"), ("[", "")]
        {
            assert!(!fits(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }

    /// KEYS with a hostile pattern. Fails if matching takes exponential time: it would not end.
    #[test]
    fn many_stars_end_soon() {
        assert!(!fits("*a".repeat(200).as_bytes(), "a".repeat(199).as_bytes()));
    }
}
