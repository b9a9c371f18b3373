//! Measurement of one case: several algorithms and the MPI's own function, block by block.

use std::time::Duration;

use anyhow::Result;
use bruckner_algorithms::Expression;
use bruckner_choose::TuningResult;
use bruckner_measure::{Case, TimingMethod, compare, median, quantile, ratios};

use super::LAUNCHES;
use crate::bench::{Contender, Effort, Problem, Ranks};

/// The fastest algorithm of a case.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Winner {
    pub(super) expression: Expression,
    /// Time of the algorithm divided by that of the MPI's own function; `interval` is the confidence interval of this ratio.
    pub(super) ratio: f64,
    pub(super) interval: [f64; 2],
}

/// Result of measuring one case.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct CaseResult {
    /// Time of the MPI's own function, in seconds.
    pub(super) native: f64,
    /// The fastest algorithm; `None` if no algorithm is significantly faster than the MPI's own function.
    pub(super) winner: Option<Winner>,
}

/// Minimum number of blocks if the time limit allows.
const BLOCKS: usize = 15;
/// Minimum number of blocks, even beyond the time limit: enough for an interval at [`CONFIDENCE`] if all of them agree.
const LEAST: usize = 7;
/// A candidate slower than the best by this factor in each of the first blocks is dropped.
const DROP_FACTOR: f64 = 1.2;
/// Confidence level of the two-sided interval; only its upper end counts, which gives 99 %.
const CONFIDENCE: f64 = 0.98;
/// Largest median of the ratios of a winner's time to native's time.
const MEDIAN: f64 = 0.95;
/// Largest ratio of a winner's time to native's time in nineteen of twenty blocks.
const WORST: f64 = 1.05;
/// Largest ratio of a winner's time to native's time for calls back to back.
const BACK_TO_BACK: f64 = 1.0;
/// Factor by which another algorithm must be faster to replace a confirmed winner.
const REPLACE_FACTOR: f64 = 1.1;
/// Time that a composition of two MPI functions must save to win, in seconds: about the overhead of a call that a composition handles.
const COMPOSITION_OVERHEAD: f64 = 1e-6;

/// Measures candidates against native; `before` is the earlier result of the case. Collective; all ranks get the same result.
pub(super) fn tune_case(
    ranks: &mut Ranks,
    problem: &Problem,
    candidates: &[String],
    before: Option<&TuningResult>,
    time: Duration,
    told: &mut dyn FnMut(f64),
) -> Result<CaseResult> {
    let algorithms = candidates.iter().cloned().map(Contender::Algorithm);
    let contenders: Vec<Contender> = std::iter::once(Contender::Native).chain(algorithms).collect();
    let effort = Effort {
        blocks: BLOCKS,
        most: time,
        precision: 0.02,
        confidence: 0.99,
        least: LEAST,
        hopeless: Some(DROP_FACTOR),
    };
    let case = ranks.measure(problem, &contenders, &effort, told)?;
    judge(&case, candidates, before)
}

