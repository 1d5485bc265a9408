//! What is said in the log.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use hedgerow::config::Secret;
use hedgerow::prelude::*;
use hedgerow::testing::Script;
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::placement::{Hosted, OnCore, Placement, on_core, options_for};

type Lines = Arc<Mutex<Vec<(Level, String)>>>;

struct Keep(Lines);

struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl<S: Subscriber> Layer<S> for Keep {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut words = Words(String::new());
        event.record(&mut words);
        self.0.lock().expect("the lines").push((*event.metadata().level(), words.0));
    }
}

/// Hands the events of this thread to `layer` until the guard is dropped.
pub(crate) fn listen(layer: impl Layer<Registry> + Send + Sync + 'static) -> DefaultGuard {
    // A thread without a subscriber that meets an event for the first time decides for all that nobody
    // listens. With one for the whole process, which keeps nothing, there is no such thread; what was decided
    // before is decided anew when a subscriber comes.
    let _ = tracing::subscriber::set_global_default(Registry::default());
    tracing::subscriber::set_default(Registry::default().with(layer))
}

/// The lines that two set-ups log, one in each protocol, and one that is refused.
async fn set_ups<P: Placement>(place: P) {
    let lines = Lines::default();
    let _guard = listen(Keep(lines.clone()));
    let answers = [
        ("", Some((Level::DEBUG, "RESP3"))),
        (
            "-ERR unknown command 'HELLO', with args beginning with: 'hush'\r\n",
            Some((Level::INFO, "RESP2")),
        ),
        ("-WRONGPASS hush\r\n", None),
    ];
    for (answer, expected) in answers {
        let script = Script::new().answer("GET", "+x\r\n");
        let script = if answer.is_empty() { script } else { script.answer("HELLO", answer) };
        let server = script.start().expect("a scripted server");
        let mut options = options_for(server.addr());
        options.username = Some("app".into());
        options.password = Some(Secret::new("hush"));
        let outcome = place.connect(&options).await;
        assert_eq!(outcome.is_ok(), expected.is_some(), "{answer}");
        if let Ok(client) = outcome {
            client.get::<String>("hush-key").await.expect("a reply");
        }
        let told = std::mem::take(&mut *lines.lock().expect("the lines"));
        let all = format!("{told:?}");
        assert!(!all.contains("hush") && !all.contains("app"), "{all}");
        let fits = |(level, text): &(Level, String), (wanted, word): (Level, &str)| {
            *level == wanted && text.contains(word)
        };
        match expected {
            Some(wanted) => assert!(told.iter().any(|line| fits(line, wanted)), "{all}"),
            None => assert!(told.iter().any(|(level, _)| *level == Level::WARN), "{all}"),
        }
        let loud = told.iter().filter(|(level, _)| *level <= Level::INFO).count();
        assert_eq!(loud, usize::from(!answer.is_empty()), "{all}");
    }
}

/// Fails if a fallback is not told at info, RESP3 not at debug, or a line holds a user, a
/// password or a key. On a core.
#[test]
fn set_ups_are_logged_on_a_core() {
    on_core(set_ups::<OnCore>);
}

/// Fails if a fallback is not told at info, RESP3 not at debug, or a line holds a user, a
/// password or a key. Hosted, on one thread, which is the one that listens.
#[test]
fn set_ups_are_logged_in_tokio() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime.expect("a runtime"), set_ups(Hosted));
}
