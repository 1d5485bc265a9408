//! What other delays and budgets would have done, from the service times of the baseline passes.

use super::book::Book;
use super::figures::{AdviceFigures, Gains, PredictionFigures, WhatIfFigures};
use hdrhistogram::Histogram;
use hedgerow::read::{Advice, Delay, Gain, Goal, Hedging, Prediction, Recorded, WhatIf};
use std::time::Duration;

/// Bursts that the advised pair is predicted with. The prediction takes one above 64 as 64.
const BURSTS: [u32; 3] = [1, 10, 100];
/// A larger burst that makes the percentile so many times faster is worth a word.
const HELPS_MUCH: f64 = 1.25;

/// What is asked of the prediction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// The quantile to make fast.
    pub(crate) rank: f64,
    /// Highest budget, in percent.
    pub(crate) percent_max: u32,
    /// The burst.
    pub(crate) burst: u32,
    /// A delay that is predicted beside those of the grid.
    pub(crate) delay: Option<Duration>,
    /// Draws the resamples.
    pub(crate) seed: u64,
}

impl Wish {
    /// The quantile in percent, without what floating point adds to it.
    fn percentile(&self) -> f64 {
        (self.rank * 1e6).round() / 1e4
    }
}

/// The settings that are recommended after these baselines, if any are.
pub(crate) fn recommended<'a>(
    baselines: impl Iterator<Item = &'a Book>,
    wish: &Wish,
) -> Option<Hedging> {
    let (serving, spares) = recorded(baselines.map(node_times));
    let what_if = WhatIf::with_spares(serving, spares).ok()?;
    match advise(&what_if, wish) {
        Advice::Hedge { prediction, .. } => {
            let mut hedging = Hedging::default();
            // The grid's delays are quantiles, and may be longer than a client takes.
            hedging.delay = Delay::Fixed(prediction.delay.min(Duration::from_secs(60)));
            hedging.max_extra_load_percent = prediction.percent;
            hedging.burst = prediction.burst;
            Some(hedging)
        }
        _ => None,
    }
}

/// The times of one node in one pass, and whether it served no reads there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeTimes<'a> {
    /// Service times in nanoseconds.
    pub(crate) times: &'a Histogram<u64>,
    /// Some reads were sent there for its times only.
    pub(crate) is_spare: bool,
}

/// The times of each node of a pass.
pub(crate) fn node_times(book: &Book) -> Vec<NodeTimes<'_>> {
    let nodes = book.nodes.iter();
    nodes.map(|node| NodeTimes { times: node.times.histogram(), is_spare: node.is_spare }).collect()
}

/// The times over several passes: of the nodes that serve reads, and of those that do not. Nodes that
/// answered nothing are left out.
fn recorded<'a>(
    passes: impl Iterator<Item = Vec<NodeTimes<'a>>>,
) -> (Vec<Recorded>, Vec<Recorded>) {
    let mut nodes: Vec<(Recorded, bool)> = Vec::new();
    for pass in passes {
        nodes.resize(nodes.len().max(pass.len()), (Recorded::new(), false));
        for ((node, is_spare), of) in nodes.iter_mut().zip(pass) {
            *is_spare |= of.is_spare;
            for value in of.times.iter_recorded() {
                let time = Duration::from_nanos(value.value_iterated_to());
                node.record(time, value.count_since_last_iteration());
            }
        }
    }
    nodes.retain(|(node, _)| node.samples() > 0);
    let (spares, serving): (Vec<_>, Vec<_>) =
        nodes.into_iter().partition(|(_, is_spare)| *is_spare);
    let times = |nodes: Vec<(Recorded, bool)>| nodes.into_iter().map(|(node, _)| node).collect();
    (times(serving), times(spares))
}

fn advise(what_if: &WhatIf, wish: &Wish) -> Advice {
    let goal = Goal { rank: wish.rank, percent_max: wish.percent_max, burst: wish.burst };
    what_if.recommend(&goal, &mut fastrand::Rng::with_seed(wish.seed))
}

/// The prediction and the advice from the histograms of nodes, pass by pass.
pub(crate) fn predict<'a>(
    passes: impl Iterator<Item = Vec<NodeTimes<'a>>>,
    wish: &Wish,
) -> (Option<WhatIfFigures>, AdviceFigures) {
    let percentile = wish.percentile();
    let (serving, spares) = recorded(passes);
    let count = serving.len() + spares.len();
    let Ok(what_if) = WhatIf::with_spares(serving, spares) else {
        let text = format!(
            "none: reads without hedges came from {count} node{}, and a prediction needs the times of \
             two (two replicas, or a policy that reads from the primary too)",
            if count == 1 { "" } else { "s" }
        );
        return (None, AdviceFigures::without("unknown", percentile, text));
    };
    let advised = advise(&what_if, wish);
    let advice = advice(&advised, &what_if, wish);
    let mut grid = what_if.grid(wish.burst);
    if !grid.iter().any(|pair| pair.percent == wish.percent_max) {
        // A row for the budget that was asked for.
        let delays: Vec<Duration> = grid.iter().map(|pair| pair.delay).collect();
        let row = delays.into_iter().map(|at| what_if.predict(at, wish.percent_max, wish.burst));
        grid.extend(row.collect::<Vec<_>>());
    }
    let asked = wish.delay.map(|delay| what_if.predict(delay, wish.percent_max, wish.burst));
    if let Some(asked) = asked {
        grid.push(asked);
    }
    grid.sort_by_key(|pair| (pair.percent, pair.delay));
    grid.dedup_by_key(|pair| (pair.percent, pair.delay));
    let figures = WhatIfFigures {
        percentile,
        baseline: PredictionFigures::new(&what_if.baseline()),
        asked: asked.as_ref().map(PredictionFigures::new),
        grid: grid.iter().map(PredictionFigures::new).collect(),
        bursts: bursts(&advised, &what_if).iter().map(PredictionFigures::new).collect(),
    };
    (Some(figures), advice)
}

