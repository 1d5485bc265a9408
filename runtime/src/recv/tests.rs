//! The receiving half over a model of the kernel's side: blocks are written through their pointers in
//! random pieces, groups run empty, multishots end by themselves, receives come short. Under Miri a
//! read of a byte that was not delivered, or a write to one that is kept, is an error.

use std::collections::VecDeque;

use super::exact::EXACT_FIRST;
use super::*;
use crate::op::Token;

const KIB: usize = 1 << 10;
/// Says that another part of the message follows.
const FOLLOWED: u32 = 1 << 31;

/// Another text for each number, made by few and large steps for Miri's sake.
fn text(number: usize, len: usize) -> Vec<u8> {
    let piece: Vec<u8> = (0..1021usize).map(|at| (at * at + number * 7) as u8).collect();
    let mut text = piece.repeat(len.div_ceil(piece.len()));
    text.truncate(len);
    text
}

/// Messages of parts: a length, whose highest bit says that another part follows, and its bytes.
fn messages(rng: &mut fastrand::Rng, count: usize) -> Vec<Vec<u8>> {
    let len = |rng: &mut fastrand::Rng| match rng.u8(0..10) {
        0 => 0,
        1..5 => rng.usize(0..300),
        5..7 => rng.usize(15 * KIB..17 * KIB),
        7 => rng.usize(60 * KIB..70 * KIB),
        _ => rng.usize(120 * KIB..300 * KIB),
    };
    let message = |number: usize, rng: &mut fastrand::Rng| {
        let mut bytes = Vec::new();
        let parts = rng.usize(1..4);
        for part in 0..parts {
            let body = text(number + part, len(rng));
            let followed = if part + 1 < parts { FOLLOWED } else { 0 };
            bytes.extend((body.len() as u32 | followed).to_le_bytes());
            bytes.extend(body);
        }
        bytes
    };
    (0..count).map(|number| message(number, rng)).collect()
}

/// Length of the message at the start of `bytes`, or how many more bytes are needed to tell.
fn measure(bytes: &[u8]) -> Result<usize, usize> {
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        let Some(head) = rest.first_chunk::<4>() else { return Err(4 - rest.len()) };
        let head = u32::from_le_bytes(*head);
        at += 4 + (head & !FOLLOWED) as usize;
        if at > bytes.len() {
            return Err(at - bytes.len());
        }
        if head & FOLLOWED == 0 {
            return Ok(at);
        }
    }
}

/// What waits in the model: the operation under way.
enum Under {
    Nothing,
    Multi { cancelled: bool },
    Exact { to: *mut u8, len: usize },
}

/// The kernel's side of one socket.
struct Model {
    stream: Vec<u8>,
    at: usize,
    /// Index, memory, its length, bytes delivered.
    posted: VecDeque<(u16, *mut u8, usize, usize)>,
    under: Under,
    incremental: bool,
    rng: fastrand::Rng,
}

impl Model {
    fn write(&mut self, to: *mut u8, n: usize) {
        let bytes = &self.stream[self.at..self.at + n];
        // SAFETY: the receiving half gave `n` bytes from `to` on away until the completion.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), n) };
        self.at += n;
    }

    /// Does what the socket table does after each call.
    fn apply(&mut self, recv: &mut Recv, pool: &Pool, next: Next) {
        while let Some((index, ptr, len)) = recv.next_to_post(pool) {
            assert!(self.posted.iter().all(|p| p.0 != index), "posted twice");
            self.posted.push_back((index, ptr, len as usize, 0));
        }
        let idle = matches!(self.under, Under::Nothing);
        match next {
            Next::Nothing => return,
            Next::Cancel => match &mut self.under {
                Under::Multi { cancelled } => return *cancelled = true,
                _ => panic!("nothing to cancel"),
            },
            Next::Arm => self.under = Under::Multi { cancelled: false },
            Next::Exact(to, len) => self.under = Under::Exact { to, len: len as usize },
        }
        assert!(idle, "two receives at once");
    }

    fn step(&mut self) -> Option<Completion> {
        let rest = self.stream.len() - self.at;
        let plain = |result| Some(Completion::plain(Token(0), result));
        match self.under {
            Under::Nothing => None,
            Under::Exact { to, len } => {
                self.under = Under::Nothing;
                if self.rng.u8(..) < 20 {
                    return plain(-[libc::EINTR, libc::ECANCELED][self.rng.usize(0..2)]);
                }
                let whole = rest.min(len);
                let short = whole > 1 && self.rng.u8(..) < 60;
                let n = if short { self.rng.usize(1..whole) } else { whole };
                self.write(to, n);
                plain(n as i32)
            }
            Under::Multi { cancelled } => {
                let end = match (cancelled && self.rng.bool(), self.posted.is_empty()) {
                    (true, _) => Some(-libc::ECANCELED),
                    (_, true) => Some(-libc::ENOBUFS),
                    _ => (rest == 0).then_some(0),
                };
                if let Some(result) = end {
                    self.under = Under::Nothing;
                    return plain(result);
                }
                Some(self.deliver(rest))
            }
        }
    }

