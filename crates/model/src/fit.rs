//! Fits machine parameters to measurements: protocols to message times, and any other cost to the time of a collective that depends on it.
//!
//! ```
//! use bruckner_model::fit::protocols;
//! // One microsecond and one nanosecond for each byte; from 8,000 bytes on, five microseconds and half a nanosecond per byte.
//! let time = |bytes: u64| match bytes < 8000 { true => 1e-6 + bytes as f64 * 1e-9, false => 5e-6 + bytes as f64 * 5e-10 };
//! let samples: Vec<(u64, f64)> = (3..20).map(|power| (1 << power, time(1 << power))).collect();
//! let found = protocols(&samples, None);
//! assert_eq!(found.len(), 2);
//! assert_eq!(found[0].below, Some(8192));
//! assert!((found[1].latency - 5e-6).abs() < 1e-9);
//! ```

use crate::machine::{Machine, Protocol};
use crate::simulate::Deadlock;
use crate::simulation::Simulation;

/// Size of a message in bytes, and its time in seconds.
pub type Sample = (u64, f64);

/// Maximum number of protocols that are fitted to one series of samples.
const MAX_PROTOCOLS: usize = 4;

/// Factor by which a further protocol must reduce the sum of squared relative errors.
const MIN_IMPROVEMENT: f64 = 3.0;

/// Root mean square of the relative errors below which no further protocol is added.
const GOOD_FIT_RMS: f64 = 0.05;

/// Fits protocols to message times, given in ascending order of size. Messages of at least `waits_from` bytes use a rendezvous.
///
/// Each protocol is a line fitted to at least two samples, if there are as many. A further protocol is added only while relative errors
/// exceed 5 %, and only if it reduces the sum of their squares to a third.
pub fn protocols(samples: &[Sample], waits_from: Option<u64>) -> Vec<Protocol> {
    let Some(change) = waits_from.and_then(|from| samples.iter().position(|(bytes, _)| *bytes >= from)) else {
        return with_rate(pieces(samples, false), samples);
    };
    let (eager, waiting) = samples.split_at(change);
    let mut all = pieces(eager, false);
    if let (Some(last), Some((bytes, _))) = (all.last_mut(), waiting.first()) {
        last.below = Some(*bytes);
    }
    all.extend(pieces(waiting, true));
    with_rate(all, samples)
}

/// Gives the last protocol a transfer rate if its samples show none. The rate is that of the protocol before, and the latency is chosen so
/// that the last sample is fitted exactly.
fn with_rate(mut all: Vec<Protocol>, samples: &[Sample]) -> Vec<Protocol> {
    if let ([.., before, last], Some((bytes, time))) = (&mut all[..], samples.last())
        && last.per_byte == 0.0
    {
        last.per_byte = before.per_byte;
        last.latency = (time - *bytes as f64 * last.per_byte).max(0.0);
    }
    all
}

/// Fits protocols to samples, all of which use a rendezvous, or none.
fn pieces(samples: &[Sample], rendezvous: bool) -> Vec<Protocol> {
    if samples.is_empty() {
        return Vec::new();
    }
    let mut best = cut(samples, 1);
    for count in 2..=MAX_PROTOCOLS.min(samples.len() / 2) {
        if best.0 <= GOOD_FIT_RMS * GOOD_FIT_RMS * samples.len() as f64 {
            break;
        }
        let more = cut(samples, count);
        if more.0 * MIN_IMPROVEMENT > best.0 {
            break;
        }
        best = more;
    }
    let starts = best.1;
    let piece = |(at, start): (usize, &usize)| {
        let end = starts.get(at + 1);
        let (latency, per_byte) = line(&samples[*start..end.copied().unwrap_or(samples.len())]);
        Protocol { below: end.map(|end| samples[*end].0), latency, per_byte, rendezvous, injection: None }
    };
    starts.iter().enumerate().map(piece).collect()
}

/// Splits samples into `count` pieces of at least two. Returns the sum of squared relative errors, and the index where each piece starts.
fn cut(samples: &[Sample], count: usize) -> (f64, Vec<usize>) {
    if count == 1 {
        return (error(samples), vec![0]);
    }
    let last = |start: usize| {
        let (left, mut starts) = cut(&samples[..start], count - 1);
        starts.push(start);
        (left + error(&samples[start..]), starts)
    };
    let candidates = (2 * (count - 1)..=samples.len() - 2).map(last);
    candidates.min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are two samples for each piece")
}

fn error(samples: &[Sample]) -> f64 {
    let (latency, per_byte) = line(samples);
    samples.iter().map(|(bytes, time)| ((latency + *bytes as f64 * per_byte) / time - 1.0).powi(2)).sum()
}