/// The latency of a prediction at `rank`, where it has it; in microseconds.
pub(crate) fn at_rank(prediction: &Prediction, rank: f64) -> Option<f64> {
    let ranks = [0.5, 0.9, 0.99, 0.999, 0.9999];
    let at = ranks.iter().position(|known| (known - rank).abs() < 1e-9)?;
    prediction.latency[at].map(|time| time.as_secs_f64() * 1e6)
}

fn advice(advice: &Advice, what_if: &WhatIf, wish: &Wish) -> AdviceFigures {
    let percentile = wish.percentile();
    match advice {
        Advice::Hedge { prediction, gain } => {
            let text = format!(
                "hedge after {}, for at most {} % of the reads, with a burst of {}: p{percentile} service \
                 time falls by a factor of {:.1} (resampled: {:.1} to {:.1}) for {:.1} % more reads{}",
                time(prediction.delay),
                prediction.percent,
                prediction.burst,
                gain.factor,
                gain.low,
                gain.high,
                prediction.extra_load_percent,
                larger_burst(prediction, what_if, wish).unwrap_or_default()
            );
            AdviceFigures {
                delay_us: Some(prediction.delay.as_secs_f64() * 1e6),
                budget_percent: Some(prediction.percent),
                burst: Some(prediction.burst),
                before_us: at_rank(&what_if.baseline(), wish.rank),
                after_us: at_rank(prediction, wish.rank),
                extra_load_percent: Some(prediction.extra_load_percent),
                without_credit_percent: Some(prediction.without_credit_percent),
                gain: Some(gains(gain)),
                ..AdviceFigures::without("hedge", percentile, text)
            }
        }
        Advice::Leave { gain } => {
            let text = format!(
                "do not hedge: with a burst of {} not even the best delay and budget lower p{percentile} \
                 service time by 2 % for sure (factor {:.2}, resampled: {:.2} to {:.2}){}",
                wish.burst,
                gain.factor,
                gain.low,
                gain.high,
                first_burst(what_if, wish).unwrap_or_default()
            );
            AdviceFigures {
                gain: Some(gains(gain)),
                ..AdviceFigures::without("leave", percentile, text)
            }
        }
        Advice::TooFew { samples, needed } => {
            let text = format!(
                "none: {samples} reads without hedges do not tell p{percentile}, {needed} do; measure \
                 longer (--duration) or more (--rate)"
            );
            AdviceFigures {
                samples: Some(*samples),
                needed: Some(*needed),
                ..AdviceFigures::without("too-few", percentile, text)
            }
        }
    }
}

/// The advised pair with every burst of the table; of the user's too.
fn bursts(advised: &Advice, what_if: &WhatIf) -> Vec<Prediction> {
    let Advice::Hedge { prediction, .. } = advised else { return Vec::new() };
    let mut bursts = [BURSTS.as_slice(), &[prediction.burst]].concat();
    bursts.sort_unstable();
    bursts.dedup();
    let predict = |burst| what_if.predict(prediction.delay, prediction.percent, burst);
    bursts.into_iter().map(predict).collect()
}

/// What the smallest larger burst that helps much would do for the advised pair.
fn larger_burst(advised: &Prediction, what_if: &WhatIf, wish: &Wish) -> Option<String> {
    let now = at_rank(advised, wish.rank)?;
    let larger = BURSTS.into_iter().filter(|burst| *burst > advised.burst);
    let predicted = larger.map(|burst| what_if.predict(advised.delay, advised.percent, burst));
    let mut reached = predicted.map(|pair| (pair.burst, at_rank(&pair, wish.rank)));
    let (burst, then) =
        reached.find(|(_, then)| then.is_some_and(|then| then * HELPS_MUCH < now))?;
    Some(format!(
        "; {:.1} % of the reads find no credit: --hedge-burst {burst} would make it {} instead of {}",
        advised.without_credit_percent,
        time(Duration::from_nanos((then? * 1e3) as u64)),
        time(Duration::from_nanos((now * 1e3) as u64))
    ))
}