    /// A piece into the first posted block.
    fn deliver(&mut self, rest: usize) -> Completion {
        let (index, ptr, len, used) = self.posted[0];
        let most = rest.min(len - used);
        let n = if self.rng.bool() { most } else { self.rng.usize(1..=most) };
        // SAFETY: `used` bytes of `len` were delivered, fewer than all.
        self.write(unsafe { ptr.add(used) }, n);
        let stays = self.incremental && used + n < len;
        if stays {
            self.posted[0].3 += n;
        } else {
            self.posted.pop_front();
        }
        let more = self.rng.u8(..) > 10;
        if !more {
            self.under = Under::Nothing;
        }
        let buffer = Some(index);
        Completion { token: Token(0), result: n as i32, more, buffer, buffer_more: stays }
    }
}

/// Shows one stream, keeping parts of it.
fn run(seed: u64, incremental: bool, count: usize) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let sent = messages(&mut rng, count);
    let pool = Pool::default();
    let mut recv = Recv::new(GroupId(0), incremental);
    let mut model = Model {
        stream: sent.concat(),
        at: 0,
        posted: VecDeque::new(),
        under: Under::Nothing,
        incremental,
        rng: rng.fork(),
    };
    let (mut heard, mut kept) = (0, Vec::new());
    let mut keeps = rng.fork();
    let mut consume = |rx: &mut Rx| {
        let mut consumed = 0;
        loop {
            let rest = &rx.bytes()[consumed..];
            match measure(rest) {
                Ok(len) => {
                    assert!(rest[..len] == sent[heard], "message {heard} of seed {seed}");
                    if keeps.u8(..) < 100 {
                        kept.push((heard, rx.keep(consumed..consumed + len)));
                    }
                    (heard, consumed) = (heard + 1, consumed + len);
                }
                Err(need) => return Progress { consumed, need },
            }
        }
    };
    let next = recv.start(&pool);
    model.apply(&mut recv, &pool, next);
    let (mut on, mut idle) = (true, 0);
    let end = loop {
        assert!(idle < 50, "seed {seed}: nothing happens any more");
        let outcome = match rng.u8(..) {
            0..20 => {
                on = !on;
                if on { recv.resume(&pool, &mut consume) } else { Ok(recv.pause()) }
            }
            _ => match model.step() {
                Some(c) if on => recv.on_completion(&c, &pool, &mut consume),
                Some(c) => recv.on_completion(&c, &pool, &mut |_| panic!("shown while off")),
                None => {
                    idle += usize::from(on);
                    continue;
                }
            },
        };
        match outcome {
            Ok(next) => model.apply(&mut recv, &pool, next),
            Err(end) => break end,
        }
    };
    assert_eq!((end, heard), (None, count), "seed {seed}");
    recv.retire();
    drop(recv);
    drop(pool);
    for (number, bytes) in kept {
        assert!(bytes == sent[number][..], "message {number} of seed {seed} was overwritten");
    }
}

/// Trap 3, trap 4, trap 25. Fails if a stream loses or doubles a byte, or a block that is kept is
/// written again.
#[test]
fn a_stream_arrives_whole_in_any_pieces() {
    let (seeds, count) = if cfg!(miri) { (3, 12) } else { (80, 40) };
    for seed in 0..seeds {
        run(seed, seed % 2 == 0, count);
    }
}

/// Trap 6. Fails if a length that a peer announces overflows or reserves memory by itself.
#[test]
fn an_announced_length_reserves_nothing() {
    for need in [usize::MAX, usize::MAX / 4 + 1, 1 << 40] {
        let pool = Pool::default();
        let mut recv = Recv::new(GroupId(0), true);
        let _ = recv.start(&pool);
        let (index, ptr, _) = recv.next_to_post(&pool).unwrap();
        // SAFETY: the block has at least 16 KiB, of which ten bytes are delivered.
        unsafe { ptr.write_bytes(b'$', 10) };
        let c = Completion {
            more: true,
            buffer: Some(index),
            buffer_more: true,
            ..Completion::plain(Token(0), 10)
        };
        let next = recv.on_completion(&c, &pool, &mut |_| Progress { consumed: 0, need });
        assert_eq!(next, Ok(Next::Cancel));
        let end = Completion::plain(Token(0), -libc::ECANCELED);
        let next = recv.on_completion(&end, &pool, &mut |_| panic!("nothing is complete"));
        let Ok(Next::Exact(_, len)) = next else { panic!("{next:?}") };
        assert!(len as usize <= EXACT_FIRST);
    }
}

/// Trap 6. Fails if a handler that knows little of what it needs is asked once for each byte.
#[test]
fn a_small_need_is_asked_at_doubling_lengths() {
    let pool = Pool::default();
    let mut recv = Recv::new(GroupId(0), false);
    let _ = recv.start(&pool);
    let mut calls = 0;
    for _ in 0..4 {
        let (index, ptr, len) = recv.next_to_post(&pool).unwrap();
        // SAFETY: the block has `len` bytes.
        unsafe { ptr.write_bytes(0, len as usize) };
        let more = Completion {
            more: true,
            buffer: Some(index),
            ..Completion::plain(Token(0), len as i32)
        };
        let _ = recv.on_completion(&more, &pool, &mut |_| {
            calls += 1;
            Progress { consumed: 0, need: 1 }
        });
    }
    assert!(calls < 60, "{calls} calls");
}
