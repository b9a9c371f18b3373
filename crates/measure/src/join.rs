//! Joins the measurements of each case over all launches.

use std::collections::BTreeMap;

use crate::results::{Block, Case, Launch, Results, TimingMethod};
use crate::statistics::{Comparison, Times, compare, median, ratio, times};

/// One case over all launches that measured it: one collective at one size, on one topology, with one MPI and one set of labels.
pub struct JoinedCase<'a> {
    /// Name and version of the MPI.
    pub mpi: &'a str,
    /// Labels of the launches. Launches with different labels are not joined.
    pub labels: &'a BTreeMap<String, String>,
    /// Topology: nodes, and ranks on each.
    pub topology: &'a str,
    /// Name of the collective.
    pub collective: &'a str,
    /// Message size in bytes.
    pub bytes: u64,
    /// Bytes of each rank, if ranks have different sizes.
    pub counts: Option<&'a [u64]>,
    /// Names of all contenders, in order of first appearance.
    pub contenders: Vec<&'a str>,
    /// Contenders that could not be measured, with the reason.
    pub refused: BTreeMap<&'a str, &'a str>,
    cases: Vec<(&'a Launch, &'a Case)>,
    /// Cases of trial launches, which only find out which settings of the MPI are worth measuring.
    trials: Vec<&'a Case>,
}

/// Returns all cases, in the order in which they were first measured.
pub fn join_cases(results: &Results) -> Vec<JoinedCase<'_>> {
    let mut joined: Vec<JoinedCase<'_>> = Vec::new();
    for launch in &results.launches {
        for case in &launch.cases {
            let counts = case.counts.as_deref();
            let same = joined.iter_mut().find(|one| {
                (one.mpi, one.labels, one.topology) == (&launch.mpi.name, &launch.labels, &launch.topology)
                    && (one.collective, one.bytes, one.counts) == (&case.collective, case.bytes, counts)
            });
            let one = match same {
                Some(one) => one,
                None => {
                    joined.push(JoinedCase {
                        mpi: &launch.mpi.name,
                        labels: &launch.labels,
                        topology: &launch.topology,
                        collective: &case.collective,
                        bytes: case.bytes,
                        counts,
                        contenders: Vec::new(),
                        refused: BTreeMap::new(),
                        cases: Vec::new(),
                        trials: Vec::new(),
                    });
                    joined.last_mut().expect("one was added")
                }
            };
            if launch.trial {
                one.trials.push(case);
                continue;
            }
            for contender in &case.contenders {
                if !one.contenders.contains(&contender.name.as_str()) {
                    one.contenders.push(&contender.name);
                }
                if let Some(why) = &contender.refused {
                    one.refused.insert(&contender.name, why);
                }
            }
            one.cases.push((launch, case));
        }
    }
    joined
}

/// Returns the times of a contender in a block, in seconds, one for each repetition.
fn of_block(block: &Block, contender: usize, look: TimingMethod) -> Option<Vec<f64>> {
    block.runs.iter().find(|run| run.contender == contender).map(|run| run.times(look))
}

fn number(case: &Case, name: &str) -> Option<usize> {
    case.contenders.iter().position(|contender| contender.name == name)
}