fn judge(case: &Case, candidates: &[String], before: Option<&TuningResult>) -> Result<CaseResult> {
    let native = Contender::Native.to_string();
    let mut winners: Vec<Winner> = Vec::new();
    for candidate in candidates {
        let all = ratios(case, candidate, &native, TimingMethod::FromBarrier);
        let Some(comparison) = compare(std::slice::from_ref(&all), CONFIDENCE) else { continue };
        let after = median(&ratios(case, candidate, &native, TimingMethod::BackToBack));
        let wins = !comparison.too_few
            && comparison.interval.high < 1.0
            && comparison.ratio <= MEDIAN
            && quantile(&all, 0.95) <= WORST
            && after <= BACK_TO_BACK;
        if wins {
            winners.push(Winner {
                expression: candidate.parse()?,
                ratio: comparison.ratio,
                interval: [comparison.interval.low, comparison.interval.high],
            });
        }
    }
    winners.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let first = case.contenders.iter().position(|contender| contender.name == native);
    let times = case.blocks.iter().flat_map(|block| &block.runs).filter(|run| Some(run.contender) == first);
    let native = median(&times.map(|run| median(&run.times(TimingMethod::FromBarrier))).collect::<Vec<_>>());
    // A composition of two MPI functions handles fewer calls than a planned algorithm, and is reached on a slower path.
    let planned = winners.iter().find(|winner| !winner.expression.is_composition());
    let bar = planned.map_or(f64::INFINITY, |planned| planned.ratio / REPLACE_FACTOR);
    let worth = |winner: &Winner| winner.ratio < bar && native * (1.0 - winner.ratio) >= COMPOSITION_OVERHEAD;
    winners.retain(|winner| !winner.expression.is_composition() || worth(winner));
    // An earlier winner that wins again stays the winner: otherwise two equally fast algorithms would take turns, and neither would be
    // confirmed.
    let best = winners.first().map_or(0.0, |best| best.ratio);
    let again = |winner: &Winner| {
        before.is_some_and(|before| {
            winner.expression == before.expression
                && (before.launches < LAUNCHES || winner.ratio <= REPLACE_FACTOR * best)
        })
    };
    let winner = winners.iter().find(|winner| again(winner)).or(winners.first()).cloned();
    Ok(CaseResult { native, winner })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bruckner_measure::{Block, BlockTimes, Contender as Named};

    /// Returns a case with native at 1000 ns and an algorithm with these times in ns, one for each block.
    fn case(times: impl Iterator<Item = u64>, back_to_back: u64) -> Case {
        let run = |contender, time, after| BlockTimes {
            contender,
            from_barrier: vec![vec![time]],
            back_to_back: vec![after],
            calls: 1,
        };
        let block = |time| Block { runs: vec![run(0, 1000, 1000), run(1, time, back_to_back)] };
        let named = |name: &str| Named { name: name.into(), refused: None };
        Case {
            collective: "allreduce".into(),
            bytes: 8,
            counts: None,
            contenders: vec![named("native"), named("ring")],
            blocks: times.map(block).collect(),
            skew: Vec::new(),
            hops: Vec::new(),
        }
    }

    #[test]
    fn a_win_is_sure_clear_and_steady() {
        let won = |case: &Case| {
            judge(case, &["ring".to_owned()], None).unwrap().winner.map(|winner| format!("{:.2}", winner.ratio))
        };
        assert_eq!(won(&case((0..20).map(|_| 800), 900)).as_deref(), Some("0.80"));
        // Too few blocks; too small a gain; much slower in some blocks; slower back to back.
        assert_eq!(won(&case((0..4).map(|_| 800), 900)), None);
        assert_eq!(won(&case((0..20).map(|_| 960), 900)), None);
        assert_eq!(won(&case((0..20).map(|n| if n % 8 == 0 { 1500 } else { 800 }), 900)), None);
        assert_eq!(won(&case((0..20).map(|_| 800), 1100)), None);
        let native = judge(&case((0..20).map(|_| 800), 900), &[], None).unwrap().native;
        assert!((native - 1e-6).abs() < 1e-12);
    }

    /// Returns the winner among native and two others after twenty blocks with these times in ns.
    fn three(native: u64, others: [(&str, u64); 2], before: Option<&TuningResult>) -> Option<String> {
        let run = |contender, time| BlockTimes {
            contender,
            from_barrier: vec![vec![time]],
            back_to_back: vec![time],
            calls: 1,
        };
        let named = |name: &str| Named { name: name.into(), refused: None };
        let block = || Block { runs: vec![run(0, native), run(1, others[0].1), run(2, others[1].1)] };
        let case = Case {
            contenders: vec![named("native"), named(others[0].0), named(others[1].0)],
            blocks: (0..20).map(|_| block()).collect(),
            ..case(std::iter::empty(), 0)
        };
        let names = others.map(|(name, _)| name.to_owned());
        judge(&case, &names, before).unwrap().winner.map(|winner| winner.expression.to_string())
    }

    /// Of two equally fast algorithms the earlier winner wins again; a much faster one replaces it once it is confirmed.
    #[test]
    fn who_won_before_is_confirmed() {
        let won = |times: [u64; 2], before: &str, launches| {
            let before = TuningResult {
                name: bruckner::Name::Allreduce,
                bytes: 8,
                expression: before.parse().unwrap(),
                native_seconds: 1e-6,
                ratio: 0.5,
                interval: [0.5, 0.5],
                launches,
            };
            three(1000, [("ring", times[0]), ("sparbit", times[1])], Some(&before)).unwrap()
        };
        assert_eq!(won([500, 520], "sparbit", 1), "sparbit");
        assert_eq!(won([500, 600], "sparbit", 1), "sparbit");
        assert_eq!(won([500, 600], "sparbit", 2), "ring");
        assert_eq!(won([500, 520], "sparbit", 2), "sparbit");
        assert_eq!(won([500, 1000], "sparbit", 1), "ring");
        assert_eq!(won([500, 520], "native", 2), "ring");
    }

    /// A composition of MPI functions must save more than its overhead, and be clearly faster than a planned algorithm.
    #[test]
    fn compositions_must_be_worth_it() {
        let won =
            |native, [algorithm, parts]: [u64; 2]| three(native, [("ring", algorithm), ("native-rooted", parts)], None);
        assert_eq!(won(10_000, [9_900, 5_000]).as_deref(), Some("native-rooted"));
        assert_eq!(won(10_000, [5_200, 5_000]).as_deref(), Some("ring"));
        assert_eq!(won(10_000, [6_000, 5_000]).as_deref(), Some("native-rooted"));
        assert_eq!(won(1_000, [990, 500]), None);
    }
}
