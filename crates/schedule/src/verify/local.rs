//! Copies and reductions.

use super::expr::Expr;
use super::machine::{Machine, Size, Slot};
use super::{Invariant, Site};
use crate::schedule::{Area, Place};

impl Machine<'_> {
    /// The slots of two places that must correspond.
    pub(super) fn pairs(
        &mut self,
        rank: usize,
        to: &Place,
        from: &Place,
        site: Site,
    ) -> Option<Vec<(Slot, Slot)>> {
        let (to_slots, from_slots) = (self.slots(rank, to, site)?, self.slots(rank, from, site)?);
        if to_slots.len() != from_slots.len() {
            let message = format!("{} chunks on the left, {} on the right", to_slots.len(), from_slots.len());
            self.complain(Invariant::Shape, site, message);
            return None;
        }
        if overlap(&to_slots, &from_slots) {
            self.complain(Invariant::Placed, site, "the two sides lie on each other");
            return None;
        }
        Some(to_slots.into_iter().zip(from_slots).collect())
    }

    pub(super) fn copy(&mut self, rank: usize, to: &Place, from: &Place, site: Site) {
        for (to, from) in self.pairs(rank, to, from, site).unwrap_or_default() {
            let piece = self.read(rank, from, site);
            self.fit(to, piece.size, site);
            self.write(rank, to, piece.value, site);
        }
    }

    /// A value of this size comes into a slot without a message: the slot's length is shared knowledge, or
    /// becomes known now.
    pub(super) fn fit(&mut self, slot: Slot, size: Size, site: Site) {
        let room = self.slot_size(slot, site.rank, site.execution);
        match (room, slot.area, size) {
            (_, Area::Line(_), Size::Pair(s, d)) => {
                self.memory.lengths.insert(slot.at, (s, d));
            }
            (_, _, Size::Unknown) => {}
            (room, ..) if room == size => {}
            _ => {
                let message = format!("{}[{}] has another size than what is copied", slot.area, slot.chunk);
                self.complain(Invariant::Shape, site, message);
            }
        }
    }

    pub(super) fn reduce(&mut self, rank: usize, into: &Place, with: &Place, site: Site) {
        if !self.programs[site.execution as usize].problem.collective.reduces() {
            return self.complain(Invariant::Shape, site, "this collective does not reduce");
        }
        for (into, with) in self.pairs(rank, into, with, site).unwrap_or_default() {
            if into.chunk != with.chunk {
                let message = format!("combines chunk {} with chunk {}", with.chunk, into.chunk);
                self.complain(Invariant::Shape, site, message);
                continue;
            }
            let (left, right) = (self.read(rank, with, site), self.read(rank, into, site));
            let value = if into.at.count == 0 || with.at.count == 0 {
                Expr::EMPTY
            } else {
                self.exprs.combine(left.value, right.value)
            };
            self.write(rank, into, value, site);
        }
    }
}

/// Whether any slot of one list lies on a slot of the other.
fn overlap(a: &[Slot], b: &[Slot]) -> bool {
    let (Some(first), Some(second)) = (a.first(), b.first()) else { return false };
    if first.at.space != second.at.space {
        return false;
    }
    // All slots of a place are in one space: sorted by where they start, only neighbours can touch.
    let side = |slots: &[Slot], side: bool| -> Vec<(u32, u32, bool)> {
        let filled = slots.iter().filter(|slot| slot.at.count > 0);
        filled.map(|slot| (slot.at.first, slot.at.first + slot.at.count, side)).collect()
    };
    let mut all = side(a, true);
    all.extend(side(b, false));
    all.sort_unstable();
    let mut ends = [0, 0];
    all.into_iter().any(|(start, end, side)| {
        let touches = ends[usize::from(!side)] > start;
        ends[usize::from(side)] = ends[usize::from(side)].max(end);
        touches
    })
}
