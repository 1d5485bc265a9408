//! CLIENT TRACKING and CLIENT CACHING.

use super::{Context, Failure, Outcome, SYNTAX, is};
use crate::testing::reply;
use crate::testing::request::Args;
use crate::testing::tracking::Mode;

pub(super) fn tracking(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (switch, mode) = (args.at(2), read(args)?);
    let id = context.guest.id;
    if is(switch, "ON") {
        context.state.tracking.start(id, mode);
    } else if is(switch, "OFF") {
        context.state.tracking.stop(id);
    } else {
        return Err(SYNTAX.into());
    }
    reply::ok(context.out);
    Ok(())
}

fn read(args: Args<'_>) -> Result<Mode, Failure> {
    let mut mode = Mode::default();
    let mut at = 3;
    while at < args.len() {
        match args.at(at) {
            option if is(option, "BCAST") => mode.broadcast = true,
            option if is(option, "OPTIN") => mode.opt_in = true,
            option if is(option, "OPTOUT") => mode.opt_out = true,
            option if is(option, "NOLOOP") => mode.no_loop = true,
            option if is(option, "PREFIX") && at + 1 < args.len() => {
                at += 1;
                mode.prefixes.push(args.at(at).to_vec());
            }
            option if is(option, "REDIRECT") => {
                return Err("ERR the test server knows no REDIRECT".into());
            }
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    if !mode.prefixes.is_empty() && !mode.broadcast {
        return Err("ERR PREFIX option requires BCAST mode to be enabled".into());
    }
    if mode.broadcast && (mode.opt_in || mode.opt_out) {
        return Err("ERR OPTIN and OPTOUT are not compatible with BCAST".into());
    }
    if mode.opt_in && mode.opt_out {
        return Err("ERR You can't specify both OPTIN mode and OPTOUT mode".into());
    }
    Ok(mode)
}

pub(super) fn caching(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let id = context.guest.id;
    let mode = context.state.tracking.mode(id).filter(|mode| mode.opt_in || mode.opt_out);
    let Some(mode) = mode else {
        let text = "ERR CLIENT CACHING can be called only when the client is in tracking mode \
                    with OPTIN or OPTOUT mode enabled";
        return Err(text.into());
    };
    mode.next = match args.at(2) {
        word if is(word, "YES") && mode.opt_in => Some(true),
        word if is(word, "NO") && mode.opt_out => Some(false),
        word if is(word, "YES") => {
            return Err("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN \
                        mode."
                .into());
        }
        word if is(word, "NO") => {
            return Err("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT \
                        mode."
                .into());
        }
        _ => return Err(SYNTAX.into()),
    };
    reply::ok(context.out);
    Ok(())
}
