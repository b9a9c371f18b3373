//! Runs every algorithm of the catalogue with real data, with threads as ranks: with shared memory and with messages only, in one blocking
//! call and by start, test and wait, several executions in a row. Integer results are compared with the known result, floating-point
//! results with the results of the other ranks.

mod common;

use bruckner_algorithms::catalogue::{Entry, list};
use bruckner_algorithms::lower::{LineMemory, MessagePurpose, OnNode, lower_part};
use bruckner_algorithms::properties::{RankPlacement, properties};
use bruckner_algorithms::{Expression, Task, plan, plan_on, planning_work};
use bruckner_runtime::readback::bound_actions;
use bruckner_runtime::{Limits, Target, compile};
use bruckner_schedule::{Collective, Counts, Order, Problem, Rank};
use common::{Drive, run, run_sized};

fn all(ranks: impl IntoIterator<Item = u32>) {
    let cases = ranks.into_iter().map(|p| check(p, list(p))).sum::<usize>();
    println!("{cases} cases");
    assert!(cases > 100);
}

/// Runs entries of the catalogue on `p` ranks. Returns the number of cases.
fn check(p: u32, entries: impl IntoIterator<Item = Entry>) -> usize {
    let mut cases = 0;
    {
        for entry in entries {
            for on_node in [OnNode::Segment, OnNode::Messages] {
                if on_node == OnNode::Messages && !entry.expression.groups_regions() {
                    continue;
                }
                let plan = plan_on(&entry.task, &entry.expression, on_node)
                    .unwrap_or_else(|e| panic!("{}: {e}", entry.expression));
                let problem = plan.problem.clone();
                let purpose = plan.purpose;
                let schedule = plan.for_every_size().schedule();
                let line_memory = if problem.chunk_elements().is_some() { LineMemory::Shared } else { LineMemory::Own };
                let program = lower_part(&schedule, on_node, purpose, line_memory);
                let what = || format!("{} by {} on {}, {on_node:?}", problem, entry.expression, program.topology);
                let hint = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    if program.problem.counts == Counts::Local {
                        run_sized(&program);
                        return Vec::new();
                    }
                    let drive = if cases % 2 == 0 { Drive::Run } else { Drive::StartTestWait };
                    let run = |drive| run(&program, &problem, purpose == MessagePurpose::OrdersMemory, drive);
                    if entry.expression.reads_buffers() {
                        run(Drive::Refused);
                    }
                    run(drive)
                }));
                let floats = hint.unwrap_or_else(|cause| {
                    eprintln!("in {}", what());
                    std::panic::resume_unwind(cause)
                });
                let placement = RankPlacement::of(&program.topology);
                if entry.task.collective == Collective::Allreduce
                    && properties(entry.task.collective, &entry.expression, placement, p).consistent
                {
                    assert!(floats.windows(2).all(|w| w[0] == w[1]), "other bits on other ranks: {}", what());
                }
                cases += 1;
            }
        }
    }
    cases
}

/// Returns sizes, in 8-byte elements, just below, at and just above each size limit of the code: for data beside a flag, for chunks on
/// cache lines of their own, and for short messages, which are sent first.
fn around_thresholds() -> Vec<u64> {
    let limits = Limits::MEASURED;
    let limits = [limits.beside, limits.spread, limits.short].map(|bytes| bytes as u64 / 8);
    limits.iter().flat_map(|limit| [limit - 1, *limit, limit + 1]).collect()
}

/// Runs algorithms of the catalogue with sizes around each size limit: blocks of equal and of different sizes, and pipelines with parts
/// above and below a limit.
#[test]
fn sizes_on_both_sides_of_every_threshold() {
    let sizes = around_thresholds();
    let mut cases = 0;
    for p in 2..=4u32 {
        let entries = list(p).into_iter().flat_map(|entry| {
            let with = |counts| Entry { task: Task { counts, ..entry.task.clone() }, ..entry.clone() };
            let parts = match &entry.expression {
                Expression::Pipeline { parts, .. } => *parts as u64,
                _ => 1,
            };
            // One part of the pipeline is larger than the others.
            let straddling = sizes.iter().map(|n| n * parts + u64::from(parts > 1));
            match &entry.task.counts {
                Counts::Equal(1) => straddling.map(|n| with(Counts::Equal(n))).collect(),
                Counts::Root { root, .. } => {
                    straddling.map(|count| with(Counts::Root { root: *root, count })).collect()
                }
                Counts::Listed(_) => {
                    let block = |first: usize, rank: usize| sizes[(first + rank) % sizes.len()] * parts + 1;
                    let list = |first| (0..p as usize).map(|rank| block(first, rank)).collect();
                    (0..sizes.len()).step_by(2).map(|first| with(Counts::Listed(list(first)))).collect()
                }
                _ => Vec::new(),
            }
        });
        cases += check(p, entries);
    }
    println!("{cases} cases");
    assert!(cases > 1000);
}

