//! The hidden communicator, and what its processes share: places, memory, tags, settings.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bruckner_choose::{Ability, Gauged, Knowledge, Menus, Shape};
use bruckner_config::{ProfileFile, Settings};
use bruckner_mpi::{Agree, Flavour, Function, Handle, TagRange, Tags};
use bruckner_runtime::segment::{OpenWord, Pool};
use bruckner_runtime::{Peer, Transport};
use bruckner_schedule::{Level, Rank, Topology};

use crate::Error;
use crate::backend::{Backend, Wire as _};
use crate::progress::Active;
use crate::reuse::ReuseCache;

/// The most topologies whose menus are kept.
const MENUS: usize = 16;

/// The decision table of a placement, shared by all communicators that have it.
struct Placed {
    topology: Arc<Topology>,
    calibrated: Option<[u64; Gauged::WORDS]>,
    menus: Arc<Menus>,
}

/// A communicator of our own on which all messages go.
pub(crate) struct InternalComm<B: Backend> {
    pub(crate) backend: &'static B,
    pub(crate) comm: Handle,
    /// Where each of its ranks runs: by topology, if one was given, else as found.
    pub(crate) places: Topology,
    /// The node that each really runs on, whatever topology was given.
    nodes: Topology,
    /// The node's memory, if all have it.
    pub(crate) pool: Option<Arc<Pool>>,
    /// Whether all can read the buffers of all others on their node.
    pub(crate) reads: bool,
    pub(crate) wire: B::Wire,
    pub(crate) shared_cores: bool,
    /// Whether MPI, on all ranks, lets plans go on inside its own waits.
    pub(crate) hooked: bool,
    pub(crate) settings: Settings,
    pub(crate) reuse: ReuseCache,
    /// The knowledge that choices rest on: the profile's, or the default machine model's.
    pub(super) knowledge: Arc<Knowledge>,
    /// The calibration of messages, where it was measured.
    pub(super) calibrated: Mutex<Option<Gauged>>,
    menus: Mutex<Vec<Placed>>,
    /// Whether several threads may call at once, on any rank.
    threads: bool,
    tags: Mutex<Tags>,
    /// Plans that are started: they go on while ranks wait for each other to agree.
    active: Arc<Active>,
}

/// The result of a search for tags; the same on all ranks.
pub(crate) enum Found {
    /// A range that is free everywhere, and now taken.
    Range(TagRange),
    /// None is.
    Nothing,
    /// A rank cannot take part.
    Unable,
}

impl<B: Backend> InternalComm<B> {
    /// Makes one for the processes of a communicator. Collective.
    pub(crate) fn new(
        backend: &'static B,
        of: Handle,
        active: Arc<Active>,
    ) -> Result<InternalComm<B>, Error> {
        let comm = backend.hide(of)?;
        let size = backend.size(comm)?;
        // Only rank 0 looks: files and environments may differ.
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
        backend.agree(comm, Agree::Max, &mut worst)?;
        let pool = if settings.shared_memory { pool(backend, comm, node)? } else { None };
        backend.free(node);
        let reads = pool.is_some() && settings.reads && reads(backend, comm, &nodes)?;
        let (shared_cores, hooked) = (worst[0] != 0, worst[1] == 0);
        Ok(InternalComm {
            backend,
            comm,
            places: settings.topology.clone().unwrap_or_else(|| nodes.clone()),
            nodes,
            pool,
            reads,
            wire: backend.wire(comm, backend.tag_limit() - 1, shared_cores),
            shared_cores,
            hooked,
            settings,
            // Two are in no range: one for reports, and one that is never sent.
            tags: Mutex::new(Tags::new(backend.tag_limit() - 1)),
            threads: worst[2] != 0,
            active,
            reuse: ReuseCache::default(),
            knowledge: Arc::new(knowledge),
            calibrated: Mutex::new(None),
            menus: Mutex::default(),
        })
    }

    /// The decision table for communicators with a topology. Communicators with the same topology share it, because making it takes longer
    /// than a few short calls.
    pub(crate) fn menus(&self, topology: &Arc<Topology>, calibrated: Option<&Gauged>) -> Arc<Menus> {
        let words = calibrated.map(Gauged::words);
        let mut known = self.menus.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |other: &Placed| Arc::ptr_eq(&other.topology, topology) && other.calibrated == words;
        if let Some(placed) = known.iter().find(|other| is_it(other)) {
            return placed.menus.clone();
        }
        let menus = Arc::new(self.new_menus(topology.clone(), calibrated));
        if known.len() >= MENUS {
            known.remove(0);
        }
        known.push(Placed { topology: topology.clone(), calibrated: words, menus: menus.clone() });
        menus
    }

    fn new_menus(&self, topology: Arc<Topology>, calibrated: Option<&Gauged>) -> Menus {
        let wide = self.backend.has(Function::Allgatherv, Flavour::Blocking, true);
        let able = Ability { narrow: !wide, reads: self.reads };
        let shape = Shape::of(&topology);
        let knowledge = match calibrated.filter(|_| self.knowledge.lacks_figures(shape)) {
            Some(calibrated) => self.knowledge.clone().with(calibrated, shape),
            None => self.knowledge.clone(),
        };
        Menus::new(topology, knowledge, self.settings.policy(), able)
    }

