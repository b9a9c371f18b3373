//! Allreduce through one node's shared memory (Jocksch et al., section 4, short messages), flat or by a tree.
//!
//! Every rank puts its vector into a line of the segment and raises a flag; once it has seen the flags of all
//! others it reduces their lines and its own vector by itself, in rank order. One put, one flag, no message.
//!
//! ```text
//! shm            rank i    put line i ── signal ── wait for all ── out = line 0 ⊕ (line 1 ⊕ … own … )
//! shm-tree(g)    leader    wait for its group ── put their sum ── signal ── wait for leaders ── out = … ── put it ── signal
//!                other     put line i ── signal ─────────────────────────────────────────────────── wait for its leader ── get
//! ```
//!
//! So p ranks read p − 1 cache lines each. In groups of g only the first of each group, its leader, does so with the other
//! leaders: with p = 64 and g = 8, 168 lines travel instead of 4,032, for two more flags one behind the other. Groups follow each
//! other in rank order, so all reductions keep it.
//!
//! A fast rank may put its next vector while a slow one still reads. Where all await all, the closing barrier prevents that, and
//! lowering replaces it by two halves of the segment used in turn; a tree goes round the ring.

use bruckner_schedule::{Area, Flag, Level, Place, Problem, Rank, Round, Set, Topology};

use crate::exchange::Exchange;
use crate::{Algorithm, Builder};

/// The algorithm.
pub struct ShmAllreduce {
    /// How many ranks have one leader.
    pub group: u32,
    /// How executions keep apart.
    pub through: Exchange,
}

/// Raised for what a rank gives.
const GIVEN: Flag = Flag(0);
/// Raised for the result.
const RESULT: Flag = Flag(1);

impl Algorithm for ShmAllreduce {
    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        let (me, p, group) = (topology.position(rank), topology.ranks(), self.group.max(1));
        let leader = me - me % group;
        let mates = leader + 1..p.min(leader + group);
        let all = Set::from(0..problem.chunks());
        let place = |area| Place::new(area, all.clone());
        // Where the result lies, behind the lines of all: beside a flag of the leader's, too.
        let (line, result) = (|at| Area::Shared(Level::NODE, at), Area::Shared(Level::NODE, p + leader));
        let mut b = Builder::new();
        // Where nothing is put on the ring, nobody enters it, and nobody is to look at its flags.
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
        // Not its own line: others have taken that away to read it.
        let given: Vec<Area> = leaders().map(|at| if at == me { own } else { line(at) }).collect();
        b.reduce_all(Area::Out, &given, &all);
        if !mates.is_empty() {
            b.copy(place(result), place(Area::Out));
            signal(&mut b, RESULT);
        }
        b.finish()
    }
}
