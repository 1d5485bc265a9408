//! A topology for people.

use super::super::table::whole;
use super::figures::{NodeView, View};
use hedgerow::command::slot::SLOT_COUNT;

/// Runs of slots that are shown; more are counted.
const RUNS: usize = 3;
/// Digits of an id that are shown.
const ID: usize = 8;
/// The columns.
const HEAD: [&str; 8] = ["shard", "role", "node", "id", "slots", "zone", "ping us", "state"];

/// The table of what is seen from `target`, an address without credentials.
pub(crate) fn text(target: &str, view: &View) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(view.nodes.iter().map(row));
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let mut out = format!("{target}: {}\n\n", summary(view));
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

fn summary(view: &View) -> String {
    let (nodes, shards) = (view.nodes.len(), view.shards);
    match view.slots_served {
        Some(served) => format!(
            "a cluster of {shards} shards with {nodes} nodes; {} of {} slots are served",
            whole(served.into()),
            whole(SLOT_COUNT.into())
        ),
        None if nodes == 1 => "one server, no cluster".to_owned(),
        None => format!("{nodes} servers, no cluster"),
    }
}

fn row(node: &NodeView) -> [String; 8] {
    let facts = &node.facts;
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let state = match (&facts.error, facts.linked) {
        (Some(error), _) => format!("down: {error}"),
        (None, Some(false)) => "connected, its link to the primary is down".to_owned(),
        (None, _) => "connected".to_owned(),
    };
    [
        facts.shard.map_or_else(|| "-".to_owned(), |shard| shard.to_string()),
        facts.role.clone(),
        facts.endpoint.clone(),
        known(&facts.id.as_ref().map(|id| id.chars().take(ID).collect())),
        slots(&facts.slots),
        known(&facts.zone),
        node.ping_us.map_or_else(|| "-".to_owned(), |pings| format!("{:.1}", pings.median)),
        state,
    ]
}

fn slots(runs: &[(u16, u16)]) -> String {
    let run = |(first, last): &(u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let shown: Vec<String> = runs.iter().take(RUNS).map(run).collect();
    let count: u64 = runs.iter().map(|(first, last)| u64::from(last - first) + 1).sum();
    match runs.len() {
        0 => "-".to_owned(),
        1..=RUNS => format!("{} ({})", shown.join(","), whole(count)),
        all => format!("{},.. {all} runs ({})", shown.join(","), whole(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a run of slots is shown with another end, or a long list makes a line of its own.
    #[test]
    fn slots_are_short() {
        assert_eq!(slots(&[]), "-");
        assert_eq!(slots(&[(0, 5460)]), "0-5460 (5,461)");
        assert_eq!(slots(&[(0, 0), (7, 8)]), "0,7-8 (3)");
        assert_eq!(slots(&[(0, 0), (2, 2), (4, 4), (6, 7)]), "0,2,4,.. 4 runs (5)");
    }
}
