//! Flags and barriers.

use super::clock::Clocks;
use super::machine::{Machine, Step};
use super::{Invariant, Site};
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
}
