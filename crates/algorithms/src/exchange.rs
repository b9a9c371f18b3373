//! How the ranks of a region exchange data through their shared-memory segment.
//!
//! ```text
//! meeting   put ── barrier ── get                                    all wait for all
//! ring      enter ── put ── signal    wait ── get         leave      who gets waits for who puts, and for nobody else
//! ```
//!
//! In a collective with a root only one block has data, and a barrier would make its owner wait for ranks from which it needs nothing. On
//! a ring of slots the owner leaves as soon as its data is in the segment, and may run some calls ahead. Signals, waits and ring entries
//! name the chunks they are for; if all of these are empty, they are omitted on both sides, like a message.

use bruckner_schedule::{Area, Counts, Flag, Level, Place, Places, Rank, Set};

use crate::Builder;
use crate::expression::{Expression, Plain};

/// How ranks exchange through a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Exchange {
    /// All ranks put, meet in a barrier, and then get.
    Barrier,
    /// Ring: a rank raises a flag after its put, others wait for it. For one root, as a flag is raised once per execution.
    Ring,
}

impl Exchange {
    /// Selects the exchange for given counts and algorithm. Flags belong to nodes, so the ring is chosen only if nothing but nodes shares
    /// memory; and there are too few flags for the parts of a pipeline.
    pub fn of(counts: &Counts, expression: &Expression) -> Exchange {
        match (counts, expression) {
            (Counts::Root { .. }, expression) if shares_memory_only_on_nodes(expression) => Exchange::Ring,
            (_, Expression::ShmTree(_)) => Exchange::Ring,
            _ => Exchange::Barrier,
        }
    }

    /// Adds the copies of `places` into the segment; on a ring, enters before and raises the flag after.
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

    /// Adds the barrier between putting and getting; nothing on a ring.
    pub(crate) fn barrier(self, b: &mut Builder, level: Level) {
        if self == Exchange::Barrier {
            b.barrier(level);
        }
    }

    /// On a ring, adds the wait until rank `of` has put its slots; otherwise nothing.
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

/// Place in the segment for slots of an area: line 0 for the output, line n + 1 for private line n.
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
