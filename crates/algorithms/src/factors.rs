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

mod lines;
pub mod stages;

use bruckner_schedule::{
    Area, End, Message, Payload, Place, Places, Problem, Rank, Round, Set, Tag, Topology,
};

use crate::expression::Factor;
use crate::{Algorithm, Builder, Refusal};
use lines::{Form, Lines, Port, Shift, Step};

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
    lines: Lines,
}

impl Factored {
    /// Checks that the factors fit the number of ranks, and works out which lines live.
    pub fn new(factors: &[Factor], ranks: u32) -> Result<Factored, Refusal> {
        let form = Form::new(factors, ranks).map_err(Refusal)?;
        let lines = Lines::new(&form);
        Ok(Factored { form, lines })
    }

    /// Where a line's slot is: the input while it is untouched, the output once it is a result.
    fn area(&self, line: usize) -> Area {
        let line = &self.lines.all[line];
        match (line.result, line.copy) {
            (true, _) => Area::Out,
            (false, 0) if line.given_first || !self.form.scatters() => Area::In,
            (false, copy) => Area::Line(copy),
        }
    }

    /// The slots of some lines of a rank, in as few places as their order allows.
    fn places(&self, rank: u32, slots: impl Iterator<Item = (Area, usize)>) -> Places {
        let slots = slots.map(|(area, l)| (area, self.form.fraction(rank, self.lines.all[l].offset)));
        group(slots).into_iter().map(|(area, fractions)| Place::new(area, fractions)).collect()
    }
}

/// Runs of equal keys, each with the set of its numbers.
fn group<K: PartialEq>(slots: impl Iterator<Item = (K, u64)>) -> Vec<(K, Set)> {
    let mut groups: Vec<(K, Vec<u64>)> = Vec::new();
    for (key, number) in slots {
        match groups.last_mut() {
            Some((last, numbers)) if *last == key => numbers.push(number),
            _ => groups.push((key, vec![number])),
        }
    }
    groups.into_iter().map(|(key, numbers)| (key, numbers.into_iter().collect())).collect()
}

impl Algorithm for Factored {
    fn pieces(&self, topology: &Topology) -> u64 {
        topology.ranks().into()
    }

    fn rounds(&self, _: &Problem, _: &Topology, rank: Rank) -> Vec<Round> {
        let me = rank.0;
        let mut b = Builder::new();
        let fraction = |line: usize| self.form.fraction(me, self.lines.all[line].offset);
        // The fractions that this rank goes on with become its own; the others are sent as they are.
        let own = (0..self.lines.initial).map(|l| (self.area(l), fraction(l)));
        for (area, set) in group(own.filter(|(area, _)| *area != Area::In)) {
            b.copy(Place::new(area, set.clone()), Place::new(Area::In, set));
        }
        let message = |end, places, to: Shift| Message {
            end,
            payload: Payload::Data,
            places,
            peer: Rank(self.form.shift(me, to)),
            tag: Tag(0),
        };
        for step in &self.lines.steps {
            b.round();
            match step {
                Step::Scatter { ports, .. } => {
                    let temporary = |port: usize| Area::Line(self.lines.copies + port as u32);
                    for (port, moves) in ports.iter().enumerate() {
                        let given = self.places(me, moves.pairs.iter().map(|&(l, _)| (self.area(l), l)));
                        b.message(message(End::Send, given, moves.forward));
                        let added = self.places(me, moves.pairs.iter().map(|&(_, l)| (temporary(port), l)));
                        b.message(message(End::Recv, added, moves.backward));
                    }
                    for (port, moves) in ports.iter().enumerate() {
                        for (area, set) in
                            group(moves.pairs.iter().map(|&(_, l)| (self.area(l), fraction(l))))
                        {
                            b.reduce(Place::new(area, set.clone()), Place::new(temporary(port), set));
                        }
                    }
                }
                Step::Gather { ports } => {
                    let live = |port: &Port| port.lines.clone().filter(|&l| self.lines.all[l].live);
                    for port in ports {
                        let given = live(port).map(|l| self.lines.source(l).peer_line);
                        let given = self.places(me, given.map(|l| (self.area(l), l)));
                        b.message(message(End::Send, given, port.backward));
                        let brought = self.places(me, live(port).map(|l| (self.area(l), l)));
                        b.message(message(End::Recv, brought, port.forward));
                    }
                    for port in ports {
                        let combined = live(port).filter_map(|l| {
                            let parent = self.lines.source(l).parent?;
                            Some(((self.area(l), self.area(parent)), fraction(l)))
                        });
                        for ((into, with), set) in group(combined) {
                            b.reduce(Place::new(into, set.clone()), Place::new(with, set));
                        }
                    }
                }
            }
        }
        b.finish()
    }
}
