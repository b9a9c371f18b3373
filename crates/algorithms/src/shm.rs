//! Allreduce through one node's shared memory (Jocksch et al., section 4, short messages), flat or by a tree.
//!
//! Every rank puts its vector into a line of the segment and raises a flag; once it has seen the flags of all others it reduces their
//! lines and its own vector locally, in rank order: one put, one flag, no message.
//!
//! ```text
//! shm            rank i    put line i ── signal ── wait for all ── out = line 0 ⊕ (line 1 ⊕ … own … )
//! shm-tree(g)    leader    wait for its group ── put their sum ── signal ── wait for leaders ── out = … ── put it ── signal
//!                other     put line i ── signal ─────────────────────────────────────────────────── wait for its leader ── get
//! ```
//!
//! If a vector fits into one cache line, each of p ranks reads p − 1 cache lines in the flat form. With groups of g ranks only the first
//! rank of each group, its leader, exchanges data with the other leaders: for p = 64 and g = 8 all ranks together read 168 cache lines
//! instead of 4,032, at the price of two more flags in sequence. Groups consist of consecutive ranks, so all reductions keep rank order.
//!
//! A fast rank could put its next vector into its line while a slow rank still reads the line. The flat form prevents this by a closing
//! barrier, which lowering replaces by two halves of the segment used in turn; the tree uses a ring of slots instead.

use bruckner_schedule::{Area, Flag, Level, Place, Problem, Rank, Round, Set, Topology};

use crate::exchange::Exchange;
use crate::{Algorithm, Builder};

/// Allreduce through shared memory, flat or by a tree.
pub struct ShmAllreduce {
    /// Number of ranks in a group, which has one leader; 1 for the flat form.
    pub group: u32,
    /// How ranks exchange data through the segment, which also determines how successive executions are kept apart.
    pub through: Exchange,
}

/// Flag raised when a rank's contribution is in the segment.
const GIVEN: Flag = Flag(0);
/// Flag raised when a leader has put the result for its group.
const RESULT: Flag = Flag(1);

impl Algorithm for ShmAllreduce {
    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        let (me, p, group) = (topology.position(rank), topology.ranks(), self.group.max(1));
        let leader = me - me % group;
        let mates = leader + 1..p.min(leader + group);
        let all = Set::from(0..problem.chunks());
        let place = |area| Place::new(area, all.clone());
        // The line of the group's result comes after the lines of all ranks. Its number is p plus the leader's number, so it lies beside a
        // flag of the leader.
        let (line, result) = (|at| Area::Shared(Level::NODE, at), Area::Shared(Level::NODE, p + leader));
        let mut b = Builder::new();
        // If there is nothing to put on the ring, no rank enters the ring, and no rank may wait for flags.
        let is_ring = self.through == Exchange::Ring;
        let signal = |b: &mut Builder, flag| match is_ring {
            true => b.signal_for(flag, all.clone()),
            false => b.signal(flag),
        };
        let wait = |b: &mut Builder, flag, of| match is_ring {
            true => b.wait_for(flag, topology.rank_at(of), all.clone()),
            false => b.wait(flag, topology.rank_at(of)),
        };
        let wait_for_all = |b: &mut Builder, of: &mut dyn Iterator<Item = u32>| {
            of.filter(|at| *at != me).for_each(|at| wait(b, GIVEN, at));
        };
        let mut own = Area::In;
        if me == leader && !mates.is_empty() {
            wait_for_all(&mut b, &mut mates.clone());
            let given: Vec<Area> = [Area::In].into_iter().chain(mates.clone().map(line)).collect();
            own = Area::Line(0);
            b.reduce_all(own, &given, &all);
        }
        if is_ring {
            b.enter_for(Level::NODE, all.clone());
        }
        b.copy(place(line(me)), place(own));
        signal(&mut b, GIVEN);
        if me != leader {
            wait(&mut b, RESULT, leader);
            b.copy(place(Area::Out), place(result));
            return b.finish();
        }
        let leaders = || (0..p).step_by(group as usize);
        wait_for_all(&mut b, &mut leaders());
        // Read this rank's vector from `own`, not from its line in the segment, whose cache lines the other ranks have fetched.
        let given: Vec<Area> = leaders().map(|at| if at == me { own } else { line(at) }).collect();
        b.reduce_all(Area::Out, &given, &all);
        if !mates.is_empty() {
            b.copy(place(result), place(Area::Out));
            signal(&mut b, RESULT);
        }
        b.finish()
    }
}
