//! Unsolicited frames, taken in wire order before any later reply wakes its request.

use crate::resp::Frame;

/// What a push frame is about, by its first element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]

pub(crate) enum Push {
    /// `invalidate`: keys of the client-side cache changed.
    Invalidate,
    /// A published message (`message`, `pmessage`, `smessage`).
    Message,
    /// A subscription was made or ended.
    Subscription,
    /// Anything else.
    Other,
}

impl Push {
    /// Reads a push frame's kind.
    pub(crate) fn of(frame: &Frame<'_>) -> Push {
        let Some(first) = frame.elements().next() else { return Push::Other };
        match first.payload() {
            b"invalidate" => Push::Invalidate,
            b"message" | b"pmessage" | b"smessage" => Push::Message,
            b"subscribe" | b"unsubscribe" | b"psubscribe" | b"punsubscribe" | b"ssubscribe"
            | b"sunsubscribe" => Push::Subscription,
            _ => Push::Other,
        }
    }
}
