//! Online tuning: while a program runs, the algorithm that handles calls of one kind and size class (sizes from a power of two to the
//! next) is compared with alternatives in *trials*, and replaced by one that is faster. Only calls whose results do not depend on the
//! algorithm are tuned.
//!
//! All ranks make the calls on a communicator in the same order, so each rank counts them for itself. Trials begin at about calls 256,
//! 1024, 4096 and so on. In a trial the candidates handle calls of one size in turn. Each call starts after a barrier, and each rank
//! measures its time. A trial takes `TIMINGS_PER_CANDIDATE` calls of each candidate. If the calls are short and the candidates too similar,
//! it goes on with as many timings of `CALLS_PER_TIMING` consecutive calls. After the last timing, the ranks exchange the times, so that all
//! of them decide by the time of the slowest rank. An algorithm that is 5 % slower in two consecutive trials is replaced. The page
//! docs/theory/selection.md states these numbers.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::ops::RangeInclusive;

use bruckner_algorithms::Expression;
use rustc_hash::FxBuildHasher;

use crate::kind::Kind;
use crate::reason::Reason;

/// Number of calls before the first trial. The distance between trials grows by `FACTOR` each time, up to `MAX_CALLS_BETWEEN_TRIALS`.
const CALLS_BEFORE_FIRST_TRIAL: u32 = 256;
const FACTOR: u32 = 4;
const MAX_CALLS_BETWEEN_TRIALS: u32 = 1 << 20;
/// Number of timings of each candidate in a trial.
const TIMINGS_PER_CANDIDATE: usize = 4;
// A trial compares the second shortest timings.
const _: () = assert!(TIMINGS_PER_CANDIDATE >= 2);
/// Number of calls that are timed together if single calls cannot decide a trial. They follow one call that is not timed.
const CALLS_PER_TIMING: usize = 8;
/// A candidate counts as faster if it is faster by this factor and by `RESOLUTION` nanoseconds. Smaller differences are uncertain, because
/// ranks leave a barrier at different times. For timings of several calls, `FINER_RESOLUTION` applies instead.
const FASTER: f64 = 1.05;
const RESOLUTION: f64 = 300.0;
const FINER_RESOLUTION: f64 = 50.0;
/// Calls shorter than this, in nanoseconds, are too short for single timings: a gain by the factor `FASTER` is less than `RESOLUTION`.
const SHORT: f64 = RESOLUTION / (FASTER - 1.0);
/// A candidate slower than the best by this factor is dropped, unless it is the MPI's own function.
const DROP_FACTOR: f64 = 1.5;
/// Tuning stops when the MPI's own function handles the calls and was the fastest in this many consecutive trials.
const TRIALS_TO_CONFIRM_NATIVE: u32 = 3;
/// A trial ends without a result after this many calls with another fingerprint than the calls that it compares.
const MAX_OTHER_CALLS: u32 = 64;
/// Number of size classes, which are powers of two.
const SIZE_CLASSES: usize = 64;

#[inline]
fn size_class_index(bytes: u64) -> usize {
    (bytes | 1).ilog2() as usize
}

/// Returns all message sizes in the class of `bytes`: from a power of two to one less than the next. Zero bytes are in the class of one
/// byte.
pub fn size_class(bytes: u64) -> RangeInclusive<u64> {
    let least = 1 << size_class_index(bytes);
    (if least == 1 { 0 } else { least })..=(least - 1) * 2 + 1
}

/// Number that identifies a kind of call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KindId(usize);

/// Assignment of a call to a candidate, given by its number, and whether the call is timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assignment {
    /// The call belongs to no trial and is not timed.
    Regular(usize),
    /// The call belongs to a trial. All ranks start it after a barrier.
    FromBarrier(usize),
    /// The call belongs to a trial. It directly follows a call of the same candidate, without a barrier in between.
    Following(usize),
}

