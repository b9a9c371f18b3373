//! Performance guidelines that consistent measurements fulfil: a larger message does not take less time than a smaller one; a collective
//! takes no longer than several calls of the same collective that together exchange the same data, and no longer than other collectives
//! with the same effect. A violation means that a slow algorithm was selected or that a measurement is wrong.

use crate::knowledge::{ShapeResults, TuningResult};
use crate::name::Name;

/// Factor by which the lower bound of a time must exceed the upper bound of an alternative's time to count as a violation.
const LONGER: f64 = 1.05;
/// Factors from the measured time of the MPI's own function to the assumed lower and upper bound of that time.
const NATIVE: [f64; 2] = [0.97, 1.03];

/// A violated guideline: a collective that takes longer than an alternative with the same effect.
#[derive(Clone, PartialEq, Debug)]
pub struct GuidelineViolation {
    /// Collective that takes too long.
    pub name: Name,
    /// Message size in bytes.
    pub bytes: u64,
    /// Lower bound of the time of the collective, in seconds.
    pub seconds: f64,
    /// Alternative that takes less time.
    pub alternative: Alternative,
    /// Upper bound of the time of the alternative, in seconds.
    pub alternative_seconds: f64,
}

/// An alternative with the same effect as a collective.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Alternative {
    /// The same collective with a larger message, given in bytes.
    More(u64),
    /// Several calls of the same collective with smaller messages: the number of calls, and the bytes of each.
    Pieces(u64, u64),
    /// Other collectives, executed one after the other, each with its message size in bytes.
    Others(Vec<(Name, u64)>),
}

/// Returns the lower and upper bound of the time, in seconds, of the algorithm that won a tuning run.
fn bounds(result: &TuningResult) -> [f64; 2] {
    let [low, high] = if result.is_native() { NATIVE } else { result.interval };
    [result.native_seconds * low, result.native_seconds * high]
}

/// Returns the worst violation for each collective and size among the tuning results of one communicator shape.
pub fn violations(tuned: &ShapeResults) -> Vec<GuidelineViolation> {
    let ranks = u64::from(tuned.shape.ranks());
    let mut found = Vec::new();
    let of = |name: Name| tuned.results.iter().filter(move |result| result.name == name);
    // Result for the smallest measured size that is at least `bytes`: a call with `bytes` should take no longer.
    let at_least =
        |name: Name, bytes: u64| of(name).filter(|result| result.bytes >= bytes).min_by_key(|result| result.bytes);
    for result in &tuned.results {
        let TuningResult { name, bytes, .. } = *result;
        let [takes, _] = bounds(result);
        let mut worst: Option<GuidelineViolation> = None;
        let mut compare = |than: Alternative, would: f64| {
            let bound = worst.as_ref().map_or(takes / LONGER, |worst| worst.alternative_seconds);
            if would < bound {
                worst = Some(GuidelineViolation {
                    name,
                    bytes,
                    seconds: takes,
                    alternative: than,
                    alternative_seconds: would,
                });
            }
        };
        for other in of(name) {
            let [_, would] = bounds(other);
            if other.bytes > bytes {
                compare(Alternative::More(other.bytes), would);
            } else if other.bytes < bytes && bytes.is_multiple_of(other.bytes) {
                let pieces = bytes / other.bytes;
                compare(Alternative::Pieces(pieces, other.bytes), pieces as f64 * would);
            }
        }
        let others: &[(Name, u64)] = match name {
            Name::Allgather => &[(Name::Alltoall, bytes)],
            Name::ReduceScatter => &[(Name::Allreduce, bytes.saturating_mul(ranks))],
            Name::Allreduce => {
                let block = bytes.div_ceil(ranks);
                &[(Name::ReduceScatter, block), (Name::Allgather, block)]
            }
            _ => &[],
        };
        let known: Option<Vec<&TuningResult>> = others.iter().map(|(name, bytes)| at_least(*name, *bytes)).collect();
        if let Some(known) = known.filter(|known| !known.is_empty()) {
            let would = known.iter().map(|other| bounds(other)[1]).sum();
            compare(Alternative::Others(known.iter().map(|other| (other.name, other.bytes)).collect()), would);
        }
        found.extend(worst);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;

    /// Returns the violations of measured times of the MPI's own functions, given in microseconds.
    fn broken(figures: &[(Name, u64, f64)]) -> Vec<GuidelineViolation> {
        let result = |&(name, bytes, time): &(Name, u64, f64)| TuningResult {
            native_seconds: time * 1e-6,
            ..TuningResult::won(name, bytes, "native")
        };
        let shape = Shape::of(&"2x2".parse().unwrap());
        violations(&ShapeResults { shape, results: figures.iter().map(result).collect() })
    }

    #[test]
    fn what_takes_longer_than_need_be_is_found() {
        let all = [
            (Name::Allgather, 8, 2.0),
            (Name::Allgather, 64, 3.0),
            (Name::ReduceScatter, 8, 2.0),
            (Name::Allreduce, 32, 4.0),
            (Name::Alltoall, 8, 2.1),
        ];
        assert_eq!(broken(&all), []);
        // An allgather takes less time with more data; nothing else is violated.
        let mut less = all;
        less[1].2 = 1.5;
        let found = broken(&less);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].bytes, &found[0].alternative), (8, &Alternative::More(64)));
        // An allgather takes longer than eight allgathers of an eighth of its data.
        let mut long = all;
        long[1].2 = 18.5;
        assert_eq!(broken(&long)[0].alternative, Alternative::Pieces(8, 8));
        // An allreduce takes longer than a reduce_scatter and an allgather of a quarter each, an allgather longer than an alltoall, and a
        // reduce_scatter longer than an allreduce of the whole vector.
        let mut reduce = all;
        reduce[3].2 = 4.7;
        assert_eq!(
            broken(&reduce)[0].alternative,
            Alternative::Others(vec![(Name::ReduceScatter, 8), (Name::Allgather, 8)])
        );
        let mut gather = all;
        gather[4].2 = 1.0;
        assert_eq!(broken(&gather)[0].alternative, Alternative::Others(vec![(Name::Alltoall, 8)]));
        let mut scatter = all;
        scatter[2].2 = 5.0;
        assert_eq!(broken(&scatter)[0].alternative, Alternative::Others(vec![(Name::Allreduce, 32)]));
    }

    /// A difference within the confidence intervals is no violation.
    #[test]
    fn intervals_count() {
        let shape = Shape::of(&"2x2".parse().unwrap());
        let result = |bytes, native, interval: [f64; 2]| TuningResult {
            native_seconds: native,
            interval,
            ratio: (interval[0] + interval[1]) / 2.0,
            ..TuningResult::won(Name::Allgather, bytes, "ring")
        };
        let found = |low| {
            let results = vec![result(8, 1.0, [low, 0.9]), result(64, 0.8, [0.5, 0.7])];
            violations(&ShapeResults { shape, results }).len()
        };
        assert_eq!((found(0.5), found(0.6)), (0, 1));
    }
}
