//! Fits a machine to two collectives of a job: the allgather ring, and a recursive doubling.

use anyhow::{Context as _, Result};
use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_measure::median;
use bruckner_model::machine::{Costs, Injection, Link, Machine, Protocol};
use bruckner_model::{Shape, Sketch, fit};
use bruckner_schedule::Collective;

use super::data::{Algorithm, Job, Row};
use super::implementation::{LEAST_NEW_PAGES_FROM, NEW_PAGES_FROM, additional};

/// Vectors and blocks up to this size show the skew.
const SHORT: u64 = 2048;

/// Time from one message of a rank to its next, as a part of the time of the shortest step of a ring. On Leonardo and MareNostrum 5, a
/// further message takes 0.17 to 0.31 µs (Sparbit, linear alltoall), where the shortest step takes 1.3 to 1.6 µs.
const GAP: f64 = 0.2;

/// Least time of a message of 32 MiB and more: at this part of the highest rate of a ring's steps. Blocks of that size do not stay in a
/// cache.
const UNCACHED_RATE: f64 = 0.7;

/// Time to copy or to reduce a byte: 14 GB/s.
const MEMORY: f64 = 7e-11;

/// Time to touch a byte of newly allocated memory: a page fault of 1.6 µs for each 4 KiB. Memory of Fugaku has pages of 2 MiB, and nothing
/// is known of LUMI's.
const NEW_PAGE: f64 = 4e-10;

/// The first and the last range of message sizes begin at these powers of the fourth root of two.
const FIRST_QUARTER: u32 = 4 * 3;
const LAST_QUARTER: u32 = 4 * 29;

/// Size of a message in bytes, and its time in seconds.
type Sample = (u64, f64);

/// A machine as one job saw it.
#[derive(Clone, Debug)]
pub(super) struct Fitted {
    pub(super) machine: Machine,
    shape: Shape,
    /// Time in seconds that every measured call takes besides its messages and its work: the skew of the barrier before it.
    pub(super) skew: f64,
    /// Time to touch a byte of newly allocated memory, in seconds.
    new_page: f64,
    /// Size of a vector from which each call takes temporary memory anew from the kernel.
    new_pages_from: u64,
    /// The collective by whose recursive doubling the machine was fitted.
    pub(super) doubling: Collective,
    /// Times of messages, in ascending order of size.
    samples: Vec<Sample>,
}

fn plain(plain: Plain) -> Expression {
    Expression::Plain(plain)
}

/// Returns the rows of an algorithm, the MPI's before those of the data's authors, one for each size, in ascending order.
fn rows_of<'a>(rows: &'a [Row], collective: Collective, algorithm: &Expression) -> Vec<&'a Row> {
    let is_it = |row: &&Row| {
        row.collective == collective && row.bytes > 0 && row.algorithm == Algorithm::Mapped(algorithm.clone())
    };
    let mut found: Vec<&Row> = rows.iter().filter(is_it).collect();
    found.sort_by_key(|row| (row.bytes, !row.is_mpis));
    found.dedup_by_key(|row| row.bytes);
    found
}

/// Whether a job has the two collectives that a machine is fitted to.
pub(super) fn can_be_fitted(rows: &[Row]) -> bool {
    !rows_of(rows, Collective::Allgather, &plain(Plain::Ring)).is_empty() && doubling(rows).is_some()
}

/// Returns the collective with a recursive doubling; an allreduce, which shows the cost of reductions, if there is one.
fn doubling(rows: &[Row]) -> Option<Collective> {
    let has = |collective: &Collective| !rows_of(rows, *collective, &plain(Plain::RecursiveDoubling)).is_empty();
    [Collective::Allreduce, Collective::Allgather].into_iter().find(has)
}

/// Returns the time of a message of `bytes` by samples in ascending order of size: between two samples by a power of the size, above the
/// last at its rate.
fn time(samples: &[Sample], bytes: f64) -> f64 {
    let after = samples.iter().position(|(size, _)| *size as f64 >= bytes);
    match after {
        Some(0) => samples[0].1,
        Some(after) => {
            let [low, high] = [samples[after - 1], samples[after]].map(|(size, time)| [(size as f64).ln(), time.ln()]);
            (low[1] + (bytes.ln() - low[0]) / (high[0] - low[0]) * (high[1] - low[1])).exp()
        }
        None => {
            let (size, time) = samples[samples.len() - 1];
            time * bytes / size as f64
        }
    }
}

/// Returns protocols for messages that take the times of `samples`, four for every doubling of the size.
fn through(samples: &[Sample]) -> Vec<Protocol> {
    let latency = samples[0].1;
    let size = |quarter: u32| (f64::from(quarter) / 4.0).exp2();
    let protocol = |quarter: u32| {
        // The middle of the range.
        let bytes = size(quarter) * 0.125f64.exp2();
        let per_byte = ((time(samples, bytes) - latency) / bytes).max(0.0);
        let below = (quarter < LAST_QUARTER).then(|| size(quarter + 1).ceil() as u64);
        Protocol { below, latency, per_byte, rendezvous: false, injection: None }
    };
    (FIRST_QUARTER..=LAST_QUARTER).map(protocol).collect()
}

