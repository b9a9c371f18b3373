//! Reads from the input and output of other ranks of the node, which these ranks have opened.
//!
//! The user fills a rank's input before a call and may change both buffers as soon as the call returns. So another rank may read the
//! buffers only after their owner has opened them in this execution, and the owner may end only after all reads. Messages, signals or
//! barriers must ensure both orders. The owner's own writes to its output are checked against these reads like any access to shared
//! memory.

use super::machine::Machine;
use super::{Invariant, Site};
use crate::Rank;

impl Machine<'_> {
    pub(super) fn open(&mut self, rank: usize, site: Site) {
        if self.opened.insert((rank, site.execution), self.clocks.now(rank)).is_some() {
            self.report(Invariant::Bounds, site, "opens its buffers twice");
        }
    }

    /// Checks whether a rank may read another rank's buffers now, and records the read.
    pub(super) fn reads_of(&mut self, rank: usize, owner: Rank, site: Site) -> bool {
        let topology = &self.programs[0].topology;
        let is_near = owner.0 < topology.ranks() && topology.node_of(owner) == topology.node_of(site.rank);
        if !is_near || owner == site.rank {
            self.report(Invariant::Bounds, site, format!("rank {owner} must be another rank of the same node"));
            return false;
        }
        let of = owner.0 as usize;
        let opened = self.opened.get(&(of, site.execution));
        let (now, state) = (self.clocks.now(rank), &self.states[of]);
        let message = if !opened.is_some_and(|then| self.clocks.happened_before(rank, of, *then)) {
            format!("reads the buffers of rank {owner}, but nothing orders this after that rank's `open`")
        } else if state.done || state.execution > site.execution {
            format!("reads the buffers of rank {owner}, whose program may have ended")
        } else {
            let readers = self.readers.entry((of, site.execution)).or_default();
            if readers.last() != Some(&(rank, now)) {
                readers.push((rank, now));
            }
            return true;
        };
        self.report(Invariant::Race, site, message);
        false
    }

    /// Checks at the end of a rank's program that all reads of its buffers are complete.
    pub(super) fn close(&mut self, rank: usize) {
        let site = self.site(rank);
        let readers = self.readers.remove(&(rank, site.execution)).unwrap_or_default();
        if let Some((reader, _)) =
            readers.iter().find(|(reader, then)| !self.clocks.happened_before(rank, *reader, *then))
        {
            let site = Site { instr: None, ..site };
            self.report(Invariant::Race, site, format!("ends while rank {reader} may still read its buffers"));
        }
    }
}
