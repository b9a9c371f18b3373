//! Jocksch's allreduce family (Jocksch et al. 2021): cyclic shifts with factors and ports.
//!
//! The vector is cut into p fractions. A *line* is a value of one fraction: a sum over some ranks, kept as a
//! prefix so that later steps can use it. `8(-1 1 1 1)` is one group of 8: a reduce_scatter step with one port
//! (negative), which leaves each rank half of the fractions, then three allgather steps that double what it
//! covers and combine lines of equal fraction. Several factors are groups within groups, each a digit of the
//! rank: `2(-1) 4(1 1) 2(1)` reduces and scatters among pairs, reduces among four, gathers among pairs.
//!
//! ```text
//! one group of 5, `5(1 1 1)`, rank 0: line o = sum over ranks 0…o
//! have        step 1 ◄─ rank 1        step 2 ◄─ rank 2           step 3 ◄─ rank 4
//! line 0      line 1 = 0 ⊕ its 0      lines 2, 3 = 1 ⊕ its 0, 1  line 4 = 3 ⊕ its 0
//! ```
//!
//! Line 2 is never used: nobody needs it, so nobody computes or sends it. Which lines live is worked out in
//! rank-relative numbers, the same on every rank, so senders and receivers drop the same ones (the paper's
//! Algorithm 1).
//!
//! Rank k sums from k on round the circle: the result is the same from run to run, but its bits differ between
//! ranks. That is for the verifier to say (`consistent`) and for the chooser to heed.

mod form;
mod lines;
mod live;
pub mod stages;

use std::ops::Range;

use bruckner_schedule::{Area, End, Message, Payload, Place, Places, Problem, Rank, Round, Tag, Topology};

use crate::expression::Factor;
use crate::{Algorithm, Builder, Refusal};
use form::{Form, Shift};
use live::{Live, Port, Slot, live};

/// Checks that a form of allgather steps fits a number of ranks: one group, which gathers everything.
pub fn check_gathering(factors: &[Factor], ranks: u32) -> Result<(), Refusal> {
    let [group] = factors else {
        return Err(Refusal("an allgather or reduce_scatter form has one group".to_owned()));
    };
    if group.ports.iter().any(|&q| q < 0) {
        return Err(Refusal(format!("`{group}`: an allgather has no reduce_scatter steps")));
    }
    Form::new(factors, ranks).map(|_| ()).map_err(Refusal)
}

/// The algorithm for one number of ranks.
pub struct Factored {
    form: Form,
}

impl Factored {
    /// Checks that the factors fit the number of ranks.
    pub fn new(factors: &[Factor], ranks: u32) -> Result<Factored, Refusal> {
        Ok(Factored { form: Form::new(factors, ranks).map_err(Refusal)? })
    }
}

/// The line for what a port brings to be added; line 0 is for what it is added to.
fn temporary(port: usize) -> Area {
    Area::Line(1 + port as u32)
}

/// What one rank has while it is being worked out.
struct View<'a> {
    b: Builder,
    form: &'a Form,
    rank: u32,
    /// For each digit whether all its fractions are there, or only the own one.
    full: Vec<bool>,
    /// Where what the rank has is.
    held: Area,
    /// The next line that is free.
    next: u32,
}