impl Fitted {
    /// Fits a machine to a job.
    pub(super) fn of(job: &Job, rows: &[Row]) -> Result<Fitted> {
        let shape = job.shape();
        let steps = f64::from(shape.ranks() - 1);
        let ring = rows_of(rows, Collective::Allgather, &plain(Plain::Ring));
        let samples: Vec<Sample> = ring.iter().map(|row| (row.bytes, row.median / steps)).collect();
        let shortest = samples.first().context("a ring")?.1;
        let rate = samples.iter().map(|(bytes, time)| *bytes as f64 / time).fold(0.0, f64::max);
        let machine = Machine {
            name: job.system.replace('_', "-"),
            about: String::new(),
            network: Link {
                source: format!("fitted to ring and recursive doubling of {job} (PICO)"),
                gap: Some(GAP * shortest),
                protocols: through(&samples),
            },
            node: None,
            socket: None,
            injection: Some(Injection { rate, source: "the highest rate of the ring".to_owned() }),
            rank: Costs {
                rate: Some(rate),
                reduce: MEMORY,
                copy: MEMORY,
                source: "costs of copying and reducing are assumed to be the same on all four supercomputers"
                    .to_owned(),
                ..Costs::default()
            },
            predictions: None,
        };
        let has_small_pages = ["leonardo", "mare_nostrum"].contains(&job.system.as_str());
        let mut fitted = Fitted {
            machine,
            shape,
            skew: 0.0,
            new_page: if has_small_pages { NEW_PAGE } else { 0.0 },
            new_pages_from: NEW_PAGES_FROM,
            doubling: doubling(rows).context("a recursive doubling")?,
            samples,
        };
        let doubling = rows_of(rows, fitted.doubling, &plain(Plain::RecursiveDoubling));
        fitted.fit_skew(&doubling);
        fitted.fit_long(&doubling, rate);
        Ok(fitted)
    }

    fn predict_doubling(&self, row: &Row) -> Option<f64> {
        self.predict(self.doubling, &plain(Plain::RecursiveDoubling), row)
    }

    /// Sets the skew to what short recursive doublings take beyond their messages.
    fn fit_skew(&mut self, doubling: &[&Row]) {
        let short = doubling.iter().filter(|row| row.bytes <= SHORT);
        let rest: Vec<f64> = short.filter_map(|row| Some(row.median - self.predict_doubling(row)?)).collect();
        self.skew = if rest.is_empty() { 0.0 } else { median(&rest).max(0.0) };
    }

    /// Adds messages that are longer than the ring's: their times follow from recursive doublings, less the skew and the work in memory.
    fn fit_long(&mut self, doubling: &[&Row], rate: f64) {
        let longest = self.samples[self.samples.len() - 1].0;
        let rounds = self.shape.ranks().next_power_of_two().ilog2();
        for row in doubling {
            // The longest message of an allgather has half of the blocks; all messages of an allreduce have the whole vector.
            let (message, equal) = match self.doubling {
                Collective::Allreduce => (row.bytes, f64::from(rounds)),
                _ => (row.bytes << (rounds - 1), 1.0),
            };
            if message <= longest {
                continue;
            }
            let Some(predicted) = self.predict_doubling(row) else { continue };
            let assumed = self.machine.network.protocol(message);
            let assumed = assumed.latency + message as f64 * assumed.per_byte;
            let least = message as f64 / (rate * if message >= NEW_PAGES_FROM { UNCACHED_RATE } else { 1.0 });
            self.samples.push((message, (assumed + (row.median - predicted) / equal).max(least)));
            self.machine.network.protocols = through(&self.samples);
        }
    }

    /// Returns the predicted time of an MPI's implementation of an algorithm in seconds, for the collective and size of a row, if the model
    /// has its formula.
    pub(super) fn predict(&self, collective: Collective, algorithm: &Expression, row: &Row) -> Option<f64> {
        let ranks = self.shape.ranks();
        // With fewer elements than ranks, Open MPI's ring is recursive doubling.
        let doubling = plain(Plain::RecursiveDoubling);
        let ring = collective == Collective::Allreduce && *algorithm == plain(Plain::Ring);
        let algorithm = if ring && row.total / 4 < u64::from(ranks) { &doubling } else { algorithm };
        let time = match algorithm {
            Expression::Plain(Plain::Sparbit) => self.skew + self.blocks_one_by_one(row.bytes),
            _ => self.formula(collective, algorithm, row)?,
        };
        let more = additional(collective, algorithm, ranks);
        let total = row.total as f64;
        let pages = if row.total >= self.new_pages_from { self.new_page * more.allocated * total } else { 0.0 };
        Some(time + pages + more.copied * total * self.machine.rank.copy)
    }

    /// Returns the skew and the time by the cost formula alone, in seconds.
    pub(super) fn formula(&self, collective: Collective, algorithm: &Expression, row: &Row) -> Option<f64> {
        Some(self.skew + Sketch::of(collective, algorithm, self.shape, row.bytes)?.on(&self.machine))
    }

