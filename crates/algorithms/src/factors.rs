//! Jocksch's allreduce family (Jocksch et al. 2021): cyclic shifts with factors and ports.
//!
//! The vector is cut into p fractions. A *line* holds one fraction summed over some ranks; partial sums are kept, because later steps
//! combine them. `8(-1 1 1 1)` is one group of 8: a reduce_scatter step with one port (negative), which leaves each rank half of the
//! fractions, then three allgather steps, each of which doubles the number of ranks covered and combines lines of the same fraction.
//! Several factors are nested groups, each a digit of the rank: `2(-1) 4(1 1) 2(1)` reduce-scatters among pairs, reduces among groups of
//! four, and gathers among pairs.
//!
//! ```text
//! one group of 5, `5(1 1 1)`, rank 0: line o = sum over ranks 0…o
//! have        step 1 ◄─ rank 1        step 2 ◄─ rank 2           step 3 ◄─ rank 4
//! line 0      line 1 = 0 ⊕ its 0      lines 2, 3 = 1 ⊕ its 0, 1  line 4 = 3 ⊕ its 0
//! ```
//!
//! No result needs line 2, so no rank computes or sends it. Lines that a result depends on are *live*, all others are *dead*. Live lines
//! are determined in numbers relative to the rank, which are the same on every rank, so senders and receivers drop the same dead lines
//! (the paper's Algorithm 1).
//!
//! In allgather steps that reduce, rank k sums cyclically from rank k on: results are the same from run to run, but their bits differ
//! between ranks. The verifier reports this (`consistent`), and the selection of algorithms must respect it.

mod form;
mod fractions;
mod lines;
mod live;
mod pieces;
pub mod stages;
mod steps;

use bruckner_schedule::{Area, Problem, Rank, Round, Topology};

use crate::expression::Factor;
use crate::{Algorithm, Builder, PlanError};
use form::Form;
use steps::View;

/// Checks that a factorization is an allgather among `ranks` ranks: one group, with allgather steps only.
pub fn check_gathering(factors: &[Factor], ranks: u32) -> Result<(), PlanError> {
    let [group] = factors else {
        return Err(PlanError("an allgather or reduce_scatter factorization must have exactly one group".to_owned()));
    };
    if group.ports.iter().any(|&q| q < 0) {
        return Err(PlanError(format!("`{group}`: an allgather cannot have reduce_scatter steps (negative ports)")));
    }
    Form::new(factors, ranks).map(|_| ()).map_err(PlanError)
}

/// Allreduce by a factorization with ports, for one number of ranks.
pub struct Factored {
    form: Form,
}

impl Factored {
    /// Creates the algorithm; returns an error if the factors do not fit the number of ranks.
    pub fn new(factors: &[Factor], ranks: u32) -> Result<Factored, PlanError> {
        Ok(Factored { form: Form::new(factors, ranks).map_err(PlanError)? })
    }
}

impl Algorithm for Factored {
    fn pieces(&self, topology: &Topology) -> u64 {
        topology.ranks().into()
    }

    fn in_step(&self) -> bool {
        true
    }

    fn rounds(&self, _: &Problem, _: &Topology, rank: Rank) -> Vec<Round> {
        let form = &self.form;
        let full = vec![true; form.digits()];
        let mut view =
            View { b: Builder::new(), form, rank: rank.0, full, held: Area::In, next: 1 + form.most_ports() };
        for (number, phase) in form.phases.iter().enumerate() {
            let digit = phase.digit;
            let mut window = if view.full[digit] { form.factor(digit) } else { 1 };
            // The steps of all following groups only copy, so the steps of this group yield results and write them to the output.
            let last = form.phases[number + 1..].iter().all(|p| p.scatters.is_empty() && form.is_scattered(p.digit));
            if !phase.scatters.is_empty() {
                window = view.scatter(digit, &phase.scatters);
                if phase.gathers.is_empty() {
                    view.full[digit] = false;
                    continue;
                }
            }
            let results = if last { Area::Out } else { Area::Line(view.next) };
            view.next += u32::from(!last);
            view.gather(digit, window, &phase.gathers, results);
            view.full[digit] = true;
        }
        view.b.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::forms;
    use bruckner_schedule::{Collective, Counts, End, Message};
    use lines::{Lines, Step};

    /// Checks that each step of the schedule sends as many lines as the paper's Algorithm 1 marks as live.
    #[test]
    fn as_many_lines_as_live() {
        for p in 2..40 {
            for factors in forms(p) {
                let factored = Factored::new(&factors, p).unwrap();
                let lines = Lines::new(&factored.form);
                let live = |l: &usize| lines.all[*l].live;
                let listed: Vec<Vec<u64>> = lines
                    .steps
                    .iter()
                    .map(|step| match step {
                        Step::Scatter { ports, .. } => ports.iter().map(|moves| moves.pairs.len() as u64).collect(),
                        Step::Gather { ports } => {
                            ports.iter().map(|port| port.lines.clone().filter(live).count() as u64).collect()
                        }
                    })
                    .collect();
                let problem = Problem::new(Collective::Allreduce, p, Counts::Equal(1), 8);
                let problem = problem.unwrap().cut(p.into()).unwrap();
                let rounds = factored.rounds(&problem, &Topology::flat(p), Rank(p / 3));
                let sent = rounds.iter().filter(|round| !round.messages.is_empty()).map(|round| {
                    round.messages.iter().filter(|m| m.end == End::Send).map(Message::len).collect::<Vec<u64>>()
                });
                let nothing = |ports: &Vec<u64>| ports.iter().any(|&n| n > 0);
                assert_eq!(
                    sent.collect::<Vec<_>>(),
                    listed.into_iter().filter(nothing).collect::<Vec<_>>(),
                    "{factors:?}"
                );
            }
        }
    }
}
