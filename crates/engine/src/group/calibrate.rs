//! Calibration: measures the time of messages at first use of a communicator that spans nodes, if the profile has no such measurement.
//! Collective. All ranks get the same result and exchange the same messages, because each step depends only on values that they have
//! agreed on.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use bruckner_choose::{Calibration, LongMessage, Shape};
use bruckner_config::Mode;
use bruckner_mpi::AgreeOp;
use bruckner_runtime::TranslateRanks as _;
use bruckner_schedule::{Level, Rank, Topology};

use super::Group;
use crate::Error;
use crate::backend::Backend;

/// Message sizes in bytes: a short one (`SHORT`), and two long ones (`LONG`).
const SHORT: usize = 8;
const LONG: [usize; 2] = [16 << 10, 256 << 10];
/// Limits of a measurement between two ranks with one message size: maximum number of exchanges (`TIMES`), and maximum duration between
/// nodes (`FAR`) and on a node (`NEAR`). A calibration takes well below 20 ms.
const TIMES: u64 = 5;
const FAR: Duration = Duration::from_millis(2);
const NEAR: Duration = Duration::from_millis(1);
/// Number of measurements on a node. The fastest counts, because a rank that loses its core during one measurement has it during another,
/// unless cores are oversubscribed.
const AGAIN: usize = 3;
/// Messages of `LONG[1]` bytes are measured only if messages of `LONG[0]` bytes take at most this many nanoseconds more than short ones.
const QUICK: u64 = 50_000;
/// Marks a time that was not measured.
const NOTHING: u64 = u64::MAX;

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 * 1e-9
}

/// The ranks with which a rank exchanges messages in a calibration. On a node, all ranks exchange at once, in pairs. Between nodes, the
/// first ranks of two nodes exchange, and all others are idle.
struct Partners {
    near: Option<u32>,
    far: Option<u32>,
}

impl Partners {
    fn of(topology: &Topology, rank: Rank) -> Partners {
        let position = topology.position(rank);
        let node = topology.node_of(rank);
        let span = |node: u32| topology.span(Level::NODE, node);
        let at = position - span(node).start;
        let member = |node: u32, at: u32| {
            let found = (node < topology.regions(Level::NODE)).then(|| span(node).nth(at as usize));
            found.flatten().map(|position| topology.rank_at(position).0)
        };
        Partners { near: member(node, at ^ 1), far: if at == 0 { member(node ^ 1, 0) } else { None } }
    }
}

impl<B: Backend> Group<B> {
    /// Returns the calibration of messages on this communicator. An earlier result is used if all ranks have the same; if no rank has any,
    /// the times are measured. `None` if no measurement is needed or allowed, or if ranks have different results. Collective, with the
    /// same result on all ranks.
    pub(crate) fn calibration(&self, topology: &Topology) -> Result<Option<Calibration>, Error> {
        let settings = &self.internal.settings;
        let wanted = settings.calibrate && settings.mode == Mode::On;
        if !wanted || !self.internal.knowledge.lacks_figures(Shape::of(topology)) {
            return Ok(None);
        }
        // Ranks may have been calibrated in different communicators, so an earlier result is used only if all ranks have the same.
        let lock = || self.internal.calibrated.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = *lock();
        let known = mine.map(|calibrated| calibrated.words()).unwrap_or_default();
        let mut words = [0; 2 * Calibration::WORDS + 1];
        for (at, word) in known.into_iter().enumerate() {
            (words[2 * at], words[2 * at + 1]) = (word, !word);
        }
        words[2 * Calibration::WORDS] = u64::from(mine.is_some());
        self.agree(AgreeOp::Max, &mut words)?;
        let (pairs, spent) = words.as_chunks::<2>();
        // A process measures only once, so no rank measures if any has done so before.
        if spent == [1] {
            return Ok(mine.filter(|_| pairs.iter().all(|[word, inverse]| *word == !inverse)));
        }
        let found = self.measure(topology)?;
        *lock() = Some(found);
        Ok(Some(found))
    }

