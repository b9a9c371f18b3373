//! How the ranks of a region exchange data through their shared-memory segment.
//!
//! ```text
//! barrier   put ── barrier ── get                                    all ranks wait for all
//! ring      enter ── put ── signal    wait ── get         leave      a rank that gets data waits only for the rank that puts it
//! ```
//!
//! In a collective with a root only one rank has data, and a barrier would make this rank wait for ranks from which it needs nothing. On a
//! *ring*, successive executions use successive slots of the segment, so the root leaves as soon as its data is in the segment, and may
//! run some calls ahead. Signals, waits and ring entries name the chunks for which they are needed; if all these chunks are empty, the
//! operations are omitted on both sides, as a message would be.

use bruckner_schedule::{Area, Counts, Flag, Level, Place, Places, Rank, Set};

use crate::Builder;
use crate::expression::{Expression, Plain};

/// How ranks exchange data through a shared-memory segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Exchange {
    /// All ranks copy data into the segment, synchronise in a barrier, and then copy data out.
    Barrier,
    /// Successive executions use a ring of slots. A rank raises a flag once its data is in the segment, and ranks that need the data wait
    /// for the flag. A flag is raised only once per execution, so an allgather or reduce_scatter can use the ring only with a root.
    Ring,
}

impl Exchange {
    /// Selects the exchange for given counts and algorithm. Only ranks of a node can wait for each other's flags, so a collective with a
    /// root uses the ring only if all its segments are those of nodes. Pipelines use barriers, because there are too few flags for their
    /// parts.
    pub fn of(counts: &Counts, expression: &Expression) -> Exchange {
        match (counts, expression) {
            (Counts::Root { .. }, expression) if shares_memory_only_on_nodes(expression) => Exchange::Ring,
            (_, Expression::ShmTree(_)) => Exchange::Ring,
            _ => Exchange::Barrier,
        }
    }

    /// Adds the copies of `places` into the segment. On a ring, adds the wait for a free slot before the copies and the signal after them.
    pub(crate) fn put(self, b: &mut Builder, level: Level, flag: Flag, places: &[Place]) {
        if self == Exchange::Ring {
            b.enter_for(level, chunks(places));
        }
        for place in places {
            b.copy(in_segment(level, place), place.clone());
        }
        if self == Exchange::Ring {
            b.signal_for(flag, chunks(places));
        }
    }

    /// Adds the barrier between copying in and copying out; on a ring, adds nothing.
    pub(crate) fn barrier(self, b: &mut Builder, level: Level) {
        if self == Exchange::Barrier {
            b.barrier(level);
        }
    }

    /// On a ring, adds the wait until rank `of` has copied `places` into the segment; otherwise adds nothing.
    pub(crate) fn wait(self, b: &mut Builder, flag: Flag, of: Rank, places: impl FnOnce() -> Places) {
        if self == Exchange::Ring {
            b.wait_for(flag, of, chunks(&places()));
        }
    }

    /// Adds the copies of `places` out of the segment.
    pub(crate) fn get(self, b: &mut Builder, level: Level, places: &[Place]) {
        for place in places {
            b.copy(place.clone(), in_segment(level, place));
        }
    }
}

/// Returns the place in the segment for slots of an area: line 0 for the output, line n + 1 for private line n.
fn in_segment(level: Level, place: &Place) -> Place {
    let line = match place.area {
        Area::Line(n) => n + 1,
        _ => 0,
    };
    Place::new(Area::Shared(level, line), place.set.clone())
}

fn chunks(places: &[Place]) -> Set {
    let mut chunks = Set::new();
    places.iter().for_each(|place| chunks.extend(&place.set));
    chunks
}

/// Whether an expression exchanges through shared memory, and only through segments of nodes.
fn shares_memory_only_on_nodes(expression: &Expression) -> bool {
    match expression {
        Expression::Plain(plain) => *plain == Plain::Shm,
        Expression::Locality { level, inside, .. } => *level == Level::NODE && shares_memory_only_on_nodes(inside),
        Expression::Leader { level, .. } | Expression::MultiLane { level, .. } => *level == Level::NODE,
        _ => false,
    }
}