impl Assignment {
    /// Returns the candidate that handles the call.
    pub fn candidate(self) -> usize {
        match self {
            Assignment::Regular(candidate) | Assignment::FromBarrier(candidate) | Assignment::Following(candidate) => {
                candidate
            }
        }
    }

    /// Whether the call belongs to a trial.
    pub fn is_in_trial(self) -> bool {
        !matches!(self, Assignment::Regular(_))
    }
}

/// Number of calls until the next trial or other action of the tuning, or `STOPPED`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Countdown(u32);

impl Countdown {
    const NOW: Countdown = Countdown(0);
    const STOPPED: Countdown = Countdown(u32::MAX);

    /// Counts a call. Returns false if `assign` must act at this call. A stopped countdown never changes, because not all ranks count
    /// calls then.
    #[inline]
    fn pass(&mut self) -> bool {
        let passes = *self != Countdown::NOW;
        self.0 -= u32::from(passes && !self.is_stopped());
        passes
    }

    #[inline]
    fn is_stopped(self) -> bool {
        self == Countdown::STOPPED
    }

    /// Returns the countdown to the next trial after `trials` trials.
    fn to_next(trials: u32) -> Countdown {
        let calls = FACTOR.saturating_pow(trials).saturating_mul(CALLS_BEFORE_FIRST_TRIAL * (FACTOR - 1) / FACTOR);
        Countdown(calls.min(MAX_CALLS_BETWEEN_TRIALS))
    }
}

/// State of the tuning of calls of one kind and size class.
#[derive(Debug, Default)]
struct Tuning {
    /// Number of the candidate that handles calls outside of trials.
    current: usize,
    /// Candidate that the current one replaced, and the time of the current one divided by that of the replaced one.
    replaced: Option<(usize, f64)>,
    /// Numbers of the candidates to compare, the current one first. Empty before the first call, and if the calls are not tuned.
    candidates: Vec<usize>,
    trials: u32,
    /// Candidate that was faster than the current one in the last trial.
    leader: Option<usize>,
    /// Number of consecutive trials in which no candidate was faster than the current one.
    confirmed: u32,
    trial: Option<Trial>,
}

/// A trial in progress.
#[derive(Debug)]
struct Trial {
    /// Fingerprint of the calls that the trial compares: a number that is equal for calls with the same parameters.
    call: u64,
    /// Number of calls with another fingerprint since the trial began.
    others: u32,
    /// Finalists: candidates that were not much slower than the current one when single calls were timed; `None` while single calls are
    /// timed. Then several consecutive calls are timed together. Such times include the skew between ranks, so only finalists can win by
    /// them.
    finalists: Option<Vec<usize>>,
    /// Number of calls so far in the current timing.
    calls: usize,
    /// Measured times in nanoseconds. Candidates take turns, in reverse order in every other round, because the program may alternate
    /// between short and long calls.
    times: Vec<u64>,
}

impl Trial {
    fn new(call: u64) -> Trial {
        Trial { call, others: 0, finalists: None, calls: 0, times: Vec::new() }
    }

    /// Adds the time of a call. In a timing of several calls the first one is not counted: it synchronises the ranks for the others.
    fn add_time(&mut self, nanoseconds: u64) {
        self.calls += 1;
        match (self.finalists.is_some(), self.calls) {
            (false, _) | (true, 2) => self.times.push(nanoseconds),
            (true, 1) => return,
            (true, _) => *self.times.last_mut().expect("the timing has begun") += nanoseconds,
        }
        if self.finalists.is_none() || self.calls > CALLS_PER_TIMING {
            self.calls = 0;
        }
    }

    /// Returns the number of complete timings.
    fn complete(&self) -> usize {
        self.times.len() - usize::from(self.calls > 1)
    }
}

/// Returns the index of the candidate whose turn it is after `taken` timings, if there are `width` candidates.
fn index_of_turn(taken: usize, width: usize) -> usize {
    let (round, at) = (taken / width, taken % width);
    if round.is_multiple_of(2) { at } else { width - 1 - at }
}

