//! What messages take, measured at first use of a communicator that spans nodes, where no profile says it. Collective; all ranks come to
//! the same, and to the same messages: what is still to be done depends on what they have agreed on.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use bruckner_choose::{Gauged, Long, Shape};
use bruckner_mpi::Agree;
use bruckner_runtime::Names as _;
use bruckner_schedule::{Level, Rank, Topology};

use super::Communicator;
use crate::Error;
use crate::settings::Mode;
use crate::world::World;

/// All of it may take so long.
const MOST: Duration = Duration::from_millis(20);
/// Bytes of a short message, and of long ones: the longer if the others take next to no time.
const SHORT: usize = 8;
const LONG: [usize; 2] = [16 << 10, 256 << 10];
/// How often each is sent.
const TIMES: usize = 3;
/// A process measures once.
const ONE: u64 = 1;

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 * 1e-9
}

/// With whom a rank exchanges messages.
struct Partners {
    /// On the same node.
    near: Option<u32>,
    /// On another.
    far: Option<u32>,
    /// Whether it is the first of its node.
    is_first: bool,
    /// Ranks of a node that exchange messages with another at once, wherever they are the most.
    senders: u32,
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
        Partners {
            near: member(node, at ^ 1),
            far: member(node ^ 1, at),
            is_first: at == 0,
            senders: topology.largest(Level::NODE),
        }
    }
}

impl<W: World> Communicator<W> {
    /// What messages take here: as it is known, or measured, if it may be. Collective, with the same outcome on all ranks.
    pub(super) fn gauged(&self, topology: &Topology) -> Result<Option<Gauged>, Error> {
        let settings = &self.hidden.settings;
        let wanted = settings.measure && settings.mode == Mode::On;
        if !wanted || !self.hidden.knowledge.lacks_figures(Shape::of(topology)) {
            return Ok(None);
        }
        // Those who measured before may have done so with others: only what all know counts.
        let lock = || self.hidden.gauged.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = *lock();
        let known = mine.map(|gauged| gauged.words()).unwrap_or_default();
        let mut words = [0; 13];
        for (at, word) in known.into_iter().enumerate() {
            (words[2 * at], words[2 * at + 1]) = (word, !word);
        }
        words[12] = u64::from(mine.is_some()) * ONE;
        self.agree(Agree::Max, &mut words)?;
        let (pairs, spent) = (words[..12].as_chunks::<2>().0, words[12] == ONE);
        if spent {
            return Ok(mine.filter(|_| pairs.iter().all(|[word, inverse]| *word == !inverse)));
        }
        let found = self.gauge(topology)?;
        *lock() = Some(found);
        Ok(Some(found))
    }

    fn gauge(&self, topology: &Topology) -> Result<Gauged, Error> {
        let began = Instant::now();
        let partners = Partners::of(topology, self.rank);
        let mut room = (vec![0u8; LONG[1]], vec![0u8; LONG[1]]);
        let mut take = |partner: Option<u32>, bytes: usize, times: usize| {
            self.time(partner, (&room.0[..bytes], &mut room.1[..bytes]), times)
        };
        // A connection must have carried something before it shows what it can do.
        let warm = take(partners.far, LONG[0], 1)?;
        take(partners.near, SHORT, 1)?;
        let mut words = [warm, take(partners.far, SHORT, TIMES)?, take(partners.near, SHORT, TIMES)?, 0];
        words[3] = nanoseconds(began.elapsed());
        self.agree(Agree::Max, &mut words)?;
        let [warm, far, near, elapsed] = words;
        let near = (near > 0).then(|| seconds(near));
        let mut gauged = Gauged { near, far: seconds(far), long: None, took: 0.0 };
        // Whoever is the last to be asked how long it took has taken that.
        let mut spent = elapsed;
        let mut each = warm;
        for bytes in LONG {
            // Alone, and all together, and what they agree by.
            if spent + 2 * TIMES as u64 * each > nanoseconds(MOST) {
                break;
            }
            let alone = take(partners.far.filter(|_| partners.is_first), bytes, TIMES - 1)?;
            let mut words = [alone, take(partners.far, bytes, TIMES - 1)?, 0];
            words[2] = nanoseconds(began.elapsed());
            self.agree(Agree::Max, &mut words)?;
            let [alone, together, elapsed] = words;
            let (senders, bytes) = (partners.senders, bytes as u64);
            gauged.long =
                Some(Long { bytes, alone: seconds(alone), senders, together: seconds(together) });
            spent = elapsed;
            // Sixteen times as much takes at most so long.
            each = together.max(alone) * (LONG[1] / LONG[0]) as u64;
        }
        gauged.took = seconds(spent);
        Ok(gauged)
    }

    /// How long it takes to exchange bytes with a partner, in nanoseconds: the middle of a few; nothing where there is none.
    fn time(&self, partner: Option<u32>, room: (&[u8], &mut [u8]), times: usize) -> Result<u64, Error> {
        let Some(partner) = partner else { return Ok(0) };
        let name = self.names.peer(Rank(partner));
        let mut took = Vec::with_capacity(times);
        for _ in 0..times {
            let start = Instant::now();
            self.hidden.exchange(Some((name, room.0)), Some((name, &mut *room.1)), self.agreeing())?;
            took.push(nanoseconds(start.elapsed()).max(1));
        }
        took.sort_unstable();
        Ok(took[(times - 1) / 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who sends to whom is sent to by them, on nodes of any size and number.
    #[test]
    fn partners_are_each_others() {
        for text in ["4x4", "3x2", "5,3,2", "2x8:cyclic", "7x1", "1x3"] {
            let topology: Topology = text.parse().unwrap();
            let all: Vec<Partners> =
                (0..topology.ranks()).map(|rank| Partners::of(&topology, Rank(rank))).collect();
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
            assert_eq!(nodes > 1, all.iter().any(|partners| partners.is_first && partners.far.is_some()));
        }
    }
}
