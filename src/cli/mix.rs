//! The mix of commands: `get:80,set:20`.

/// A command that the load can send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// GET of a string key.
    Get,
    /// SET of a string key.
    Set,
    /// DEL of a string key.
    Del,
    /// EXISTS of a string key.
    Exists,
    /// INCR of a counter key.
    Incr,
    /// HGET of one field of a hash key.
    Hget,
    /// HSET of one field of a hash key.
    Hset,
    /// PING without an argument.
    Ping,
}

impl Verb {
    /// Every command, in the order of the report.
    pub(crate) const ALL: [Verb; 8] = [
        Verb::Get,
        Verb::Set,
        Verb::Del,
        Verb::Exists,
        Verb::Incr,
        Verb::Hget,
        Verb::Hset,
        Verb::Ping,
    ];

    /// Its name as typed and reported.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::Set => "set",
            Verb::Del => "del",
            Verb::Exists => "exists",
            Verb::Incr => "incr",
            Verb::Hget => "hget",
            Verb::Hset => "hset",
            Verb::Ping => "ping",
        }
    }

    /// What its key names start with. A key has one type, so each type has names of its own.
    pub(crate) const fn prefix(self) -> &'static [u8] {
        match self {
            Verb::Get | Verb::Set | Verb::Del | Verb::Exists => b"key:",
            Verb::Incr => b"counter:",
            Verb::Hget | Verb::Hset => b"hash:",
            Verb::Ping => b"",
        }
    }

    /// The command that loads what this one reads; `None` if it reads nothing that must be there.
    pub(crate) const fn loads_with(self) -> Option<Verb> {
        match self {
            Verb::Get | Verb::Exists => Some(Verb::Set),
            Verb::Hget => Some(Verb::Hset),
            _ => None,
        }
    }

    /// Whether it sends a value.
    pub(crate) const fn has_value(self) -> bool {
        matches!(self, Verb::Set | Verb::Hset)
    }
}

/// Commands with their weights; at least one, all weights above zero, no command twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mix {
    parts: Vec<(Verb, u32)>,
    total: u32,
}

impl Mix {
    /// Parses `command:weight` parts, separated by commas; a weight left out is 1.
    pub(crate) fn parse(text: &str) -> Result<Mix, String> {
        let mut parts: Vec<(Verb, u32)> = Vec::new();
        for part in text.split(',') {
            let (verb, weight) = parse_part(part)?;
            if parts.iter().any(|(other, _)| *other == verb) {
                return Err(format!("{} is named twice", verb.name()));
            }
            parts.push((verb, weight));
        }
        let total = parts.iter().try_fold(0u32, |sum, (_, weight)| sum.checked_add(*weight));
        let total = total.ok_or("the weights add up to more than 4,294,967,295")?;
        Ok(Mix { parts, total })
    }

    /// The commands and weights, as typed.
    pub(crate) fn parts(&self) -> &[(Verb, u32)] {
        &self.parts
    }

    /// One command, drawn by weight.
    pub(crate) fn draw(&self, dice: &mut fastrand::Rng) -> Verb {
        if let [(only, _)] = self.parts[..] {
            return only;
        }
        let mut at = dice.u32(0..self.total);
        for (verb, weight) in &self.parts {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return *verb,
            }
        }
        Verb::Ping // Not reached: the weights add up to `total`.
    }

    /// The loading commands that its reads need, each once.
    pub(crate) fn loads(&self) -> Vec<Verb> {
        let mut loads = Vec::new();
        for load in self.parts.iter().filter_map(|(verb, _)| verb.loads_with()) {
            if !loads.contains(&load) {
                loads.push(load);
            }
        }
        loads
    }
}

impl std::fmt::Display for Mix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> =
            self.parts.iter().map(|(verb, weight)| format!("{}:{weight}", verb.name())).collect();
        f.write_str(&parts.join(","))
    }
}

/// Parses one `command:weight`.
fn parse_part(part: &str) -> Result<(Verb, u32), String> {
    let (name, weight) = part.split_once(':').unwrap_or((part, "1"));
    let verb = Verb::ALL.into_iter().find(|verb| name.eq_ignore_ascii_case(verb.name()));
    let Some(verb) = verb else {
        let names: Vec<&str> = Verb::ALL.iter().map(|verb| verb.name()).collect();
        return Err(format!("unknown command {name:?}: use {}", names.join(", ")));
    };
    match weight.parse() {
        Ok(0) => Err(format!("the weight of {name} is 0: leave it out instead")),
        Ok(weight) => Ok((verb, weight)),
        Err(_) => Err(format!("{weight:?} is not a weight for {name}: say {name}:80")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mix as typed. Fails if a weight is lost or a wrong part is let through.
    #[test]
    fn parsing() {
        let mix = Mix::parse("get:80,SET:20").unwrap();
        assert_eq!(mix.parts(), [(Verb::Get, 80), (Verb::Set, 20)]);
        assert_eq!(mix.to_string(), "get:80,set:20");
        assert_eq!(Mix::parse("ping").unwrap().parts(), [(Verb::Ping, 1)]);
        assert_eq!(Mix::parse("get,exists,hget").unwrap().loads(), [Verb::Set, Verb::Hset]);
        for wrong in ["", "get:0", "get:x", "get:-1", "flushall:1", "get:1,get:2", "get:1,", ":1"] {
            assert!(Mix::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Mix::parse("get:4294967295,set:1").is_err());
    }

    /// Draws follow the weights. Fails if the weights are ignored or shifted by one.
    #[test]
    fn draws_follow_weights() {
        let mix = Mix::parse("get:10,set:1").unwrap();
        let mut dice = fastrand::Rng::with_seed(7);
        let sets = (0..110_000).filter(|_| mix.draw(&mut dice) == Verb::Set).count();
        assert!((9_500..10_500).contains(&sets), "{sets}");
    }
}
