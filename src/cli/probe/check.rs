//! What the live check says of the advice. Everything here is service time, as the prediction is: what the
//! load itself came too late with, no hedge cures.

use super::figures::{AdviceFigures, HedgingFigures, PassFigures};
use super::report::us;
use serde::{Deserialize, Serialize};

/// The percentile that is checked.
pub(crate) const PERCENTILE: f64 = 99.0;
/// Factor by which p99 has to fall, measured in turns with no hedges, for the advice to be confirmed.
const HELPS: f64 = 1.05;
/// A check that takes so many times as long as predicted falls short.
const FALLS_SHORT: f64 = 1.5;
/// Reads of either pass below which a p99 is not told: ten beyond it.
const READS_MIN: u64 = 1_000;
/// So many times the predicted share of late reads without credit is what explains a shortfall.
const OUT_OF_CREDIT: f64 = 1.5;

/// What a check comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// About what was predicted.
    Confirmed,
    /// It helps, but less than predicted.
    LessThanPredicted,
    /// It does not help, or makes it worse.
    NotConfirmed,
    /// Too few reads to tell.
    TooFew,
    /// Machine or deployment changed by then.
    Disturbed,
}

/// The check of the recommended settings; service times in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CheckFigures {
    pub(crate) verdict: Verdict,
    /// The same as a sentence.
    pub(crate) text: String,
    pub(crate) percentile: f64,
    pub(crate) delay_us: f64,
    pub(crate) budget_percent: u32,
    pub(crate) burst: u32,
    pub(crate) predicted_us: f64,
    /// In turns with the check.
    pub(crate) without_us: f64,
    pub(crate) measured_us: f64,
    pub(crate) extra_load_percent: f64,
}

/// What a check is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked<'a> {
    /// The pass with what is recommended.
    pub(crate) pass: &'a PassFigures,
    /// The one without hedges, in turns with it.
    pub(crate) without: &'a PassFigures,
    /// Machine or deployment changed by then, also without hedges.
    pub(crate) disturbed: bool,
}

impl CheckFigures {
    /// What the check says of this advice; `None` where other settings were checked.
    pub(crate) fn new(advice: &AdviceFigures, checked: &Checked<'_>) -> Option<CheckFigures> {
        let hedging = checked.pass.hedging.as_ref()?;
        if !is_of(advice, hedging) {
            return None;
        }
        let predicted_us = advice.after_us?;
        let measured_us = checked.pass.service_us.p99?;
        let without_us = checked.without.service_us.p99?;
        let mut figures = CheckFigures {
            verdict: Verdict::Confirmed,
            text: String::new(),
            percentile: PERCENTILE,
            delay_us: hedging.delay_us?,
            budget_percent: hedging.budget_percent,
            burst: hedging.burst,
            predicted_us,
            without_us,
            measured_us,
            extra_load_percent: checked.pass.extra_load_percent(),
        };
        figures.verdict = figures.verdict(checked);
        figures.text = figures.text(advice, checked);
        Some(figures)
    }

    /// It speaks against the advice.
    pub(crate) fn refutes(&self) -> bool {
        self.verdict == Verdict::NotConfirmed
    }

    fn verdict(&self, checked: &Checked<'_>) -> Verdict {
        if self.measured_us * HELPS > self.without_us {
            // Of few reads too: they may not refute the advice, but they confirm nothing.
            Verdict::NotConfirmed
        } else if checked.pass.reads.min(checked.without.reads) < READS_MIN {
            Verdict::TooFew
        } else if checked.disturbed {
            Verdict::Disturbed
        } else if self.measured_us > self.predicted_us * FALLS_SHORT {
            Verdict::LessThanPredicted
        } else {
            Verdict::Confirmed
        }
    }

    fn text(&self, advice: &AdviceFigures, checked: &Checked<'_>) -> String {
        let seen = format!(
            "checked live: p99 service time {} (predicted {}; {} without hedges, in turns with the check) \
             for {:.1} % more reads",
            us(self.measured_us),
            us(self.predicted_us),
            us(self.without_us),
            self.extra_load_percent
        );
        let said = match self.verdict {
            Verdict::Confirmed => return seen,
            Verdict::LessThanPredicted => less(advice, checked.pass),
            Verdict::NotConfirmed => {
                let worse = self.measured_us > self.without_us;
                let how = if worse { "it was slower than without" } else { "that is no real gain" };
                format!("the check did NOT confirm the advice: {how}. Do not take it")
            }
            Verdict::TooFew => format!(
                "too few reads to tell ({} with hedges, {} without; {READS_MIN} of each are needed)",
                checked.pass.reads, checked.without.reads
            ),
            Verdict::Disturbed => {
                "the machine or the deployment changed by then, also without hedges: do not \
                                   judge by it"
                    .into()
            }
        };
        format!("{seen}; {said}")
    }
}

