//! Schedules: the operations of each rank, in rounds.
//!
//! A round is a set of concurrent messages, followed by local operations in order. Rounds are only notation: two operations are ordered
//! only if one needs the result of the other, or would overwrite data that the other still needs. Lowering may therefore move operations
//! between rounds. [`Schedule::flatten`] converts a schedule to a program without moving any: it posts the messages of a round together,
//! and awaits all of them before the local operations.

use std::collections::BTreeMap;
use std::fmt;

use smallvec::{SmallVec, smallvec};

use crate::{Flag, Level, Problem, Rank, Set, Tag, Topology};

/// Memory area that holds values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Area {
    /// The user's input; never written.
    In,
    /// The user's output.
    Out,
    /// A private line of slots, one slot for each chunk number: `t0`, `t1`, ….
    Line(u32),
    /// A line of slots in the segment that the rank's region of this level shares: `node.0`, `socket.2`, ….
    Shared(Level, u32),
    /// The input of another rank of the node, after that rank has opened its buffers ([`LocalOp::Open`]): `in@3`. Read only.
    InOf(Rank),
    /// The output of another rank of the node, after that rank has opened its buffers ([`LocalOp::Open`]): `out@3`. Read only.
    OutOf(Rank),
}

impl Area {
    /// If the area belongs to another rank, returns that rank and the name of the area there ([`Area::In`] or [`Area::Out`]).
    pub fn remote(self) -> Option<(Rank, Area)> {
        match self {
            Area::InOf(rank) => Some((rank, Area::In)),
            Area::OutOf(rank) => Some((rank, Area::Out)),
            _ => None,
        }
    }
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Area::In => f.write_str("in"),
            Area::Out => f.write_str("out"),
            Area::Line(n) => write!(f, "t{n}"),
            Area::Shared(level, n) => write!(f, "{level}.{n}"),
            Area::InOf(rank) => write!(f, "in@{rank}"),
            Area::OutOf(rank) => write!(f, "out@{rank}"),
        }
    }
}

/// Slots of one area: `t0[4..8]`. The slot of chunk `i` has the size of chunk `i`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// Area of the slots.
    pub area: Area,
    /// Chunk numbers of the slots, in order.
    pub set: Set,
}

impl Place {
    /// Creates a place from an area and chunk numbers.
    pub fn new(area: Area, set: impl Into<Set>) -> Place {
        Place { area, set: set.into() }
    }

    /// Appends `place` to a list. If the last place of the list is in the same area, the two are merged.
    pub fn join(places: &mut Places, place: Place) {
        match places.last_mut() {
            Some(last) if last.area == place.area => last.set.extend(&place.set),
            _ => places.push(place),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.area, self.set)
    }
}

/// Places in the order in which a message carries their slots; nearly always a single place.
pub type Places = SmallVec<[Place; 1]>;

/// Content of a message: the values of its slots, or only their lengths.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Payload {
    /// The values of the slots.
    Data,
    /// Only the lengths of the slots. The receiver's slots get these lengths. Used if sizes are known only locally
    /// ([`Counts::Local`](crate::Counts::Local)).
    Sizes,
}

/// End of a message: its send or its receive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum End {
    /// The sending end.
    Send,
    /// The receiving end.
    Recv,
}

/// A send or a receive, with its slots in the order in which the message carries them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Message {
    /// Whether this is the send or the receive.
    pub end: End,
    /// Whether the message carries values or only lengths.
    pub payload: Payload,
    /// Slots to send from, or to receive into.
    pub places: Places,
    /// Rank at the other end of the message.
    pub peer: Rank,
    /// Tag that distinguishes the message from others between the same two ranks.
    pub tag: Tag,
}

impl Message {
    /// Creates a send of values, with tag 0.
    pub fn send(place: Place, to: Rank) -> Message {
        Message { end: End::Send, payload: Payload::Data, places: smallvec![place], peer: to, tag: Tag(0) }
    }

    /// Creates a receive of values, with tag 0.
    pub fn recv(place: Place, from: Rank) -> Message {
        Message { end: End::Recv, payload: Payload::Data, places: smallvec![place], peer: from, tag: Tag(0) }
    }

