//! Time reversal: an allgather that delivers each block exactly once, run backwards, is a reduce_scatter.
//!
//! In the allgather the block of rank i spreads from i along a tree. In reverse, the contributions of all ranks to block i flow along the
//! same tree to i: a rank that received the block now sends its partial sum, and a rank that sent the block now receives a partial sum and
//! adds it to its own. In an allgather through a segment, one rank puts its block there and the others copy it; in reverse, the others put
//! their partial sums there and the one rank adds them up.
//!
//! ```text
//! allgather         0 ─► 4        0 ─► 2        0 ─► 1, 2 ─► 3
//! reduce_scatter    1 ─► 0, 3 ─► 2        2 ─► 0        4 ─► 0
//! ```
//!
//! Requirement: in the allgather every rank receives every other rank's block exactly once, sends only blocks that it holds, and touches
//! nothing but `in`, `out` and segments. The tests of [`crate::patterns`] check this for the patterns; the resulting schedules are
//! verified like all others.

use std::collections::BTreeMap;

use bruckner_schedule::{Area, End, Flag, Level, LocalOp, Message, Place, Problem, Rank, Round, Set, Topology};

use crate::exchange::Exchange;
use crate::gather::GatherAll;
use crate::{Algorithm, Builder};

/// The reduce_scatter obtained by reversing an allgather.
pub struct Reversed(pub GatherAll);

/// Private line that holds the partial sums.
const SUMS: Area = Area::Line(0);

impl Reversed {
    /// Adds the reduce_scatter to `b`; its result stays in the line of partial sums.
    fn write(&self, b: &mut Builder, problem: &Problem, topology: &Topology, rank: Rank) {
        let mut forward = Builder::new();
        // This first round stays empty on a rank that is alone in its region and has nothing to do before its first message. It makes the
        // operations after the reduce_scatter begin in the same round on all ranks.
        forward.round();
        self.0.write(&mut forward, problem, topology, rank);
        let all = problem.nonempty(&Set::from(0..problem.chunks()));
        b.copy(Place::new(SUMS, all.clone()), Place::new(Area::In, all));
        let forward = forward.finish();
        // Only an exchange on a ring has waits (before getting) and enters (before putting).
        let on_ring = |local: &LocalOp| matches!(local, LocalOp::Wait { .. } | LocalOp::Enter { .. });
        let is_ring = forward.iter().flat_map(|round| &round.local).any(on_ring);
        let through = if is_ring { Exchange::Ring } else { Exchange::Barrier };
        for round in forward.iter().rev() {
            // Consecutive waits are reversed together: the rank puts for all the ranks it waited for before it raises any flag.
            let both_wait = |a: &LocalOp, b: &LocalOp| is_wait(a) && is_wait(b);
            for locals in round.local.chunk_by(both_wait).rev() {
                match locals {
                    [first, ..] if is_wait(first) => reverse_waits(b, locals),
                    locals => {
                        locals.iter().for_each(|local| reverse_local(b, topology, rank, through, local));
                    }
                }
            }
            reverse_messages(b, &round.messages);
        }
    }
}

fn sums(set: &Set) -> Place {
    Place::new(SUMS, set.clone())
}

fn reverse_messages(b: &mut Builder, messages: &[Message]) {
    b.round();
    let mut received = Vec::new();
    for (number, message) in messages.iter().enumerate() {
        let area = match message.end {
            End::Send => Area::Line(1 + number as u32),
            End::Recv => SUMS,
        };
        let places = message.places.iter().map(|p| Place::new(area, p.set.clone())).collect();
        let end = match message.end {
            End::Send => End::Recv,
            End::Recv => End::Send,
        };
        if end == End::Recv {
            received.extend(message.places.iter().map(|p| (area, p.set.clone())));
        }
        b.message(Message { end, places, ..message.clone() });
    }
    for (area, set) in received {
        b.reduce(sums(&set), Place::new(area, set));
    }
}

fn is_wait(local: &LocalOp) -> bool {
    matches!(local, LocalOp::Wait { .. })
}

/// Reverses consecutive waits: instead of waiting until others have put data, the rank raises a flag for the data that it has put.
fn reverse_waits(b: &mut Builder, waits: &[LocalOp]) {
    let mut flags: BTreeMap<Flag, Set> = BTreeMap::new();
    for wait in waits {
        if let LocalOp::Wait { flag, chunks: Some(chunks), .. } = wait {
            flags.entry(*flag).or_default().extend(chunks);
        }
    }
    flags.into_iter().for_each(|(flag, chunks)| b.signal_for(flag, chunks));
}

fn reverse_local(b: &mut Builder, topology: &Topology, rank: Rank, through: Exchange, local: &LocalOp) {
    // Each member of a region puts its partial sums into a line of its own. On a ring, member m uses line m, which lies beside its flag;
    // otherwise the members use the lines after line 0, which a following allgather may use.
    let line = |level: Level, member: u32| match through {
        Exchange::Ring => Area::Shared(level, member),
        Exchange::Barrier => Area::Shared(level, 1 + member),
    };
    let own = |level: Level| {
        let span = topology.span(level, topology.region_of(level, rank));
        (span.clone(), topology.position(rank) - span.start)
    };
    match local {
        LocalOp::Copy { to: Place { area: Area::Out, set }, from: Place { area: Area::Shared(level, _), .. } } => {
            let (_, mine) = own(*level);
            if through == Exchange::Ring {
                b.enter_for(*level, set.clone());
            }
            b.copy(Place::new(line(*level, mine), set.clone()), sums(set));
        }
        LocalOp::Copy { to: Place { area: Area::Shared(level, _), set }, from: Place { area: Area::Out, .. } } => {
            let (span, mine) = own(*level);
            for other in (0..span.len() as u32).filter(|&other| other != mine) {
                b.reduce(sums(set), Place::new(line(*level, other), set.clone()));
            }
        }
        LocalOp::Barrier(level) => b.barrier(*level),
        LocalOp::Enter { .. } => {}
        // Reverses a signal: instead of announcing that it has put data, the rank waits until each other rank has put its data.
        LocalOp::Signal { flag, chunks: Some(chunks) } => {
            for other in own(Level::NODE).0.map(|at| topology.rank_at(at)).filter(|&other| other != rank) {
                b.wait_for(*flag, other, chunks.clone());
            }
        }
        other => unreachable!("`{other}` is not part of a reversible allgather"),
    }
}

impl Algorithm for Reversed {
    fn in_step(&self) -> bool {
        self.0.in_step()
    }

    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        let mut b = Builder::new();
        self.write(&mut b, problem, topology, rank);
        let own = self.0.own(problem, topology, rank);
        b.copy(Place::new(Area::Out, own.clone()), sums(&own));
        b.finish()
    }
}

/// An allreduce: a reduce_scatter of the vector's pieces, then an allgather of the results.
pub struct ReduceScatterAllgather {
    /// Reduce_scatter that makes the first half of the allreduce.
    pub scatter: Reversed,
    /// Allgather that makes the second half of the allreduce. It moves the same pieces.
    pub gather: GatherAll,
}

impl Algorithm for ReduceScatterAllgather {
    fn in_step(&self) -> bool {
        self.scatter.in_step() && self.gather.in_step()
    }

    fn pieces(&self, topology: &Topology) -> u64 {
        self.gather.owners(topology).into()
    }

    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        let mut b = Builder::new();
        self.scatter.write(&mut b, problem, topology, rank);
        let own = self.gather.own(problem, topology, rank);
        b.copy(Place::new(Area::Out, own.clone()), sums(&own));
        self.gather.write(&mut b, problem, topology, rank);
        b.finish()
    }
}
