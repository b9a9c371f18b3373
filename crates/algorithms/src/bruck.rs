//! Radix-r Bruck alltoall(v) (Fan and Kumar; Bruck et al. 1997).
//!
//! Slot j of a rank holds the block for the rank j further on. The base-r digits of j give the block's route: for each digit x and each
//! value z, all slots with that digit move on by z·r^x together. After the last digit, slot j holds the block from the rank j back. If
//! sizes are known only locally, lengths are sent one message ahead of the data.
//!
//! ```text
//! p = 6, r = 3      slot   0  1  2  3  4  5
//! digit 0, z = 1    +1        1        4
//! digit 0, z = 2    +2           2        5
//! digit 1, z = 1    +3              3  4  5
//! ```
//!
//! The *modified* form (Träff, Rougier and Hunold 2014) keeps slot j of rank i at place i − j of the output, where its final value
//! belongs, so there is no last rotation. It needs equal blocks.
//!
//! Cost: w(r−1) − ⌊(r^w − p)/r^(w−1)⌋ messages for w digits, each with a block for every slot whose digit x is z.

use bruckner_schedule::{Area, Counts, Message, Place, Problem, Rank, Round, Run, Set, Topology};

use crate::{Algorithm, Builder};

/// Radix-r Bruck alltoall(v).
pub struct BruckAlltoall {
    /// The radix r, at least 2.
    pub radix: u32,
    /// Where the slots are stored.
    pub slots: Slots,
}

/// Where the slots of a rank are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slots {
    /// The slots are in a private line, and are rotated into the output at the end.
    Line,
    /// The slots are in the output itself.
    Output,
}

impl Algorithm for BruckAlltoall {
    fn rounds(&self, problem: &Problem, _: &Topology, rank: Rank) -> Vec<Round> {
        let (p, r, me) = (u64::from(problem.ranks), u64::from(self.radix), u64::from(rank.0));
        let peer = |distance: u64| Rank(((me + distance) % p) as u32);
        // Returns the place of slots in the private line or in the output.
        let held = |slots: &Set| match self.slots {
            Slots::Line => Place::new(Area::Line(0), slots.clone()),
            Slots::Output => Place::new(Area::Out, mirrored(slots, me, p)),
        };
        let fresh = |slots: &Set| Place::new(Area::Line(1), held(slots).set);
        let all = Set::from(1..p);
        let mut b = Builder::new();
        b.copy(Place::new(Area::Out, Set::one(me)), Place::new(Area::In, Set::one(me)));
        b.copy(held(&all), Place::new(Area::In, Set::cyclic(me + 1, p - 1, p)));
        let mut power = 1;
        while power < p {
            for z in (1..r).take_while(|z| z * power < p) {
                let slots = slots_with_digit(p, r, power, z);
                let (to, from) = (peer(z * power), peer(p - z * power));
                let send = || Message::send(held(&slots), to);
                let recv = || Message::recv(fresh(&slots), from);
                if problem.counts == Counts::Local {
                    b.round();
                    b.message(send().sizes());
                    b.message(recv().sizes());
                }
                b.round();
                b.message(send());
                b.message(recv());
                b.copy(held(&slots), fresh(&slots));
            }
            power *= r;
        }
        if self.slots == Slots::Line {
            b.copy(Place::new(Area::Out, mirrored(&all, me, p)), held(&all));
        }
        b.finish()
    }
}

/// Returns the numbers of the output blocks that belong to the given slots: me − j (mod p) for slot j.
fn mirrored(slots: &Set, me: u64, p: u64) -> Set {
    let mut set = Set::new();
    for block in slots.runs().iter().flat_map(Run::blocks) {
        let len = block.end - block.start;
        set.extend(&Set::cyclic_run((me + p - block.start) % p, 1, -1, len, p));
    }
    set
}

/// Returns the slots below p whose digit at `power` is z: full blocks of `power` slots, and a last block cut off at p.
fn slots_with_digit(p: u64, r: u64, power: u64, z: u64) -> Set {
    let start = z * power;
    let whole = if p >= start + power { (p - start - power) / (power * r) + 1 } else { 0 };
    let mut set = Set::new();
    if whole > 0 {
        set.push(Run::new(start, power, (power * r) as i64, whole));
    }
    let last = start + whole * power * r;
    if last < p {
        set.push(Run::new(last, (p - last).min(power), 0, 1));
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_with_the_digit() {
        for p in 2..130 {
            for r in 2..p {
                let mut power = 1;
                while power < p {
                    for z in 1..r {
                        let want: Vec<u64> = (0..p).filter(|j| j / power % r == z).collect();
                        let got = if z * power < p { slots_with_digit(p, r, power, z) } else { Set::new() };
                        assert_eq!(got.iter().collect::<Vec<_>>(), want, "p {p} r {r} power {power} z {z}");
                        assert!(got.runs().len() <= 2);
                    }
                    power *= r;
                }
            }
        }
    }
}
