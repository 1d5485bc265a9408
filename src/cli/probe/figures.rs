//! The parts of a probe's report, as the JSON file holds them and the page and table show them.

use super::super::record::Times;
use super::coded;
use super::heat::{COLUMNS, Heat};
use super::measure::{Kind, Passed};
use hedgerow::read::{Delay, Hedging, Ledger, Prediction};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// How times spread, in microseconds; `null` where nothing was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) count: u64,
    pub(crate) mean: Option<f64>,
    pub(crate) min: Option<f64>,
    pub(crate) p50: Option<f64>,
    pub(crate) p90: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) p99_9: Option<f64>,
    pub(crate) p99_99: Option<f64>,
    pub(crate) max: Option<f64>,
}

impl Spread {
    /// Of these times.
    pub(crate) fn new(times: &Times) -> Spread {
        let any = times.count() > 0;
        let at = |quantile: f64| any.then(|| times.quantile_ns(quantile) as f64 / 1e3);
        Spread {
            count: times.count(),
            mean: any.then(|| times.sum_ns() as f64 / times.count() as f64 / 1e3),
            min: any.then(|| times.min_ns() as f64 / 1e3),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: at(1.0),
        }
    }

    /// The columns of a table.
    pub(crate) fn columns(&self) -> [(&'static str, Option<f64>); 6] {
        [
            ("p50", self.p50),
            ("p90", self.p90),
            ("p99", self.p99),
            ("p99.9", self.p99_9),
            ("p99.99", self.p99_99),
            ("max", self.max),
        ]
    }
}

/// One node of the deployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeFigures {
    /// Its address, without credentials.
    pub(crate) address: String,
    /// `primary` or `replica`.
    pub(crate) role: String,
}

/// Settings of hedging.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HedgingFigures {
    /// `fixed` or `adaptive`.
    pub(crate) mode: String,
    /// The fixed delay; `null` for an adaptive one.
    pub(crate) delay_us: Option<f64>,
    /// The longest delay of an adaptive one; files of before it was named have it as their delay.
    #[serde(default)]
    pub(crate) ceiling_us: Option<f64>,
    pub(crate) budget_percent: u32,
    pub(crate) burst: u32,
    pub(crate) storm_guard: bool,
}

impl HedgingFigures {
    /// Of these settings.
    pub(crate) fn new(hedging: &Hedging) -> HedgingFigures {
        let us = |delay: Duration| delay.as_secs_f64() * 1e6;
        let (mode, delay_us, ceiling_us) = match hedging.delay {
            Delay::Fixed(delay) => ("fixed", Some(us(delay)), None),
            Delay::Quantile { ceiling, .. } => ("adaptive", None, Some(us(ceiling))),
            _ => ("other", None, None),
        };
        HedgingFigures {
            mode: mode.into(),
            delay_us,
            ceiling_us,
            budget_percent: hedging.max_extra_load_percent,
            burst: hedging.burst,
            storm_guard: hedging.storm_guard,
        }
    }
}

/// What the hedges of a pass did and cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LedgerFigures {
    pub(crate) reads: u64,
    pub(crate) sent: u64,
    pub(crate) won: u64,
    pub(crate) lost: u64,
    pub(crate) both_failed: u64,
    pub(crate) without_credit: u64,
    pub(crate) held_back: u64,
    pub(crate) wasted_bytes: u64,
    pub(crate) wasted_us: f64,
    /// Hedges for 100 reads.
    pub(crate) extra_load_percent: f64,
    /// Won hedges of 100 that are decided.
    pub(crate) win_percent: Option<f64>,
    /// By how much winning hedges won, warm-up included.
    pub(crate) margin_p50_us: Option<f64>,
    pub(crate) margin_p99_us: Option<f64>,
}

impl LedgerFigures {
    /// Of these books.
    pub(crate) fn new(ledger: &Ledger) -> LedgerFigures {
        let margin = |rank| ledger.margins.at(rank).map(|margin| margin.as_secs_f64() * 1e6);
        LedgerFigures {
            reads: ledger.reads,
            sent: ledger.sent,
            won: ledger.won,
            lost: ledger.lost,
            both_failed: ledger.both_failed,
            without_credit: ledger.without_credit,
            held_back: ledger.held_back,
            wasted_bytes: ledger.wasted_bytes,
            wasted_us: ledger.wasted_time.as_secs_f64() * 1e6,
            extra_load_percent: ledger.extra_load_percent(),
            win_percent: ledger.win_percent(),
            margin_p50_us: margin(0.5),
            margin_p99_us: margin(0.99),
        }
    }
}

