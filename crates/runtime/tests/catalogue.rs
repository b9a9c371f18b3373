//! Every algorithm of the catalogue with real data, ranks as threads: through segments and by messages, at once and bit
//! by bit, several executions in a row, integers against the known result and floating point against the other ranks.

mod common;

use bruckner_algorithms::catalogue::list;
use bruckner_algorithms::lower::{OnNode, lower};
use bruckner_algorithms::plan;
use bruckner_algorithms::properties::{Placement, properties};
use bruckner_schedule::{Collective, Counts};
use common::{Drive, run, run_sized};

fn all(ranks: impl IntoIterator<Item = u32>) {
    let mut cases = 0;
    for p in ranks {
        for entry in list(p) {
            let plan =
                plan(&entry.task, &entry.expression).unwrap_or_else(|e| panic!("{}: {e}", entry.expression));
            let schedule = plan.schedule();
            for on_node in [OnNode::Segment, OnNode::Messages] {
                if on_node == OnNode::Messages && !entry.expression.shares_memory() {
                    continue;
                }
                let program = lower(&schedule, on_node);
                let what = || {
                    format!(
                        "{} by {} on {}, {on_node:?}",
                        program.problem, entry.expression, program.topology
                    )
                };
                let hint = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    if program.problem.counts == Counts::Local {
                        run_sized(&program);
                        return Vec::new();
                    }
                    run(&program, if cases % 2 == 0 { Drive::Run } else { Drive::StartTestWait })
                }));
                let floats = hint.unwrap_or_else(|cause| {
                    eprintln!("in {}", what());
                    std::panic::resume_unwind(cause)
                });
                let placement = Placement::of(&program.topology);
                if entry.task.collective == Collective::Allreduce
                    && properties(entry.task.collective, &entry.expression, placement, p).consistent
                {
                    assert!(floats.windows(2).all(|w| w[0] == w[1]), "other bits on other ranks: {}", what());
                }
                cases += 1;
            }
        }
    }
    println!("{cases} cases");
    assert!(cases > 100);
}

#[test]
fn every_algorithm_up_to_five_ranks() {
    all(1..=5);
}

#[test]
fn every_algorithm_with_six_and_seven_ranks() {
    all(6..=7);
}

#[test]
fn every_algorithm_with_nine_ranks() {
    all([9]);
}
