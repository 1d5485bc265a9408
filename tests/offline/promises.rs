//! Which thread may hold what. These are checked by the compiler: a broken promise does not build.

use hedgerow::client::{ClientRequest, ClientStates, LocalRequest, LocalStates, WithReply};
use hedgerow::engine::StateChange;
use hedgerow::runtime::buffer::LocalBytes;
use hedgerow::runtime::core::{Local, Remote, Sleep};
use hedgerow::runtime::{Rx, Task};
use hedgerow::{Client, Cores, Driver, Endpoint, Error, LocalClient, LocalContext, Options};

/// Builds only for types that are `Send` and `Sync`.
fn is_shared<T: Send + Sync>() {}

/// Ambiguous, and so no program, for a type that has the trait.
macro_rules! never {
    ($trait:ident: $($type:ty),+ $(,)?) => {
        $(const _: fn() = || {
            trait Ambiguous<A> { fn ask() {} }
            impl<T: ?Sized> Ambiguous<()> for T {}
            struct Has;
            impl<T: ?Sized + $trait> Ambiguous<Has> for T {}
            <$type as Ambiguous<_>>::ask();
        };)+
    };
}

// What belongs to a core stays on its thread: it counts without atomics.
never!(Send: LocalClient, LocalContext, LocalRequest<()>, LocalStates, WithReply<fn()>, Driver);
never!(Send: LocalBytes, Local, Sleep, Task<()>, Rx);
never!(Sync: LocalClient, LocalContext, LocalRequest<()>, LocalStates, Driver, LocalBytes, Local, Sleep);

/// Design section 3. Fails if what tasks of several threads share cannot be shared; what belongs to one
/// core and can leave it fails to build.
#[test]
fn what_threads_may_share() {
    is_shared::<Client>();
    is_shared::<ClientRequest<std::rc::Rc<()>>>();
    is_shared::<ClientStates>();
    is_shared::<Cores>();
    is_shared::<Error>();
    is_shared::<Options>();
    is_shared::<Endpoint>();
    is_shared::<StateChange>();
    is_shared::<Remote>();
}

/// Fails if what users have to be warned of is not said where they choose a policy: that
/// reads may be stale, also after a write of their own and through a hedge, and what a PING measures.
#[test]
fn users_are_warned_of_stale_reads() {
    let said = |text: &str, words: &[&str]| {
        let text = text.replace("///", "").split_whitespace().collect::<Vec<_>>().join(" ");
        let missing: Vec<_> = words.iter().filter(|words| !text.contains(**words)).collect();
        assert!(missing.is_empty(), "not said: {missing:?}");
    };
    let policy = include_str!("../../src/read/policy.rs");
    said(
        policy,
        &["may answer with **stale** data", "right after a write", "hedge on a replica beats"],
    );
    said(
        include_str!("../../README.md"),
        &["may answer with stale data", "after a write of your own"],
    );
    said(include_str!("../../src/read/nearest.rs"), &["It includes the queues on both sides"]);
}
