//! Lines for the log. A subscriber is the user's code and may well use this very client, so the
//! engine only records what is to be said; placements say it once they have let the engine go.

use super::{Class, ConnectionState, StateChange};
use crate::connection::Spoken;
use crate::error::Error;
use crate::read::Weather;

/// What is to be said, after the engine was let go.
#[derive(Debug)]
pub struct Line(What);

#[derive(Debug)]
enum What {
    /// A connection changed; `loud`: it is news that it failed.
    Change { change: StateChange, class: Class, loud: bool },
    /// What a set-up settled on.
    Spoken(Spoken),
    /// What the storm guard says of hedging.
    Weather(Weather),
    /// There are more nodes than a core may have connections.
    Crowded(usize),
    /// What went wrong while retired connections finished, and how often besides.
    Retired(Vec<Error>, u64),
}

impl Line {
    pub(super) fn change(change: StateChange, class: Class, loud: bool) -> Line {
        Line(What::Change { change, class, loud })
    }

    pub(super) fn spoken(spoken: Spoken) -> Line {
        Line(What::Spoken(spoken))
    }

    pub(super) fn weather(weather: Weather) -> Line {
        Line(What::Weather(weather))
    }

    pub(super) fn crowded(max: usize) -> Line {
        Line(What::Crowded(max))
    }

    pub(super) fn retired(errors: Vec<Error>, more: u64) -> Line {
        Line(What::Retired(errors, more))
    }

    /// Hands it to the application's subscriber. Nothing may be borrowed or locked.
    pub(crate) fn say(self) {
        match self.0 {
            What::Change { change, class, loud } => say_change(&change, class, loud),
            What::Retired(errors, more) => {
                for error in &errors {
                    tracing::warn!(%error, "a replica was retired before it had answered all");
                }
                if more > 0 {
                    tracing::warn!(more, "and more of these");
                }
            }
            What::Crowded(max) => tracing::warn!(
                max,
                "a core has as many connections as `cluster.sockets_max` lets it: nodes take turns, \
                 which costs a connect each time"
            ),
            What::Weather(Weather::Clear) => tracing::info!("hedging is on again"),
            What::Weather(Weather::Storm { reason, .. }) => {
                tracing::warn!(%reason, "hedging is off until it helps again");
            }
            What::Spoken(Spoken::Resp3) => tracing::debug!("the server speaks RESP3"),
            What::Spoken(Spoken::AnswersInResp2) => {
                tracing::info!("the server answers HELLO 3 in RESP2; going on in RESP2");
            }
            What::Spoken(Spoken::KnowsNoHello) => {
                tracing::info!("the server does not know HELLO 3; going on in RESP2");
            }
        }
    }
}

fn say_change(change: &StateChange, class: Class, loud: bool) {
    let (endpoint, state) = (&change.endpoint, change.state);
    match (&change.error, state) {
        (Some(error), ConnectionState::Failed) => {
            tracing::warn!(%endpoint, ?class, %error, "connection given up");
        }
        // The first failure of a run warns, later ones are for those who look.
        (Some(error), _) if loud => tracing::warn!(%endpoint, ?class, %error, "connection lost"),
        (Some(error), _) => {
            tracing::debug!(%endpoint, ?class, %error, "connection attempt failed");
        }
        (None, state) => tracing::debug!(%endpoint, ?class, ?state, "connection"),
    }
}
