//! Copies and reductions.

use super::expr::Expr;
use super::machine::{Machine, Size};
use super::memory::Block;
use super::memory::{Blocks, chunks, len};
use super::places::{first_other_size, overlap};
use super::{Invariant, Site};
use crate::schedule::{Area, Place};

impl Machine<'_> {
    /// Returns the blocks of the two sides of a copy or reduction, after checking that their sizes match and they do not overlap.
    fn pair(&mut self, rank: usize, to: &Place, from: &Place, site: Site) -> Option<(Blocks, Blocks)> {
        let (mut left, mut right) = (Blocks::new(), Blocks::new());
        if !self.blocks(rank, to, site, &mut left) || !self.blocks(rank, from, site, &mut right) {
            return None;
        }
        if len(&left) != len(&right) {
            let message = format!("{} chunks on the left, {} on the right", len(&left), len(&right));
            self.report(Invariant::Shape, site, message);
            return None;
        }
        if overlap(&left, &right) {
            self.report(Invariant::Placed, site, "the two sides overlap");
            return None;
        }
        Some((left, right))
    }

    pub(super) fn copy(&mut self, rank: usize, to: &Place, from: &Place, site: Site) {
        let Some((left, right)) = self.pair(rank, to, from, site) else { return };
        let mut values = std::mem::take(&mut self.scratch.0);
        values.clear();
        let sizes = self.read(rank, from.area, &right, site, &mut values);
        self.fit(to.area, &left, &right, &sizes, site);
        self.write(rank, to.area, &left, site, &values);
        self.scratch.0 = values;
    }

    /// Checks the sizes of copied values against those of the slots. If sizes are known only locally, slots of private lines take the
    /// lengths of the values.
    fn fit(&mut self, to: Area, left: &[Block], right: &[Block], sizes: &[Size], site: Site) {
        let problem = &self.programs[site.execution as usize].problem;
        if let Some(chunk) = first_other_size(problem, left, right) {
            let message = format!("{to}[{chunk}] has a different size than its source");
            self.report(Invariant::Shape, site, message);
        }
        if !self.local(site) {
            return;
        }
        if matches!(to, Area::Line(_)) {
            let mut sizes = sizes.iter();
            for block in left {
                for (cell, size) in block.each().zip(&mut sizes) {
                    if let Size::Pair(s, d) = *size {
                        *self.memory.length(block.space, cell).0 = Some((s, d));
                    }
                }
            }
            return;
        }
        let room = self.lengths(to, left, site.rank);
        let differs = |(room, size): (&Size, &Size)| *size != Size::Unknown && room != size;
        if let Some(at) = room.iter().zip(sizes).position(differs) {
            let chunk = chunks(left).nth(at).unwrap_or(0);
            let message = format!("{to}[{chunk}] has a different size than its source");
            self.report(Invariant::Shape, site, message);
        }
    }

    pub(super) fn reduce(&mut self, rank: usize, into: &Place, with: &Place, site: Site) {
        if !self.programs[site.execution as usize].problem.collective.reduces() {
            return self.report(Invariant::Shape, site, "this collective does not reduce");
        }
        let Some((right, left)) = self.pair(rank, into, with, site) else { return };
        let alike = left.len() == right.len() && left.iter().zip(&right).all(|(l, r)| l.chunks == r.chunks);
        let other = || chunks(&left).zip(chunks(&right)).find(|(l, r)| l != r);
        if let Some((l, r)) = if alike { None } else { other() } {
            let message = format!("combines chunk {l} with chunk {r}");
            return self.report(Invariant::Shape, site, message);
        }
        let (mut lefts, mut rights) = std::mem::take(&mut self.scratch);
        lefts.clear();
        rights.clear();
        self.read(rank, with.area, &left, site, &mut lefts);
        self.read(rank, into.area, &right, site, &mut rights);
        for (left, right) in lefts.iter().zip(&mut rights) {
            *right = if *left == Expr::EMPTY { Expr::EMPTY } else { self.exprs.combine(*left, *right) };
        }
        self.write(rank, into.area, &right, site, &rights);
        self.scratch = (lefts, rights);
    }
}
