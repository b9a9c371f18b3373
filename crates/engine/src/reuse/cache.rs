//! The cache of topologies, compiled programs and idle segments.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bruckner_runtime::segment::{Lease, Pool};
use bruckner_runtime::{Compiled, Segment, SegmentSize};
use bruckner_schedule::Topology;
use rustc_hash::FxBuildHasher;

use super::key::ProgramKey;

/// Maximum numbers of cached topologies, compiled programs and idle segments, and maximum bytes of all idle segments together.
const TOPOLOGIES: usize = 16;
const PROGRAMS: usize = 256;
const SEGMENTS: usize = 32;
const IDLE_BYTES: usize = 4 << 20;

/// A shared-memory segment of some ranks of a node.
pub(crate) struct SharedSegment {
    pub(crate) segment: Arc<Segment>,
    /// Offset in the node's shared memory. Members send it to each other to identify the segment.
    pub(crate) offset: usize,
    /// Ranks of the members in the internal communicator, in the order of their numbers in the segment.
    members: Box<[u32]>,
}

impl SharedSegment {
    /// Creates a segment at `offset` of the node's shared memory, which was lent to `members`; `None` if the node has not enough memory.
    pub(crate) fn new(
        pool: &Arc<Pool>,
        offset: usize,
        members: Box<[u32]>,
        me: u32,
        size: SegmentSize,
    ) -> Option<SharedSegment> {
        let count = members.len() as u32;
        // SAFETY: the memory is lent to these members, and this rank is one of them.
        let lease = unsafe { Lease::new(pool, offset, Segment::bytes(count, size)) }?;
        if !Segment::shares(count, size, me).all(|(at, len)| pool.reserve(offset + at, len)) {
            return None;
        }
        // SAFETY: the memory is new and zero, is large enough, and lives as long as the lease.
        let segment = unsafe { Segment::new(lease.start(), count, me, size, Box::new(lease)) };
        Some(SharedSegment { segment: Arc::new(segment), offset, members })
    }

    /// Returns the bytes of the node's shared memory that the segment takes.
    fn bytes(&self) -> usize {
        Segment::bytes(self.members.len() as u32, self.segment.size())
    }

    /// Whether the segment has these members and is large enough, but not more than four times larger than needed.
    pub(crate) fn suits(&self, members: &[u32], size: SegmentSize) -> bool {
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

/// Topologies, compiled programs and idle segments, cached for all user communicators that share an internal communicator.
#[derive(Default)]
pub(crate) struct ReuseCache(Mutex<Contents>);

impl ReuseCache {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cached topology that is equal to this one, or adds this one, so that equal topologies share one address.
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

    /// Returns a program that was compiled before, if there is one.
    pub(crate) fn get(&self, program: &ProgramKey) -> Option<Arc<Compiled>> {
        self.contents().programs.get(program).map(|(_, compiled)| compiled.clone())
    }

    #[allow(
        clippy::mutable_key_type,
        reason = "a schedule of the user is identified by its text alone, which does not change"
    )]
    pub(crate) fn put(&self, program: ProgramKey, topology: &Arc<Topology>, compiled: Arc<Compiled>) {
        let programs = &mut self.contents().programs;
        if programs.len() >= PROGRAMS {
            programs.clear();
        }
        programs.insert(program, (topology.clone(), compiled));
    }

    /// Takes out an idle segment for which `suits` returns true, if there is one. Its members have run equally many executions on it, so
    /// they can go on counting together, but they must first agree that all of them have stopped using the segment.
    pub(crate) fn take_segment(&self, suits: impl Fn(&SharedSegment) -> bool) -> Option<SharedSegment> {
        let idle = &mut self.contents().idle;
        let at = idle.iter().position(suits)?;
        Some(idle.remove(at))
    }

    /// Adds a segment that this rank no longer uses to the idle segments, unless it is too large.
    pub(crate) fn keep_segment(&self, segment: SharedSegment) {
        if segment.bytes() > IDLE_BYTES {
            return;
        }
        let idle = &mut self.contents().idle;
        idle.push(segment);
        // The oldest segments are dropped first.
        while idle.len() > SEGMENTS || idle.iter().map(SharedSegment::bytes).sum::<usize>() > IDLE_BYTES {
            idle.remove(0);
        }
    }

    /// Gives all idle segments of this rank back to the node.
    pub(crate) fn free_segments(&self) {
        self.contents().idle.clear();
    }
}
