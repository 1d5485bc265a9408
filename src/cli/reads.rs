//! Where reads go and whether they are hedged: the flags that `bench` and `probe` share, since no form
//! of a URL carries them.

use super::{duration, number};
use hedgerow::read::{Delay, Hedging, ReadFrom};
use hedgerow::{Endpoint, Options};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Shortest and longest delay of a hedge.
const DELAYS: std::ops::RangeInclusive<Duration> =
    Duration::from_micros(50)..=Duration::from_secs(60);
/// Most hedges that may be stored.
pub(crate) const MOST_BURST: u32 = 1_000_000;

/// Flags about replicas and hedging.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ReadArgs {
    /// The URL's server is a node of a cluster, which tells the others; as `?cluster=true` in the URL
    #[arg(long, help_heading = "Cluster, replicas and hedging")]
    pub(crate) cluster: bool,

    /// Another node of the cluster, to ask where the URL's does not answer; may be given several times
    #[arg(
        long = "seed-node",
        value_name = "HOST:PORT",
        value_parser = |text: &str| one_address("--seed-node", text),
        help_heading = "Cluster, replicas and hedging"
    )]
    pub(crate) seed_nodes: Vec<Endpoint>,

    /// A replica of the URL's server, such as 10.0.0.2:6379 or [::1]:6380; may be given several times.
    /// User, password and database are the URL's
    #[arg(
        long = "replica",
        value_name = "HOST:PORT",
        value_parser = |text: &str| one_address("--replica", text),
        help_heading = "Cluster, replicas and hedging"
    )]
    pub(crate) replicas: Vec<Endpoint>,

    /// Which nodes serve reads: primary, replica, primary-preferred, replica-preferred, nearest,
    /// quickest, az-affinity or az-affinity-replicas-and-primary [default: primary; of a probe
    /// replica-preferred]
    #[arg(long, value_name = "POLICY", value_parser = policy, help_heading = "Cluster, replicas and hedging")]
    pub(crate) read_from: Option<ReadFrom>,

    /// The availability zone that this client is in, for the two zone policies
    #[arg(long, value_name = "ZONE", help_heading = "Cluster, replicas and hedging")]
    pub(crate) zone: Option<String>,

    /// How long a read waits before a copy of it goes to another node: 50us to 60s, or adaptive (not in a
    /// probe, which has a pass for that) [default: 10ms where another hedge flag is given; of a probe 5ms]
    #[arg(long, value_name = "TIME", value_parser = delay, help_heading = "Cluster, replicas and hedging")]
    pub(crate) hedge_delay: Option<Delay>,

    /// Most copies, in percent of the reads: 1 to 100; a probe recommends no more [default: 5]
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = percent,
        help_heading = "Cluster, replicas and hedging"
    )]
    pub(crate) hedge_budget: Option<u32>,

    /// Most copies that unspent budget may start at once: 1 to 1000000 [default: 1]
    #[arg(
        long,
        value_name = "N",
        value_parser = hedges,
        help_heading = "Cluster, replicas and hedging"
    )]
    pub(crate) hedge_burst: Option<u32>,
}

