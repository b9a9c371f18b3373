//! Watching: what serves calls of one kind and about one size is compared, now and then, with what else might, and left where that is
//! faster. Only where the bits of results do not depend on it.
//!
//! Calls on a communicator come in one order, so their numbers are agreed for free. At calls 256, 1024, 4096 and so on a *look* begins: some
//! calls of one size are served by each contender in turn, each from a barrier and timed, and then all ranks agree on how
//! long the slowest of them took. From the same numbers they come to the same conclusion. Who is slower by 5 % in two looks in a row has
//! to leave.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::ops::RangeInclusive;

use bruckner_algorithms::Expression;
use bruckner_choose::{Kind, Reason};
use rustc_hash::FxBuildHasher;

/// Calls before the first look; the distance grows by this factor, up to the longest.
const FIRST: u32 = 256;
const FACTOR: u32 = 4;
const LONGEST: u32 = 1 << 20;
/// How often each contender is timed in a look.
const TIMES: usize = 4;
/// Where that cannot tell, so many calls behind the first are timed each time.
const RUN: usize = 8;
/// A contender must be faster by this factor to count, and by so many nanoseconds: ranks do not leave a barrier at once. The second is
/// for runs of calls.
const FASTER: f64 = 1.05;
const RESOLUTION: f64 = 300.0;
const FINER_RESOLUTION: f64 = 50.0;
/// Of calls that take no longer, in nanoseconds, the first cannot tell what counts.
const SHORT: f64 = RESOLUTION / (FASTER - 1.0);
/// One that is so much slower than the best is not looked at again, unless it is the MPI's own function.
const HOPELESS: f64 = 1.5;
/// The MPI's own function is left alone when it was the best in so many looks, one after the other, since it serves.
const ENOUGH: u32 = 3;
/// A look ends without an outcome after so many calls of other sizes.
const STRAYS: u32 = 64;
/// Sizes are told apart by powers of two.
const POWERS: usize = 64;

/// About how much data.
#[inline]
pub(crate) fn power(bytes: u64) -> usize {
    (bytes | 1).ilog2() as usize
}

/// All sizes that are about as much data.
pub(crate) fn about(bytes: u64) -> RangeInclusive<u64> {
    let least = 1 << power(bytes);
    // Nothing counts as one byte.
    (if least == 1 { 0 } else { least })..=(least - 1) * 2 + 1
}

/// A kind of call, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct KindId(usize);

/// What is to be done with a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// This candidate serves it.
    Serve(usize),
    /// It is served by this candidate, from a barrier, and timed.
    Look(usize),
    /// The same without a barrier: behind another of the same candidate.
    Next(usize),
}

impl Turn {
    pub(crate) fn candidate(self) -> usize {
        match self {
            Turn::Serve(candidate) | Turn::Look(candidate) | Turn::Next(candidate) => candidate,
        }
    }

    /// Whether the call is one of a look.
    pub(crate) fn is_of_a_look(self) -> bool {
        !matches!(self, Turn::Serve(_))
    }
}

/// Calls of one kind and about one size.
#[derive(Debug)]
struct Watch {
    /// The candidate that serves them.
    serving: usize,
    /// What it was told from, and how much faster it was.
    better: Option<(usize, f64)>,
    /// Candidates that are compared; none before the first look.
    field: Vec<usize>,
    looks: u32,
    /// Who was faster in the last look.
    ahead: Option<usize>,
    /// Looks, one after the other, in which nobody was.
    settled: u32,
    look: Option<Look>,
}

/// A look under way.
#[derive(Debug)]
struct Look {
    /// The calls that it is about: only what is the same can be compared.
    what: u64,
    strays: u32,
    /// Those who were not far behind the one that serves when single calls were timed; runs of calls are timed now, which also show by
    /// how much ranks come late, and so nobody else may win by them.
    runs: Option<Vec<usize>>,
    /// Calls of the run under way.
    calls: usize,
    /// Of the contenders in turn, in every other round in the opposite order: calls may come in turns, too.
    times: Vec<u64>,
}

impl Look {
    /// Notes a call. The first of a run only makes ranks begin the others together.
    fn note(&mut self, nanoseconds: u64) {
        self.calls += 1;
        match (self.runs.is_some(), self.calls) {
            (false, _) | (true, 2) => self.times.push(nanoseconds),
            (true, 1) => return,
            (true, _) => *self.times.last_mut().expect("the run has begun") += nanoseconds,
        }
        if self.runs.is_none() || self.calls > RUN {
            self.calls = 0;
        }
    }

    /// How many runs are over.
    fn taken(&self) -> usize {
        self.times.len() - usize::from(self.calls > 1)
    }
}