impl JoinedCase<'_> {
    /// Returns the name of the measured function. If ranks have different counts, the name ends in `v`, except that of `reduce_scatter`.
    pub fn function_name(&self) -> String {
        match self.counts {
            Some(_) if self.collective != "reduce_scatter" => format!("{}v", self.collective),
            _ => self.collective.to_owned(),
        }
    }

    /// Returns the times of a contender in launches that also measured the contender `beside`, because only times of the same launches are
    /// comparable.
    pub fn times(&self, contender: &str, beside: &str, look: TimingMethod) -> Option<Times> {
        let mut blocks = Vec::new();
        for (_, case) in &self.cases {
            let (Some(contender), Some(_)) = (number(case, contender), number(case, beside)) else {
                continue;
            };
            blocks.extend(case.blocks.iter().filter_map(|block| of_block(block, contender, look)));
        }
        times(&blocks)
    }

    /// Returns the time ratios of two contenders in the blocks of each launch.
    fn ratios(&self, contender: &str, with: &str, look: TimingMethod) -> Vec<Vec<f64>> {
        self.cases.iter().map(|(_, case)| ratios(case, contender, with, look)).collect()
    }

    /// Compares two contenders: the time of `contender` divided by the time of `with` in the same block.
    pub fn compare(&self, contender: &str, with: &str, look: TimingMethod, confidence: f64) -> Option<Comparison> {
        compare(&self.ratios(contender, with, look), confidence)
    }

    /// Returns the median time ratio of two contenders without an interval, which is much faster than [`JoinedCase::compare`].
    pub fn ratio(&self, contender: &str, with: &str, look: TimingMethod) -> Option<f64> {
        ratio(&self.ratios(contender, with, look))
    }

    /// Returns the median time ratio of two contenders in all launches, including trials of the MPI's settings.
    pub fn ratio_in_trials(&self, contender: &str, with: &str, look: TimingMethod) -> Option<f64> {
        let cases = self.trials.iter().copied().chain(self.cases.iter().map(|(_, case)| *case));
        ratio(&cases.map(|case| ratios(case, contender, with, look)).collect::<Vec<_>>())
    }

    /// Whether settings of the MPI's own function were tried in trial launches.
    pub fn has_trials(&self) -> bool {
        !self.trials.is_empty()
    }

    /// Returns the median barrier skew in seconds: the time between the first and the last rank leaving the barrier.
    pub fn skew(&self) -> f64 {
        self.seconds(|case| &case.skew)
    }

    /// Returns the median time of an 8-byte message from the first rank to the last, in seconds.
    pub fn latency(&self) -> f64 {
        self.seconds(|case| &case.hops)
    }

    fn seconds(&self, of: impl Fn(&Case) -> &[u64]) -> f64 {
        let all = self.cases.iter().flat_map(|(_, case)| of(case));
        median(&all.map(|&nanos| nanos as f64 * 1e-9).collect::<Vec<_>>())
    }

    /// Whether ranks outnumbered cores in any launch.
    pub fn is_oversubscribed(&self) -> bool {
        self.cases.iter().any(|(launch, _)| launch.oversubscribed)
    }

    /// Returns the number of launches that measured both contenders.
    pub fn launches(&self, contender: &str, beside: &str) -> usize {
        let both = |case: &Case| number(case, contender).is_some() && number(case, beside).is_some();
        self.cases.iter().filter(|(_, case)| both(case)).count()
    }
}

