//! Sets of fractions, computed as runs (regular sequences of numbers) from ranges of digit values.

use std::ops::Range;

use bruckner_schedule::{Run, Set};

use super::form::{Digit, Form};

impl Form {
    /// Returns the fractions whose value of `digit` is the rank's own value plus one of `offsets`. Every other digit takes all values if
    /// it is `full`, otherwise only the rank's own value. Offsets may wrap around once; the numbers ascend before and after the wrap.
    pub(super) fn fractions(&self, rank: u32, full: &[bool], digit: usize, offsets: Range<u64>) -> Set {
        let f = u64::from(self.digits[digit].factor);
        let own = |d: &Digit| u64::from(rank / d.stride % d.factor);
        let (start, len) = ((own(&self.digits[digit]) + offsets.start) % f, offsets.end - offsets.start);
        let mut set = Set::new();
        for values in [start..(start + len).min(f), 0..(start + len).saturating_sub(f)] {
            if values.start < values.end {
                let parts = self.digits.iter().enumerate().map(|(i, d)| {
                    let range = match () {
                        () if i == digit => values.clone(),
                        () if full[i] => 0..d.factor.into(),
                        () => own(d)..own(d) + 1,
                    };
                    (range, d.weight)
                });
                product(parts.collect()).into_iter().for_each(|run| set.push(run));
            }
        }
        set
    }
}

/// Returns all numbers whose digits lie in these ranges, most significant digit first; they are one run if they form a regular sequence.
fn product(digits: Vec<(Range<u64>, u64)>) -> Vec<Run> {
    let mut runs = vec![Run::new(0, 1, 0, 1)];
    for (range, weight) in digits.into_iter().rev() {
        let (at, count) = (range.start * weight, range.end - range.start);
        let run = match runs[..] {
            [run] if count == 1 => Some(Run::new(run.start() + at, run.block(), run.stride(), run.count())),
            [run] if run.count() == 1 => Some(Run::new(run.start() + at, run.block(), weight as i64, count)),
            [run] if run.stride() as u64 * run.count() == weight => {
                Some(Run::new(run.start() + at, run.block(), run.stride(), run.count() * count))
            }
            _ => None,
        };
        runs = match run {
            Some(run) => vec![run],
            None => {
                let shift = |run: &Run, by| Run::new(run.start() + by, run.block(), run.stride(), run.count());
                range.flat_map(|v| runs.iter().map(move |run| shift(run, v * weight))).collect()
            }
        };
    }
    runs
}
