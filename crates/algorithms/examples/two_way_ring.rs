//! A ring in both directions at once: half the steps of a ring, two messages in each.
//!
//! ```text
//! 5 members   step 1   0 ◄── 4, 0 ◄── 1      step 2   0 ◄── 4 (block 3), 0 ◄── 1 (block 2)
//! ```
//!
//! Cost: ⌈(n − 1)/2⌉ steps, n − 1 blocks.

use bruckner_algorithms::gather::{BlockNumbering, GatherAll, Numbering, PatternGather};
use bruckner_algorithms::lower::{OnNode, lower};
use bruckner_algorithms::patterns::{Parcel, Pattern, PatternStep};
use bruckner_algorithms::reversed::Reversed;
use bruckner_algorithms::{Algorithm, TaskPlan};
use bruckner_schedule::verify::verify;
use bruckner_schedule::{Collective, Counts, Problem, Set, Topology, interpret};

/// The pattern; a new algorithm needs nothing else.
struct TwoWayRing;

impl Pattern for TwoWayRing {
    fn steps(&self, n: u32, me: u32) -> Vec<PatternStep> {
        let on = |distance: u32| (me + distance) % n;
        let back = |distance: u32| (me + n - distance) % n;
        let parcel = |peer: u32, block: u32| Parcel { peer, blocks: Set::one(block.into()) };
        let mut steps = Vec::new();
        for s in 1..=(n - 1) / 2 {
            steps.push(PatternStep {
                sends: vec![parcel(on(1), back(s - 1)), parcel(back(1), on(s - 1))],
                recvs: vec![parcel(back(1), back(s)), parcel(on(1), on(s))],
            });
        }
        // If the number of members is even, one block is left, which comes from one side only.
        if n.is_multiple_of(2) {
            let half = n / 2;
            steps.push(PatternStep::exchange(
                on(1),
                Set::one(back(half - 1).into()),
                back(1),
                Set::one(back(half).into()),
            ));
        }
        steps
    }
}

fn main() {
    for p in 1..=40 {
        let gather = || GatherAll {
            gather: Box::new(PatternGather(Box::new(TwoWayRing))),
            numbering: Numbering::Ranks,
            blocks: BlockNumbering::ByRank,
        };
        let algorithms: [(Collective, Box<dyn Algorithm>); 2] =
            [(Collective::Allgather, Box::new(gather())), (Collective::ReduceScatter, Box::new(Reversed(gather())))];
        for (collective, algorithm) in algorithms {
            let problem = Problem::new(collective, p, Counts::Equal(2), 8).expect("a problem");
            let schedule = TaskPlan::new(problem, Topology::flat(p), algorithm).schedule();
            let program = lower(&schedule, OnNode::Segment);
            for text in [schedule.flatten(), program] {
                let report = verify(&text);
                assert!(report.is_correct(), "{collective} on {p} ranks: {}", report.violations[0]);
                assert_eq!(interpret::check(&[&text], 1), Ok(()));
            }
        }
    }
    println!("a two-way ring is an allgather and, backwards, a reduce_scatter: proven for 1 to 40 ranks");
}