impl Tuning {
    /// Ends a trial without a result. Returns the countdown to the next trial.
    fn give_up(&mut self) -> Countdown {
        self.trial = None;
        self.trials += 1;
        Countdown::to_next(self.trials)
    }
}

/// State of the online tuning of a communicator.
#[derive(Default)]
pub struct OnlineTuning {
    kinds: HashMap<Kind, KindId, FxBuildHasher>,
    /// Countdowns by kind and size class.
    countdowns: Vec<[Countdown; SIZE_CLASSES]>,
    /// Whether an algorithm was replaced, by kind.
    changed: Vec<bool>,
    tunings: HashMap<(KindId, usize), Tuning, FxBuildHasher>,
}

impl OnlineTuning {
    /// Returns the number of a kind of call. A new kind gets the next free number.
    pub fn kind(&mut self, kind: Kind) -> KindId {
        *self.kinds.entry(kind).or_insert_with(|| {
            self.countdowns.push([Countdown::NOW; SIZE_CLASSES]);
            self.changed.push(false);
            KindId(self.countdowns.len() - 1)
        })
    }

    #[inline]
    fn countdown(&mut self, kind: KindId, bytes: u64) -> &mut Countdown {
        &mut self.countdowns[kind.0][size_class_index(bytes)]
    }

    /// Counts a call. Returns false if [`OnlineTuning::assign`] must decide about it.
    #[inline]
    pub fn pass(&mut self, kind: KindId, bytes: u64) -> bool {
        self.countdown(kind, bytes).pass()
    }

    /// Counts a call and assigns it to a candidate. `fingerprint` returns a number that is equal for calls with the same parameters on all
    /// ranks. `alternatives` returns the candidates to compare with candidate 0; it returns none if the calls are not to be tuned.
    pub fn assign(
        &mut self,
        kind: KindId,
        bytes: u64,
        fingerprint: impl FnOnce() -> u64,
        alternatives: impl FnOnce() -> Vec<usize>,
    ) -> Assignment {
        let key = (kind, size_class_index(bytes));
        if self.pass(kind, bytes) {
            return Assignment::Regular(self.tunings.get(&key).map_or(0, |tuning| tuning.current));
        }
        let countdown = &mut self.countdowns[kind.0][key.1];
        let tuning = self.tunings.entry(key).or_default();
        if let Some(trial) = &mut tuning.trial {
            if trial.call == fingerprint() {
                let candidate = tuning.candidates[index_of_turn(trial.complete(), tuning.candidates.len())];
                return match trial.calls {
                    0 => Assignment::FromBarrier(candidate),
                    _ => Assignment::Following(candidate),
                };
            }
            trial.others += 1;
            if trial.others >= MAX_OTHER_CALLS {
                *countdown = tuning.give_up();
            }
            return Assignment::Regular(tuning.current);
        }
        if tuning.candidates.is_empty() {
            let alternatives = alternatives();
            if alternatives.is_empty() {
                *countdown = Countdown::STOPPED;
                return Assignment::Regular(tuning.current);
            }
            tuning.candidates = [tuning.current].into_iter().chain(alternatives).collect();
            *countdown = Countdown(CALLS_BEFORE_FIRST_TRIAL - 1);
            return Assignment::Regular(tuning.current);
        }
        tuning.trial = Some(Trial::new(fingerprint()));
        Assignment::FromBarrier(tuning.candidates[0])
    }

    /// Drops a candidate that cannot handle a call of a trial. The current candidate is not dropped, because it can handle other calls;
    /// instead, the trial ends without a result.
    pub fn exclude(&mut self, kind: KindId, bytes: u64, candidate: usize) {
        let Some(tuning) = self.tunings.get_mut(&(kind, size_class_index(bytes))) else { return };
        let countdown = &mut self.countdowns[kind.0][size_class_index(bytes)];
        if tuning.current == candidate {
            *countdown = tuning.give_up();
            return;
        }
        tuning.candidates.retain(|other| *other != candidate);
        if tuning.candidates.len() < 2 {
            (tuning.trial, *countdown) = (None, Countdown::STOPPED);
        }
        // The timings so far are in the order of the old candidates, so they are discarded.
        if let Some(trial) = &mut tuning.trial {
            (trial.calls, trial.times) = (0, Vec::new());
        }
    }

