//! Bytes as a run of operations on a connection, in the simulator: commands, dropped futures, changed
//! deadlines, a server that says anything, cuts, the clock. Whatever they are, the run ends, breaks no
//! rule of the kernel and leaves nothing behind.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use hedgerow::client::LocalRequest;
use hedgerow::prelude::*;
use hedgerow::resp::Value;
use hedgerow::testing::{ModelServer, Reaction, SimConfig, Simulation};
use hedgerow::{LocalClient, LocalContext};

/// Operations of one run, and turns it may take, so that an input is soon over.
const OPERATIONS_MAX: usize = 256;
const TURNS_MAX: u64 = 100_000;

/// Replies that nobody asked for, or not so.
const STRANGE: [&[u8]; 12] = [
    b"+OK\r\n",
    b"$-1\r\n",
    b">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n",
    b"|1\r\n+a\r\n:1\r\n$1\r\nv\r\n",
    b"$?\r\n;1\r\na\r\n;0\r\n",
    b"*2\r\n:1\r\n",
    b"-ERR x\r\n",
    b"-READONLY x\r\n",
    b":1\r\n:2\r\n:3\r\n",
    b"$3000000000\r\n",
    b"HTTP/1.1 400\r\n\r\n",
    b"%1\r\n$5\r\nproto\r\n:3\r\n",
];

type Call = Pin<Box<LocalRequest<Value>>>;

struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        self.0.next().copied()
    }
    fn number(&mut self) -> usize {
        usize::from(self.next().unwrap_or(0))
    }
    fn ms(&mut self) -> Duration {
        Duration::from_millis(self.number() as u64)
    }
    fn reaction(&mut self) -> Reaction {
        let strange = |at: usize| STRANGE[at % STRANGE.len()].to_vec();
        match self.number() % 12 {
            0 | 1 => Reaction::Serve,
            2 => Reaction::ServeAfter(self.ms()),
            3 => Reaction::HalfAnswer(self.number()),
            4 => Reaction::RunAndClose,
            5 => Reaction::RunAndReset,
            6 => Reaction::Close,
            7 => Reaction::SplitAt(self.number()),
            8 => Reaction::ServeAndClose,
            9 => Reaction::Silence,
            10 => Reaction::Answer(strange(self.number())),
            _ => Reaction::Before(strange(self.number())),
        }
    }
}

/// Runs the operations that `input` means.
///
/// # Panics
/// If the run does not end, breaks a rule, or leaves something behind.
pub(crate) fn run(input: &[u8]) {
    let (seed, rest) = input.split_first().map_or((0, input), |(seed, rest)| (*seed, rest));
    let faults = match seed % 3 {
        0 => SimConfig { seed: u64::from(seed), ..SimConfig::default() },
        _ => SimConfig::chaos(u64::from(seed)),
    };
    // A clock that jumps makes anything late.
    let calm = seed % 3 == 0;
    let simulation = Simulation::with_faults(faults).turns_max(TURNS_MAX);
    let server = simulation.server();
    let reactions = Rc::new(RefCell::new(VecDeque::new()));
    let queued = reactions.clone();
    server.on_request(move |_| queued.borrow_mut().pop_front().unwrap_or(Reaction::Serve));
    let input = rest.to_vec();
    let outcome = simulation.run(async move |core| {
        let mut run =
            Run { client: connect(&core, &server), core, server, reactions, calls: Vec::new() };
        let mut bytes = Bytes(input.iter());
        for _ in 0..OPERATIONS_MAX {
            let Some(operation) = bytes.next() else { break };
            run.step(operation, &mut bytes).await;
        }
        let took = run.end().await;
        assert!(!calm || took < Duration::from_secs(1), "a request took {took:?}");
    });
    outcome.checked();
}

fn connect(core: &LocalContext, server: &ModelServer) -> LocalClient {
    let mut options = server.options();
    options.command_timeout = Some(Duration::from_millis(500));
    options.connect_timeout = Duration::from_millis(500);
    options.reconnect.initial = Duration::from_millis(1);
    options.reconnect.max = Duration::from_millis(20);
    options.in_flight_max = 8;
    options.connections = 2;
    core.create(&options).expect("valid options")
}

struct Run {
    core: LocalContext,
    server: ModelServer,
    client: LocalClient,
    reactions: Rc<RefCell<VecDeque<Reaction>>>,
    calls: Vec<Call>,
}

impl Run {
    async fn step(&mut self, operation: u8, bytes: &mut Bytes<'_>) {
        match operation % 12 {
            0 | 1 => self.begin(self.client.get("k").timeout(Duration::from_millis(400))),
            2 => {
                let value = vec![b'x'; bytes.number() * 1024];
                let set = hedgerow::command::strings::set("k", value).returning();
                self.begin(self.client.send(set));
            }
            3 => self.begin(self.client.get("k").timeout(bytes.ms())),
            4 => drop(self.take(bytes.number())),
            5 => {
                if let Some(call) = self.take(bytes.number()) {
                    let call = Pin::into_inner(call).timeout(bytes.ms());
                    self.calls.push(Box::pin(call));
                }
            }
            6 => self.look().await,
            7 | 8 => self.reactions.borrow_mut().push_back(bytes.reaction()),
            9 => self.server.cut(),
            10 => self.core.sleep(bytes.ms()).await,
            _ => match bytes.number() % 4 {
                0 => self.server.stop(),
                1 => self.server.resume(),
                2 => self.client.close(bytes.ms()).await,
                _ => self.client = connect(&self.core, &self.server),
            },
        }
    }

    fn begin(&mut self, call: LocalRequest<Value>) {
        self.calls.push(Box::pin(call));
    }

    fn take(&mut self, at: usize) -> Option<Call> {
        (!self.calls.is_empty()).then(|| self.calls.swap_remove(at % self.calls.len()))
    }

    /// Polls all once.
    async fn look(&mut self) {
        poll_fn(|cx| {
            self.calls.retain_mut(|call| call.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }

    /// Waits until every request has ended; answers how long that took.
    async fn end(mut self) -> Duration {
        let begun = self.core.now();
        poll_fn(|cx| {
            self.calls.retain_mut(|call| call.as_mut().poll(cx).is_pending());
            if self.calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        self.core.now().since(begun)
    }
}