    /// Changes the message to carry only the lengths of its slots.
    pub fn sizes(mut self) -> Message {
        self.payload = Payload::Sizes;
        self
    }

    /// Returns the number of chunks in the message.
    pub fn len(&self) -> u64 {
        self.places.iter().map(|p| p.set.len()).sum()
    }

    /// Whether the message has no chunks.
    pub fn is_empty(&self) -> bool {
        self.places.iter().all(|p| p.set.is_empty())
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, preposition) = match self.end {
            End::Send => ("send", "to"),
            End::Recv => ("recv", "from"),
        };
        f.write_str(verb)?;
        if self.payload == Payload::Sizes {
            f.write_str(" sizes")?;
        }
        for place in &self.places {
            write!(f, " {place}")?;
        }
        write!(f, " {preposition} {}", self.peer)?;
        if self.tag != Tag(0) {
            write!(f, " tag {}", self.tag)?;
        }
        Ok(())
    }
}

/// A local operation: a copy, a reduction, or synchronisation with ranks of the same node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LocalOp {
    /// `copy A <- B`: copies each slot of B to the slot of A at the same position.
    Copy {
        /// Slots to copy to.
        to: Place,
        /// Slots to copy from.
        from: Place,
    },
    /// `reduce R <- L`: R becomes L ⊕ R, as in `MPI_Reduce_local`.
    Reduce {
        /// The right operand, which becomes the result.
        into: Place,
        /// The left operand.
        with: Place,
    },
    /// `signal F`: raises a flag of this rank. A rank that waits for the flag then sees everything that this rank did before.
    Signal {
        /// Flag that is raised.
        flag: Flag,
        /// Chunks for which the signal is needed. If all of them are empty, the signal is skipped. `None`: never skipped.
        chunks: Option<Set>,
    },
    /// `wait F of R`: waits until rank R has raised flag F in this execution as often as this rank has waited for it, this wait included.
    Wait {
        /// Flag that is awaited.
        flag: Flag,
        /// Rank that raises the flag.
        of: Rank,
        /// Chunks for which the wait is needed. If all of them are empty, the wait is skipped. `None`: never skipped.
        chunks: Option<Set>,
    },
    /// Opens this rank's input and output: from this operation to this rank's last instruction, the other ranks of the node may read the
    /// two buffers.
    Open,
    /// Barrier among all ranks of this rank's region of the level.
    Barrier(Level),
    /// Waits until the part of the region's segment that this execution will use is free, that is, all ranks of the region have executed
    /// their [`LocalOp::Leave`] in the execution that used this part before. The segment of a program with `enter` and `leave` is a
    /// *ring*: a number of equal parts (slots of the ring), which consecutive executions use in turn.
    Enter {
        /// Level of the region whose segment is entered.
        level: Level,
        /// Chunks for which entering is needed. If all of them are empty, the operation is skipped. `None`: never skipped.
        chunks: Option<Set>,
    },
    /// States that this rank accesses the segment of the level no more in this execution.
    Leave(Level),
}

impl LocalOp {
    /// Returns the places in the operation: two for a copy or reduction, otherwise none.
    pub fn places(&self) -> impl Iterator<Item = &Place> + Clone {
        let pair = match self {
            LocalOp::Copy { to: a, from: b } | LocalOp::Reduce { into: a, with: b } => [Some(a), Some(b)],
            _ => [None, None],
        };
        pair.into_iter().flatten()
    }

    /// Returns the levels of the shared segments that the operation accesses.
    pub fn shared(&self) -> impl Iterator<Item = Level> {
        self.places().filter_map(|place| match place.area {
            Area::Shared(level, _) => Some(level),
            _ => None,
        })
    }

    /// Replaces each place of the operation by the result of `place`.
    pub fn map(self, mut place: impl FnMut(Place) -> Place) -> LocalOp {
        match self {
            LocalOp::Copy { to, from } => LocalOp::Copy { to: place(to), from: place(from) },
            LocalOp::Reduce { into, with } => LocalOp::Reduce { into: place(into), with: place(with) },
            other => other,
        }
    }