impl ReadArgs {
    /// Whether any of its flags was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let flags = [
            ("--cluster", self.cluster),
            ("--seed-node", !self.seed_nodes.is_empty()),
            ("--replica", !self.replicas.is_empty()),
            ("--read-from", self.read_from.is_some()),
            ("--zone", self.zone.is_some()),
        ];
        flags.into_iter().find_map(|(flag, given)| given.then_some(flag)).or(self.hedges())
    }

    /// The first flag about hedging that was given.
    pub(crate) fn hedges(&self) -> Option<&'static str> {
        let flags = [
            ("--hedge-delay", self.hedge_delay.is_some()),
            ("--hedge-budget", self.hedge_budget.is_some()),
            ("--hedge-burst", self.hedge_burst.is_some()),
        ];
        flags.into_iter().find_map(|(flag, given)| given.then_some(flag))
    }

    /// The settings of hedging, with `delay` where none was given.
    pub(crate) fn hedging(&self, delay: Delay) -> Result<Hedging, String> {
        let mut hedging = Hedging::default();
        hedging.delay = self.hedge_delay.unwrap_or(delay);
        hedging.max_extra_load_percent = budget(self.hedge_budget)?;
        hedging.burst = burst(self.hedge_burst)?;
        Ok(hedging)
    }

    /// The settings of hedging of a load that has no passes; `None` without a flag of it, or with a wrong
    /// one.
    pub(crate) fn wanted(&self) -> Option<Hedging> {
        self.hedges().and_then(|_| self.hedging(Delay::default()).ok())
    }

    /// Takes over what the URL says of a cluster. A malformed one says nothing: that is told later.
    pub(crate) fn heed(&mut self, url: Option<&str>) {
        let options = url.and_then(|url| Options::from_url(url).ok());
        self.cluster |= options.is_some_and(|options| options.cluster.is_some());
    }

    /// Checks what the flags mean together, and that the policy can be followed.
    pub(crate) fn check(&self, reads: ReadFrom) -> Result<(), String> {
        if self.cluster && !self.replicas.is_empty() {
            return Err("--replica: a cluster tells its replicas itself, leave it out".into());
        }
        if !self.cluster && !self.seed_nodes.is_empty() {
            return Err("--seed-node needs --cluster: only a cluster has seeds".into());
        }
        if let Some((at, twice)) = self
            .replicas
            .iter()
            .enumerate()
            .find(|(at, replica)| self.replicas[..*at].contains(replica))
        {
            return Err(format!("--replica {twice}: named twice (number {})", at + 1));
        }
        if reads.needs_zone() && self.zone.as_deref().is_none_or(str::is_empty) {
            return Err(format!(
                "--read-from {reads} needs --zone, the zone that this client is in"
            ));
        }
        if let (Some(zone), false) = (&self.zone, reads.needs_zone()) {
            return Err(format!(
                "--zone {zone}: --read-from {reads} does not look at zones; say az-affinity or \
                 az-affinity-replicas-and-primary"
            ));
        }
        if reads == ReadFrom::Replica && self.replicas.is_empty() && !self.cluster {
            return Err("--read-from replica needs replicas: name each with --replica".into());
        }
        if let (true, Some(flag)) = (reads == ReadFrom::Primary, self.hedges()) {
            let words = match self.cluster {
                true => "reads from primaries alone are never hedged: say --read-from",
                false => {
                    "reads from the primary alone are never hedged: say --replica and --read-from"
                }
            };
            return Err(format!("{flag}: {words}"));
        }
        Ok(())
    }

    /// Puts cluster, replicas, policy and zone into a client's options; hedging stays off.
    pub(crate) fn place(&self, reads: ReadFrom, options: &mut Options) -> Result<(), String> {
        if self.cluster {
            if let Endpoint::Unix(_) = options.endpoint {
                return Err("--cluster: nodes are reached over TCP, not a unix socket".into());
            }
            let cluster = options.cluster.get_or_insert_default();
            cluster.seeds.clone_from(&self.seed_nodes);
        }
        options.replica_endpoints.clone_from(&self.replicas);
        options.read_from = reads.into();
        options.client_availability_zone.clone_from(&self.zone);
        Ok(())
    }

    /// All of it, for a load that has no passes: hedging is on if a flag of it was given.
    pub(crate) fn apply(&self, options: &mut Options) -> Result<(), String> {
        let reads = self.read_from.unwrap_or_default();
        self.check(reads)?;
        self.place(reads, options)?;
        options.hedging = self.wanted();
        Ok(())
    }
}

/// The budget in percent, 5 by default.
pub(crate) fn budget(typed: Option<u32>) -> Result<u32, String> {
    match typed.unwrap_or(5) {
        percent @ 1..=100 => Ok(percent),
        percent => Err(format!("--hedge-budget {percent}: from 1 to 100 (percent of the reads)")),
    }
}

/// The burst, 1 by default.
pub(crate) fn burst(typed: Option<u32>) -> Result<u32, String> {
    match typed.unwrap_or(1) {
        hedges @ 1..=MOST_BURST => Ok(hedges),
        hedges => Err(format!("--hedge-burst {hedges}: from 1 to {MOST_BURST} (hedges)")),
    }
}

/// A budget as typed.
pub(crate) fn percent(text: &str) -> Result<u32, String> {
    number::whole(text, 1, 100)
}

/// A burst as typed.
pub(crate) fn hedges(text: &str) -> Result<u32, String> {
    number::whole(text, 1, MOST_BURST)
}

/// A delay as typed: a length of time, or `adaptive`.
fn delay(text: &str) -> Result<Delay, String> {
    if text.eq_ignore_ascii_case("adaptive") {
        return Ok(Delay::adaptive());
    }
    fixed_delay(text).map(Delay::Fixed)
}

/// A fixed delay as typed.
pub(crate) fn fixed_delay(text: &str) -> Result<Duration, String> {
    const RIGHT: &str = "from 50us to 60s is right, such as 5ms";
    match duration::parse(text) {
        Ok(delay) if DELAYS.contains(&delay) => Ok(delay),
        Err(_) if text.parse::<f64>().is_ok_and(f64::is_finite) => {
            Err(format!("a unit is missing: {RIGHT}"))
        }
        _ => Err(RIGHT.into()),
    }
}

fn policy(text: &str) -> Result<ReadFrom, String> {
    text.parse::<ReadFrom>().map_err(|error| {
        let text = error.to_string();
        // The library names its own option, which is not the flag's name.
        text.split_once("must be ").map_or(text.clone(), |(_, words)| format!("must be {words}"))
    })
}

/// The address of a flag that is given once for each.
fn one_address(flag: &str, text: &str) -> Result<Endpoint, String> {
    if text.contains(',') {
        return Err(format!("one HOST:PORT at a time: repeat {flag} for each"));
    }
    address(text)
}

