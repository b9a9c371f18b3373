//! One race: algorithms and the MPI's own function, block by block.

use std::time::Duration;

use anyhow::Result;
use bruckner_algorithms::Expression;
use bruckner_choose::Verdict;
use bruckner_measure::{Case, Look, compare, median, quantile, ratios};

use super::LAUNCHES;
use crate::bench::{Contender, Effort, Problem, Ranks};

/// Who won, by how much.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Winner {
    pub(super) expression: Expression,
    /// Its time as a part of the MPI's.
    pub(super) ratio: f64,
    pub(super) interval: [f64; 2],
}

/// What came of a race.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Found {
    /// What the MPI's own function took, in seconds.
    pub(super) native: f64,
    /// None where nobody is surely faster.
    pub(super) winner: Option<Winner>,
}

/// Enough blocks for an interval of the confidence that is asked for.
const BLOCKS: usize = 15;
/// So few are enough if all of them agree, and so many there must be.
const LEAST: usize = 7;
/// Whoever takes so many times as long as the best at first does not win.
const HOPELESS: f64 = 1.2;
/// Of an interval of which one side counts, at 99 %.
const CONFIDENCE: f64 = 0.98;
/// A win must be by so much, in the median;
const MEDIAN: f64 = 0.95;
/// in nineteen of twenty blocks no worse than this;
const WORST: f64 = 1.05;
/// and calls that follow each other must not be slower.
const BACK_TO_BACK: f64 = 1.0;
/// Who was confirmed stays as long as nobody is faster by more than this.
const ALIKE: f64 = 1.1;
/// What calls that are served by two of the MPI's own functions take longer to get there, in seconds.
const LONGER_WAY: f64 = 1e-6;

/// Races some algorithms, one of which may have won before. Collective; all ranks get the same.
pub(super) fn race(
    ranks: &mut Ranks,
    problem: &Problem,
    candidates: &[String],
    before: Option<&Verdict>,
    time: Duration,
    told: &mut dyn FnMut(f64),
) -> Result<Found> {
    let algorithms = candidates.iter().cloned().map(Contender::Algorithm);
    let contenders: Vec<Contender> = std::iter::once(Contender::Native).chain(algorithms).collect();
    let effort = Effort {
        blocks: BLOCKS,
        most: time,
        precision: 0.02,
        confidence: 0.99,
        least: LEAST,
        hopeless: Some(HOPELESS),
    };
    let case = ranks.measure(problem, &contenders, &effort, told)?;
    judge(&case, candidates, before)
}

fn judge(case: &Case, candidates: &[String], before: Option<&Verdict>) -> Result<Found> {
    let native = Contender::Native.to_string();
    let mut winners: Vec<Winner> = Vec::new();
    for candidate in candidates {
        let all = ratios(case, candidate, &native, Look::FromBarrier);
        let Some(comparison) = compare(std::slice::from_ref(&all), CONFIDENCE) else { continue };
        let after = median(&ratios(case, candidate, &native, Look::BackToBack));
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
    let native = median(&times.map(|run| median(&run.times(Look::FromBarrier))).collect::<Vec<_>>());
    // Two of the MPI's own functions serve fewer calls than an algorithm does, and on a longer way.
    let planned = winners.iter().find(|winner| !winner.expression.is_composition());
    let bar = planned.map_or(f64::INFINITY, |planned| planned.ratio / ALIKE);
    let worth = |winner: &Winner| winner.ratio < bar && native * (1.0 - winner.ratio) >= LONGER_WAY;
    winners.retain(|winner| !winner.expression.is_composition() || worth(winner));
    // Who has won before, and wins again, is the winner: of two that are alike, now one is ahead and now the other, and none would be
    // confirmed.
    let best = winners.first().map_or(0.0, |best| best.ratio);
    let again = |winner: &Winner| {
        before.is_some_and(|before| {
            winner.expression == before.expression
                && (before.launches < LAUNCHES || winner.ratio <= ALIKE * best)
        })
    };
    let winner = winners.iter().find(|winner| again(winner)).or(winners.first()).cloned();
    Ok(Found { native, winner })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bruckner_measure::{Block, Contender as Named, Run};

    /// A case of some blocks, in which an algorithm takes so many nanoseconds and the MPI 1000.
    fn case(times: impl Iterator<Item = u64>, back_to_back: u64) -> Case {
        let run = |contender, time, after| Run {
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
            judge(case, &["ring".to_owned()], None)
                .unwrap()
                .winner
                .map(|winner| format!("{:.2}", winner.ratio))
        };
        assert_eq!(won(&case((0..20).map(|_| 800), 900)).as_deref(), Some("0.80"));
        // Too few blocks; too little; now and then much slower; slower one after the other.
        assert_eq!(won(&case((0..4).map(|_| 800), 900)), None);
        assert_eq!(won(&case((0..20).map(|_| 960), 900)), None);
        assert_eq!(won(&case((0..20).map(|n| if n % 8 == 0 { 1500 } else { 800 }), 900)), None);
        assert_eq!(won(&case((0..20).map(|_| 800), 1100)), None);
        let native = judge(&case((0..20).map(|_| 800), 900), &[], None).unwrap().native;
        assert!((native - 1e-6).abs() < 1e-12);
    }

    /// Twenty blocks of the MPI's own function and two others, each of which takes so many nanoseconds.
    fn three(native: u64, others: [(&str, u64); 2], before: Option<&Verdict>) -> Option<String> {
        let run = |contender, time| Run {
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

    /// Of two that are alike, who has won before wins again; one that is much faster takes over once the other is confirmed.
    #[test]
    fn who_won_before_is_confirmed() {
        let won = |times: [u64; 2], before: &str, launches| {
            let before = Verdict {
                name: bruckner::Name::Allreduce,
                bytes: 8,
                expression: before.parse().unwrap(),
                native: 1e-6,
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

    /// Two of the MPI's own functions must save what it takes longer to get to them, and more than an algorithm does.
    #[test]
    fn compositions_must_be_worth_it() {
        let won = |native, [algorithm, parts]: [u64; 2]| {
            three(native, [("ring", algorithm), ("native-rooted", parts)], None)
        };
        assert_eq!(won(10_000, [9_900, 5_000]).as_deref(), Some("native-rooted"));
        assert_eq!(won(10_000, [5_200, 5_000]).as_deref(), Some("ring"));
        assert_eq!(won(10_000, [6_000, 5_000]).as_deref(), Some("native-rooted"));
        assert_eq!(won(1_000, [990, 500]), None);
    }
}