    fn measure(&self, topology: &Topology) -> Result<Calibration, Error> {
        let Partners { near, far } = Partners::of(topology, self.rank);
        let mut workspace = (vec![0u8; LONG[1]], vec![0u8; LONG[1]]);
        let mut take = |partner: Option<u32>, bytes: usize, most: Duration| match partner {
            Some(partner) => self.time(partner, (&mut workspace.0[..bytes], &mut workspace.1[..bytes]), most),
            None => Ok(NOTHING),
        };
        // A first exchange, which is not timed, sets up the connection.
        take(far, LONG[0], Duration::ZERO)?;
        let began = Instant::now();
        let mut words = [take(far, SHORT, FAR)?, NOTHING, take(far, LONG[0], FAR)?, NOTHING, 0];
        if let Some(far) = far {
            // Both partners must make the same decision, so each tells the other whether it found the shorter long message too slow.
            let slow = [u8::from(words[2] > words[0] + QUICK)];
            if slow[0] | self.swap(far, &slow)? == 0 {
                words[3] = take(Some(far), LONG[1], FAR)?;
            }
        }
        let measured = began.elapsed();
        take(near, SHORT, Duration::ZERO)?;
        let began = Instant::now();
        let mut on_node = NOTHING;
        for _ in 0..AGAIN {
            on_node = on_node.min(take(near, SHORT, NEAR)?);
        }
        // Ranks of a node wait for each other, so the slowest pair counts. Its time is found by the agreement on a minimum, because ranks
        // pass the complements of their times.
        words[1] = near.map_or(NOTHING, |_| !on_node);
        words[4] = !nanoseconds(measured + began.elapsed());
        // Between nodes the fastest pair counts, because other ranks may have waited for a core.
        self.agree(AgreeOp::Min, &mut words)?;
        let [short, on_node, long, longest, took] = words;
        let (bytes, long) = if longest == NOTHING { (LONG[0], long) } else { (LONG[1], longest) };
        let long_message = LongMessage { bytes: bytes as u64, took: seconds(long) };
        let intra_node = (on_node != NOTHING).then(|| seconds(!on_node));
        Ok(Calibration { intra_node, inter_node: seconds(short), long_message, duration: seconds(!took) })
    }

    /// Measures the average time of an exchange with a partner, in nanoseconds. A single exchange could seem to take no time, if the
    /// partner sent its message before this rank began. The first byte of each message tells whether the sender has reached a limit, so
    /// that both ranks stop after the same exchange.
    fn time(&self, partner: u32, (mine, theirs): (&mut [u8], &mut [u8]), most: Duration) -> Result<u64, Error> {
        let name = self.translation.translate(Rank(partner));
        let began = Instant::now();
        for time in 1..=TIMES {
            mine[0] = u8::from(time == TIMES || began.elapsed() >= most);
            self.internal.exchange(Some((name, &*mine)), Some((name, &mut *theirs)), self.agreement_tag())?;
            if mine[0] | theirs[0] != 0 {
                return Ok((nanoseconds(began.elapsed()) / time).max(1));
            }
        }
        unreachable!("the last time says so")
    }

    /// Exchanges one byte with a partner.
    fn swap(&self, partner: u32, mine: &[u8; 1]) -> Result<u8, Error> {
        let (name, mut theirs) = (self.translation.translate(Rank(partner)), [0]);
        self.internal.exchange(Some((name, mine)), Some((name, &mut theirs)), self.agreement_tag())?;
        Ok(theirs[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The partner of a rank's partner is the rank itself, on nodes of any size and number.
    #[test]
    fn partners_are_each_others() {
        for text in ["4x4", "3x2", "5,3,2", "2x8:cyclic", "7x1", "1x3"] {
            let topology: Topology = text.parse().unwrap();
            let all: Vec<Partners> = (0..topology.ranks()).map(|rank| Partners::of(&topology, Rank(rank))).collect();
            for (rank, partners) in (0..).zip(&all) {
                let node = |rank: u32| topology.node_of(Rank(rank));
                for (other, same) in [(partners.near, true), (partners.far, false)] {
                    let Some(other) = other else { continue };
                    assert_eq!(node(other) == node(rank), same, "{text}: {rank} and {other}");
                    let back = &all[other as usize];
                    assert_eq!(if same { back.near } else { back.far }, Some(rank), "{text}");
                }
            }
            let nodes = topology.regions(Level::NODE);
            assert_eq!(nodes > 1, all.iter().any(|partners| partners.far.is_some()), "{text}");
        }
    }
}
