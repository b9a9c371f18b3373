//! Measurement of message times between ranks.

use std::time::{Duration, Instant};

use anyhow::Result;
use bruckner_engine::Mpi;
use bruckner_engine::mpi::{AgreeOp, Location, MpiTransport, Requests, locations, processes_and_cores};
use bruckner_measure::median;
use bruckner_runtime::Transport;

/// State of this rank for exchanging messages with all ranks of `MPI_COMM_WORLD`.
pub(crate) struct Ranks {
    mpi: &'static Mpi,
    /// Internal communicator, separate from the program's.
    comm: u64,
    pub(crate) places: Vec<Location>,
    messages: MpiTransport,
    requests: Requests,
    pub(crate) me: u32,
    /// Send buffer; `room` holds the receive buffers.
    data: Vec<u8>,
    room: Vec<Vec<u8>>,
}

/// Duration of the measurement of one message size.
const TIME: Duration = Duration::from_millis(150);
const BLOCKS: usize = 21;
/// Sleep interval of ranks that take no part in a measurement.
const SLEEP: Duration = Duration::from_micros(500);
/// Delay of the receiver in the test whether a send waits for its receiver.
const LATE: Duration = Duration::from_millis(10);
const TRIES: u32 = 3;
/// Maximum bytes of a message.
pub(crate) const LONGEST: usize = 1 << 20;

impl Ranks {
    /// Prepares the ranks of `MPI_COMM_WORLD`. Collective.
    pub(crate) fn new(mpi: &'static Mpi) -> Result<Ranks> {
        let world = mpi.comm_world();
        let places = locations(mpi, world, mpi.node(world)?)?;
        let (processes, cores) = processes_and_cores(mpi, world, &places)?;
        let comm = mpi.create_internal(world)?;
        let messages = MpiTransport::new(mpi, comm, 1, processes > cores);
        Ok(Ranks {
            mpi,
            comm,
            places,
            messages,
            requests: messages.requests(1),
            me: mpi.rank(world)?,
            data: vec![0; LONGEST],
            room: Vec::new(),
        })
    }

    /// Returns the ranks of each socket of each node.
    pub(crate) fn nodes(&self) -> Vec<Vec<Vec<u32>>> {
        let mut nodes: Listed<Listed<Vec<u32>>> = Vec::new();
        for (rank, place) in (0u32..).zip(&self.places) {
            let node = entry(&mut nodes, place.node);
            entry(node, place.socket).push(rank);
        }
        let sockets = |node: Listed<Vec<u32>>| node.into_iter().map(|(_, ranks)| ranks).collect();
        nodes.into_iter().map(|(_, node)| sockets(node)).collect()
    }

    /// Returns the maximum of `mine` over all ranks. Collective.
    pub(crate) fn slowest(&self, mine: f64) -> Result<f64> {
        // Positive floating-point numbers have the same order as their bits.
        let mut bits = [mine.to_bits()];
        self.mpi.agree(self.comm, AgreeOp::Max, &mut bits)?;
        Ok(f64::from_bits(bits[0]))
    }

    /// Returns the seconds of an exchange, in which each rank sends a message to each of its partners and receives one from each. After a
    /// barrier, exchanges follow each other without pause, and the time of the slowest rank counts. The result is the median over several
    /// such blocks of exchanges. Collective.
    pub(crate) fn exchange(&mut self, partners: &dyn Fn(u32) -> Vec<u32>, bytes: u64) -> Result<f64> {
        let mine = partners(self.me);
        let ranks = self.places.len() as u32;
        let (busy, idle): (Vec<u32>, Vec<u32>) = (0..ranks).partition(|rank| !partners(*rank).is_empty());
        let mut times = Vec::new();
        let mut count = 3;
        // The first block determines the number of exchanges in the others.
        for block in 0..=BLOCKS {
            self.slowest(0.0)?;
            let start = Instant::now();
            match mine.is_empty() {
                true => self.messages.recv_sleeping(busy[0], SLEEP)?,
                false => self.exchanges(&mine, bytes as usize, count)?,
            }
            let took = start.elapsed().as_secs_f64() / f64::from(count);
            if self.me == busy[0] {
                let told: Vec<(u32, &[u8])> = idle.iter().map(|rank| (*rank, &self.data[..1])).collect();
                self.messages.exchange(&mut self.requests, &told, &mut [])?;
            }
            let took = self.slowest(if mine.is_empty() { 0.0 } else { took })?;
            match block {
                0 => count = (TIME.as_secs_f64() / BLOCKS as f64 / took).clamp(2.0, 1000.0) as u32,
                _ => times.push(took),
            }
        }
        Ok(median(&times))
    }

    fn exchanges(&mut self, partners: &[u32], bytes: usize, count: u32) -> Result<()> {
        self.room.resize_with(partners.len().max(self.room.len()), || vec![0; LONGEST]);
        for _ in 0..count {
            let sends: Vec<(u32, &[u8])> = partners.iter().map(|rank| (*rank, &self.data[..bytes])).collect();
            let room = self.room.iter_mut().map(|room| &mut room[..bytes]);
            let mut receives: Vec<(u32, &mut [u8])> = partners.iter().copied().zip(room).collect();
            self.messages.exchange(&mut self.requests, &sends, &mut receives)?;
        }
        Ok(())
    }

    /// Whether a send of this size waits until its receiver arrives. True only if the send waited in every try, because a sender can be
    /// slow for other reasons. Collective.
    pub(crate) fn waits(&mut self, from: u32, to: u32, bytes: u64) -> Result<bool> {
        let mut least = f64::INFINITY;
        for _ in 0..TRIES {
            least = least.min(self.send_to_late(from, to, bytes as usize)?);
            if least < LATE.as_secs_f64() / 2.0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the seconds that a send takes if its receiver comes late. Collective.
    fn send_to_late(&mut self, from: u32, to: u32, bytes: usize) -> Result<f64> {
        self.slowest(0.0)?;
        let start = Instant::now();
        if self.me == from {
            self.messages.exchange(&mut self.requests, &[(to, &self.data[..bytes])], &mut [])?;
        }
        let took = start.elapsed();
        if self.me == to {
            std::thread::sleep(LATE);
            let room = &mut self.data[..bytes];
            self.messages.exchange(&mut self.requests, &[], &mut [(from, room)])?;
        }
        self.slowest(if self.me == from { took.as_secs_f64() } else { 0.0 })
    }
}

/// A list of values with keys, in the order of insertion.
type Listed<T> = Vec<(u64, T)>;

/// Returns the value of a key in a list; a missing key is appended with a default value.
fn entry<T: Default>(list: &mut Listed<T>, key: u64) -> &mut T {
    let at = list.iter().position(|(other, _)| *other == key).unwrap_or_else(|| {
        list.push((key, T::default()));
        list.len() - 1
    });
    &mut list[at].1
}
