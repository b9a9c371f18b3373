//! How the ranks of a region exchange through their segment.
//!
//! ```text
//! meeting   put ── barrier ── get                                    all wait for all
//! ring      enter ── put ── signal    wait ── get         leave      who gets waits for who puts, and for nobody else
//! ```
//!
//! In a collective with a root one block is all there is, and a meeting would make its owner wait for ranks from which it
//! needs nothing. On a ring of slots it leaves as soon as its data lies there, and may run some calls ahead. Flags and gates
//! are for chunks: what is there for empty ones is left out on both sides, like a message.

use bruckner_schedule::{Area, Counts, Flag, Level, Place, Places, Rank, Set};

use crate::Builder;
use crate::expression::{Expression, Plain};

/// The way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Exchange {
    /// All put, all meet, all get.
    Meeting,
    /// Whoever puts raises a flag, whoever gets awaits it. For one root: a flag is raised once in an execution.
    Ring,
}

impl Exchange {
    /// The way for some counts. Flags are a node's, so only where nothing else is near; and there are too few for the parts of a
    /// pipeline.
    pub fn of(counts: &Counts, expression: &Expression) -> Exchange {
        match (counts, expression) {
            (Counts::Root { .. }, expression) if is_by_nodes(expression) => Exchange::Ring,
            (_, Expression::ShmTree(_)) => Exchange::Ring,
            _ => Exchange::Meeting,
        }
    }

    /// Puts slots into the segment.
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

    /// Between putting and getting.
    pub(crate) fn meet(self, b: &mut Builder, level: Level) {
        if self == Exchange::Meeting {
            b.barrier(level);
        }
    }

    /// Until another has put slots.
    pub(crate) fn wait(self, b: &mut Builder, flag: Flag, of: Rank, places: impl FnOnce() -> Places) {
        if self == Exchange::Ring {
            b.wait_for(flag, of, chunks(&places()));
        }
    }

    /// Takes slots from the segment.
    pub(crate) fn get(self, b: &mut Builder, level: Level, places: &[Place]) {
        for place in places {
            b.copy(place.clone(), in_segment(level, place));
        }
    }
}

/// Where slots of an area go in a segment: line 0 is for the output, line n + 1 for private line n.
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

/// Whether all that an expression exchanges through memory goes through the segments of nodes.
fn is_by_nodes(expression: &Expression) -> bool {
    match expression {
        Expression::Plain(plain) => *plain == Plain::Shm,
        Expression::Locality { level, inside, .. } => *level == Level::NODE && is_by_nodes(inside),
        Expression::Leader { level, .. } | Expression::MultiLane { level, .. } => *level == Level::NODE,
        _ => false,
    }
}
