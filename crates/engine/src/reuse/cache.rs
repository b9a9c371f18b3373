//! The cache of topologies, compiled programs and idle segments.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bruckner_runtime::segment::{Lease, Pool};
use bruckner_runtime::{Compiled, Segment, Size};
use bruckner_schedule::Topology;
use rustc_hash::FxBuildHasher;

use super::key::ProgramKey;

/// The most topologies and programs that are kept, and segments that nobody uses, by number and by bytes.
const TOPOLOGIES: usize = 16;
const PROGRAMS: usize = 256;
const SEGMENTS: usize = 32;
const IDLE_BYTES: usize = 4 << 20;

/// A segment that some ranks share.
pub(crate) struct SharedSegment {
    pub(crate) segment: Arc<Segment>,
    /// Where it lies in the node's memory: by that all its members know it.
    pub(crate) offset: usize,
    /// Their names, in the order of their numbers.
    members: Box<[u32]>,
}

impl SharedSegment {
    /// Memory that was lent for a segment, if there is enough on this node.
    pub(crate) fn new(
        pool: &Arc<Pool>,
        offset: usize,
        members: Box<[u32]>,
        me: u32,
        size: Size,
    ) -> Option<SharedSegment> {
        let count = members.len() as u32;
        // SAFETY: lent to these members, of whom this is one.
        let lease = unsafe { Lease::new(pool, offset, Segment::bytes(count, size)) }?;
        if !Segment::shares(count, size, me).all(|(at, len)| pool.reserve(offset + at, len)) {
            return None;
        }
        // SAFETY: the memory is new and zero, as large as it must be, and lives as long as the lease.
        let segment = unsafe { Segment::new(lease.start(), count, me, size, Box::new(lease)) };
        Some(SharedSegment { segment: Arc::new(segment), offset, members })
    }

    /// How much of the node's memory it takes.
    fn bytes(&self) -> usize {
        Segment::bytes(self.members.len() as u32, self.segment.size())
    }

    /// Whether it will do for these members, and parts of so many bytes, without wasting much.
    pub(crate) fn suits(&self, members: &[u32], size: Size) -> bool {
        let bytes = Segment::bytes(members.len() as u32, size);
        *self.members == *members && self.segment.size().has(size) && self.bytes() <= 4 * bytes
    }
}

#[derive(Default)]
struct Contents {
    topologies: Vec<Arc<Topology>>,
    programs: HashMap<ProgramKey, (Arc<Topology>, Arc<Compiled>), FxBuildHasher>,
    idle: Vec<SharedSegment>,
}

/// The cache of the communicators of an internal communicator.
#[derive(Default)]
pub(crate) struct ReuseCache(Mutex<Contents>);

impl ReuseCache {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A topology, the same in memory as an equal one that was seen before.
    pub(crate) fn topology(&self, topology: Topology) -> Arc<Topology> {
        let topologies = &mut self.contents().topologies;
        if let Some(known) = topologies.iter().find(|known| ***known == topology) {
            return known.clone();
        }
        if topologies.len() >= TOPOLOGIES {
            topologies.remove(0);
        }
        topologies.push(Arc::new(topology));
        topologies[topologies.len() - 1].clone()
    }

    /// A program that was compiled before.
    pub(crate) fn get(&self, program: &ProgramKey) -> Option<Arc<Compiled>> {
        self.contents().programs.get(program).map(|(_, compiled)| compiled.clone())
    }

    #[allow(
        clippy::mutable_key_type,
        reason = "a written algorithm is known by its text alone, which does not change"
    )]
    pub(crate) fn put(&self, program: ProgramKey, topology: &Arc<Topology>, compiled: Arc<Compiled>) {
        let programs = &mut self.contents().programs;
        if programs.len() >= PROGRAMS {
            programs.clear();
        }
        programs.insert(program, (topology.clone(), compiled));
    }

    /// A segment that nobody uses, if there is one that suits. Its members count executions alike, so they may go on with it
    /// together; that all have left it is for them to agree on.
    pub(crate) fn take_segment(&self, suits: impl Fn(&SharedSegment) -> bool) -> Option<SharedSegment> {
        let idle = &mut self.contents().idle;
        let at = idle.iter().position(suits)?;
        Some(idle.remove(at))
    }

    /// A segment that this rank does not use any more.
    pub(crate) fn keep_segment(&self, segment: SharedSegment) {
        if segment.bytes() > IDLE_BYTES {
            return;
        }
        let idle = &mut self.contents().idle;
        idle.push(segment);
        // The oldest go.
        while idle.len() > SEGMENTS || idle.iter().map(SharedSegment::bytes).sum::<usize>() > IDLE_BYTES {
            idle.remove(0);
        }
    }

    /// Gives all segments that this rank does not use back to the node.
    pub(crate) fn free_segments(&self) {
        self.contents().idle.clear();
    }
}