    /// Adds the time of a call that belongs to a trial. Returns all times of this rank when the trial is complete.
    pub fn add_time(&mut self, kind: KindId, bytes: u64, nanoseconds: u64) -> Option<Vec<u64>> {
        let tuning = self.tunings.get_mut(&(kind, size_class_index(bytes)))?;
        let trial = tuning.trial.as_mut()?;
        trial.add_time(nanoseconds);
        (trial.complete() == TIMINGS_PER_CANDIDATE * tuning.candidates.len()).then(|| std::mem::take(&mut trial.times))
    }

    /// Concludes a trial from `times`, the time of the slowest rank in each timing. Returns the candidates with their times in seconds, or
    /// an empty list if single calls could not decide, so that the trial continues with timings of several calls.
    pub fn conclude(
        &mut self,
        kind: KindId,
        bytes: u64,
        times: &[u64],
        is_native: impl Fn(usize) -> bool,
    ) -> Vec<(usize, f64)> {
        let key = (kind, size_class_index(bytes));
        let Some(tuning) = self.tunings.get_mut(&key) else { return Vec::new() };
        let Some(trial) = &mut tuning.trial else { return Vec::new() };
        let width = tuning.candidates.len();
        let each = if trial.finalists.is_some() { CALLS_PER_TIMING as u64 } else { 1 };
        // The second best of four timings: the best may be luck, and in the others ranks may have allocated memory or waited for a core.
        let time = |at: usize| {
            let own = times.iter().enumerate().filter(|(taken, _)| index_of_turn(*taken, width) == at);
            let mut own: Vec<u64> = own.map(|(_, time)| *time).collect();
            own.sort_unstable();
            own.get(1).map_or(u64::MAX, |time| time / each)
        };
        let timed: Vec<(usize, u64)> = (0..width).map(|at| (tuning.candidates[at], time(at))).collect();
        let of = |candidate: usize| {
            let found = timed.iter().find(|(other, _)| *other == candidate);
            found.map_or(f64::INFINITY, |(_, time)| *time as f64)
        };
        let may_win = |candidate: &usize| trial.finalists.as_ref().is_none_or(|all| all.contains(candidate));
        let able = timed.iter().filter(|(candidate, _)| may_win(candidate));
        let best = able.min_by_key(|(_, time)| *time).map_or(tuning.current, |(best, _)| *best);
        let current = of(tuning.current);
        let is_slower = |than: usize, by: f64| current > (FASTER * of(than)).max(of(than) + by);
        let resolution = if trial.finalists.is_some() { FINER_RESOLUTION } else { RESOLUTION };
        let is_hopeless = |at: usize, beside: f64| of(at) > (DROP_FACTOR * beside).max(beside + RESOLUTION);
        // After a barrier the cache is cold: a candidate that is not much slower then may be faster in consecutive calls.
        let finalists: Vec<usize> = tuning.candidates.iter().copied().filter(|at| !is_hopeless(*at, current)).collect();
        if trial.finalists.is_none() && finalists.len() > 1 && !is_slower(best, RESOLUTION) && current < SHORT {
            trial.finalists = Some(finalists);
            return Vec::new();
        }
        tuning.trial = None;
        tuning.trials += 1;
        let slower = |than: usize| is_slower(than, resolution);
        let leader = slower(best).then_some(best);
        // In two consecutive trials the same candidate was faster, or the candidate that was faster in the last trial is still faster than
        // the current one.
        if let (Some(now), Some(before)) = (leader, tuning.leader)
            && (now == before || slower(before))
        {
            tuning.replaced = Some((tuning.current, of(now) / of(tuning.current)));
            tuning.current = now;
            (tuning.leader, tuning.confirmed) = (None, 0);
            self.changed[kind.0] = true;
        } else {
            tuning.leader = leader;
            tuning.confirmed = if leader.is_some() { 0 } else { tuning.confirmed + 1 };
        }
        let current = tuning.current;
        tuning
            .candidates
            .retain(|candidate| *candidate == current || is_native(*candidate) || !is_hopeless(*candidate, of(best)));
        tuning.candidates.sort_by_key(|candidate| *candidate != current);
        let done = tuning.candidates.len() < 2 || (is_native(current) && tuning.confirmed >= TRIALS_TO_CONFIRM_NATIVE);
        self.countdowns[kind.0][key.1] = if done { Countdown::STOPPED } else { Countdown::to_next(tuning.trials) };
        timed.iter().map(|(candidate, time)| (*candidate, *time as f64 * 1e-9)).collect()
    }

