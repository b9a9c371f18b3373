//! Happens-before: vector clocks over messages, signals and barriers.

use std::rc::Rc;

/// Vector clock: for every rank, the latest time of that rank that is known to have passed. `None` if no memory is shared, because no
/// clock is needed then.
pub(super) type Stamp = Option<Rc<[u32]>>;

/// Vector clocks of all ranks; `None` if no memory is shared.
pub(super) struct Clocks {
    ranks: Option<Vec<Vec<u32>>>,
}

impl Clocks {
    pub(super) fn new(ranks: usize, shared: bool) -> Clocks {
        let start = |rank| {
            let mut clock = vec![0; ranks];
            clock[rank] = 1;
            clock
        };
        Clocks { ranks: shared.then(|| (0..ranks).map(start).collect()) }
    }

    /// Returns the clock that `rank` publishes with a message, signal or barrier, and advances the rank's own time, so that the published
    /// clock does not cover later work.
    pub(super) fn release(&mut self, rank: usize) -> Stamp {
        let clock = &mut self.ranks.as_mut()?[rank];
        let stamp = Rc::from(clock.as_slice());
        clock[rank] += 1;
        Some(stamp)
    }

    /// Raises the clock of `rank` to the elementwise maximum with a published clock.
    pub(super) fn acquire(&mut self, rank: usize, stamp: &Stamp) {
        if let (Some(clocks), Some(stamp)) = (&mut self.ranks, stamp) {
            for (mine, theirs) in clocks[rank].iter_mut().zip(stamp.iter()) {
                *mine = (*mine).max(*theirs);
            }
        }
    }

    /// Returns the elementwise maximum of two clocks.
    pub(super) fn join(a: &Stamp, b: &Stamp) -> Stamp {
        match (a, b) {
            (Some(a), Some(b)) => Some(a.iter().zip(b.iter()).map(|(x, y)| *x.max(y)).collect()),
            (a, b) => a.clone().or_else(|| b.clone()),
        }
    }

    /// Returns the current time of `rank` on its own clock.
    pub(super) fn now(&self, rank: usize) -> u32 {
        self.ranks.as_ref().map_or(0, |clocks| clocks[rank][rank])
    }

    /// Whether time `then` of rank `other` happened before the current time of `rank`; always true if no memory is shared.
    pub(super) fn happened_before(&self, rank: usize, other: usize, then: u32) -> bool {
        rank == other || self.ranks.as_ref().is_none_or(|clocks| clocks[rank][other] >= then)
    }
}
