//! Operations of one rank at each step of a factorization.

use std::ops::Range;

use bruckner_schedule::{Area, End, Message, Payload, Place, Places, Rank, Tag};

use super::form::{Form, Shift};
use super::live::{Live, Port, Slot, live};
use crate::Builder;

/// Returns the private line for data received through a port of a reduce_scatter step; this data is then added to the rank's own values.
fn temporary(port: usize) -> Area {
    Area::Line(1 + port as u32)
}

/// State of one rank while its rounds are written.
pub(super) struct View<'a> {
    pub(super) b: Builder,
    pub(super) form: &'a Form,
    pub(super) rank: u32,
    /// For each digit, whether the rank holds fractions with all values of the digit, or only with its own value.
    pub(super) full: Vec<bool>,
    /// Area that holds the rank's current values.
    pub(super) held: Area,
    /// Number of the first free private line.
    pub(super) next: u32,
}

impl View<'_> {
    /// Returns the place of the fractions at offsets of a digit, for all values of the other digits that the rank holds.
    fn place(&self, area: Area, digit: usize, offsets: Range<u64>) -> Place {
        Place::new(area, self.form.fractions(self.rank, &self.full, digit, offsets))
    }

    fn message(&mut self, end: End, places: Places, digit: usize, by: u64) {
        let peer = Rank(self.form.shift(self.rank, Shift { digit, by: by as u32 }));
        self.b.message(Message { end, payload: Payload::Data, places, peer, tag: Tag(0) });
    }

    /// Adds the reduce_scatter steps of a group. Returns the number of the group's fractions that the rank then still holds.
    pub(super) fn scatter(&mut self, digit: usize, ports: &[u32]) -> u64 {
        let f = self.form.factor(digit);
        let mut window = f;
        for &q in ports {
            let next = window.div_ceil(u64::from(q) + 1);
            let kept = if self.held == Area::In { Area::Line(0) } else { self.held };
            // The first step sends directly from the input, and copies the fractions that the rank keeps into a private line.
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

    /// Adds the allgather steps of a group, before which a rank holds `window` of the group's fractions; results go to the area `results`.
    pub(super) fn gather(&mut self, digit: usize, window: u64, ports: &[u32], results: Area) {
        let f = self.form.factor(digit);
        let Live { steps, lines } = live(f, window, ports);
        let (held, first) = (self.held, self.next);
        if window == 1 && held != results {
            // The fraction that the rank holds is already a result.
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
                // Converts offsets of the receiver, which is `by` members back, to offsets of this rank.
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
