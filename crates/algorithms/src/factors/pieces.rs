//! The lines that a port receives, with the areas that store them and the areas of the lines that they are combined with.

use std::ops::Range;

use super::live::{Group, Parent, Piece, Port, Slot, common};

impl Group {
    fn number(&mut self, key: (u64, bool)) -> Slot {
        let next = self.numbers.len() as u32;
        Slot::Line(*self.numbers.entry(key).or_insert(next))
    }

    fn row_slot(&mut self, r: u64) -> Slot {
        match r {
            0 => Slot::Base,
            _ if r == self.f - 1 => Slot::Result,
            _ => self.number((r, true)),
        }
    }

    /// Returns the areas of the column lines (r, 0) for these reaches r, as ranges of reaches with the same area.
    fn column_slots(&mut self, reaches: Range<u64>) -> Vec<(Range<u64>, Slot)> {
        let mut slots = Vec::new();
        let mut from = reaches.start;
        while from < reaches.end {
            let batch = self.batch_of(from);
            let next = self.batches.iter().map(|&(by, _)| by).find(|&by| by > from).unwrap_or(self.f);
            let (slot, to) = match from {
                _ if from >= self.w - 1 => (Slot::Result, reaches.end),
                0 => (Slot::Base, 1),
                _ => (self.number((batch, false)), next.min(self.w - 1)),
            };
            let to = to.min(reaches.end);
            slots.push((from..to, slot));
            from = to;
        }
        slots
    }

    /// Returns the lines that the port with shift `by` receives: live lines of the `count` reaches from `by` on.
    pub(super) fn port(&mut self, by: u64, count: u64) -> Port {
        let (f, w, reaches) = (self.f, self.w, by..(by + count).min(self.f));
        let mut pieces = Vec::new();
        for part in self.column.clone().iter().map(|part| common(part, reaches.clone())) {
            for (sources, given) in self.column_slots(part.start.saturating_sub(by)..part.end.saturating_sub(by)) {
                for (lines, into) in self.column_slots(sources.start + by..sources.end + by) {
                    let combined = common(&lines, by..by + w - 1);
                    let with = if w > 1 { Some(self.row_slot(by - 1)) } else { None };
                    let alone = combined.end.max(lines.start)..lines.end;
                    for (offsets, with) in [(combined, with), (alone, None)] {
                        if offsets.start < offsets.end {
                            pieces.push(Piece { offsets, given, into, with });
                        }
                    }
                }
            }
        }
        for (r, parts) in self.rows.clone().range(reaches) {
            let (given, into) = (self.row_slot(r - by), self.row_slot(*r));
            for part in parts {
                for (offsets, parent) in self.parents_of_row(by, *r, part) {
                    let withs = match parent {
                        Parent::None => vec![(offsets, None)],
                        Parent::Row(row, _) => vec![(offsets, Some(self.row_slot(row)))],
                        Parent::Column(columns) => {
                            let start = offsets.start;
                            let slots = self.column_slots(columns.clone());
                            let at = |reach: u64| start + reach - columns.start;
                            slots.into_iter().map(|(c, slot)| (at(c.start)..at(c.end), Some(slot))).collect()
                        }
                    };
                    for (offsets, with) in withs {
                        let below = common(&offsets, 0..f - r);
                        let above = common(&offsets, f - r..f);
                        for offsets in [below.start + r..below.end + r, above.start + r - f..above.end + r - f] {
                            if offsets.start < offsets.end {
                                pieces.push(Piece { offsets, given, into, with });
                            }
                        }
                    }
                }
            }
        }
        Port { by, pieces }
    }
}
