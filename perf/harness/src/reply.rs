use crate::Verb;

/// Counts complete replies in a stream of bytes: every one must be a bulk of `size` bytes (GET) or
/// `+OK` (SET).
#[derive(Debug)]
pub struct Replies {
    head: Vec<u8>,
    body: usize,
    head_seen: usize,
    body_left: usize,
}

impl Replies {
    /// Replies to `verb` with values of `size` bytes.
    pub fn new(verb: Verb, size: usize) -> Self {
        let (head, body) = match verb {
            Verb::Get => (format!("${size}\r\n").into_bytes(), size + 2),
            Verb::Set => (b"+OK\r\n".to_vec(), 0),
        };
        Replies { head, body, head_seen: 0, body_left: 0 }
    }

    /// Takes the next bytes and returns how many replies they complete.
    ///
    /// # Panics
    /// If the bytes are anything else than the expected replies.
    #[inline]
    pub fn feed(&mut self, mut bytes: &[u8]) -> usize {
        let mut complete = 0;
        loop {
            if self.body_left > 0 {
                let taken = self.body_left.min(bytes.len());
                self.body_left -= taken;
                if self.body_left == 0 {
                    assert_eq!(bytes[taken - 1], b'\n', "a value does not end in CRLF");
                    complete += 1;
                }
                bytes = &bytes[taken..];
            }
            if bytes.is_empty() {
                return complete;
            }
            let head = &self.head[self.head_seen..];
            let taken = head.len().min(bytes.len());
            let seen = &bytes[..taken];
            assert!(*seen == head[..taken], "reply: {:?}", String::from_utf8_lossy(seen));
            self.head_seen += taken;
            bytes = &bytes[taken..];
            if self.head_seen == self.head.len() {
                self.head_seen = 0;
                self.body_left = self.body;
                complete += usize::from(self.body == 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a reply is lost or counted twice when the bytes are cut anywhere.
    #[test]
    fn counts_at_every_cut() {
        let bytes = b"$3\r\nabc\r\n$3\r\ndef\r\n";
        for cut in 0..=bytes.len() {
            let mut replies = Replies::new(Verb::Get, 3);
            assert_eq!(replies.feed(&bytes[..cut]) + replies.feed(&bytes[cut..]), 2, "cut {cut}");
        }
    }

    /// Fails if a server error passes for a reply.
    #[test]
    #[should_panic(expected = "reply")]
    fn refuses_an_error() {
        Replies::new(Verb::Set, 3).feed(b"-ERR no\r\n");
    }
}