/// The place in a field of so many of the contender whose turn it is after so many.
fn place(taken: usize, width: usize) -> usize {
    let (round, at) = (taken / width, taken % width);
    if round.is_multiple_of(2) { at } else { width - 1 - at }
}

/// All that is watched on a communicator.
#[derive(Default)]
pub(crate) struct Watches {
    kinds: HashMap<Kind, KindId, FxBuildHasher>,
    /// For each kind and power of two, the calls until something is to be done.
    left: Vec<[u32; POWERS]>,
    /// Whether anything else serves a kind than was chosen first.
    changed: Vec<bool>,
    watches: HashMap<(KindId, usize), Watch, FxBuildHasher>,
}

impl Watch {
    /// Ends a look without an outcome; the calls to the next.
    fn give_up(&mut self) -> u32 {
        self.look = None;
        self.looks += 1;
        distance(self.looks)
    }
}

impl Watches {
    /// The number of a kind.
    pub(crate) fn kind(&mut self, kind: Kind) -> KindId {
        *self.kinds.entry(kind).or_insert_with(|| {
            self.left.push([0; POWERS]);
            self.changed.push(false);
            KindId(self.left.len() - 1)
        })
    }

    /// Counts a call; whether it is one of those for which nothing is to be done.
    #[inline]
    pub(crate) fn pass(&mut self, kind: KindId, bytes: u64) -> bool {
        let left = &mut self.left[kind.0][power(bytes)];
        let passes = *left > 0;
        // What is over stays so: not all ranks count it.
        *left -= u32::from(passes && *left <= LONGEST);
        passes
    }

    /// What is to be done with a call, counted by this. `rivals` are candidates to compare with the one that serves, none if it is not to be
    /// watched; `what` is a number that only calls have in common that are the same on all ranks.
    pub(crate) fn turn(
        &mut self,
        kind: KindId,
        bytes: u64,
        what: impl FnOnce() -> u64,
        rivals: impl FnOnce() -> Vec<usize>,
    ) -> Turn {
        let key = (kind, power(bytes));
        if self.pass(kind, bytes) {
            return Turn::Serve(self.watches.get(&key).map_or(0, |watch| watch.serving));
        }
        let left = &mut self.left[kind.0][key.1];
        let watch = self.watches.entry(key).or_insert_with(|| Watch {
            serving: 0,
            better: None,
            field: Vec::new(),
            looks: 0,
            ahead: None,
            settled: 0,
            look: None,
        });
        if let Some(look) = &mut watch.look {
            if look.what == what() {
                let candidate = watch.field[place(look.taken(), watch.field.len())];
                return if look.calls == 0 { Turn::Look(candidate) } else { Turn::Next(candidate) };
            }
            look.strays += 1;
            if look.strays >= STRAYS {
                *left = watch.give_up();
            }
            return Turn::Serve(watch.serving);
        }
        if watch.field.is_empty() {
            let rivals = rivals();
            if rivals.is_empty() {
                *left = u32::MAX;
                return Turn::Serve(watch.serving);
            }
            watch.field = [watch.serving].into_iter().chain(rivals).collect();
            *left = FIRST - 1;
            return Turn::Serve(watch.serving);
        }
        watch.look = Some(Look { what: what(), strays: 0, runs: None, calls: 0, times: Vec::new() });
        Turn::Look(watch.field[0])
    }

    /// A contender cannot be had for a call of a look: it leaves the field. If it is the one that serves, that is so for this call and not
    /// for others, and the look ends.
    pub(crate) fn lacks(&mut self, kind: KindId, bytes: u64, gone: usize) {
        let Some(watch) = self.watches.get_mut(&(kind, power(bytes))) else { return };
        let left = &mut self.left[kind.0][power(bytes)];
        if watch.serving == gone {
            *left = watch.give_up();
            return;
        }
        watch.field.retain(|candidate| *candidate != gone);
        if watch.field.len() < 2 {
            (watch.look, *left) = (None, u32::MAX);
        }
        // Times are of another field.
        if let Some(look) = &mut watch.look {
            (look.calls, look.times) = (0, Vec::new());
        }
    }

    /// Notes how long a call of a look took; all times of it, when it is over.
    pub(crate) fn note(&mut self, kind: KindId, bytes: u64, nanoseconds: u64) -> Option<Vec<u64>> {
        let watch = self.watches.get_mut(&(kind, power(bytes)))?;
        let look = watch.look.as_mut()?;
        look.note(nanoseconds);
        (look.taken() == TIMES * watch.field.len()).then(|| std::mem::take(&mut look.times))
    }

