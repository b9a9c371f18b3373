//! The internal communicator, and the data that its processes share: rank placement, node memory, tags, settings.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bruckner_choose::{Ability, Calibration, DecisionTables, Knowledge, Shape};
use bruckner_config::{ProfileFile, Settings};
use bruckner_mpi::{AgreeOp, Flavour, Function, Handle, TagRange, Tags};
use bruckner_runtime::segment::{Pool, ReadProbe};
use bruckner_runtime::{Peer, Transport};
use bruckner_schedule::{Level, Rank, Topology};

use crate::Error;
use crate::backend::{Backend, Wire as _};
use crate::progress::Active;
use crate::reuse::ReuseCache;

/// Maximum number of decision tables that an internal communicator stores.
const MAX_TABLES: usize = 16;

/// The decision tables for a topology and a calibration, shared by all communicators that have the same topology and calibration.
struct PlacementTable {
    topology: Arc<Topology>,
    calibrated: Option<[u64; Calibration::WORDS]>,
    tables: Arc<DecisionTables>,
}

/// The internal communicator, which carries all messages of the library.
pub(crate) struct InternalComm<B: Backend> {
    pub(crate) backend: &'static B,
    pub(crate) comm: Handle,
    /// Placement of the ranks: the topology in the settings, if there is one, otherwise as detected.
    pub(crate) places: Topology,
    /// Detected nodes of the ranks, also if the settings have another topology.
    nodes: Topology,
    /// Shared memory of the node; `None` on all ranks if the settings forbid shared memory or any rank could not create or attach it.
    pub(crate) pool: Option<Arc<Pool>>,
    /// Whether every rank can read the buffers of all other ranks on its node.
    pub(crate) reads: bool,
    pub(crate) wire: B::Wire,
    pub(crate) oversubscribed: bool,
    /// Whether the MPI can call the library inside its own waits, on all ranks. Plans of several rounds are then advanced there.
    pub(crate) hooked: bool,
    pub(crate) settings: Settings,
    pub(crate) reuse: ReuseCache,
    /// Machine parameters and results of tuning runs by which algorithms are chosen: from the profile, or from the default machine model.
    pub(super) knowledge: Arc<Knowledge>,
    /// Message times that calibration has measured; `None` if there was no calibration.
    pub(super) calibrated: Mutex<Option<Calibration>>,
    tables: Mutex<Vec<PlacementTable>>,
    /// Whether several threads may call MPI at once, on any rank.
    threads: bool,
    tags: Mutex<Tags>,
    /// Started persistent operations. A rank advances them while it waits for a message by which ranks agree.
    active: Arc<Active>,
}

/// The result of taking a range of tags; the same on all ranks.
pub(crate) enum TagSearch {
    /// A range that was free on all ranks, and is now taken.
    Range(TagRange),
    /// No range of tags is free on all ranks at once.
    Nothing,
    /// Some rank cannot use the library on this communicator, so no range is taken.
    Unable,
}

impl<B: Backend> InternalComm<B> {
    /// Creates the internal communicator for the processes of `of`. Collective.
    pub(crate) fn new(backend: &'static B, of: Handle, active: Arc<Active>) -> Result<InternalComm<B>, Error> {
        let comm = backend.create_internal(of)?;
        let size = backend.size(comm)?;
        // Only rank 0 reads settings and profile, because files and environments may differ between ranks.
        let first = backend.rank(comm)? == 0;
        let found = if first { backend.settings() } else { String::new() };
        let profile = if first { backend.profile(&found).to_text() } else { String::new() };
        let mut settings = Settings::of(&backend.share_text(comm, &found)?, size);
        let profile = ProfileFile::of_text(&backend.share_text(comm, &profile)?);
        let knowledge = profile.knowledge(backend.name(), &mut settings.complaints);
        let node = backend.node(comm)?;
        let found = backend.places(comm, node)?;
        let (processes, cores) = backend.sharers(comm, &found)?;
        let nodes = Topology::of(&found.iter().map(|at| (at.node, at.socket)).collect::<Vec<_>>());
        let mut worst =
            [u64::from(processes > cores), u64::from(!backend.has_hook()), u64::from(backend.is_threaded())];
        backend.agree(comm, AgreeOp::Max, &mut worst)?;
        let pool = if settings.shared_memory { pool(backend, comm, node)? } else { None };
        backend.free(node);
        let reads = pool.is_some() && settings.peer_reads && reads(backend, comm, &nodes)?;
        let (shared_cores, hooked) = (worst[0] != 0, worst[1] == 0);
        Ok(InternalComm {
            backend,
            comm,
            places: settings.topology.clone().unwrap_or_else(|| nodes.clone()),
            nodes,
            pool,
            reads,
            wire: backend.wire(comm, backend.tag_limit() - 1, shared_cores),
            oversubscribed: shared_cores,
            hooked,
            settings,
            // Two tags are in no range: messages with reports have one, and no message has the other, for which the transport probes to
            // make the MPI progress.
            tags: Mutex::new(Tags::new(backend.tag_limit() - 1)),
            threads: worst[2] != 0,
            active,
            reuse: ReuseCache::default(),
            knowledge: Arc::new(knowledge),
            calibrated: Mutex::new(None),
            tables: Mutex::default(),
        })
    }