/// What one node answered in one pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AnswerFigures {
    /// Copies that were answered: originals and hedges, winners and losers.
    pub(crate) copies: u64,
    pub(crate) hedges: u64,
    pub(crate) won: u64,
    /// It serves no reads of this pass: some were sent there beside them, for its times.
    pub(crate) is_spare: bool,
    /// From queueing to the reply.
    pub(crate) time_us: Spread,
    /// The same, in nanoseconds, as HdrHistogram V2 in base64.
    pub(crate) hdr: String,
}

/// One pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PassFigures {
    pub(crate) name: String,
    pub(crate) hedging: Option<HedgingFigures>,
    pub(crate) reads: u64,
    pub(crate) misses: u64,
    pub(crate) errors: u64,
    pub(crate) errors_by_kind: BTreeMap<String, u64>,
    pub(crate) unsent: u64,
    pub(crate) unanswered: u64,
    /// From the planned send to the reply.
    pub(crate) latency_us: Spread,
    /// From the real send to the reply.
    pub(crate) service_us: Spread,
    /// Every latency in the order of the replies; `null` where there are too many.
    pub(crate) samples_us: Option<Vec<f64>>,
    /// The latency in nanoseconds, as HdrHistogram V2 in base64.
    pub(crate) latency_hdr: String,
    pub(crate) service_hdr: String,
    /// By node, in the order of `nodes`.
    pub(crate) by_node: Vec<AnswerFigures>,
    pub(crate) copies_dropped: u64,
    pub(crate) ledger: Option<LedgerFigures>,
}

impl PassFigures {
    /// Of this pass.
    pub(crate) fn new(passed: &Passed) -> PassFigures {
        let book = &passed.book;
        let by_node = book.nodes.iter().map(|node| AnswerFigures {
            copies: node.times.count(),
            hedges: node.hedges,
            won: node.won,
            is_spare: node.is_spare,
            time_us: Spread::new(&node.times),
            hdr: coded::encode(node.times.histogram()),
        });
        PassFigures {
            name: passed.kind.name().into(),
            hedging: passed.hedging.as_ref().map(HedgingFigures::new),
            reads: book.latency.count(),
            misses: book.misses,
            errors: book.error_count(),
            errors_by_kind: book.errors.clone(),
            unsent: book.unsent,
            unanswered: book.unanswered,
            latency_us: Spread::new(&book.latency),
            service_us: Spread::new(&book.service),
            samples_us: book.samples_us(),
            latency_hdr: coded::encode(book.latency.histogram()),
            service_hdr: coded::encode(book.service.histogram()),
            by_node: by_node.collect(),
            copies_dropped: book.copies_dropped,
            ledger: passed.ledger.as_ref().map(LedgerFigures::new),
        }
    }

    /// Hedges for 100 reads; 0 for a pass without hedging.
    pub(crate) fn extra_load_percent(&self) -> f64 {
        self.ledger.as_ref().map_or(0.0, |ledger| ledger.extra_load_percent)
    }

    /// Whether predictions are made from it.
    pub(crate) fn is_baseline(&self) -> bool {
        self.hedging.is_none() && self.name != Kind::CheckBaseline.name()
    }
}

/// What is predicted for one delay and budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PredictionFigures {
    pub(crate) delay_us: f64,
    pub(crate) budget_percent: u32,
    pub(crate) burst: u32,
    pub(crate) p50: Option<f64>,
    pub(crate) p90: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) p99_9: Option<f64>,
    pub(crate) p99_99: Option<f64>,
    pub(crate) extra_load_percent: f64,
    pub(crate) without_credit_percent: f64,
}

impl PredictionFigures {
    /// Of this prediction.
    pub(crate) fn new(prediction: &Prediction) -> PredictionFigures {
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let [p50, p90, p99, p99_9, p99_99] = prediction.latency.map(|time| time.map(us));
        PredictionFigures {
            delay_us: us(prediction.delay),
            budget_percent: prediction.percent,
            burst: prediction.burst,
            p50,
            p90,
            p99,
            p99_9,
            p99_99,
            extra_load_percent: prediction.extra_load_percent,
            without_credit_percent: prediction.without_credit_percent,
        }
    }

