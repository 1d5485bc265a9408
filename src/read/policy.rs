//! Which roles may serve a read, and in which order.

use std::fmt;
use std::str::FromStr;

use crate::Error;
use crate::topology::Role;

/// Where reads go. Writes, unknown commands and all that is not catalogued as a read from a
/// replica go to the primary whatever it says.
///
/// Every policy but [`ReadFrom::Primary`] may answer with **stale** data: a replica is behind its primary,
/// and a read right after a write need not see it, also with the two preferred policies and also when a
/// hedge on a replica beats the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ReadFrom {
    /// The primary, always.
    #[default]
    Primary,
    /// A replica; an error where none is validated.
    Replica,
    /// The primary; a replica while it cannot be reached.
    PrimaryPreferred,
    /// A replica; the primary while none can be reached.
    ReplicaPreferred,
    /// The lowest latency of PINGs, primary or replica.
    Nearest,
    /// The better of two drawn at random by latency times commands in flight, learnt from live replies:
    /// no probes. Primary or replica. See [`Choice`](super::Choice).
    Quickest,
    /// Replicas of the client's zone, other replicas, the primary.
    AzAffinity,
    /// Replicas of the client's zone, a primary of that zone, other replicas, the primary.
    AzAffinityReplicasAndPrimary,
}

/// All policies with their words.
const WORDS: [(ReadFrom, &str); 8] = [
    (ReadFrom::Primary, "primary"),
    (ReadFrom::Replica, "replica"),
    (ReadFrom::PrimaryPreferred, "primary-preferred"),
    (ReadFrom::ReplicaPreferred, "replica-preferred"),
    (ReadFrom::Nearest, "nearest"),
    (ReadFrom::Quickest, "quickest"),
    (ReadFrom::AzAffinity, "az-affinity"),
    (ReadFrom::AzAffinityReplicasAndPrimary, "az-affinity-replicas-and-primary"),
];

/// What a policy looks at in a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// What its node is.
    pub(crate) role: Role,
    /// Of a replica: its own link to the primary is up, so that it is not arbitrarily stale.
    pub(crate) linked: bool,
    /// It is in the client's zone.
    pub(crate) same_zone: bool,
}

impl ReadFrom {
    /// How many policies there are.
    pub(crate) const COUNT: usize = WORDS.len();

    /// All of them.
    pub(crate) const ALL: [ReadFrom; ReadFrom::COUNT] = {
        let mut all = [ReadFrom::Primary; ReadFrom::COUNT];
        let mut index = 0;
        while index < ReadFrom::COUNT {
            all[index] = WORDS[index].0;
            index += 1;
        }
        all
    };

    /// Its number, below [`ReadFrom::COUNT`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Whether it may go elsewhere than to the primary.
    pub const fn uses_replicas(self) -> bool {
        !matches!(self, ReadFrom::Primary)
    }

    /// Whether it needs to know the client's zone.
    pub const fn needs_zone(self) -> bool {
        matches!(self, ReadFrom::AzAffinity | ReadFrom::AzAffinityReplicasAndPrimary)
    }

    /// The rank of a connection; the lowest rank that is there serves the read. `None`: never.
    #[inline]
    pub(crate) fn rank(self, at: Standing) -> Option<u8> {
        let is_primary = at.role == Role::Primary;
        let rank = match (self, is_primary, at.linked) {
            (ReadFrom::Primary, true, _) => 0,
            (ReadFrom::Primary, false, _) | (ReadFrom::Replica, true, _) => return None,
            (ReadFrom::Replica | ReadFrom::ReplicaPreferred, false, linked) => u8::from(!linked),
            (ReadFrom::ReplicaPreferred, true, _) => 2,
            (ReadFrom::PrimaryPreferred, true, _) => 0,
            (ReadFrom::PrimaryPreferred, false, linked) => 1 + u8::from(!linked),
            (ReadFrom::Nearest | ReadFrom::Quickest, is_primary, linked) => {
                u8::from(!is_primary && !linked)
            }
            // A primary of the zone comes before what may be arbitrarily stale.
            (ReadFrom::AzAffinityReplicasAndPrimary, true, _) if at.same_zone => 1,
            (ReadFrom::AzAffinity | ReadFrom::AzAffinityReplicasAndPrimary, true, _) => 5,
            (ReadFrom::AzAffinity | ReadFrom::AzAffinityReplicasAndPrimary, false, true) => {
                if at.same_zone { 0 } else { 2 }
            }
            (ReadFrom::AzAffinity | ReadFrom::AzAffinityReplicasAndPrimary, false, false) => {
                if at.same_zone { 3 } else { 4 }
            }
        };
        Some(rank)
    }