    /// Returns the decision tables for a topology and calibration. Communicators with the same topology and calibration share them,
    /// because making them takes longer than a few short calls.
    pub(crate) fn tables(&self, topology: &Arc<Topology>, calibrated: Option<&Calibration>) -> Arc<DecisionTables> {
        let words = calibrated.map(Calibration::words);
        let mut known = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |other: &PlacementTable| Arc::ptr_eq(&other.topology, topology) && other.calibrated == words;
        if let Some(placed) = known.iter().find(|other| is_it(other)) {
            return placed.tables.clone();
        }
        let tables = Arc::new(self.new_tables(topology.clone(), calibrated));
        if known.len() >= MAX_TABLES {
            known.remove(0);
        }
        known.push(PlacementTable { topology: topology.clone(), calibrated: words, tables: tables.clone() });
        tables
    }

    fn new_tables(&self, topology: Arc<Topology>, calibrated: Option<&Calibration>) -> DecisionTables {
        let wide = self.backend.has(Function::Allgatherv, Flavour::Blocking, true);
        let able = Ability { narrow: !wide, reads: self.reads };
        let shape = Shape::of(&topology);
        let knowledge = match calibrated.filter(|_| self.knowledge.lacks_figures(shape)) {
            Some(calibrated) => self.knowledge.clone().with(calibrated, shape),
            None => self.knowledge.clone(),
        };
        DecisionTables::new(topology, knowledge, self.settings.policy(), able)
    }

    /// Returns the node's shared memory if all these ranks, of which this process is one, were detected on one node, also if the settings
    /// have another topology.
    pub(crate) fn shared_by(&self, ranks: impl IntoIterator<Item = u32>) -> Option<&Arc<Pool>> {
        let pool = self.pool.as_ref()?;
        one_node(&self.nodes, ranks).then_some(pool)
    }

    /// Sends bytes to a rank of the internal communicator and waits until the send is complete.
    pub(crate) fn send(&self, to: u32, tag: u32, bytes: &[u8]) -> Result<(), Error> {
        self.exchange(Some((to, bytes)), None, tag)
    }

    /// Receives `bytes.len()` bytes from a rank of the internal communicator.
    pub(crate) fn recv(&self, from: u32, tag: u32, bytes: &mut [u8]) -> Result<(), Error> {
        self.exchange(None, Some((from, bytes)), tag)
    }

    /// Sends to one rank and receives from another at the same time, or does only one of the two.
    pub(crate) fn exchange(
        &self,
        to: Option<(u32, &[u8])>,
        from: Option<(u32, &mut [u8])>,
        tag: u32,
    ) -> Result<(), Error> {
        let mut requests = self.wire.requests(2);
        if let Some((rank, bytes)) = from {
            let peer = Peer { rank, tag };
            // SAFETY: the bytes live until the request is finished.
            unsafe { self.wire.recv(&mut requests, 0, bytes.as_mut_ptr(), bytes.len(), peer) }?;
        }
        if let Some((rank, bytes)) = to {
            let peer = Peer { rank, tag };
            // SAFETY: the bytes live until the request is finished.
            unsafe { self.wire.send(&mut requests, 1, bytes.as_ptr(), bytes.len(), peer) }?;
        }
        let mut result = Ok(());
        self.wire.backoff().wait_for(|| {
            let tested = self.wire.test(&mut requests, 0..2);
            result = tested.map(|_| ());
            if tested == Ok(false) {
                self.active.advance(false);
            }
            tested != Ok(false)
        });
        Ok(result?)
    }

    /// Returns the texts of all ranks on rank 0, and `None` on the others. Collective.
    pub(crate) fn collect(&self, text: &str) -> Result<Option<Vec<String>>, Error> {
        // The tag limit is a tag that belongs to no range.
        let tag = self.backend.tag_limit();
        let lengths = self.backend.gather(self.comm, &[text.len() as u64])?;
        if self.backend.rank(self.comm)? != 0 {
            self.send(0, tag, text.as_bytes())?;
            return Ok(None);
        }
        let mut texts = vec![text.to_owned()];
        for (rank, length) in lengths.iter().enumerate().skip(1) {
            let mut bytes = vec![0u8; *length as usize];
            self.recv(rank as u32, tag, &mut bytes)?;
            texts.push(String::from_utf8_lossy(&bytes).into_owned());
        }
        Ok(Some(texts))
    }