    /// Returns a hash of the trial state for a size, by which ranks check that they are in the same trial.
    pub fn fingerprint(&self, kind: KindId, bytes: u64) -> u64 {
        let tuning = self.tunings.get(&(kind, size_class_index(bytes)));
        let trial = tuning.map(|tuning| (tuning.trials, tuning.trial.as_ref().map(|trial| trial.finalists.is_some())));
        FxBuildHasher.hash_one((kind, bytes, trial))
    }

    /// Stops the tuning of calls of a kind and size class.
    pub fn stop(&mut self, kind: KindId, bytes: u64) {
        if let Some(tuning) = self.tunings.get_mut(&(kind, size_class_index(bytes))) {
            tuning.trial = None;
            *self.countdown(kind, bytes) = Countdown::STOPPED;
        }
    }

    /// Whether calls of a kind and size class are not tuned, or no longer tuned.
    pub fn is_stopped(&self, kind: KindId, bytes: u64) -> bool {
        self.countdowns[kind.0][size_class_index(bytes)].is_stopped()
    }

    /// Whether calls of a kind and size class are tuned or have been tuned.
    pub fn is_tuned(&self, kind: KindId, bytes: u64) -> bool {
        self.tunings.get(&(kind, size_class_index(bytes))).is_some_and(|tuning| !tuning.candidates.is_empty())
    }

    /// Whether an algorithm was replaced for calls of a kind, of any size.
    pub fn has_changed(&self, kind: KindId) -> bool {
        self.changed[kind.0]
    }

    /// Returns the reason why a candidate handles a call, if online tuning decided that; otherwise `None`.
    pub fn reason(
        &self,
        kind: KindId,
        bytes: u64,
        assignment: Assignment,
        expression: impl Fn(usize) -> Expression,
    ) -> Option<Reason> {
        let tuning = self.tunings.get(&(kind, size_class_index(bytes)))?;
        if assignment.is_in_trial() && assignment.candidate() != tuning.current {
            return Some(Reason::InTrial { beside: expression(tuning.current) });
        }
        let (before, ratio) = tuning.replaced?;
        Some(Reason::Replaced { before: expression(before), ratio })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Name, SizeClass};
    use bruckner_schedule::{Collective, Order};

    /// Number of the MPI's own function, the last of three candidates.
    const NATIVE: usize = 2;

    fn kind() -> Kind {
        Kind {
            name: Name::Allgather,
            collective: Collective::Allgather,
            order: Order::Any,
            shows_order: false,
            local: false,
            size: SizeClass::Range(0),
        }
    }

    /// Makes calls. Returns the number of calls that each candidate handled, the candidate of the last call outside of trials, and the
    /// tuning.
    fn calls(count: u32, sizes: &[u64], took: impl Fn(usize) -> u64) -> ([u32; 3], usize, OnlineTuning) {
        let mut tuning = OnlineTuning::default();
        let kind = tuning.kind(kind());
        let (mut handled, mut last) = ([0; 3], 0);
        for call in 0..count {
            let bytes = sizes[call as usize % sizes.len()];
            let assignment = tuning.assign(kind, bytes, || bytes, || vec![NATIVE, 1]);
            handled[assignment.candidate()] += 1;
            match assignment {
                Assignment::Regular(candidate) => last = candidate,
                Assignment::FromBarrier(candidate) | Assignment::Following(candidate) => {
                    if let Some(times) = tuning.add_time(kind, bytes, took(candidate)) {
                        tuning.conclude(kind, bytes, &times, |at| at == NATIVE);
                    }
                }
            }
        }
        (handled, last, tuning)
    }