/// `HOST:PORT`; an IPv6 address stands in brackets.
pub(crate) fn address(text: &str) -> Result<Endpoint, String> {
    const RIGHT: &str = "say HOST:PORT, such as 10.0.0.2:6379 or [::1]:6380";
    if text.contains(['@', '/']) {
        return Err(format!("user, password and database come with the URL: {RIGHT}"));
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once("]:").ok_or(RIGHT)?,
        None => text.rsplit_once(':').ok_or(RIGHT)?,
    };
    let bracketed = text.starts_with('[');
    if bracketed && host.parse::<Ipv6Addr>().is_err() {
        return Err(format!("no IPv6 address in the brackets: {RIGHT}"));
    }
    if !bracketed && (host.contains(':') || matches!(host.parse(), Ok(IpAddr::V6(_)))) {
        return Err(format!("an IPv6 address needs brackets: {RIGHT}"));
    }
    let is_host = !host.is_empty() && !host.contains(|c: char| c.is_control() || c == ' ');
    match port.parse::<u16>() {
        Ok(port) if port > 0 && is_host => Ok(Endpoint::tcp(host, port)),
        Ok(_) if is_host => Err("the port is from 1 to 65535".into()),
        Err(_) if is_host => Err(format!("the port is from 1 to 65535: {RIGHT}")),
        _ => Err(format!("the host is missing or malformed: {RIGHT}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a right address is refused, a wrong one taken, or an IPv6 one misread.
    #[test]
    fn addresses() {
        assert_eq!(address("db-2:6379"), Ok(Endpoint::tcp("db-2", 6379)));
        assert_eq!(address("[::1]:6380"), Ok(Endpoint::tcp("::1", 6380)));
        assert_eq!(address("10.0.0.2:1"), Ok(Endpoint::tcp("10.0.0.2", 1)));
        let wrong = [
            "", "db", ":1", "db:", "db:0", "db:65536", "::1:6380", "[::1]", "[db]:1", "u:p@h:1",
            "a b:1",
        ];
        for wrong in wrong {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    /// Fails if a value out of its range is taken, or one at its end is refused.
    #[test]
    fn ranges() {
        let typed = |budget, burst| ReadArgs {
            hedge_budget: Some(budget),
            hedge_burst: Some(burst),
            ..ReadArgs::default()
        };
        let hedging = |args: ReadArgs| args.hedging(Delay::default());
        assert_eq!(hedging(ReadArgs::default()), Ok(Hedging::default()));
        assert!(hedging(typed(1, 1)).is_ok() && hedging(typed(100, 1_000_000)).is_ok());
        assert!(hedging(typed(0, 1)).unwrap_err().starts_with("--hedge-budget 0"));
        assert!(hedging(typed(101, 1)).unwrap_err().starts_with("--hedge-budget 101"));
        assert!(hedging(typed(5, 0)).unwrap_err().starts_with("--hedge-burst 0"));
        assert!(hedging(typed(5, 1_000_001)).unwrap_err().starts_with("--hedge-burst 1000001"));
        assert_eq!(delay("50us"), Ok(Delay::Fixed(Duration::from_micros(50))));
        assert_eq!(delay("Adaptive"), Ok(Delay::adaptive()));
        for wrong in ["49us", "61s", "5", "soon", ""] {
            assert!(delay(wrong).is_err(), "{wrong}");
        }
    }

    /// Fails if a cluster is given replicas, if its URL is not heeded, if a policy
    /// that cannot be followed is taken, or the line does not name the flag that is missing.
    #[test]
    fn policies_get_what_they_need() {
        let replicas = vec![Endpoint::tcp("a", 1)];
        let some = ReadArgs { replicas, ..ReadArgs::default() };
        assert!(some.check(ReadFrom::Replica).is_ok());
        assert!(some.check(ReadFrom::AzAffinity).unwrap_err().contains("--zone"));
        let zoned = ReadArgs { zone: Some("a".into()), ..some.clone() };
        assert!(zoned.check(ReadFrom::AzAffinity).is_ok());
        assert!(zoned.check(ReadFrom::Nearest).unwrap_err().starts_with("--zone a"));
        assert!(ReadArgs::default().check(ReadFrom::Replica).unwrap_err().contains("--replica"));
        let hedged = ReadArgs { hedge_budget: Some(3), ..some.clone() };
        assert!(hedged.check(ReadFrom::Primary).unwrap_err().starts_with("--hedge-budget"));
        let cluster = ReadArgs { cluster: true, ..ReadArgs::default() };
        assert!(cluster.check(ReadFrom::Replica).is_ok());
        let both = ReadArgs { cluster: true, ..some.clone() };
        assert!(both.check(ReadFrom::Primary).unwrap_err().starts_with("--replica"));
        let seed_nodes = some.replicas.clone();
        let stray = ReadArgs { seed_nodes, ..ReadArgs::default() };
        assert!(stray.check(ReadFrom::Primary).unwrap_err().starts_with("--seed-node"));
        let mut said = ReadArgs::default();
        said.heed(Some("redis://h?cluster=true"));
        assert!(said.cluster);
        let twice =
            ReadArgs { replicas: [some.replicas.clone(), some.replicas.clone()].concat(), ..some };
        assert!(twice.check(ReadFrom::Replica).unwrap_err().contains("named twice"));
        assert!(policy("slave").unwrap_err().contains("replica-preferred"));
    }
}