    /// Takes a range of tags that is free on all ranks of a communicator, if `able` is true on all of them. Collective over the ranks
    /// whose numbers `agree` combines.
    ///
    /// Several threads may run this at once for different communicators, and wait for each other across processes, so no lock is held
    /// while ranks agree. Ranks agree on a range that is free on all of them, and each process takes it. If another thread has taken the
    /// range first on any process, all processes give it back and try another range.
    pub(crate) fn take_tags(
        &self,
        is_first: bool,
        able: bool,
        agree: impl Fn(AgreeOp, &mut [u64]) -> Result<(), Error>,
    ) -> Result<TagSearch, Error> {
        for attempt in 0.. {
            // After a collision, the first rank draws a random offset for all ranks, so that colliding threads try different ranges.
            let chance = if attempt > 0 && is_first { chance() } else { 0 };
            // Ranks agree on one number, the first range above all taken ranges, and on a bit set of free ranges only if there is no such
            // range: the set is long, and Intel MPI's own allreduce of more than eight bytes fails if two threads call it at once.
            let mut above = [if able { self.tags().first_above_taken() + chance % 16 } else { u64::MAX }];
            agree(AgreeOp::Max, &mut above)?;
            if above == [u64::MAX] {
                return Ok(TagSearch::Unable);
            }
            let mut range = self.tags().numbered(above[0]);
            if range.is_none() {
                let mut free = self.tags().free().to_vec();
                free.push(!chance);
                agree(AgreeOp::And, &mut free)?;
                let skip = !free.pop().unwrap_or_default();
                range = self.tags().nth_free(&free, skip);
            }
            let Some(range) = range else { return Ok(TagSearch::Nothing) };
            let mut taken = [u64::from(self.tags().take(range))];
            if !self.threads {
                return Ok(TagSearch::Range(range));
            }
            let mine = taken[0] == 1;
            agree(AgreeOp::Min, &mut taken)?;
            if taken[0] == 1 {
                return Ok(TagSearch::Range(range));
            }
            if mine {
                self.free_tags(range);
            }
        }
        unreachable!("the loop ends by returning")
    }

    fn tags(&self) -> MutexGuard<'_, Tags> {
        self.tags.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn free_tags(&self, range: TagRange) {
        self.tags().give_back(range);
    }
}

/// Returns a random number, so that two threads rarely get the same one.
fn chance() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) >> 32
}

/// Whether all given ranks run on one node.
fn one_node(nodes: &Topology, ranks: impl IntoIterator<Item = u32>) -> bool {
    let mut nodes = ranks.into_iter().map(|rank| nodes.node_of(Rank(rank)));
    let first = nodes.next();
    nodes.all(|node| Some(node) == first)
}

/// Creates the node's shared memory: its first process creates the object, the others attach, and it is unlinked at once. Returns `None`
/// on all ranks if any of them fails.
fn pool(backend: &impl Backend, comm: Handle, node: Handle) -> Result<Option<Arc<Pool>>, Error> {
    let (me, size) = (backend.rank(node)?, backend.size(node)?);
    let mut name = String::new();
    let mut made = None;
    if me == 0 {
        name = Pool::name();
        made = Pool::create(&name, size, 0).ok();
        if made.is_none() {
            name.clear();
        }
    }
    let name = backend.share_text(node, &name)?;
    if me != 0 && !name.is_empty() {
        made = Pool::attach(&name, size, me).ok();
    }
    let mut all = [u64::from(made.is_some())];
    backend.agree(comm, AgreeOp::Min, &mut all)?;
    if me == 0 && !name.is_empty() {
        Pool::unlink(&name);
    }
    Ok(made.filter(|_| all[0] == 1).map(Arc::new))
}

/// Tests whether all ranks can read the memory of all other ranks on their node, by reading a number that each rank provides. Collective.
fn reads(backend: &impl Backend, comm: Handle, nodes: &Topology) -> Result<bool, Error> {
    let (me, word) = (Rank(backend.rank(comm)?), ReadProbe::random());
    let all = backend.gather(comm, &word.place())?;
    let others = nodes.span(Level::NODE, nodes.region_of(Level::NODE, me)).map(|at| nodes.rank_at(at));
    let can_read = |other: Rank| {
        let place = &all[other.0 as usize * ReadProbe::PLACE..][..ReadProbe::PLACE];
        other == me || ReadProbe::can_read(place)
    };
    let mut all = [u64::from(others.into_iter().all(can_read))];
    backend.agree(comm, AgreeOp::Min, &mut all)?;
    Ok(all[0] == 1)
}

#[cfg(test)]
mod tests {
    use super::{Topology, one_node};

    #[test]
    fn only_ranks_of_one_node_share_memory() {
        let nodes = Topology::of(&[(7, 0), (7, 0), (3, 0), (7, 0)]);
        assert!(one_node(&nodes, [0, 1, 3]));
        assert!(!one_node(&nodes, [0, 2]));
        assert!(one_node(&nodes, [2]));
    }
}
