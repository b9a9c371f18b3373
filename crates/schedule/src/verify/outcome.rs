//! Checks that the outputs are those that MPI requires, and determines whether all ranks compute the same expressions and keep rank order.

use rustc_hash::FxHashMap as HashMap;

use super::expr::{Expr, Exprs, Node};
use super::machine::{Run, moved};
use super::{Invariant, MOST_VIOLATIONS, Site, Verification, Violation};
use crate::{Code, Counts, Order, Problem, Program, Rank};

pub(super) fn check(programs: &[&Program], run: Run) -> Verification {
    let program = programs[0];
    let mut judge = Checker { exprs: run.exprs, violations: run.violations, shapes: HashMap::default() };
    for (execution, ranks) in run.outputs.iter().enumerate() {
        for (rank, chunks) in ranks.iter().enumerate() {
            let site = Site { rank: Rank(rank as u32), execution: execution as u32, instr: None };
            for &(chunk, expr) in chunks {
                judge.output(&programs[execution].problem, site, chunk, expr);
            }
        }
    }
    let mut report =
        Verification { violations: Vec::new(), consistent: true, ordered: true, memory: 0, traffic: run.traffic };
    // The memory is computed only for correct programs, because an invalid text may name an enormous number of slots.
    if judge.violations.is_empty() {
        let of_rank = |code: &Code| code.memory(&program.problem);
        report.memory = program.ranks.values().map(of_rank).max().unwrap_or(0);
        judge.claims(program, &report);
    }
    if judge.violations.is_empty() && program.problem.collective.reduces() {
        judge.properties(program, &run.outputs[0], &mut report);
    }
    judge.violations.truncate(MOST_VIOLATIONS);
    report.violations = judge.violations;
    report
}

struct Checker {
    exprs: Exprs,
    violations: Vec<Violation>,
    /// Results of the reductions that were already checked: an error, or whether operands are in rank order.
    shapes: HashMap<(Expr, u64), Result<bool, (Invariant, String)>>,
}

impl Checker {
    fn complain(&mut self, invariant: Invariant, site: Option<Site>, message: String) {
        self.violations.push(Violation { invariant, site, message });
    }

    fn output(&mut self, problem: &Problem, site: Site, chunk: u64, expr: Option<Expr>) {
        let Some(expr) = expr else {
            let message = format!("out[{chunk}] was never written");
            return self.complain(Invariant::Result, Some(site), message);
        };
        let verdict = if problem.collective.reduces() {
            self.shape(expr, chunk, problem.ranks).map(|_| ())
        } else {
            let (from, number) = moved(problem, site.rank, chunk);
            match self.exprs.node(expr) {
                Node::Input(r, c) if (r, c) == (from, number) => Ok(()),
                Node::Input(r, c) => Err((
                    Invariant::Result,
                    format!("out[{chunk}] holds rank {r}'s chunk {c}, not rank {from}'s chunk {number}"),
                )),
                _ => Err((Invariant::Result, format!("out[{chunk}] does not hold a rank's chunk"))),
            }
        };
        if let Err((invariant, message)) = verdict {
            self.complain(invariant, Some(site), message);
        }
    }

    /// Checks that an expression reduces a chunk over all ranks. Returns whether its operands are in rank order.
    fn shape(&mut self, expr: Expr, chunk: u64, ranks: u32) -> Result<bool, (Invariant, String)> {
        if let Some(known) = self.shapes.get(&(expr, chunk)) {
            return known.clone();
        }
        let verdict = self.look(expr, chunk, ranks);
        self.shapes.insert((expr, chunk), verdict.clone());
        verdict
    }

    fn look(&self, expr: Expr, chunk: u64, ranks: u32) -> Result<bool, (Invariant, String)> {
        let inputs = self.exprs.inputs(expr, ranks as usize + 1);
        if let Some((_, other)) = inputs.iter().find(|(_, c)| *c != chunk) {
            return Err((Invariant::Result, format!("out[{chunk}] holds a reduction of chunk {other}")));
        }
        let mut times = vec![0u32; ranks as usize];
        inputs.iter().for_each(|(rank, _)| times[rank.0 as usize] += 1);
        match times.iter().position(|&t| t != 1) {
            Some(rank) if times[rank] == 0 => {
                Err((Invariant::Once, format!("out[{chunk}] lacks the contribution of rank {rank}")))
            }
            Some(rank) => {
                Err((Invariant::Once, format!("out[{chunk}] has the contribution of rank {rank} more than once")))
            }
            None => Ok(inputs.windows(2).all(|w| w[0].0 < w[1].0)),
        }
    }

    fn properties(&mut self, program: &Program, ranks: &[Vec<(u64, Option<Expr>)>], report: &mut Verification) {
        let mut first: HashMap<u64, Option<Expr>> = HashMap::default();
        for (rank, chunks) in ranks.iter().enumerate() {
            let site = Some(Site { rank: Rank(rank as u32), execution: 0, instr: None });
            for &(chunk, expr) in chunks {
                if *first.entry(chunk).or_insert(expr) != expr {
                    report.consistent = false;
                    if program.claims.consistent {
                        let message =
                            format!("out[{chunk}] is computed by a different expression than on a lower rank");
                        self.complain(Invariant::Consistent, site, message);
                    }
                }
                let ordered = expr.map(|e| self.shape(e, chunk, program.problem.ranks));
                if !matches!(ordered, Some(Ok(true))) {
                    report.ordered = false;
                    if program.claims.ordered || program.problem.order == Order::Ranks {
                        let message = format!("out[{chunk}] does not combine its operands in rank order");
                        self.complain(Invariant::Ordered, site, message);
                    }
                }
            }
        }
    }

    fn claims(&mut self, program: &Program, report: &Verification) {
        let most = |of: fn(&super::Traffic) -> u64| report.traffic.iter().map(of).max().unwrap_or(0);
        if program.claims.sent.is_some() && program.problem.counts == Counts::Local {
            let message = "`claim sent` is not allowed with counts `local`";
            self.complain(Invariant::Claim, None, message.to_owned());
        }
        for (what, claimed, found) in [
            ("messages sent", program.claims.messages, most(|t| t.messages.iter().sum())),
            ("elements sent", program.claims.sent, most(|t| t.elements.iter().sum())),
            ("elements of memory", program.claims.memory, report.memory),
        ] {
            if claimed.is_some_and(|bound| found > bound) {
                let message = format!("{found} {what} by the busiest rank, more than claimed");
                self.complain(Invariant::Claim, None, message);
            }
        }
    }
}