    #[test]
    fn the_fastest_handles_calls_before_call_2000() {
        for best in 0..3 {
            let (handled, last, _) = calls(1100, &[64], |candidate| if candidate == best { 10_000 } else { 12_000 });
            assert_eq!(last, best, "{handled:?}");
        }
    }

    #[test]
    fn the_fastest_is_hardly_disturbed() {
        let (handled, last, _) = calls(20_000, &[64], |candidate| [10_000, 30_000, 11_000][candidate]);
        assert_eq!(last, 0);
        // The candidate that is three times as slow takes part in one trial, the MPI's own function in all four.
        assert_eq!(handled[1..], [TIMINGS_PER_CANDIDATE as u32, 4 * TIMINGS_PER_CANDIDATE as u32]);
    }

    #[test]
    fn small_differences_change_nothing() {
        let (_, last, tuning) = calls(20_000, &[64], |candidate| [10_400, 10_200, 10_000][candidate]);
        assert_eq!(last, 0);
        assert!(!tuning.has_changed(KindId(0)));
    }

    /// Differences below the resolution change nothing.
    #[test]
    fn short_times_change_nothing() {
        let (_, last, _) = calls(20_000, &[64], |candidate| [340, 320, 300][candidate]);
        assert_eq!(last, 0);
    }

    /// Small differences of short calls are measured by timing several calls together.
    #[test]
    fn close_candidates_are_timed_more_often() {
        let (handled, last, _) = calls(2000, &[64], |candidate| [500, 400, 300][candidate]);
        assert_eq!(last, NATIVE);
        assert_eq!(handled[1], 2 * (TIMINGS_PER_CANDIDATE + TIMINGS_PER_CANDIDATE * (CALLS_PER_TIMING + 1)) as u32);
        // A candidate that is much slower is not timed again.
        let (handled, last, _) = calls(2000, &[64], |candidate| [300, 700, 800][candidate]);
        assert_eq!((last, handled[1]), (0, TIMINGS_PER_CANDIDATE as u32));
    }

    /// A candidate that is faster in every other trial replaces nothing.
    #[test]
    fn a_single_trial_changes_nothing() {
        let mut tuning = OnlineTuning::default();
        let kind = tuning.kind(kind());
        let mut trials = 0;
        for _ in 0..5000 {
            let assignment = tuning.assign(kind, 8, || 8, || vec![NATIVE]);
            let Assignment::FromBarrier(candidate) = assignment else {
                assert_eq!(assignment, Assignment::Regular(0));
                continue;
            };
            let lucky = trials % 2 == 0;
            let took = if (candidate == NATIVE) == lucky { 10_000 } else { 20_000 };
            if let Some(times) = tuning.add_time(kind, 8, took) {
                tuning.conclude(kind, 8, &times, |at| at == NATIVE);
                trials += 1;
            }
        }
        assert_eq!(trials, 3);
    }

    #[test]
    fn a_trial_compares_calls_of_one_size() {
        // Two sizes of one class alternate: the trial compares one of them.
        let (handled, ..) = calls(1100, &[64, 100], |candidate| [10_000, 30_000, 11_000][candidate]);
        assert_eq!(handled[1], TIMINGS_PER_CANDIDATE as u32);
        // A size that occurs once does not keep a trial open.
        let mut tuning = OnlineTuning::default();
        let kind = tuning.kind(kind());
        let mut trials = 0;
        for call in 0..4000u64 {
            if let Assignment::FromBarrier(_) = tuning.assign(kind, 1024 + call % 1000, || call % 1000, || vec![NATIVE])
            {
                trials += 1;
            }
        }
        assert!((1..20).contains(&trials), "{trials}");
    }

