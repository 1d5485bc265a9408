//! The load's door: a client of the library, whose replies are dropped where they lie.

use super::drive::LoadDoor;
use super::load::Order;
use super::mix::Verb;
use super::nodes::{NodeBook, Traced};
use super::record::Outcome;
use hedgerow::Door;
use hedgerow::command::{Command, connection, hashes, keys, strings};
use hedgerow::resp::{ConvertError, FromReply, Kept, Reply};
use hedgerow::{Error, ErrorKind};
use hedgerow_runtime::time::Instant;
use std::borrow::Cow;

/// A client as the load sees it.
#[derive(Clone, Debug)]
pub(crate) struct Through<D>(pub(crate) D);

/// What the load keeps of a reply: whether it said that nothing is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    is_null: bool,
}

impl<K: Kept> FromReply<K> for Seen {
    fn from_reply(reply: Reply<'_, K>) -> Result<Seen, ConvertError> {
        Ok(Seen { is_null: reply.frame().is_null() })
    }
}

/// The field of every hash key.
const FIELD: &[u8] = b"field";

impl<D: Door + Traced + Clone> LoadDoor for Through<D> {
    type Request = D::Request<Seen>;

    fn send(&self, order: &Order, value: &[u8]) -> Self::Request {
        self.0.send(command(order, value))
    }

    fn trace(&self) {
        NodeBook::open(&self.0);
    }

    fn collect(&self, book: &mut NodeBook, start: Instant) {
        book.collect(&self.0, start);
    }

    fn close(&self, book: &mut NodeBook) {
        book.close(&self.0);
    }

    fn outcome(answer: Result<Seen, Error>) -> Outcome {
        match answer {
            Ok(Seen { is_null: false }) => Outcome::Hit,
            Ok(Seen { is_null: true }) => Outcome::Miss,
            Err(error) => failed(&error),
        }
    }
}

fn command(order: &Order, value: &[u8]) -> Command<Seen> {
    let key = order.key.as_bytes();
    match order.verb {
        Verb::Get => strings::get(key),
        Verb::Set => strings::set(key, value).returning(),
        Verb::Del => keys::del(key).returning(),
        Verb::Exists => keys::exists(key).returning(),
        Verb::Incr => strings::incr(key).returning(),
        Verb::Hget => hashes::hget(key, FIELD),
        Verb::Hset => hashes::hset(key, [(FIELD, value)]).returning(),
        Verb::Ping => connection::ping().returning(),
    }
}

/// An error by its kind: the server's code word, or the client's word.
pub(crate) fn failed(error: &Error) -> Outcome {
    if let Some(code) = error.code() {
        return Outcome::Failed(Cow::Owned(code.to_owned()));
    }
    let word = match error.kind() {
        ErrorKind::Timeout => "timeout",
        ErrorKind::Disconnected => "disconnected",
        ErrorKind::NotConnected => "not connected",
        ErrorKind::QueueFull => "queue full",
        ErrorKind::Connect => "connect",
        ErrorKind::Handshake => "handshake",
        ErrorKind::Protocol => "protocol",
        ErrorKind::Convert => return Outcome::Failed(Cow::Borrowed("convert")),
        ErrorKind::Server => return Outcome::Failed(Cow::Borrowed("server")),
        _ => "client",
    };
    Outcome::Lost(Cow::Borrowed(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(verb: Verb, value: &[u8]) -> String {
        let order = Order::loading(verb, "", 7, value.len(), Instant::ZERO);
        String::from_utf8_lossy(command(&order, value).bytes()).replace("\r\n", " ")
    }

    /// Each verb's bytes. Fails if a key, field or value goes to the wrong place.
    #[test]
    fn verbs_on_the_wire() {
        assert_eq!(bytes(Verb::Get, b""), "*2 $3 GET $16 key:000000000007 ");
        assert_eq!(bytes(Verb::Set, b"ab"), "*3 $3 SET $16 key:000000000007 $2 ab ");
        assert_eq!(bytes(Verb::Del, b""), "*2 $3 DEL $16 key:000000000007 ");
        assert_eq!(bytes(Verb::Exists, b""), "*2 $6 EXISTS $16 key:000000000007 ");
        assert_eq!(bytes(Verb::Incr, b""), "*2 $4 INCR $20 counter:000000000007 ");
        assert_eq!(bytes(Verb::Hget, b""), "*3 $4 HGET $17 hash:000000000007 $5 field ");
        assert_eq!(bytes(Verb::Hset, b"a"), "*4 $4 HSET $17 hash:000000000007 $5 field $1 a ");
        assert_eq!(bytes(Verb::Ping, b""), "*1 $4 PING ");
    }
}