impl View<'_> {
    /// Fractions at offsets of a digit, with what is there of the other digits.
    fn place(&self, area: Area, digit: usize, offsets: Range<u64>) -> Place {
        Place::new(area, self.form.fractions(self.rank, &self.full, digit, offsets))
    }

    fn message(&mut self, end: End, places: Places, digit: usize, by: u64) {
        let peer = Rank(self.form.shift(self.rank, Shift { digit, by: by as u32 }));
        self.b.message(Message { end, payload: Payload::Data, places, peer, tag: Tag(0) });
    }

    /// The reduce_scatter steps of a group: of a window of fractions only the first stay.
    fn scatter(&mut self, digit: usize, ports: &[u32]) -> u64 {
        let f = self.form.factor(digit);
        let mut window = f;
        for &q in ports {
            let next = window.div_ceil(u64::from(q) + 1);
            let kept = if self.held == Area::In { Area::Line(0) } else { self.held };
            // The first step gives away input as it is, and makes the rest the rank's own.
            let given = self.held;
            if self.held == Area::In {
                let (to, from) = (self.place(kept, digit, 0..next), self.place(Area::In, digit, 0..next));
                self.b.copy(to, from);
                self.held = kept;
            }
            self.b.round();
            let shifts: Vec<u64> = (next..window).step_by(next as usize).collect();
            for (port, &by) in shifts.iter().enumerate() {
                let give = self.place(given, digit, by..(by + next).min(window));
                self.message(End::Send, Places::from_buf([give]), digit, by);
                let brought = self.place(temporary(port), digit, 0..next.min(window - by));
                self.message(End::Recv, Places::from_buf([brought]), digit, f - by);
            }
            for (port, &by) in shifts.iter().enumerate() {
                let offsets = 0..next.min(window - by);
                let (into, with) =
                    (self.place(kept, digit, offsets.clone()), self.place(temporary(port), digit, offsets));
                self.b.reduce(into, with);
            }
            window = next;
        }
        window
    }

    /// The allgather steps of a group in which a rank has a window of fractions; the results go to an area.
    fn gather(&mut self, digit: usize, window: u64, ports: &[u32], results: Area) {
        let f = self.form.factor(digit);
        let Live { steps, lines } = live(f, window, ports);
        let (held, first) = (self.held, self.next);
        if window == 1 && held != results {
            // What the rank has is a result already.
            let (to, from) = (self.place(results, digit, 0..1), self.place(held, digit, 0..1));
            self.b.copy(to, from);
        }
        let area = |slot: Slot| match slot {
            Slot::Base => held,
            Slot::Result => results,
            Slot::Line(n) => Area::Line(first + n),
        };
        for step in &steps {
            self.b.round();
            for Port { by, pieces } in step {
                // The same fractions as the receiver's, who is so much further back.
                let back = |offsets: &Range<u64>| offsets.start + f - by..offsets.end + f - by;
                let (mut given, mut brought) = (Places::new(), Places::new());
                for piece in pieces {
                    Place::join(&mut given, self.place(area(piece.given), digit, back(&piece.offsets)));
                    Place::join(&mut brought, self.place(area(piece.into), digit, piece.offsets.clone()));
                }
                self.message(End::Send, given, digit, f - by);
                self.message(End::Recv, brought, digit, *by);
            }
            let mut combined: Vec<(Place, Place)> = Vec::new();
            for piece in step.iter().flat_map(|port| &port.pieces) {
                let Some(with) = piece.with else { continue };
                let place = |slot| self.place(area(slot), digit, piece.offsets.clone());
                let (into, with) = (place(piece.into), place(with));
                match combined.last_mut() {
                    Some((last, other)) if (last.area, other.area) == (into.area, with.area) => {
                        last.set.extend(&into.set);
                        other.set.extend(&with.set);
                    }
                    _ => combined.push((into, with)),
                }
            }
            combined.into_iter().for_each(|(into, with)| self.b.reduce(into, with));
        }
        (self.held, self.next) = (results, first + lines);
    }
}

impl Algorithm for Factored {
    fn pieces(&self, topology: &Topology) -> u64 {
        topology.ranks().into()
    }

    fn rounds(&self, _: &Problem, _: &Topology, rank: Rank) -> Vec<Round> {
        let form = &self.form;
        let full = vec![true; form.digits()];
        let mut view =
            View { b: Builder::new(), form, rank: rank.0, full, held: Area::In, next: 1 + form.most_ports() };
        for (number, phase) in form.phases.iter().enumerate() {
            let digit = phase.digit;
            let mut window = if view.full[digit] { form.factor(digit) } else { 1 };
            // What follows only copies: so what is there is a result, and belongs into the output.
            let last =
                form.phases[number + 1..].iter().all(|p| p.scatters.is_empty() && form.is_scattered(p.digit));
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
    use lines::{Lines, Step};

    /// The lines in closed form are those that the paper's Algorithm 1 leaves alive, step by step.
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
                        Step::Scatter { ports, .. } => {
                            ports.iter().map(|moves| moves.pairs.len() as u64).collect()
                        }
                        Step::Gather { ports } => {
                            ports.iter().map(|port| port.lines.clone().filter(live).count() as u64).collect()
                        }
                    })
                    .collect();
                let problem = Problem::new(
                    bruckner_schedule::Collective::Allreduce,
                    p,
                    bruckner_schedule::Counts::Equal(1),
                    8,
                );
                let problem = problem.unwrap().cut(p.into()).unwrap();
                let rounds = factored.rounds(&problem, &Topology::flat(p), Rank(p / 3));
                let sent = rounds.iter().filter(|round| !round.messages.is_empty()).map(|round| {
                    round
                        .messages
                        .iter()
                        .filter(|m| m.end == End::Send)
                        .map(Message::len)
                        .collect::<Vec<u64>>()
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
