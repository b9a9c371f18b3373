//! Flags, barriers, and who may enter a ring.

use super::clock::Clocks;
use super::machine::{Machine, Step};
use super::{Invariant, Site};
use crate::schedule::Local;
use crate::{Flag, Level, Rank};

impl Machine<'_> {
    pub(super) fn wait(&mut self, rank: usize, flag: Flag, of: Rank, site: Site) -> Step {
        let topology = &self.programs[0].topology;
        if of.0 >= topology.ranks() || of == site.rank || topology.node_of(of) != topology.node_of(site.rank)
        {
            self.complain(Invariant::Bounds, site, format!("rank {of} is not another rank of this node"));
            return Step::Next;
        }
        let turn = self.states[rank].waits.get(&(of, flag)).copied().unwrap_or(0);
        let Some(stamp) = self.flags.get(&(of, flag, site.execution)).and_then(|s| s.get(turn)).cloned()
        else {
            self.waiting.entry((of, flag)).or_default().push(rank);
            return Step::Wait;
        };
        self.clocks.acquire(rank, &stamp);
        self.states[rank].waits.insert((of, flag), turn + 1);
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

    /// Whether all chunks that a flag or a gate is for are empty: all ranks know that, so it is left out on all of them.
    pub(super) fn is_left_out(&mut self, local: &Local, site: Site) -> bool {
        let problem = &self.programs[site.execution as usize].problem;
        let Some(chunks) = local.chunks() else { return false };
        let within = chunks.bounds().is_none_or(|bounds| bounds.end <= problem.chunks());
        if !within || chunks.len() > problem.chunks() {
            self.complain(Invariant::Bounds, site, format!("`{local}`: there are no such chunks"));
            return true;
        }
        local.is_left_out(problem)
    }

    /// A ring of one slot: it is free when all have left the execution before on this ring. A longer ring is free earlier,
    /// and what is ordered between two executions here is ordered between two that use the same slot there: see the module.
    pub(super) fn enter(&mut self, rank: usize, level: Level, site: Site) -> Step {
        if !self.rings[self.index[site.execution as usize]].has(rank, level) {
            self.complain(
                Invariant::Bounds,
                site,
                format!("enters the {level} segment and does not leave it"),
            );
            return Step::Next;
        }
        let topology = &self.programs[0].topology;
        let region = topology.region_of(level, site.rank);
        let Some(before) = self.round(rank, level, site).checked_sub(1) else { return Step::Next };
        let left = self.left.entry((level, region, before)).or_default();
        if left.arrived.len() < topology.span(level, region).len() {
            self.entering.entry((level, region)).or_default().push(rank);
            return Step::Wait;
        }
        self.clocks.acquire(rank, &left.known.clone());
        Step::Next
    }

    pub(super) fn leave(&mut self, rank: usize, level: Level, site: Site) {
        let region = self.programs[0].topology.region_of(level, site.rank);
        let round = self.round(rank, level, site);
        let left = self.left.entry((level, region, round)).or_default();
        left.known = Clocks::join(&left.known, &self.clocks.release(rank));
        left.arrived.insert(site.rank.0);
        self.ready.extend(self.entering.remove(&(level, region)).unwrap_or_default());
    }

    /// How many executions before this one go round a ring.
    fn round(&self, rank: usize, level: Level, site: Site) -> u32 {
        let before = self.index[..site.execution as usize].iter();
        before.filter(|&&program| self.rings[program].has(rank, level)).count() as u32
    }
}
