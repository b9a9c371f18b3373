//! Flags, barriers and rings.

use super::clock::Clocks;
use super::machine::{Machine, Step};
use super::{Invariant, Site};
use crate::schedule::LocalOp;
use crate::{Flag, Level, Rank};

impl Machine<'_> {
    pub(super) fn wait(&mut self, rank: usize, flag: Flag, of: Rank, site: Site) -> Step {
        let topology = &self.programs[0].topology;
        if of.0 >= topology.ranks() || of == site.rank || topology.node_of(of) != topology.node_of(site.rank) {
            self.report(Invariant::Bounds, site, format!("rank {of} must be another rank of the same node"));
            return Step::Next;
        }
        let turn = self.states[rank].waits.get(&(of, flag)).copied().unwrap_or(0);
        let Some(stamp) = self.flags.get(&(of, flag, site.execution)).and_then(|s| s.get(turn)).cloned() else {
            self.waiting.entry((of, flag)).or_default().push(rank);
            return Step::Wait;
        };
        self.clocks.acquire(rank, &stamp);
        self.states[rank].waits.insert((of, flag), turn + 1);
        // Each flag carries its owner's message sizes. The owner may raise the flag in another execution only after this wait, so the wait
        // is an access to the segment.
        if flag.0 < Flag::BARRIERS {
            self.touch(rank, Level::NODE, site);
        }
        Step::Next
    }

    pub(super) fn barrier(&mut self, rank: usize, level: Level, site: Site) -> Step {
        let topology = &self.programs[0].topology;
        let region = topology.region_of(level, site.rank);
        let span = topology.span(level, region);
        let turn = self.states[rank].barriers.get(&level).copied().unwrap_or(0);
        let gathering = self.gatherings.entry((level, region, site.execution, turn)).or_default();
        if gathering.arrived.insert(site.rank.0) {
            gathering.known = Clocks::join(&gathering.known, &self.clocks.release(rank));
            if gathering.arrived.len() == span.len() {
                self.ready.extend(span.clone().map(|at| topology.rank_at(at).0 as usize));
            }
        }
        if gathering.arrived.len() < span.len() {
            return Step::Wait;
        }
        self.clocks.acquire(rank, &gathering.known.clone());
        *self.states[rank].barriers.entry(level).or_default() += 1;
        Step::Next
    }

    /// Whether a signal, wait or enter is skipped because all its chunks are empty. All ranks know which chunks are empty, so either all
    /// skip it or none does.
    pub(super) fn is_left_out(&mut self, local: &LocalOp, site: Site) -> bool {
        let problem = &self.programs[site.execution as usize].problem;
        let Some(chunks) = local.chunks() else { return false };
        let within = chunks.bounds().is_none_or(|bounds| bounds.end <= problem.chunks());
        if !within || chunks.len() > problem.chunks() {
            self.report(Invariant::Bounds, site, format!("`{local}`: there are no such chunks"));
            return true;
        }
        local.is_skipped(problem)
    }

    /// Waits to enter a ring. The simulated ring has one part, which is free when all ranks have left the previous execution on this ring.
    /// On a ring with more parts no rank waits longer. Entering orders only accesses to the ring (see [`Machine::touch_ring`]).
    pub(super) fn enter(&mut self, rank: usize, level: Level, site: Site) -> Step {
        if !self.rings[self.index[site.execution as usize]].has(rank, level) {
            self.report(Invariant::Bounds, site, format!("enters the {level} segment and does not leave it"));
            return Step::Next;
        }
        let topology = &self.programs[0].topology;
        let region = topology.region_of(level, site.rank);
        let before = self.round(rank, level, site).checked_sub(1);
        let left = |before| self.left.get(&(level, region, before)).copied().unwrap_or(0);
        if before.is_some_and(|before| left(before) < topology.span(level, region).len()) {
            self.entering.entry((level, region)).or_default().push(rank);
            return Step::Wait;
        }
        let now = self.clocks.now(rank);
        self.entered.entry((level, region, site.execution)).or_default().push((rank, now));
        Step::Next
    }

    pub(super) fn leave(&mut self, rank: usize, level: Level, site: Site) {
        let region = self.programs[0].topology.region_of(level, site.rank);
        let round = self.round(rank, level, site);
        *self.left.entry((level, region, round)).or_default() += 1;
        self.states[rank].left.push(level);
        self.ready.extend(self.entering.remove(&(level, region)).unwrap_or_default());
    }

    /// Checks an access to a ring: an `enter` of this execution must have happened before it, and the rank must not have left the ring.
    /// Then all accesses to this part of the ring in earlier executions, of this or other programs, are complete.
    pub(super) fn touch_ring(&mut self, rank: usize, level: Level, site: Site) {
        if self.states[rank].left.contains(&level) {
            let message = format!("accesses the {level} segment after `leave {level}`");
            return self.report(Invariant::Race, site, message);
        }
        let region = self.programs[0].topology.region_of(level, site.rank);
        let entered = self.entered.get(&(level, region, site.execution));
        let mut entered = entered.into_iter().flatten();
        if !entered.any(|&(who, then)| self.clocks.happened_before(rank, who, then)) {
            let message = format!("accesses the {level} segment without an `enter {level}` that happened before");
            self.report(Invariant::Race, site, message);
        }
    }

    /// Returns the number of earlier executions that used the ring of a level.
    fn round(&self, rank: usize, level: Level, site: Site) -> u32 {
        let before = self.index[..site.execution as usize].iter();
        before.filter(|&&program| self.rings[program].has(rank, level)).count() as u32
    }
}
