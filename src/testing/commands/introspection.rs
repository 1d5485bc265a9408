//! What the server says of itself: INFO, ROLE, COMMAND, TIME.

use super::{Context, Outcome, Row, is, row, unknown_subcommand, wrong_arity};
use crate::testing::keyspace::DATABASES;
use crate::testing::reply;
use crate::testing::request::Args;

pub(super) const ROWS: &[Row] = &[
    row("command", -1, command),
    row("info", -1, info),
    row("role", 1, role),
    row("time", 1, time),
];

/// Answers COUNT, DOCS and INFO. There is no metadata here: the two last know no command, which is
/// said in their own way, an empty map and a null for each name.
fn command(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let protocol = context.guest.protocol;
    let what = args.at(1);
    if args.len() == 1 {
        reply::array(context.out, 0);
    } else if is(what, "COUNT") && args.len() == 2 {
        reply::count(context.out, context.state.table.len());
    } else if is(what, "COUNT") {
        return Err(wrong_arity("command|count"));
    } else if is(what, "DOCS") {
        reply::map(context.out, protocol, 0);
    } else if is(what, "INFO") {
        reply::array(context.out, args.len() - 2);
        args.from(2).for_each(|_| reply::null_array(context.out, protocol));
    } else {
        return Err(unknown_subcommand("COMMAND", what));
    }
    Ok(())
}

/// A primary without replicas, or a replica of nobody in particular.
fn role(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    if context.state.profile.is_replica {
        reply::array(context.out, 5);
        reply::bulk(context.out, b"slave");
        reply::bulk(context.out, b"127.0.0.1");
        reply::int(context.out, 6379);
        reply::bulk(context.out, b"connected");
        reply::int(context.out, 0);
        return Ok(());
    }
    reply::array(context.out, 3);
    reply::bulk(context.out, b"master");
    reply::int(context.out, 0);
    reply::array(context.out, 0);
    Ok(())
}

fn time(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let now_ms = context.now_ms;
    reply::array(context.out, 2);
    reply::bulk(context.out, (now_ms / 1000).to_string().as_bytes());
    reply::bulk(context.out, (now_ms % 1000 * 1000).to_string().as_bytes());
    Ok(())
}

fn info(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let all = args.len() == 1
        || args
            .from(1)
            .any(|name| ["default", "all", "everything"].iter().any(|all| is(name, all)));
    let wanted = |name: &str| all || args.from(1).any(|section| is(section, name));
    let sections = [
        ("Server", server as fn(&mut Context<'_>) -> String),
        ("Clients", clients),
        ("Stats", stats),
        ("Replication", replication),
        ("Cluster", |_| "cluster_enabled:0\r\n".to_owned()),
        ("Keyspace", keyspace),
    ];
    let mut text = String::new();
    for (name, lines) in sections.into_iter().filter(|(name, _)| wanted(name)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        text.push_str(&format!("# {name}\r\n{}", lines(context)));
    }
    reply::text(context.out, context.guest.protocol, &text);
    Ok(())
}

fn server(context: &mut Context<'_>) -> String {
    let profile = &context.state.profile;
    let up_s = context.now_ms.saturating_sub(profile.started_ms) / 1000;
    format!(
        "redis_version:{}\r\nredis_mode:standalone\r\nprocess_id:{}\r\ntcp_port:{}\r\n\
         uptime_in_seconds:{up_s}\r\n",
        profile.version,
        std::process::id(),
        profile.port,
    )
}

fn clients(context: &mut Context<'_>) -> String {
    format!("connected_clients:{}\r\n", context.counters.snapshot().open)
}

fn replication(context: &mut Context<'_>) -> String {
    let role = if context.state.profile.is_replica { "slave" } else { "master" };
    format!("role:{role}\r\nconnected_slaves:0\r\nmaster_repl_offset:0\r\n")
}

fn stats(context: &mut Context<'_>) -> String {
    let stats = context.counters.snapshot();
    format!(
        "total_connections_received:{}\r\ntotal_commands_processed:{}\r\n\
         total_net_input_bytes:{}\r\ntotal_net_output_bytes:{}\r\n",
        stats.accepted, stats.commands, stats.bytes_in, stats.bytes_out,
    )
}

fn keyspace(context: &mut Context<'_>) -> String {
    let now_ms = context.now_ms;
    let mut lines = String::new();
    for index in 0..DATABASES {
        let database = context.state.database(index);
        let keys = database.len(now_ms);
        if keys > 0 {
            let expires = database.expiring();
            lines.push_str(&format!("db{index}:keys={keys},expires={expires},avg_ttl=0\r\n"));
        }
    }
    lines
}