    /// What follows from what all ranks took; the candidates of the look with their times, in seconds. Nothing yet where contenders are
    /// nearer to each other than could be told: then the look goes on.
    pub(crate) fn conclude(
        &mut self,
        kind: KindId,
        bytes: u64,
        times: &[u64],
        is_native: impl Fn(usize) -> bool,
    ) -> Vec<(usize, f64)> {
        let key = (kind, power(bytes));
        let Some(watch) = self.watches.get_mut(&key) else { return Vec::new() };
        let Some(look) = &mut watch.look else { return Vec::new() };
        let width = watch.field.len();
        let each = if look.runs.is_some() { RUN as u64 } else { 1 };
        // The second of four: the first may have been lucky, and others had to make room or wait for a core.
        let time = |at: usize| {
            let own = times.iter().enumerate().filter(|(taken, _)| place(*taken, width) == at);
            let mut own: Vec<u64> = own.map(|(_, time)| *time).collect();
            own.sort_unstable();
            own.get(1).map_or(u64::MAX, |time| time / each)
        };
        let seen: Vec<(usize, u64)> = (0..width).map(|at| (watch.field[at], time(at))).collect();
        let of = |candidate: usize| {
            let found = seen.iter().find(|(other, _)| *other == candidate);
            found.map_or(f64::INFINITY, |(_, time)| *time as f64)
        };
        let may_win = |candidate: &usize| look.runs.as_ref().is_none_or(|able| able.contains(candidate));
        let able = seen.iter().filter(|(candidate, _)| may_win(candidate));
        let best = able.min_by_key(|(_, time)| *time).map_or(watch.serving, |(best, _)| *best);
        let serving = of(watch.serving);
        let is_slower = |than: usize, by: f64| serving > (FASTER * of(than)).max(of(than) + by);
        let resolution = if look.runs.is_some() { FINER_RESOLUTION } else { RESOLUTION };
        let is_hopeless = |at: usize, beside: f64| of(at) > (HOPELESS * beside).max(beside + RESOLUTION);
        // What is not much slower from a barrier, its memory cold, may be faster in a row.
        let able: Vec<usize> = watch.field.iter().copied().filter(|at| !is_hopeless(*at, serving)).collect();
        if look.runs.is_none() && able.len() > 1 && !is_slower(best, RESOLUTION) && serving < SHORT {
            look.runs = Some(able);
            return Vec::new();
        }
        watch.look = None;
        watch.looks += 1;
        let slower = |than: usize| is_slower(than, resolution);
        let ahead = slower(best).then_some(best);
        // Twice in a row the same, or others that are as good.
        if let (Some(now), Some(before)) = (ahead, watch.ahead)
            && (now == before || slower(before))
        {
            watch.better = Some((watch.serving, of(now) / of(watch.serving)));
            watch.serving = now;
            (watch.ahead, watch.settled) = (None, 0);
            self.changed[kind.0] = true;
        } else {
            watch.ahead = ahead;
            watch.settled = if ahead.is_some() { 0 } else { watch.settled + 1 };
        }
        let serving = watch.serving;
        watch.field.retain(|candidate| {
            *candidate == serving || is_native(*candidate) || !is_hopeless(*candidate, of(best))
        });
        watch.field.sort_by_key(|candidate| *candidate != serving);
        let done = watch.field.len() < 2 || (is_native(serving) && watch.settled >= ENOUGH);
        self.left[kind.0][key.1] = if done { u32::MAX } else { distance(watch.looks) };
        seen.iter().map(|(candidate, time)| (*candidate, *time as f64 * 1e-9)).collect()
    }

    /// A number that two looks have in common only if they are the same.
    pub(crate) fn label(&self, kind: KindId, bytes: u64) -> u64 {
        let watch = self.watches.get(&(kind, power(bytes)));
        let look = watch.map(|watch| (watch.looks, watch.look.as_ref().map(|look| look.runs.is_some())));
        FxBuildHasher.hash_one((kind, bytes, look))
    }

    /// Stops watching calls of a kind and size.
    pub(crate) fn stop(&mut self, kind: KindId, bytes: u64) {
        if let Some(watch) = self.watches.get_mut(&(kind, power(bytes))) {
            watch.look = None;
            self.left[kind.0][power(bytes)] = u32::MAX;
        }
    }

    /// Whether calls of a kind and size are not watched, or not any more.
    pub(crate) fn is_over(&self, kind: KindId, bytes: u64) -> bool {
        self.left[kind.0][power(bytes)] > LONGEST
    }