/// Why a check helped less than predicted, as far as its books tell.
fn less(advice: &AdviceFigures, pass: &PassFigures) -> String {
    let Some(ledger) = pass.ledger.as_ref().filter(|ledger| ledger.reads > 0) else {
        return "less than predicted".into();
    };
    let without_credit = 100.0 * ledger.without_credit as f64 / ledger.reads as f64;
    let predicted = advice.without_credit_percent.unwrap_or(0.0);
    if without_credit > predicted * OUT_OF_CREDIT && without_credit > 0.05 {
        return format!(
            "less than predicted: slow reads came together, so that {without_credit:.1} % of the reads found \
             no credit ({predicted:.1} % predicted); a larger --hedge-burst may help"
        );
    }
    "less than predicted, though the budget lasted: the hedges were slow too".into()
}

/// Whether these are the settings of the advice.
fn is_of(advice: &AdviceFigures, hedging: &HedgingFigures) -> bool {
    // Delays are kept in whole nanoseconds, and written in microseconds.
    let is_same = |one: f64, other: f64| (one - other).abs() < 0.01;
    let delays = advice.delay_us.zip(hedging.delay_us);
    (advice.percentile - PERCENTILE).abs() < 1e-9
        && delays.is_some_and(|(one, other)| is_same(one, other))
        && advice.budget_percent == Some(hedging.budget_percent)
        && advice.burst == Some(hedging.burst)
}

#[cfg(test)]
mod tests {
    use super::super::figures::{LedgerFigures, Spread};
    use super::*;
    use hedgerow::read::Ledger;

    fn pass(p99_us: f64, hedged: bool) -> PassFigures {
        let hedging = hedged.then(|| HedgingFigures {
            mode: "fixed".into(),
            delay_us: Some(1_500.0),
            ceiling_us: None,
            budget_percent: 5,
            burst: 1,
            storm_guard: true,
        });
        let ledger = Ledger { reads: 5_000, sent: 100, without_credit: 200, ..Ledger::default() };
        PassFigures {
            name: "pass".into(),
            ledger: hedging.as_ref().map(|_| LedgerFigures::new(&ledger)),
            hedging,
            reads: 5_000,
            misses: 0,
            errors: 0,
            errors_by_kind: Default::default(),
            unsent: 0,
            unanswered: 0,
            // The load came late: nothing of that is in what is checked.
            latency_us: Spread { p99: Some(p99_us * 50.0), ..Spread::default() },
            service_us: Spread { p99: Some(p99_us), ..Spread::default() },
            samples_us: None,
            latency_hdr: String::new(),
            service_hdr: String::new(),
            by_node: Vec::new(),
            copies_dropped: 0,
        }
    }

    fn advice() -> AdviceFigures {
        AdviceFigures {
            delay_us: Some(1_500.000_4),
            budget_percent: Some(5),
            burst: Some(1),
            after_us: Some(2_000.0),
            without_credit_percent: Some(0.5),
            ..AdviceFigures::without("hedge", 99.0, String::new())
        }
    }

    fn check(hedged_us: f64, without_us: f64, disturbed: bool, reads: u64) -> CheckFigures {
        let (mut pass, without) = (pass(hedged_us, true), pass(without_us, false));
        pass.reads = reads;
        CheckFigures::new(&advice(), &Checked { pass: &pass, without: &without, disturbed })
            .unwrap()
    }

    /// Fails if latency enters the check, if what does not help is borne out, or if a shortfall is
    /// put down to what the books of the hedges do not say.
    #[test]
    fn verdicts() {
        let fine = check(2_100.0, 20_000.0, false, 5_000);
        assert_eq!((fine.verdict, fine.measured_us), (Verdict::Confirmed, 2_100.0));
        assert!(fine.text.contains("p99 service time 2.10 ms") && !fine.refutes());
        for (hedged_us, disturbed, reads) in
            [(21_000.0, false, 5_000), (19_900.0, false, 5_000), (21_000.0, true, 200)]
        {
            let refuted = check(hedged_us, 20_000.0, disturbed, reads);
            assert_eq!(refuted.verdict, Verdict::NotConfirmed);
            assert!(
                refuted.text.contains("NOT confirm") && refuted.text.ends_with("Do not take it")
            );
        }
        let short = check(8_000.0, 20_000.0, false, 5_000);
        assert_eq!(short.verdict, Verdict::LessThanPredicted);
        assert!(short.text.contains("4.0 % of the reads found no credit"), "{}", short.text);
        assert_eq!(check(2_100.0, 20_000.0, true, 5_000).verdict, Verdict::Disturbed);
        assert_eq!(check(2_100.0, 20_000.0, false, 999).verdict, Verdict::TooFew);
    }

    /// Fails if a check of other settings stands beside an advice.
    #[test]
    fn other_settings_have_no_check() {
        let (pass, without) = (pass(2_100.0, true), pass(20_000.0, false));
        let checked = Checked { pass: &pass, without: &without, disturbed: false };
        let others = [
            AdviceFigures { delay_us: Some(1_501.0), ..advice() },
            AdviceFigures { budget_percent: Some(4), ..advice() },
            AdviceFigures { burst: Some(2), ..advice() },
            AdviceFigures { percentile: 99.9, ..advice() },
            AdviceFigures::without("leave", 99.0, String::new()),
        ];
        for other in others {
            assert_eq!(CheckFigures::new(&other, &checked), None, "{other:?}");
        }
    }
}