/// Returns the time of contender `above` divided by that of `below`, in each block of a case that measured both.
pub fn ratios(case: &Case, above: &str, below: &str, look: TimingMethod) -> Vec<f64> {
    let (Some(above), Some(below)) = (number(case, above), number(case, below)) else { return Vec::new() };
    let of = |block: &Block| {
        let (above, below) = (of_block(block, above, look)?, of_block(block, below, look)?);
        let ratio = median(&above) / median(&below);
        ratio.is_finite().then_some(ratio)
    };
    case.blocks.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{BlockTimes, Contender};
    use crate::statistics::ComparisonResult;

    /// Makes a launch with the given contenders and their times in nanoseconds.
    fn launch(of: &[(&str, u64)]) -> Launch {
        let run = |(contender, (_, nanos)): (usize, &(&str, u64))| BlockTimes {
            contender,
            from_barrier: vec![vec![*nanos, nanos + 2], vec![nanos / 2, nanos + 4]],
            back_to_back: vec![nanos * 10, nanos * 5],
            calls: 10,
        };
        let block = |_| Block { runs: of.iter().enumerate().map(run).collect() };
        Launch {
            topology: "2x1".into(),
            cases: vec![Case {
                collective: "allreduce".into(),
                bytes: 8,
                counts: None,
                contenders: of.iter().map(|(name, _)| Contender { name: (*name).into(), refused: None }).collect(),
                blocks: (0..8).map(block).collect(),
                skew: vec![100, 300, 200],
                hops: vec![50],
            }],
            ..Launch::default()
        }
    }

    #[test]
    fn a_repetition_takes_as_long_as_its_slowest_rank() {
        let mut results = Results::default();
        results.launches.push(launch(&[("native", 1000)]));
        let joined = &join_cases(&results)[0];
        let times = joined.times("native", "native", TimingMethod::FromBarrier).unwrap();
        assert_eq!((times.min, times.samples), (1000.0 * 1e-9, 16));
        let times = joined.times("native", "native", TimingMethod::BackToBack).unwrap();
        assert_eq!((times.median, times.samples), (1000.0 * 1e-9, 8));
        assert!((joined.skew() - 200e-9).abs() < 1e-15);
        assert!((joined.latency() - 50e-9).abs() < 1e-15);
    }

    #[test]
    fn only_what_ran_side_by_side_is_compared() {
        let mut results = Results::default();
        results.launches.push(launch(&[("native", 1000), ("ring", 500)]));
        // The next two launches are ten times as slow, which does not change the ratio of `ring` and `native`.
        results.launches.push(launch(&[("forced", 8000), ("ring", 5000)]));
        results.launches.push(launch(&[("native", 10_000), ("ring", 5000)]));
        let joined = join_cases(&results);
        assert_eq!(joined.len(), 1);
        let joined = &joined[0];
        assert_eq!(joined.contenders, ["native", "ring", "forced"]);
        let comparison = joined.compare("ring", "native", TimingMethod::BackToBack, 0.99).unwrap();
        assert!((comparison.ratio - 0.5).abs() < 1e-9);
        assert_eq!((comparison.launches, comparison.result()), (2, ComparisonResult::Faster));
        let comparison = joined.compare("ring", "forced", TimingMethod::BackToBack, 0.99).unwrap();
        assert!((comparison.ratio - 0.625).abs() < 1e-9);
        assert!(joined.compare("native", "forced", TimingMethod::BackToBack, 0.99).is_none());
    }

    #[test]
    fn trials_count_for_nothing_but_the_choice() {
        let mut results = Results::default();
        results.launches.push(launch(&[("native", 1000), ("ring", 500)]));
        results.launches.push(Launch { trial: true, ..launch(&[("native: slow", 9000), ("ring", 4500)]) });
        results.launches.push(Launch { trial: true, ..launch(&[("native: good", 3000), ("ring", 4500)]) });
        let joined = &join_cases(&results)[0];
        assert_eq!(joined.contenders, ["native", "ring"]);
        assert!((joined.times("ring", "native", TimingMethod::BackToBack).unwrap().median - 500e-9).abs() < 1e-15);
        assert!(
            (joined.ratio_in_trials("native: good", "ring", TimingMethod::BackToBack).unwrap() - 2.0 / 3.0).abs()
                < 1e-9
        );
        assert_eq!(crate::native::best(joined), None);
        results.launches.push(launch(&[("native: good", 300), ("ring", 450)]));
        let joined = &join_cases(&results)[0];
        assert_eq!(crate::native::best(joined), Some("native: good"));
        let beside = joined.times("ring", "native: good", TimingMethod::BackToBack).unwrap();
        assert!((beside.median - 450e-9).abs() < 1e-15);
    }

    #[test]
    fn a_file_comes_back_as_it_went() {
        let directory = std::env::temp_dir().join(format!("bruckner-measure-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("results.json");
        let mut results = Results::default();
        results.launches.push(launch(&[("native", 1000)]));
        results.write(&path).unwrap();
        let again = Results::read(&path).unwrap();
        assert_eq!(format!("{again:?}"), format!("{results:?}"));
        std::fs::write(&path, "{\"format\": \"bruckner-bench 99\", \"launches\": []}").unwrap();
        let error = Results::read(&path).unwrap_err().to_string();
        assert_eq!(error, "the file has format `bruckner-bench 99`, but this version reads `bruckner-bench 1`");
        std::fs::write(&path, "[]").unwrap();
        assert!(Results::read(&path).unwrap_err().to_string().starts_with("not a results file"));
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
