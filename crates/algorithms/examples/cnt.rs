//! count
use bruckner_algorithms::catalogue::entries;
use bruckner_algorithms::lower::{OnNode, lower};
use bruckner_algorithms::plan;
use bruckner_schedule::*;
fn main() {
    let p: u32 = std::env::args().nth(1).unwrap().parse().unwrap();
    let (mut n, mut instrs, mut posts, mut locals, mut runs, mut blocks, mut cells, mut chan) =
        (0u64, 0u64, 0u64, 0u64, 0u64, 0u64, 0u64, 0u64);
    for e in entries(p) {
        let s = plan(&e.task, &e.expression).unwrap_or_else(|_| panic!()).schedule();
        let mut v = vec![s.flatten(), lower(&s, OnNode::Segment)];
        if e.expression.shares_memory() {
            v.push(lower(&s, OnNode::Messages));
        }
        for g in v {
            n += 1;
            for c in g.ranks.values() {
                for i in &c.instrs {
                    instrs += 1;
                    match i {
                        Instr::Post(..) => posts += 1,
                        Instr::Local(_) => locals += 1,
                        _ => chan += 1,
                    }
                    for pl in i.places() {
                        runs += pl.set.runs().len() as u64;
                        blocks += pl.set.runs().iter().map(|r| r.count()).sum::<u64>();
                        cells += pl.set.len();
                    }
                }
            }
        }
    }
    println!(
        "programs {n} instrs {instrs} posts {posts} locals {locals} finish {chan} runs {runs} blocks {blocks} cells {cells}"
    );
}