    #[test]
    fn tuning_stops_when_native_has_won_three_trials() {
        let mut tuning = OnlineTuning::default();
        let kind = tuning.kind(kind());
        for _ in 0..5000 {
            assert!(!tuning.is_stopped(kind, 8));
            if let Assignment::FromBarrier(candidate) = tuning.assign(kind, 8, || 8, || vec![1]) {
                // Here candidate 0 is the MPI's own function.
                if let Some(times) = tuning.add_time(kind, 8, 10_000 + 10_000 * candidate as u64) {
                    tuning.conclude(kind, 8, &times, |at| at == 0);
                    if tuning.is_stopped(kind, 8) {
                        break;
                    }
                }
            }
        }
        assert!(tuning.is_stopped(kind, 8) && tuning.is_tuned(kind, 8) && !tuning.is_stopped(kind, 64));
    }

    #[test]
    fn a_candidate_that_cannot_handle_a_call_is_dropped() {
        let mut tuning = OnlineTuning::default();
        let kind = tuning.kind(kind());
        let mut handled = [0; 3];
        for _ in 0..1100 {
            let assignment = tuning.assign(kind, 8, || 8, || vec![NATIVE, 1]);
            let Assignment::FromBarrier(candidate) = assignment else {
                assert_eq!(assignment, Assignment::Regular(0));
                continue;
            };
            handled[candidate] += 1;
            if candidate == 1 {
                tuning.exclude(kind, 8, 1);
            } else if let Some(times) = tuning.add_time(kind, 8, 100_000) {
                tuning.conclude(kind, 8, &times, |at| at == NATIVE);
            }
        }
        // There are two trials; the first one restarted.
        assert_eq!(handled[1], 1);
        assert!((2 * TIMINGS_PER_CANDIDATE..3 * TIMINGS_PER_CANDIDATE).contains(&handled[NATIVE]), "{handled:?}");
    }

    /// The current candidate stays although it cannot handle one call.
    #[test]
    fn the_current_candidate_is_not_dropped() {
        let mut tuning = OnlineTuning::default();
        let kind = tuning.kind(kind());
        for _ in 0..5000 {
            match tuning.assign(kind, 8, || 8, || vec![NATIVE]) {
                Assignment::Regular(candidate) => assert_eq!(candidate, 0),
                Assignment::FromBarrier(candidate) | Assignment::Following(candidate) => {
                    tuning.exclude(kind, 8, candidate);
                }
            }
        }
    }

    /// If short and long calls alternate, every candidate gets both.
    #[test]
    fn candidates_take_turns_in_both_orders() {
        let orders: Vec<usize> = (0..8).map(|taken| index_of_turn(taken, 2)).collect();
        assert_eq!(orders, [0, 1, 1, 0, 0, 1, 1, 0]);
        let orders: Vec<usize> = (0..6).map(|taken| index_of_turn(taken, 3)).collect();
        assert_eq!(orders, [0, 1, 2, 2, 1, 0]);
    }

    /// Some ranks count calls after tuning has stopped, others do not.
    #[test]
    fn tuning_that_has_stopped_stays_stopped() {
        let mut tuning = OnlineTuning::default();
        let kind = tuning.kind(kind());
        tuning.assign(kind, 8, || 8, Vec::new);
        (0..10).for_each(|_| assert!(tuning.pass(kind, 8)));
        assert!(tuning.is_stopped(kind, 8));
    }

    #[test]
    fn a_size_class_ends_below_the_next_power_of_two() {
        assert_eq!((size_class(0), size_class(1), size_class(64), size_class(127)), (0..=1, 0..=1, 64..=127, 64..=127));
        assert_eq!(size_class(u64::MAX), 1 << 63..=u64::MAX);
    }
}