    /// Whether calls of a kind and size are, or were, watched.
    pub(crate) fn is_watched(&self, kind: KindId, bytes: u64) -> bool {
        self.watches.get(&(kind, power(bytes))).is_some_and(|watch| !watch.field.is_empty())
    }

    /// Whether something else than was chosen first serves calls of a kind, of whatever size.
    pub(crate) fn has_changed(&self, kind: KindId) -> bool {
        self.changed[kind.0]
    }

    /// Why a candidate serves, if it is for what was seen here.
    pub(crate) fn reason(
        &self,
        kind: KindId,
        bytes: u64,
        turn: Turn,
        expression: impl Fn(usize) -> Expression,
    ) -> Option<Reason> {
        let watch = self.watches.get(&(kind, power(bytes)))?;
        match turn {
            Turn::Look(candidate) | Turn::Next(candidate) if candidate != watch.serving => {
                Some(Reason::Tried { beside: expression(watch.serving) })
            }
            _ => {
                let (before, ratio) = watch.better?;
                Some(Reason::Watched { before: expression(before), ratio })
            }
        }
    }
}

/// Calls between looks.
fn distance(looks: u32) -> u32 {
    FACTOR.saturating_pow(looks).saturating_mul(FIRST * (FACTOR - 1) / FACTOR).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bruckner_choose::{Name, Size};
    use bruckner_schedule::{Collective, Order};

    /// The last candidate of three is the MPI's own function.
    const NATIVE: usize = 2;

    fn kind() -> Kind {
        Kind {
            name: Name::Allgather,
            collective: Collective::Allgather,
            order: Order::Any,
            shows_order: false,
            local: false,
            size: Size::Class(0),
        }
    }

    /// Makes calls; how many of them each candidate has served, and which served the last.
    fn calls(count: u32, sizes: &[u64], took: impl Fn(usize) -> u64) -> ([u32; 3], usize, Watches) {
        let mut watches = Watches::default();
        let kind = watches.kind(kind());
        let (mut served, mut last) = ([0; 3], 0);
        for call in 0..count {
            let bytes = sizes[call as usize % sizes.len()];
            let turn = watches.turn(kind, bytes, || bytes, || vec![NATIVE, 1]);
            served[turn.candidate()] += 1;
            match turn {
                Turn::Serve(candidate) => last = candidate,
                Turn::Look(candidate) | Turn::Next(candidate) => {
                    if let Some(times) = watches.note(kind, bytes, took(candidate)) {
                        watches.conclude(kind, bytes, &times, |at| at == NATIVE);
                    }
                }
            }
        }
        (served, last, watches)
    }

    #[test]
    fn the_best_serves_before_2000_calls() {
        for best in 0..3 {
            let (served, last, _) =
                calls(1100, &[64], |candidate| if candidate == best { 10_000 } else { 12_000 });
            assert_eq!(last, best, "{served:?}");
        }
    }

    #[test]
    fn whoever_is_right_is_hardly_disturbed() {
        let (served, last, _) = calls(20_000, &[64], |candidate| [10_000, 30_000, 11_000][candidate]);
        assert_eq!(last, 0);
        // The hopeless one is tried in one look, native in all four.
        assert_eq!(served[1..], [TIMES as u32, 4 * TIMES as u32]);
    }

    #[test]
    fn small_differences_change_nothing() {
        let (_, last, watches) = calls(20_000, &[64], |candidate| [10_400, 10_200, 10_000][candidate]);
        assert_eq!(last, 0);
        assert!(!watches.has_changed(KindId(0)));
    }

    /// Nor do differences that cannot be measured.
    #[test]
    fn short_times_change_nothing() {
        let (_, last, _) = calls(20_000, &[64], |candidate| [340, 320, 300][candidate]);
        assert_eq!(last, 0);
    }

    /// Small ones are measured for longer, where it matters and before it is too late.
    #[test]
    fn what_is_near_is_timed_more_often() {
        let (served, last, _) = calls(2000, &[64], |candidate| [500, 400, 300][candidate]);
        assert_eq!(last, NATIVE);
        assert_eq!(served[1], 2 * (TIMES + TIMES * (RUN + 1)) as u32);
        // What is far behind is not.
        let (served, last, _) = calls(2000, &[64], |candidate| [300, 700, 800][candidate]);
        assert_eq!((last, served[1]), (0, TIMES as u32));
    }

    /// Once is not enough: what was faster in one look is slower in the next.
    #[test]
    fn a_single_look_changes_nothing() {
        let mut watches = Watches::default();
        let kind = watches.kind(kind());
        let mut looks = 0;
        for _ in 0..5000 {
            let turn = watches.turn(kind, 8, || 8, || vec![NATIVE]);
            let Turn::Look(candidate) = turn else {
                assert_eq!(turn, Turn::Serve(0));
                continue;
            };
            let lucky = looks % 2 == 0;
            let took = if (candidate == NATIVE) == lucky { 10_000 } else { 20_000 };
            if let Some(times) = watches.note(kind, 8, took) {
                watches.conclude(kind, 8, &times, |at| at == NATIVE);
                looks += 1;
            }
        }
        assert_eq!(looks, 3);
    }

    #[test]
    fn sizes_are_watched_apart_and_a_look_has_one() {
        // Two sizes of one power take turns: only one of them is looked at.
        let (served, ..) = calls(1100, &[64, 100], |candidate| [10_000, 30_000, 11_000][candidate]);
        assert_eq!(served[1], TIMES as u32);
        // A size that comes once does not keep a look open for ever.
        let mut watches = Watches::default();
        let kind = watches.kind(kind());
        let mut looks = 0;
        for call in 0..4000u64 {
            if let Turn::Look(_) = watches.turn(kind, 1024 + call % 1000, || call % 1000, || vec![NATIVE]) {
                looks += 1;
            }
        }
        assert!((1..20).contains(&looks), "{looks}");
    }

    #[test]
    fn native_is_left_alone_when_it_has_won_often() {
        let mut watches = Watches::default();
        let kind = watches.kind(kind());
        for _ in 0..5000 {
            assert!(!watches.is_over(kind, 8));
            if let Turn::Look(candidate) = watches.turn(kind, 8, || 8, || vec![1]) {
                // Here the first is the MPI's own.
                if let Some(times) = watches.note(kind, 8, 10_000 + 10_000 * candidate as u64) {
                    watches.conclude(kind, 8, &times, |at| at == 0);
                    if watches.is_over(kind, 8) {
                        break;
                    }
                }
            }
        }
        assert!(watches.is_over(kind, 8) && watches.is_watched(kind, 8) && !watches.is_over(kind, 64));
    }

    #[test]
    fn what_cannot_be_had_leaves_the_field() {
        let mut watches = Watches::default();
        let kind = watches.kind(kind());
        let mut served = [0; 3];
        for _ in 0..1100 {
            let turn = watches.turn(kind, 8, || 8, || vec![NATIVE, 1]);
            let Turn::Look(candidate) = turn else {
                assert_eq!(turn, Turn::Serve(0));
                continue;
            };
            served[candidate] += 1;
            if candidate == 1 {
                watches.lacks(kind, 8, 1);
            } else if let Some(times) = watches.note(kind, 8, 100_000) {
                watches.conclude(kind, 8, &times, |at| at == NATIVE);
            }
        }
        // Two looks, of which the first began anew.
        assert_eq!(served[1], 1);
        assert!((2 * TIMES..3 * TIMES).contains(&served[NATIVE]), "{served:?}");
    }

    /// Where one call cannot be served by what serves others, that changes nothing for these.
    #[test]
    fn what_serves_stays_though_it_cannot_be_had_once() {
        let mut watches = Watches::default();
        let kind = watches.kind(kind());
        for _ in 0..5000 {
            match watches.turn(kind, 8, || 8, || vec![NATIVE]) {
                Turn::Serve(candidate) => assert_eq!(candidate, 0),
                Turn::Look(candidate) | Turn::Next(candidate) => watches.lacks(kind, 8, candidate),
            }
        }
    }

    /// Light calls that come in turns with heavy ones are no contender's alone.
    #[test]
    fn contenders_take_turns_in_both_orders() {
        let orders: Vec<usize> = (0..8).map(|taken| place(taken, 2)).collect();
        assert_eq!(orders, [0, 1, 1, 0, 0, 1, 1, 0]);
        let orders: Vec<usize> = (0..6).map(|taken| place(taken, 3)).collect();
        assert_eq!(orders, [0, 1, 2, 2, 1, 0]);
    }

    /// What is over is counted by some ranks and not by others.
    #[test]
    fn what_is_over_stays_over() {
        let mut watches = Watches::default();
        let kind = watches.kind(kind());
        watches.turn(kind, 8, || 8, Vec::new);
        (0..10).for_each(|_| assert!(watches.pass(kind, 8)));
        assert_eq!(watches.left[kind.0][power(8)], u32::MAX);
    }

    #[test]
    fn about_as_much_is_between_powers_of_two() {
        assert_eq!((about(0), about(1), about(64), about(127)), (0..=1, 0..=1, 64..=127, 64..=127));
        assert_eq!(about(u64::MAX), 1 << 63..=u64::MAX);
    }
}