    /// Returns the chunks of a signal, wait or enter, which is skipped if all of them are empty; `None` if the operation is never skipped.
    pub fn chunks(&self) -> Option<&Set> {
        match self {
            LocalOp::Signal { chunks, .. } | LocalOp::Wait { chunks, .. } | LocalOp::Enter { chunks, .. } => {
                chunks.as_ref()
            }
            _ => None,
        }
    }

    /// Replaces the chunks of a signal, wait or enter by the result of `map`, if the operation has chunks.
    pub fn map_chunks(mut self, map: impl Fn(&Set) -> Set) -> LocalOp {
        if let LocalOp::Signal { chunks, .. } | LocalOp::Wait { chunks, .. } | LocalOp::Enter { chunks, .. } = &mut self
            && let Some(chunks) = chunks
        {
            *chunks = map(chunks);
        }
        self
    }

    /// Whether the operation is skipped in a problem: it has chunks, and all of them are empty.
    pub fn is_skipped(&self, problem: &Problem) -> bool {
        self.chunks().is_some_and(|chunks| !problem.any_nonempty(chunks))
    }
}

impl fmt::Display for LocalOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocalOp::Copy { to, from } => write!(f, "copy {to} <- {from}"),
            LocalOp::Reduce { into, with } => write!(f, "reduce {into} <- {with}"),
            LocalOp::Signal { flag, .. } => write!(f, "signal {flag}"),
            LocalOp::Wait { flag, of, .. } => write!(f, "wait {flag} of {of}"),
            LocalOp::Open => f.write_str("open"),
            LocalOp::Barrier(level) => write!(f, "barrier {level}"),
            LocalOp::Enter { level, .. } => write!(f, "enter {level}"),
            LocalOp::Leave(level) => write!(f, "leave {level}"),
        }?;
        self.chunks().map_or(Ok(()), |chunks| write!(f, " for [{chunks}]"))
    }
}

/// Concurrent messages, followed by local operations in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Round {
    /// Concurrent messages. In the literature, their number is the number of ports.
    pub messages: Vec<Message>,
    /// Local operations after the messages, in order.
    pub local: Vec<LocalOp>,
}

/// Properties that a schedule claims and the verifier checks.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Claims {
    /// All ranks compute the same expression, so floating-point results have the same bits everywhere.
    pub consistent: bool,
    /// Operands are combined in rank order, so the operation need not be commutative.
    pub ordered: bool,
    /// Maximum number of messages that a rank sends.
    pub messages: Option<u64>,
    /// Maximum number of elements that a rank sends.
    pub sent: Option<u64>,
    /// Maximum number of elements of private temporary memory on a rank. Shared segments are not counted.
    pub memory: Option<u64>,
}

/// A collective with the operations of some or all ranks. `B` is the type of one rank's operations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankCode<B> {
    /// The collective and its counts.
    pub problem: Problem,
    /// Placement of the ranks on nodes and sockets.
    pub topology: Topology,
    /// Number of rounds by which a message may start early if its data is ready; 0 if rounds do not overlap.
    pub overlap: u32,
    /// Properties that the schedule claims and the verifier checks.
    pub claims: Claims,
    /// Operations of each rank.
    pub ranks: BTreeMap<Rank, B>,
}

/// A collective in rounds, whose slots have no addresses.
pub type Schedule = RankCode<Vec<Round>>;

impl<B> RankCode<B> {
    /// Converts the operations of each rank by `f`. Problem, topology, overlap and claims stay the same.
    pub fn into<C>(self, mut f: impl FnMut(Rank, B) -> C) -> RankCode<C> {
        let RankCode { problem, topology, overlap, claims, ranks } = self;
        let ranks = ranks.into_iter().map(|(rank, body)| (rank, f(rank, body))).collect();
        RankCode { problem, topology, overlap, claims, ranks }
    }

    /// Creates a copy with the operations of each rank converted by `f`. Problem, topology, overlap and claims stay the same.
    pub fn map<C>(&self, mut f: impl FnMut(Rank, &B) -> C) -> RankCode<C> {
        RankCode {
            problem: self.problem.clone(),
            topology: self.topology.clone(),
            overlap: self.overlap,
            claims: self.claims.clone(),
            ranks: self.ranks.iter().map(|(&rank, body)| (rank, f(rank, body))).collect(),
        }
    }
}
