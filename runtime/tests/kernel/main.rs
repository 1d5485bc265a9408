//! What every kernel over real sockets must do, run against each of them.
//!
//! The peer is a plain blocking `std` socket, mostly on the same thread: loopback holds what it
//! writes. Each wait has a bound, so that a lost completion fails and does not hang.

mod connect;
mod receive;
mod rig;
mod send;
mod wait;

use std::sync::RwLock;

use connect::*;
use receive::*;
use send::*;
use wait::*;

/// Held shared by every test and alone by the one that counts descriptors.
static DESCRIPTORS: RwLock<()> = RwLock::new(());

/// The whole suite for one kernel.
macro_rules! suite {
    ($name:ident, $make:ident) => {
        mod $name {
            use super::*;

            macro_rules! case {
                ($test:ident: $proves:literal, $fails:literal) => {
                    #[doc = concat!($proves, ". Fails if ", $fails, ".")]
                    #[test]
                    fn $test() {
                        let _shared = DESCRIPTORS.read().unwrap_or_else(|e| e.into_inner());
                        super::$test(super::$make());
                    }
                };
            }

            case!(echo_in_order: "Design 5", "bytes are reordered or a buffer is not reused");
            case!(gathered_send: "Design 5", "an iovec is dropped or reordered");
            case!(sends_do_not_end_the_wait: "Design 5", "a turn needs two enters per send");
            case!(short_send_ends_the_wait: "Trap 9", "the rest of a large command is never sent");
            case!(incremental_offsets: "Trap 3", "a buffer is done early, late or out of order");
            case!(empty_group_ends_then_rearm: "Trap 1, trap 2", "it spins or loses the edge");
            case!(cancel_against_complete: "Trap 10", "either completion is missing or doubled");
            case!(exact_after_cancel_loses_nothing: "Trap 25", "a byte is lost or comes twice");
            case!(exact_cut_short: "Trap 25", "bytes before the end of the stream are forgotten");
            case!(full_socket_then_poll_out: "Trap 24, trap 9", "a full socket delays another");
            case!(end_of_stream: "Trap 2", "a short receive hides the end behind it");
            case!(reset_by_peer: "Trap 9", "a reset reads as an end or raises SIGPIPE");
            case!(connect_refused: "Design 5", "a failed connect reports success");
            case!(blackhole_then_cancel: "Trap 10", "a connect without answer cannot be ended");
            case!(armed_instant: "Design 5", "a wait ends early or spins");
            case!(woken_by_another_thread: "Trap 14", "a wake before the wait is lost");
            case!(poll_in_repeats: "Trap 14", "readiness reported once is not reported again");
            case!(park_and_bytes: "Design 3", "bytes between two steps leave the host asleep");
            case!(park_and_time: "Design 3", "an instant between two steps leaves it asleep");
            case!(park_and_wake: "Design 3, trap 14", "a wake leaves the host asleep");
            case!(greedy_socket_is_bounded: "Trap 8", "one busy socket starves another");
            case!(unix_socket: "Design 5", "Unix sockets take another road");

            /// Case behaviour/24. Fails if any descriptor outlives its kernel.
            #[test]
            fn nothing_leaks() {
                let _alone = DESCRIPTORS.write().unwrap_or_else(|e| e.into_inner());
                super::nothing_leaks(super::$make);
            }
        }
    };
}

fn make_epoll() -> hedgerow_runtime::epoll::Epoll {
    hedgerow_runtime::epoll::Epoll::new().unwrap()
}

suite!(epoll, make_epoll);

fn make_ring() -> hedgerow_runtime::ring::Ring {
    hedgerow_runtime::ring::Ring::new(hedgerow_runtime::ring::Config::default()).unwrap()
}

suite!(ring, make_ring);

/// Without incremental groups, as on kernels before 6.12.
fn make_plain_ring() -> hedgerow_runtime::ring::Ring {
    let config = hedgerow_runtime::ring::Config { incremental: false, ..Default::default() };
    hedgerow_runtime::ring::Ring::new(config).unwrap()
}

suite!(plain_ring, make_plain_ring);
