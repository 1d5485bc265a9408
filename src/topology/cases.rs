//! Answers of nodes and redirects against the corpus in `tests/cases/cluster`.

use std::collections::BTreeMap;

use hedgerow_runtime::time::Instant;

use super::{SlotsReply, Topology};
use crate::config::{Cluster, Endpoint, Options};
use crate::resp::{Decoder, Limits, Protocol, ServerError, Step};
use crate::route::Redirect;

const FILES: [(&str, &str); 5] = [
    ("01", include_str!("../../tests/cases/cluster/01-empty-host-port-zero.txt")),
    ("02", include_str!("../../tests/cases/cluster/02-lone-node-does-not-know-its-address.txt")),
    ("03", include_str!("../../tests/cases/cluster/03-port-zero-on-tls-only-servers.txt")),
    ("04", include_str!("../../tests/cases/cluster/04-metadata-and-coverage.txt")),
    ("05", include_str!("../../tests/cases/cluster/05-redirects.txt")),
];

/// One vector: what the client gets, and the outcomes of which one is right.
#[derive(Default)]
struct Vector {
    label: String,
    fields: BTreeMap<&'static str, &'static str>,
    outcomes: Vec<Vec<&'static str>>,
}

fn vectors(kind: &str) -> Vec<Vector> {
    let mut all = Vec::new();
    for (file, text) in FILES {
        for part in text.split("\n= ").skip(1) {
            let mut lines = part.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
            let label = format!("{file} {}", lines.next().unwrap_or_default());
            let (mut fields, mut outcomes) = (BTreeMap::new(), Vec::new());
            for line in lines {
                match (line, outcomes.last_mut()) {
                    ("expect" | "or", _) => outcomes.push(Vec::new()),
                    (line, Some(outcome)) => outcome.push(line),
                    (line, None) => _ = line.split_once(' ').map(|(k, v)| fields.insert(k, v)),
                }
            }
            all.push(Vector { label, fields, outcomes });
        }
    }
    all.retain(|vector| vector.fields.get("kind") == Some(&kind));
    all
}

fn endpoint(text: &str) -> Endpoint {
    let (host, port) = text.rsplit_once(':').expect("host:port");
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Endpoint::tcp(host, port.parse().expect("a port"))
}

fn unescaped(text: &str) -> Vec<u8> {
    text.replace("\\r", "\r").replace("\\n", "\n").into_bytes()
}

/// What a vector's reply makes of a topology, in the words of its expectation.
fn outcome_of(vector: &Vector) -> Vec<String> {
    let protocol = if vector.fields["proto"] == "3" { Protocol::Resp3 } else { Protocol::Resp2 };
    let bytes = unescaped(vector.fields["<"]);
    let mut decoder = Decoder::new(protocol, Limits::default());
    let Ok(Step::Frame(frame)) = decoder.decode(&bytes) else { panic!("{}", vector.label) };
    let from = endpoint(vector.fields["from"]);
    let Ok(said) = SlotsReply::of(&frame, &from) else { return vec!["error".to_owned()] };
    let mut profile = Options::new(from);
    profile.cluster = Some(Cluster::default());
    // Nothing of the seed is to be left: a node that was not named counts for nothing.
    let before = Topology::new(Vec::new());
    let topology = before.with_slots(Instant::ZERO, &profile, &said);
    told(&topology)
}

fn told(topology: &Topology) -> Vec<String> {
    let mut lines = Vec::new();
    let table = topology.slots().expect("slots");
    for (slots, owner) in table.ranges() {
        let replicas: Vec<_> = topology
            .nodes()
            .filter(|(index, node)| node.shard == owner && *index != owner && !node.is_removed)
            .map(|(_, node)| node.endpoint().to_string())
            .collect();
        let replicas = if replicas.is_empty() { "-".to_owned() } else { replicas.join(",") };
        let primary = topology.node(owner).expect("the owner").endpoint();
        let (first, last) = (slots.start(), slots.end());
        lines.push(format!("{first}-{last} primary {primary} replicas {replicas}"));
    }
    let uncovered: Vec<_> = (0..16384u16).filter(|slot| table.owner(*slot).is_none()).collect();
    lines.push(match (uncovered.first(), uncovered.last()) {
        (Some(first), Some(last)) => format!("uncovered {first}-{last}"),
        _ => "uncovered -".to_owned(),
    });
    let nodes = topology.nodes().filter(|(_, node)| !node.is_removed).count();
    lines.push(format!("nodes {nodes}"));
    lines
}

/// Proves case cluster/01, case cluster/02, case cluster/03 and case cluster/04. Fails if an answer gives a
/// slot to another node than it should, dials a made-up address, or is refused without need.
#[test]
fn answers_are_read_as_the_corpus_says() {
    let vectors = vectors("slots");
    assert_eq!(vectors.len(), 18, "the corpus was read");
    for vector in vectors {
        let outcome = outcome_of(&vector);
        assert!(
            vector.outcomes.contains(&outcome.iter().map(String::as_str).collect()),
            "{}: {outcome:?}, not {:?}",
            vector.label,
            vector.outcomes
        );
    }
}

/// Proves case cluster/05. Fails if a redirect is read as another, or an unreadable one as any.
#[test]
fn redirects_are_read_as_the_corpus_says() {
    let vectors = vectors("redirect");
    assert_eq!(vectors.len(), 17, "the corpus was read");
    for vector in vectors {
        let error = ServerError::new(vector.fields["line"].as_bytes());
        let redirect = Redirect::of(&error, &endpoint(vector.fields["from"]));
        let outcome = redirect.map_or("error".to_owned(), |redirect| {
            let kind = if redirect.is_moved { "moved" } else { "ask" };
            match redirect.to {
                Some(Endpoint::Tcp { host, port }) => {
                    format!("{kind} {} host \"{host}\" port {port}", redirect.slot)
                }
                _ => format!("{kind} {} unknown", redirect.slot),
            }
        });
        assert!(vector.outcomes.contains(&vec![&outcome[..]]), "{}: {outcome}", vector.label);
    }
}
