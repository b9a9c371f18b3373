//! Checks that a rank's program is the same whether all ranks are lowered together, as in verification, or only the ranks that are needed
//! for it, as at run time.

use bruckner_algorithms::catalogue::list;
use bruckner_algorithms::lower::{LineMemory, MessagePurpose, OnNode, lower_part};
use bruckner_algorithms::plan;

#[test]
fn a_rank_runs_what_was_proven() {
    for p in 1..=13 {
        for entry in list(p) {
            let plan = plan(&entry.task, &entry.expression).expect("an entry of the catalogue").for_every_size();
            let line_memory =
                if entry.task.counts == plan.problem.counts { LineMemory::Shared } else { LineMemory::Own };
            let schedule = plan.schedule();
            for on_node in [OnNode::Segment, OnNode::Messages] {
                let whole = lower_part(&schedule, on_node, MessagePurpose::of(&schedule), line_memory);
                for (&rank, code) in &whole.ranks {
                    let alone = plan.code(rank, &entry.expression, on_node, line_memory);
                    assert_eq!(
                        alone.as_ref(),
                        Some(code),
                        "{} by {} on {}, rank {rank}",
                        plan.problem,
                        entry.expression,
                        plan.topology
                    );
                }
                if p > 7 && on_node == OnNode::Segment {
                    break;
                }
            }
        }
    }
}