/// Returns the latency and the time per byte of the line that fits the samples best; neither is negative.
fn line(samples: &[Sample]) -> (f64, f64) {
    // Least squares with weights of 1 / time².
    let mut sums = [0.0; 5];
    for (bytes, time) in samples {
        let (x, weight) = (*bytes as f64, time.powi(-2));
        for (sum, term) in sums.iter_mut().zip([1.0, x, x * x, *time, x * time]) {
            *sum += weight * term;
        }
    }
    let [ones, xs, squares, times, products] = sums;
    let determinant = ones * squares - xs * xs;
    let slope = if determinant > 0.0 { (ones * products - xs * times) / determinant } else { 0.0 };
    let start = (times - slope * xs) / ones;
    match (start >= 0.0, slope >= 0.0) {
        (true, true) => (start, slope),
        (false, _) => (0.0, if squares > 0.0 { products / squares } else { 0.0 }),
        (_, false) => (times / ones, 0.0),
    }
}

/// Sets a cost of the machine so that the simulated collective takes the time `measured`, in seconds. The cost becomes 0 if the collective
/// takes longer than `measured` even without it, and stays unchanged if the collective does not depend on it.
pub fn fit_cost(
    machine: &mut Machine,
    played: &Simulation,
    measured: f64,
    set: impl Fn(&mut Machine, f64),
) -> Result<(), Deadlock> {
    let takes = |value: f64| {
        let mut tried = machine.clone();
        set(&mut tried, value);
        Ok::<f64, Deadlock>(played.run(&tried)?.last())
    };
    let (mut low, mut high) = (0.0, measured);
    // An operation that happens at least once takes no longer than the whole collective, so `measured` is an upper bound of the cost.
    if takes(high)? <= takes(low)? {
        return Ok(());
    }
    if takes(low)? >= measured {
        set(machine, 0.0);
        return Ok(());
    }
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        match takes(middle)? < measured {
            true => low = middle,
            false => high = middle,
        }
    }
    set(machine, (low + high) / 2.0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bruckner_algorithms::{Task, plan};
    use bruckner_schedule::Collective;

    #[test]
    fn noise_makes_no_protocols() {
        let samples: Vec<Sample> = (3..20)
            .map(|power| (1u64 << power, (2e-6 + (1u64 << power) as f64 * 1e-9) * [0.98, 1.02][power % 2]))
            .collect();
        let found = protocols(&samples, None);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!((found[0].latency / 2e-6 - 1.0).abs() < 0.03 && (found[0].per_byte / 1e-9 - 1.0).abs() < 0.03);
    }

    #[test]
    fn a_message_that_waits_is_another_protocol() {
        let samples: Vec<Sample> = (3..12).map(|power| (1u64 << power, 1e-6)).collect();
        let found = protocols(&samples, Some(500));
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].below, found[0].rendezvous), (Some(512), false));
        assert_eq!((found[1].below, found[1].rendezvous), (None, true));
        // No sample uses a rendezvous, or all samples do.
        assert_eq!(protocols(&samples, Some(1 << 20)).len(), 1);
        assert!(protocols(&samples, Some(0)).iter().all(|protocol| protocol.rendezvous));
    }

    #[test]
    fn the_longest_messages_have_a_rate() {
        let time = |bytes: u64| 1e-6 + bytes as f64 * 1e-9;
        let mut samples: Vec<Sample> = (3..=20).map(|power| (1u64 << power, time(1 << power))).collect();
        // One rendezvous sample first, then two whose times decrease with size.
        for waits_from in [1 << 20, 1 << 19] {
            let found = protocols(&samples, Some(waits_from));
            assert!((found[1].per_byte / 1e-9 - 1.0).abs() < 1e-6, "{found:?}");
            samples[17].1 = samples[16].1 * 0.95;
        }
        let found = protocols(&samples, Some(1 << 19));
        assert!(found[1].per_byte > 0.0, "{found:?}");
    }

    #[test]
    fn a_line_never_falls() {
        assert_eq!(line(&[(8, 2e-6), (16, 1e-6)]).1, 0.0);
        assert_eq!(line(&[(8, 1e-9), (1000, 1e-5)]).0, 0.0);
        assert_eq!(line(&[(8, 3e-6)]), (3e-6, 0.0));
    }

    #[test]
    fn a_cost_is_found_by_what_depends_on_it() {
        let task = Task::new(Collective::Allreduce, "1x4".parse().unwrap()).bytes(65536);
        let played = Simulation::of(&plan(&task, &"shm".parse().unwrap()).unwrap()).unwrap();
        let mut machine = Machine::postal(1e-6, 1e-9);
        (machine.rank.flag, machine.rank.share, machine.rank.reduce) = (Some(1e-7), Some(1e-10), 2.5e-10);
        let measured = played.run(&machine).unwrap().last();
        machine.rank.reduce = 0.0;
        fit_cost(&mut machine, &played, measured, |machine, value| machine.rank.reduce = value).unwrap();
        assert!((machine.rank.reduce / 2.5e-10 - 1.0).abs() < 1e-6, "{}", machine.rank.reduce);
        // If the collective takes longer than `measured` even without the cost, the cost becomes 0.
        fit_cost(&mut machine, &played, measured / 10.0, |machine, value| machine.rank.reduce = value).unwrap();
        assert_eq!(machine.rank.reduce, 0.0);
        // A cost on which the collective does not depend stays unchanged.
        machine.rank.ask = 7.0;
        fit_cost(&mut machine, &played, 2.0 * measured, |machine, value| machine.rank.ask = value).unwrap();
        assert_eq!(machine.rank.ask, 7.0);
    }
}