    /// The policy, together with a bound on how far behind a replica may be; see [`Reads::lag_max`].
    pub const fn behind_at_most(self, bytes: u32) -> Reads {
        Reads { from: self, lag_max: Some(bytes) }
    }
}

impl fmt::Display for ReadFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WORDS[self.index()].1)
    }
}

impl FromStr for ReadFrom {
    type Err = Error;

    /// The variants in lower case with hyphens, as `replica-preferred`.
    ///
    /// # Errors
    /// Names the words that are right.
    fn from_str(word: &str) -> Result<ReadFrom, Error> {
        let known = WORDS.iter().find(|(_, name)| name.eq_ignore_ascii_case(word));
        known.map(|(policy, _)| *policy).ok_or_else(|| {
            let words = WORDS.map(|(_, name)| name).join(", ");
            Error::config(format!("`read_from` must be one of {words}"))
        })
    }
}

/// How reads are to be served: a policy, and how stale a replica may be. A [`ReadFrom`] alone turns into
/// one without a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Reads {
    /// Which nodes, in which order.
    pub from: ReadFrom,
    /// Most bytes of replication stream by which a replica may be behind its primary to serve the read,
    /// as last seen, once in each `replica_refresh_interval`; one of which that is not known yet is too
    /// far behind. `None` (the default): any.
    pub lag_max: Option<u32>,
}

impl From<ReadFrom> for Reads {
    fn from(from: ReadFrom) -> Reads {
        Reads { from, lag_max: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(policy: ReadFrom) -> Vec<Vec<&'static str>> {
        let mut ranks = vec![Vec::new(); 6];
        for (role, who) in [(Role::Replica, "replica"), (Role::Primary, "primary")] {
            for (same_zone, zone) in [(true, "near"), (false, "far")] {
                for linked in [true, false] {
                    let name = match (who, zone, linked) {
                        (_, _, false) if role == Role::Primary => continue,
                        ("primary", "near", _) => "near primary",
                        ("primary", ..) => "far primary",
                        (_, "near", true) => "near",
                        (_, _, true) => "far",
                        (_, "near", false) => "near unlinked",
                        (_, _, false) => "far unlinked",
                    };
                    let linked = linked && role == Role::Replica;
                    if let Some(rank) = policy.rank(Standing { role, linked, same_zone }) {
                        ranks[usize::from(rank)].push(name);
                    }
                }
            }
        }
        ranks.into_iter().filter(|names| !names.is_empty()).collect()
    }

    /// Fails if a policy admits a role that it must not, puts one before another that
    /// the documents put after it, or an unlinked replica before a linked one.
    #[test]
    fn roles_come_in_their_order() {
        let primaries = vec!["near primary", "far primary"];
        let (linked, unlinked) = (vec!["near", "far"], vec!["near unlinked", "far unlinked"]);
        assert_eq!(order(ReadFrom::Primary), std::slice::from_ref(&primaries));
        assert_eq!(order(ReadFrom::Replica), [linked.clone(), unlinked.clone()]);
        let preferred = [primaries.clone(), linked.clone(), unlinked.clone()];
        assert_eq!(order(ReadFrom::PrimaryPreferred), preferred);
        assert_eq!(order(ReadFrom::ReplicaPreferred), [linked, unlinked.clone(), primaries]);
        for policy in [ReadFrom::Nearest, ReadFrom::Quickest] {
            let all = vec!["near", "far", "near primary", "far primary"];
            assert_eq!(order(policy), [all, unlinked.clone()]);
        }
    }

    /// Fails if zone and link do not rank as documented in either zone policy.
    #[test]
    fn zones_come_in_their_order() {
        let affinity =
            [vec!["near"], vec!["far"], vec!["near unlinked"], vec!["far unlinked"]].to_vec();
        let mut with_primary = affinity.clone();
        with_primary.insert(1, vec!["near primary"]);
        with_primary.push(vec!["far primary"]);
        let mut affinity = affinity;
        affinity.push(vec!["near primary", "far primary"]);
        assert_eq!(order(ReadFrom::AzAffinity), affinity);
        assert_eq!(order(ReadFrom::AzAffinityReplicasAndPrimary), with_primary);
    }

    /// Fails if a policy's word is not read back as it is written, or an unknown word is taken.
    #[test]
    fn words_are_read_as_they_are_written() {
        for (policy, word) in WORDS {
            assert_eq!(WORDS[policy.index()].0, policy);
            assert_eq!(word.to_uppercase().parse::<ReadFrom>().ok(), Some(policy));
        }
        let error = "slave".parse::<ReadFrom>().expect_err("no such policy");
        assert!(error.to_string().contains("replica-preferred"), "{error}");
    }
}