/// The smallest larger burst with which something would be recommended.
fn first_burst(what_if: &WhatIf, wish: &Wish) -> Option<String> {
    BURSTS.into_iter().filter(|burst| *burst > wish.burst).find_map(|burst| {
        let Advice::Hedge { gain, .. } = advise(what_if, &Wish { burst, ..*wish }) else {
            return None;
        };
        let factor = gain.factor;
        Some(format!("; with --hedge-burst {burst} it would fall by a factor of {factor:.1}"))
    })
}

fn gains(gain: &Gain) -> Gains {
    Gains { factor: gain.factor, low: gain.low, high: gain.high }
}

/// A length of time for people: three digits and a unit.
pub(crate) fn time(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    match us {
        _ if us < 1_000.0 => format!("{us:.0} us"),
        _ if us < 10_000.0 => format!("{:.2} ms", us / 1e3),
        _ if us < 100_000.0 => format!("{:.1} ms", us / 1e3),
        _ if us < 1_000_000.0 => format!("{:.0} ms", us / 1e3),
        _ => format!("{:.2} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(stalls: bool, reads: u64) -> Histogram<u64> {
        let mut times = Histogram::new(3).unwrap();
        for n in 0..reads {
            let stalled = stalls && n % 50 == 0;
            times.record(if stalled { 50_000_000 } else { 300_000 + n % 89 * 1_000 }).unwrap();
        }
        times
    }

    fn wish(rank: f64) -> Wish {
        Wish { rank, percent_max: 5, burst: 1, delay: None, seed: 1 }
    }

    fn once(nodes: &[Histogram<u64>]) -> impl Iterator<Item = Vec<NodeTimes<'_>>> {
        let nodes = nodes.iter().map(|times| NodeTimes { times, is_spare: false });
        std::iter::once(nodes.collect())
    }

    fn advised(nodes: &[Histogram<u64>], rank: f64) -> AdviceFigures {
        predict(once(nodes), &wish(rank)).1
    }

    /// Fails if a tail that a hedge cures is not found, if one that is not there is, or if what
    /// cannot be told is told.
    #[test]
    fn advice_fits_the_times() {
        let hedge = advised(&[node(true, 10_000), node(true, 10_000)], 0.99);
        assert_eq!(hedge.kind, "hedge");
        assert!(hedge.gain.unwrap().low > 5.0 && hedge.extra_load_percent.unwrap() <= 5.0);
        assert!(hedge.before_us.unwrap() > 40_000.0 && hedge.after_us.unwrap() < 2_000.0);
        assert_eq!(advised(&[node(false, 9_000), node(false, 9_000)], 0.99).kind, "leave");
        let few = advised(&[node(true, 300), node(true, 300)], 0.99);
        assert_eq!(
            (few.kind.as_str(), few.samples, few.needed),
            ("too-few", Some(600), Some(1_000))
        );
        let one = advised(&[node(true, 3_000), node(true, 0)], 0.99);
        assert!(one.kind == "unknown" && one.text.contains("1 node,"), "{}", one.text);
    }

    /// One read in 25 stalls, more than a burst of one pays for. Fails if the advice does not name
    /// its burst, or is silent where a larger one would help much.
    #[test]
    fn a_larger_burst_is_named_where_it_helps() {
        let mut times = Histogram::new(3).unwrap();
        for n in 0..20_000 {
            times.record(if n % 25 == 0 { 50_000_000 } else { 300_000 + n % 89 * 1_000 }).unwrap();
        }
        let nodes = [times.clone(), times];
        let (what_if, one) = predict(once(&nodes), &wish(0.99));
        assert!(one.text.contains("with a burst of 1"), "{}", one.text);
        assert!(one.text.contains("--hedge-burst 10"), "{}", one.text);
        let bursts: Vec<u32> = what_if.unwrap().bursts.iter().map(|pair| pair.burst).collect();
        assert!(one.kind != "hedge" || bursts == [1, 10, 100], "{bursts:?}");
        let (what_if, ten) = predict(once(&nodes), &Wish { burst: 30, ..wish(0.99) });
        assert!(ten.kind == "hedge" && !ten.text.contains("--hedge-burst"), "{}", ten.text);
        let bursts: Vec<u32> = what_if.unwrap().bursts.iter().map(|pair| pair.burst).collect();
        assert_eq!(bursts, [1, 10, 30, 100]);
    }

    /// Fails if a delay that was asked for is missing in the grid, or the grid is out of order.
    #[test]
    fn an_asked_delay_is_in_the_grid() {
        let nodes = [node(true, 10_000), node(false, 10_000)];
        let wish = Wish { delay: Some(Duration::from_millis(7)), ..wish(0.99) };
        let (what_if, _) = predict(once(&nodes), &wish);
        let what_if = what_if.unwrap();
        assert!(
            what_if.grid.iter().any(|pair| pair.delay_us == 7_000.0 && pair.budget_percent == 5)
        );
        assert!(what_if.grid.is_sorted_by_key(|pair| (pair.budget_percent, pair.delay_us as u64)));
        assert_eq!(what_if.asked.unwrap().delay_us, 7_000.0);
    }
}
