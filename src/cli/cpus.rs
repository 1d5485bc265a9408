//! Cpu lists as typed: `1` or `2-3,6`.

/// Highest cpu number that a list may name: the kernel's own limit is 8,192 cpus.
const HIGHEST: usize = 8191;

/// Cpu numbers in the order typed, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cpus(pub(crate) Vec<usize>);

impl Cpus {
    /// Parses numbers and ranges, separated by commas.
    pub(crate) fn parse(text: &str) -> Result<Cpus, String> {
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(format!("the range {part:?} runs backwards"));
            }
            for cpu in first..=last {
                if cpus.contains(&cpu) {
                    return Err(format!("cpu {cpu} is named twice"));
                }
                cpus.push(cpu);
            }
        }
        Ok(Cpus(cpus))
    }

    /// The cpus that this process may run on; cpu 0 where the kernel does not say.
    pub(crate) fn allowed() -> Cpus {
        let set = rustix::thread::sched_getaffinity(None);
        let cpus: Vec<usize> = match set {
            Ok(set) => {
                (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
            }
            Err(_) => Vec::new(),
        };
        Cpus(if cpus.is_empty() { vec![0] } else { cpus })
    }
}

impl std::fmt::Display for Cpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&numbers.join(","))
    }
}

/// Parses one cpu number.
fn number(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(cpu) if cpu <= HIGHEST => Ok(cpu),
        Ok(_) => Err(format!("no cpu has a number above {HIGHEST}")),
        Err(_) => Err(format!("{text:?} is not a cpu number: say 1 or 2-3,6")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cpu lists. Fails if a range loses an end or a repeated cpu gets two cores.
    #[test]
    fn lists() {
        assert_eq!(Cpus::parse("1"), Ok(Cpus(vec![1])));
        assert_eq!(Cpus::parse("2-3,6"), Ok(Cpus(vec![2, 3, 6])));
        assert_eq!(Cpus::parse("2-3,6").unwrap().to_string(), "2,3,6");
        for wrong in ["", ",", "a", "3-2", "1,1", "0-99999999999", "9000", "1-", "-1", "1,"] {
            assert!(Cpus::parse(wrong).is_err(), "{wrong}");
        }
    }
}