    /// Returns the time of Sparbit in seconds, whose authors send the blocks of a round one by one.
    fn blocks_one_by_one(&self, bytes: u64) -> f64 {
        let ranks = self.shape.ranks();
        let network = &self.machine.network;
        let protocol = network.protocol(bytes);
        let first = protocol.latency + bytes as f64 * protocol.per_byte;
        let round = |distance: u32| {
            let senders = f64::from(self.shape.on_node.min(distance));
            let transfer = senders * bytes as f64 / self.machine.node_rate(bytes);
            let blocks = ranks.div_ceil(distance) - ranks.div_ceil(2 * distance);
            first + f64::from(blocks - 1) * network.gap.unwrap_or(0.0).max(transfer)
        };
        (0..ranks.next_power_of_two().ilog2()).map(|power| round(1 << power)).sum()
    }

    /// Returns the machine with as few protocols, and as few digits, as a machine file has.
    pub(super) fn in_brief(&self) -> Fitted {
        let mut brief = self.clone();
        brief.machine.network.protocols = fit::protocols(&self.samples, None);
        brief.machine = brief.machine.rounded(3);
        brief
    }

    /// Returns machines at the ends of what is not known: whether calls take all temporary memory from the kernel, or none.
    pub(super) fn range(&self) -> [Fitted; 2] {
        let anew = Fitted { new_page: NEW_PAGE, new_pages_from: LEAST_NEW_PAGES_FROM, ..self.clone() };
        [anew, Fitted { new_pages_from: u64::MAX, ..self.clone() }]
    }

    /// Returns the machine for another job on the same system.
    pub(super) fn for_job(&self, job: &Job) -> Fitted {
        Fitted { shape: job.shape(), ..self.clone() }
    }

    /// Whether the machine was fitted to this algorithm.
    pub(super) fn is_fitted_to(&self, collective: Collective, algorithm: &Expression) -> bool {
        (collective, algorithm) == (Collective::Allgather, &plain(Plain::Ring))
            || (collective, algorithm) == (self.doubling, &plain(Plain::RecursiveDoubling))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine fitted to times that follow a known machine predicts other algorithms like the known machine.
    #[test]
    fn a_known_machine_is_found() {
        let job = Job::of("lumi", "16");
        let mut machine = Machine::postal(2e-6, 1e-10);
        machine.network.gap = Some(GAP * 2e-6);
        (machine.rank.reduce, machine.rank.copy) = (MEMORY, MEMORY);
        let known = Fitted {
            machine,
            shape: job.shape(),
            skew: 5e-6,
            new_page: 0.0,
            new_pages_from: NEW_PAGES_FROM,
            doubling: Collective::Allreduce,
            samples: Vec::new(),
        };
        let row = |collective, algorithm: &str, total: u64| {
            let bytes = if collective == Collective::Allreduce { total } else { total / 16 };
            let algorithm: Expression = algorithm.parse().unwrap();
            let mut row = Row {
                collective,
                algorithm: Algorithm::Mapped(algorithm.clone()),
                is_mpis: true,
                bytes,
                total,
                median: 0.0,
                quartiles: [0.0; 2],
            };
            row.median = known.predict(collective, &algorithm, &row).unwrap();
            row
        };
        let sizes = (7..30).map(|power| 1u64 << power);
        let fitted = [(Collective::Allgather, "ring"), (Collective::Allreduce, "recursive-doubling")];
        let rows: Vec<Row> = sizes
            .clone()
            .flat_map(|total| fitted.map(|(collective, algorithm)| row(collective, algorithm, total)))
            .collect();
        assert!(can_be_fitted(&rows) && !can_be_fitted(&rows[1..2]));
        let found = Fitted::of(&job, &rows).unwrap();
        // The ring's time includes the skew, a fifteenth of it in each step.
        assert!((found.skew / known.skew - 1.0).abs() < 0.3, "{}", found.skew);
        for (collective, algorithm) in [
            (Collective::Allgather, "neighbor-exchange"),
            (Collective::Allgather, "sparbit"),
            (Collective::Allgather, "bruck(2)"),
            (Collective::ReduceScatter, "recursive-halving"),
            (Collective::Allreduce, "rabenseifner"),
            (Collective::Alltoall, "pairwise"),
        ] {
            for total in sizes.clone() {
                let row = row(collective, algorithm, total);
                let ratio = found.predict(collective, &algorithm.parse().unwrap(), &row).unwrap() / row.median;
                // Messages of 32 MiB and more are assumed to be slower.
                let most = if total >= 2 * NEW_PAGES_FROM { 1.5 } else { 1.15 };
                assert!((1.0 / most..=most).contains(&ratio), "{collective} {algorithm} {total}: {ratio}");
            }
        }
    }

    #[test]
    fn times_between_samples_follow_a_power_of_the_size() {
        let samples = [(16, 1e-6), (1600, 1e-5)];
        assert_eq!(time(&samples, 8.0), 1e-6);
        assert!((time(&samples, 160.0) / 10f64.sqrt() / 1e-6 - 1.0).abs() < 1e-9);
        assert!((time(&samples, 3200.0) / 2e-5 - 1.0).abs() < 1e-9);
    }
}
