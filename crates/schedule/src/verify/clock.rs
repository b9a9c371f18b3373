//! Happens-before: vector clocks over messages, signals and barriers.

use std::rc::Rc;

/// What a rank knows of every rank's progress. `None` everywhere where no memory is shared: then nobody asks.
pub(super) type Stamp = Option<Rc<[u32]>>;

/// One clock for each rank.
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

    /// What `rank` publishes with a message, a signal or a barrier; its later work is not part of it.
    pub(super) fn release(&mut self, rank: usize) -> Stamp {
        let clock = &mut self.ranks.as_mut()?[rank];
        let stamp = Rc::from(clock.as_slice());
        clock[rank] += 1;
        Some(stamp)
    }

    /// `rank` learns what a stamp says.
    pub(super) fn acquire(&mut self, rank: usize, stamp: &Stamp) {
        if let (Some(clocks), Some(stamp)) = (&mut self.ranks, stamp) {
            for (mine, theirs) in clocks[rank].iter_mut().zip(stamp.iter()) {
                *mine = (*mine).max(*theirs);
            }
        }
    }

    /// What two stamps say together.
    pub(super) fn join(a: &Stamp, b: &Stamp) -> Stamp {
        match (a, b) {
            (Some(a), Some(b)) => Some(a.iter().zip(b.iter()).map(|(x, y)| *x.max(y)).collect()),
            (a, b) => a.clone().or_else(|| b.clone()),
        }
    }

    /// The present moment of `rank`.
    pub(super) fn now(&self, rank: usize) -> u32 {
        self.ranks.as_ref().map_or(0, |clocks| clocks[rank][rank])
    }

    /// Whether `rank` knows that `other` has passed its moment `then`.
    pub(super) fn knows(&self, rank: usize, other: usize, then: u32) -> bool {
        rank == other || self.ranks.as_ref().is_none_or(|clocks| clocks[rank][other] >= then)
    }
}
