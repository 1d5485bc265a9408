//! The core and its sockets over every real kernel: rungs U2, U1 and E.
//!
//! Peers are plain `std` sockets, on this thread or on one of their own. Messages are made of parts
//! (a length whose highest bit says that another part follows, then bytes of one known text), so
//! that a reader learns the length of a message only as it comes. Every wait has a bound.

mod close;
mod connect;
mod keep;
mod message;
mod receive;
mod rig;
mod send;
mod task;
mod wait;

use std::sync::RwLock;

use hedgerow_runtime::epoll::Epoll;
use hedgerow_runtime::ring::{Config, Ring};

use close::*;
use connect::*;
use keep::*;
use receive::*;
use send::*;
use task::*;
use wait::*;

/// Held shared by every test and alone by those that count or limit descriptors.
static DESCRIPTORS: RwLock<()> = RwLock::new(());

/// The suite for one rung.
macro_rules! suite {
    ($rung:ident, $type:ty, $make:expr, $tiny:expr) => {
        mod $rung {
            use super::*;

            fn make() -> $type {
                $make
            }

            fn tiny() -> $type {
                $tiny
            }

            macro_rules! case {
                ($test:ident: $proves:literal, $fails:literal) => {
                    case!($test, read, make: $proves, $fails);
                };
                ($test:ident, $lock:ident, $kernel:ident: $proves:literal, $fails:literal) => {
                    #[doc = concat!($proves, ". Fails if ", $fails, ".")]
                    #[test]
                    fn $test() {
                        let _lock = DESCRIPTORS.$lock().unwrap_or_else(|e| e.into_inner());
                        super::$test($kernel);
                    }
                };
            }

            case!(connect_goes_on_to_the_next_address: "Design 5", "one address ends the connect");
            case!(connect_gives_up_at_its_deadline: "Trap 10", "a cancelled connect names no timeout");
            case!(connects_over_every_family: "Design 5", "a family is laid out wrongly");
            case!(one_send_a_turn: "Design 5", "commands of one turn need a second call");
            case!(short_sends_go_on: "Trap 9", "the rest of a batch is lost or doubled");
            case!(a_sent_part_is_let_go: "Trap 9", "sent bytes stay until the next send");
            case!(messages_split_at_every_byte: "Trap 6", "a split is lost between two receives");
            case!(messages_end_at_every_place_of_a_block: "Trap 6", "a block's end is missed");
            case!(values_of_every_size: "Trap 6", "a size takes a road that loses bytes");
            case!(no_byte_is_lost_around_exact_receives: "Trap 25", "a growing frame loses a byte");
            case!(kept_values_never_change: "Trap 4", "a block with a slice is posted again");
            case!(what_users_keep_is_bounded: "Trap 5", "slices are not counted or never freed");
            case!(an_empty_group_is_armed_again: "Trap 1, trap 2", "it stalls or spins");
            case!(receiving_off_shows_nothing: "Design 5", "bytes are shown early or lost");
            case!(receiving_off_during_an_exact_receive: "Trap 25", "a large frame ignores it");
            case!(stale_completions_touch_nobody: "Trap 11", "a tenant gets another's bytes");
            case!(dropped_connects_leak_nothing, write, make: "Case behaviour/24", "one leaks");
            case!(teardown_while_peers_send, write, make: "Trap 12", "freed memory is written");
            case!(a_busy_task_starves_nobody: "Trap 8", "a self-waking task keeps the turn");
            case!(a_panic_ends_its_own_task: "Trap 13", "another task or socket ends with it");
            case!(wakes_from_other_threads: "Trap 14", "a wake beyond the mailbox is lost");
            case!(wakes_while_the_core_parks: "Trap 14", "a wake misses the park decision");
            case!(sleeps_end_on_time: "Design 5", "a timer is early or rounded to 1 ms");
            case!(a_host_never_oversleeps: "Design 3, trap 14", "a parked host misses work");
            case!(tiny_queues_lose_nothing, read, tiny: "Trap 7, trap 9", "a queue drops");
            case!(a_peer_that_does_not_read_delays_no_other: "Trap 24", "a full socket blocks");
            case!(a_peer_that_leaves_ends_a_blocked_send: "Trap 9", "a blocked send never ends");
            case!(a_limit_is_named, write, make: "Trap 18", "the error names no limit");
        }
    };
}

/// Rung U2, or U1 without incremental groups.
fn ring(incremental: bool) -> Ring {
    Ring::new(Config { incremental, ..Config::default() }).unwrap()
}

/// A ring that is full and overflows at once.
fn tiny_ring(incremental: bool) -> Ring {
    Ring::new(Config { entries: 8, completions: 32, incremental }).unwrap()
}

suite!(u2, Ring, ring(true), tiny_ring(true));
suite!(u1, Ring, ring(false), tiny_ring(false));
suite!(epoll, Epoll, Epoll::new().unwrap(), Epoll::new().unwrap());