    /// The node's memory, if these ranks all really run on this process's node: a topology that was given may say otherwise.
    pub(crate) fn shared_by(&self, ranks: impl IntoIterator<Item = u32>) -> Option<&Arc<Pool>> {
        let pool = self.pool.as_ref()?;
        one_node(&self.nodes, ranks).then_some(pool)
    }

    /// Sends bytes to a rank of the hidden communicator, and waits until they are gone.
    pub(crate) fn tell(&self, to: u32, tag: u32, bytes: &[u8]) -> Result<(), Error> {
        self.exchange(Some((to, bytes)), None, tag)
    }

    /// Receives as many bytes as there is room for.
    pub(crate) fn hear(&self, from: u32, tag: u32, bytes: &mut [u8]) -> Result<(), Error> {
        self.exchange(None, Some((from, bytes)), tag)
    }

    /// Sends to one rank and receives from another at the same time, or does one of the two.
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
            // SAFETY: as above.
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

    /// The texts of all ranks, on rank 0. Collective.
    pub(crate) fn collect(&self, text: &str) -> Result<Option<Vec<String>>, Error> {
        // A tag that is in no range.
        let tag = self.backend.tag_limit();
        let lengths = self.backend.gather(self.comm, &[text.len() as u64])?;
        if self.backend.rank(self.comm)? != 0 {
            self.tell(0, tag, text.as_bytes())?;
            return Ok(None);
        }
        let mut texts = vec![text.to_owned()];
        for (rank, length) in lengths.iter().enumerate().skip(1) {
            let mut bytes = vec![0u8; *length as usize];
            self.hear(rank as u32, tag, &mut bytes)?;
            texts.push(String::from_utf8_lossy(&bytes).into_owned());
        }
        Ok(Some(texts))
    }

    /// A range of tags that is free on all processes of a communicator, if all are able to take part. Collective over it, by
    /// `agree`.
    ///
    /// Several threads may be here for different communicators, and each waits for processes that may be waiting for
    /// another of them: nothing is held meanwhile. They agree on a range that is free everywhere, each process takes it, and
    /// where another thread was faster on any of them, all give it back and try again with another one.
    pub(crate) fn take_tags(
        &self,
        is_first: bool,
        able: bool,
        agree: impl Fn(Agree, &mut [u64]) -> Result<(), Error>,
    ) -> Result<Found, Error> {
        for attempt in 0.. {
            // After a collision they go apart by chance, which the first rank throws for all.
            let chance = if attempt > 0 && is_first { chance() } else { 0 };
            // One number as long as there is room above: a list of bits is long, and Intel MPI's own allreduce of more
            // than eight bytes fails where two threads are in one.
            let mut above = [if able { self.tags().above() + chance % 16 } else { u64::MAX }];
            agree(Agree::Max, &mut above)?;
            if above == [u64::MAX] {
                return Ok(Found::Unable);
            }
            let mut range = self.tags().numbered(above[0]);
            if range.is_none() {
                let mut free = self.tags().free().to_vec();
                free.push(!chance);
                agree(Agree::And, &mut free)?;
                let skip = !free.pop().unwrap_or_default();
                range = self.tags().nth(&free, skip);
            }
            let Some(range) = range else { return Ok(Found::Nothing) };
            let mut taken = [u64::from(self.tags().take(range))];
            if !self.threads {
                return Ok(Found::Range(range));
            }
            let mine = taken[0] == 1;
            agree(Agree::Min, &mut taken)?;
            if taken[0] == 1 {
                return Ok(Found::Range(range));
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

/// A number that two threads hardly ever get at once.
fn chance() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) >> 32
}

/// Whether ranks run on one node.
fn one_node(nodes: &Topology, ranks: impl IntoIterator<Item = u32>) -> bool {
    let mut nodes = ranks.into_iter().map(|rank| nodes.node_of(Rank(rank)));
    let first = nodes.next();
    nodes.all(|node| Some(node) == first)
}

/// The node's shared memory: created by its first process, attached by the others, unlinked at once; `None` on all ranks
/// if any could not.
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
    backend.agree(comm, Agree::Min, &mut all)?;
    if me == 0 && !name.is_empty() {
        Pool::unlink(&name);
    }
    Ok(made.filter(|_| all[0] == 1).map(Arc::new))
}

/// Whether all ranks can read the memory of all others on their node: they try. Collective.
fn reads(backend: &impl Backend, comm: Handle, nodes: &Topology) -> Result<bool, Error> {
    let (me, word) = (Rank(backend.rank(comm)?), OpenWord::random());
    let all = backend.gather(comm, &word.place())?;
    let others = nodes.span(Level::NODE, nodes.region_of(Level::NODE, me)).map(|at| nodes.rank_at(at));
    let can_read = |other: Rank| {
        let place = &all[other.0 as usize * OpenWord::PLACE..][..OpenWord::PLACE];
        other == me || OpenWord::can_read(place)
    };
    let mut all = [u64::from(others.into_iter().all(can_read))];
    backend.agree(comm, Agree::Min, &mut all)?;
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
