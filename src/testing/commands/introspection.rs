//! What the server says of itself: INFO, ROLE, COMMAND, TIME.

use super::{Context, Outcome, Row, is, row, unknown_subcommand, wrong_arity};
use crate::testing::keyspace::DATABASES;
use crate::testing::reply;
use crate::testing::request::Args;
use crate::testing::standing::{Facts, Part};

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

/// `master`, the offset and the replicas; or `slave`, the primary, the state of the link and the offset.
fn role(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let facts = context.state.profile.standing.facts();
    let offset = i64::try_from(facts.offset).unwrap_or(i64::MAX);
    match facts.part {
        Part::Primary(replicas) => {
            reply::array(context.out, 3);
            reply::bulk(context.out, b"master");
            reply::int(context.out, offset);
            reply::array(context.out, replicas.len());
            for replica in replicas {
                reply::array(context.out, 3);
                reply::bulk(context.out, replica.ip().to_string().as_bytes());
                reply::bulk(context.out, replica.port().to_string().as_bytes());
                reply::bulk(context.out, offset.to_string().as_bytes());
            }
        }
        Part::Replica { of, linked } => {
            reply::array(context.out, 5);
            reply::bulk(context.out, b"slave");
            reply::bulk(context.out, of.ip().to_string().as_bytes());
            reply::int(context.out, i64::from(of.port()));
            reply::bulk(context.out, if linked { b"connected" } else { b"connect" });
            reply::int(context.out, offset);
        }
    }
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
    let zone = profile.standing.facts().zone;
    let zone = zone.map_or(String::new(), |zone| format!("availability_zone:{zone}\r\n"));
    let up_s = context.now_ms.saturating_sub(profile.started_ms) / 1000;
    format!(
        "redis_version:{}\r\nredis_mode:standalone\r\nprocess_id:{}\r\ntcp_port:{}\r\n\
         uptime_in_seconds:{up_s}\r\n{zone}",
        profile.version,
        std::process::id(),
        profile.port,
    )
}

fn replication(context: &mut Context<'_>) -> String {
    let Facts { part, offset, .. } = context.state.profile.standing.facts();
    match part {
        Part::Primary(replicas) => {
            let mut lines = format!("role:master\r\nconnected_slaves:{}\r\n", replicas.len());
            for (at, replica) in replicas.iter().enumerate() {
                let (ip, port) = (replica.ip(), replica.port());
                let line =
                    format!("slave{at}:ip={ip},port={port},state=online,offset={offset},lag=0\r\n");
                lines.push_str(&line);
            }
            lines + &format!("master_repl_offset:{offset}\r\n")
        }
        Part::Replica { of, linked } => {
            let link = if linked { "up" } else { "down" };
            format!(
                "role:slave\r\nmaster_host:{}\r\nmaster_port:{}\r\nmaster_link_status:{link}\r\n\
                 slave_repl_offset:{offset}\r\nslave_read_only:1\r\nconnected_slaves:0\r\n\
                 master_repl_offset:{offset}\r\n",
                of.ip(),
                of.port(),
            )
        }
    }
}

fn clients(context: &mut Context<'_>) -> String {
    format!("connected_clients:{}\r\n", context.counters.snapshot().open)
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