    /// The latency at a percentile, or at the nearest lower one that is predicted.
    pub(crate) fn at(&self, percentile: f64) -> Option<f64> {
        match percentile {
            p if p >= 99.99 => self.p99_99,
            p if p >= 99.9 => self.p99_9,
            p if p >= 99.0 => self.p99,
            p if p >= 90.0 => self.p90,
            _ => self.p50,
        }
    }
}

/// Predictions from the baseline passes; latencies in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WhatIfFigures {
    /// The percentile that the advice is for.
    pub(crate) percentile: f64,
    /// Without hedges.
    pub(crate) baseline: PredictionFigures,
    /// What the user asked about.
    pub(crate) asked: Option<PredictionFigures>,
    /// By budget, then by delay; all with the burst that was asked for.
    pub(crate) grid: Vec<PredictionFigures>,
    /// The recommended delay and budget with other bursts; empty where none are recommended.
    #[serde(default)]
    pub(crate) bursts: Vec<PredictionFigures>,
}

/// By what factor the percentile falls, and where that lies in 95 % of resamples: how much is the luck of
/// the draw, and nothing about what the prediction takes for granted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Gains {
    pub(crate) factor: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// What is recommended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AdviceFigures {
    /// `hedge`, `leave`, `too-few`, `unknown`, `unsteady` (the baselines disagree) or `unconfirmed` (the
    /// live check did not bear it out); settings to take are in `hedge` alone.
    pub(crate) kind: String,
    /// The same as a sentence.
    pub(crate) text: String,
    pub(crate) percentile: f64,
    pub(crate) delay_us: Option<f64>,
    pub(crate) budget_percent: Option<u32>,
    pub(crate) burst: Option<u32>,
    pub(crate) before_us: Option<f64>,
    pub(crate) after_us: Option<f64>,
    pub(crate) extra_load_percent: Option<f64>,
    /// Late reads of 100 that find no credit, as predicted.
    #[serde(default)]
    pub(crate) without_credit_percent: Option<f64>,
    pub(crate) gain: Option<Gains>,
    pub(crate) samples: Option<u64>,
    pub(crate) needed: Option<u64>,
}

impl AdviceFigures {
    /// With nothing but a sentence.
    pub(crate) fn without(kind: &str, percentile: f64, text: String) -> AdviceFigures {
        AdviceFigures {
            kind: kind.into(),
            text,
            percentile,
            delay_us: None,
            budget_percent: None,
            burst: None,
            before_us: None,
            after_us: None,
            extra_load_percent: None,
            without_credit_percent: None,
            gain: None,
            samples: None,
            needed: None,
        }
    }

    /// Withholds a recommendation since the baselines disagree, which it was predicted from.
    pub(crate) fn withhold_unsteady(&mut self) {
        if self.kind == "hedge" || self.kind == "leave" {
            let text = "none: the two baselines disagree, and a prediction from both holds for neither; \
                        measure on a quieter machine, or longer (--duration)";
            *self = AdviceFigures::without("unsteady", self.percentile, text.into());
        }
    }

    /// Withholds a recommendation that the live check did not bear out. Its settings stay in the check.
    pub(crate) fn withhold_unconfirmed(&mut self) {
        let text = format!("not confirmed by the live check, do not take it: {}", self.text);
        *self = AdviceFigures::without("unconfirmed", self.percentile, text);
    }
}

/// Answers of each node over the time of the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HeatFigures {
    /// Time that the columns span.
    pub(crate) span_s: f64,
    pub(crate) columns: usize,
    /// Where rows start, and the last one ends, in microseconds.
    pub(crate) bounds_us: Vec<f64>,
    /// By node: column, row and count of the cells that are not empty.
    pub(crate) by_node: Vec<Vec<(usize, usize, u32)>>,
}

impl HeatFigures {
    /// Of this map, of so many nodes.
    pub(crate) fn new(heat: &Heat, nodes: usize) -> HeatFigures {
        HeatFigures {
            span_s: heat.span_s(),
            columns: COLUMNS,
            bounds_us: Heat::bounds_us(),
            by_node: (0..nodes).map(|node| heat.cells(node)).collect(),
        }
    }
}