/// A plan that was bound to other sizes before has the same actions as a fresh one.
#[test]
fn sizes_leave_no_trace() {
    let sizes = around_thresholds();
    let sizes: Vec<u64> = [0].into_iter().chain(sizes.iter().flat_map(|n| [*n, 3 * n])).collect();
    let mut same = 0;
    for p in 1..=9 {
        for Entry { task, expression } in list(p) {
            if task.counts != Counts::Equal(1) {
                continue;
            }
            let plan = plan(&task, &expression).unwrap().for_every_size();
            let rank = Rank(p / 2);
            let code = plan.code(rank, &expression, OnNode::Segment, LineMemory::Shared).unwrap();
            let target = Target { topology: &task.topology, even: true, orders_memory: p % 2 == 0 };
            let compiled = compile(&plan.problem, rank, &code, &target).unwrap();
            let with = |n: u64| {
                let counts = Counts::Equal(n * plan.problem.pieces);
                Problem { counts, element: 8, ..plan.problem.clone() }
            };
            let fresh = |n: u64| bound_actions(&compiled, &with(n), &Limits::MEASURED);
            let mut bound = fresh(1);
            for n in &sizes {
                bound.bind(&compiled, &with(*n), &Limits::MEASURED);
                assert_eq!(bound, fresh(*n), "{expression} for {} on {}", task.collective, task.topology);
                same += 1;
            }
        }
    }
    println!("{same} times the same");
    assert!(same > 1000);
}

/// Messages between the same ranks with the same tag keep their order, even if some are short and others long.
#[test]
fn parts_of_a_pipeline_keep_their_order() {
    for p in [2, 3] {
        for inner in ["recursive-doubling", "ring", "bruck(2)", "sparbit"] {
            let entry = |count| Entry {
                task: Task {
                    collective: Collective::Allreduce,
                    topology: format!("{p}x1").parse().unwrap(),
                    counts: Counts::Equal(count),
                    element: 8,
                    order: Order::Any,
                },
                expression: format!("pipeline(5, {inner})").parse().unwrap(),
            };
            // For example, with parts of 33, 33, 32, 32 and 32 elements, only the parts of 33 elements exceed the limit for short
            // messages.
            let limit = Limits::MEASURED.short as u64 / 8;
            check(p, (0..5).map(|more| entry(5 * limit + more)));
            check(p, (0..5).map(|more| entry(5 * limit * u64::from(p) + more)));
        }
    }
}

/// A compiled plan never has more steps than `planning_work` predicts.
#[test]
fn planning_is_bounded() {
    let mut closest = (0.0, String::new());
    for p in 1..=24 {
        for Entry { task, expression } in list(p) {
            if task.counts == Counts::Local {
                continue;
            }
            let plan = plan(&task, &expression).unwrap().for_every_size();
            let bound = planning_work(task.collective, &expression, &task.topology);
            for rank in [0, p / 2, p - 1].map(Rank) {
                let code = plan.code(rank, &expression, OnNode::Segment, LineMemory::Own).unwrap();
                let target = Target { topology: &task.topology, even: false, orders_memory: false };
                let steps = compile(&plan.problem, rank, &code, &target).unwrap().len() as u64;
                let what = || format!("{expression} for {} on {}", task.collective, task.topology);
                assert!(steps <= bound, "{}: {steps} steps, not {bound}", what());
                let share = steps as f64 / bound as f64;
                if share > closest.0 {
                    closest = (share, what());
                }
            }
        }
    }
    println!("closest to its bound: {}, {:.0} %", closest.1, 100.0 * closest.0);
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
