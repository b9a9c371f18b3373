//! Schedules: what each rank does, in rounds.
//!
//! A round is messages that run at once, then local work in order. Rounds are notation: what really orders
//! two operations is that one needs the other's result, or would overwrite what the other still needs. A
//! lowering may therefore move work between rounds; [`Schedule::flatten`] gives the plain reading, in which a
//! round's messages are posted together and all awaited before its local work.

use std::collections::BTreeMap;
use std::fmt;

use smallvec::{SmallVec, smallvec};

use crate::{Flag, Level, Problem, Rank, Set, Tag, Topology};

/// Where values lie.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Area {
    /// The user's input; never written.
    In,
    /// The user's output.
    Out,
    /// A private line of slots, one for each chunk number: `t0`, `t1`, ….
    Line(u32),
    /// A line in the segment that the rank's region of this level shares: `node.0`, `socket.2`, ….
    Shared(Level, u32),
    /// The input of another rank of the node, which has opened its buffers: `in@3`. Only ever read.
    InOf(Rank),
    /// The output of such a rank: `out@3`. Only ever read.
    OutOf(Rank),
}

impl Area {
    /// Whose buffer it is, if another rank's; and what it is there.
    pub fn of_other(self) -> Option<(Rank, Area)> {
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
    /// The area.
    pub area: Area,
    /// The chunk numbers, in order.
    pub set: Set,
}

impl Place {
    /// Slots of an area.
    pub fn new(area: Area, set: impl Into<Set>) -> Place {
        Place { area, set: set.into() }
    }

    /// Appends a place to a list; one of the same area as the last is joined to it.
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

/// Places in order: nearly always one.
pub type Places = SmallVec<[Place; 1]>;

/// What a message carries of its slots.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Payload {
    /// The values.
    Data,
    /// Only their lengths; the receiver's slots then have these lengths. For sizes that are known locally.
    Sizes,
}

/// Which end of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum End {
    /// The sending end.
    Send,
    /// The receiving end.
    Recv,
}

/// One end of a message: the slots, in the order in which the message carries them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Message {
    /// Send or receive.
    pub end: End,
    /// Data or sizes.
    pub payload: Payload,
    /// From where, or to where.
    pub places: Places,
    /// The rank at the other end.
    pub peer: Rank,
    /// Told apart from other messages between the two by this.
    pub tag: Tag,
}

impl Message {
    /// A send of values.
    pub fn send(place: Place, to: Rank) -> Message {
        Message { end: End::Send, payload: Payload::Data, places: smallvec![place], peer: to, tag: Tag(0) }
    }

    /// A receive of values.
    pub fn recv(place: Place, from: Rank) -> Message {
        Message { end: End::Recv, payload: Payload::Data, places: smallvec![place], peer: from, tag: Tag(0) }
    }

    /// The same message carrying sizes only.
    pub fn sizes(mut self) -> Message {
        self.payload = Payload::Sizes;
        self
    }

    /// How many chunks it carries.
    pub fn len(&self) -> u64 {
        self.places.iter().map(|p| p.set.len()).sum()
    }

    /// Whether it carries none.
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

/// Work that a rank does by itself or with its node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Local {
    /// `copy A <- B`: slot by slot, in order.
    Copy {
        /// Written.
        to: Place,
        /// Read.
        from: Place,
    },
    /// `reduce R <- L`: R becomes L ⊕ R, as `MPI_Reduce_local` has it.
    Reduce {
        /// The right operand, which becomes the result.
        into: Place,
        /// The left operand.
        with: Place,
    },
    /// Raises a flag of this rank: whoever awaits it sees all that this rank did before.
    Signal {
        /// The flag.
        flag: Flag,
        /// For which chunks: if all of them are empty, it is left out. `None`: always.
        chunks: Option<Set>,
    },
    /// `wait F of R`: until rank R has raised flag F as often in this execution as it is awaited here.
    Wait {
        /// The flag.
        flag: Flag,
        /// Whose.
        of: Rank,
        /// For which chunks, as of a signal.
        chunks: Option<Set>,
    },
    /// From here to its end, the other ranks of the node may read this rank's input and output.
    Open,
    /// Until all ranks of this rank's region are here.
    Barrier(Level),
    /// Until all ranks of this rank's region have left what this execution will use of their segment.
    Enter {
        /// Whose segment.
        level: Level,
        /// For which chunks, as of a signal.
        chunks: Option<Set>,
    },
    /// This rank touches the segment no more in this execution.
    Leave(Level),
}

impl Local {
    /// The places that it names.
    pub fn places(&self) -> impl Iterator<Item = &Place> + Clone {
        let pair = match self {
            Local::Copy { to: a, from: b } | Local::Reduce { into: a, with: b } => [Some(a), Some(b)],
            _ => [None, None],
        };
        pair.into_iter().flatten()
    }

    /// The levels of the segments that it uses.
    pub fn shared(&self) -> impl Iterator<Item = Level> {
        self.places().filter_map(|place| match place.area {
            Area::Shared(level, _) => Some(level),
            _ => None,
        })
    }

    /// The same work in other places.
    pub fn map(self, mut place: impl FnMut(Place) -> Place) -> Local {
        match self {
            Local::Copy { to, from } => Local::Copy { to: place(to), from: place(from) },
            Local::Reduce { into, with } => Local::Reduce { into: place(into), with: place(with) },
            other => other,
        }
    }

    /// The chunks for which it is there, of those that can be left out.
    pub fn chunks(&self) -> Option<&Set> {
        match self {
            Local::Signal { chunks, .. } | Local::Wait { chunks, .. } | Local::Enter { chunks, .. } => {
                chunks.as_ref()
            }
            _ => None,
        }
    }

    /// The same for other chunks.
    pub fn map_chunks(mut self, map: impl Fn(&Set) -> Set) -> Local {
        if let Local::Signal { chunks, .. } | Local::Wait { chunks, .. } | Local::Enter { chunks, .. } =
            &mut self
            && let Some(chunks) = chunks
        {
            *chunks = map(chunks);
        }
        self
    }

    /// Whether it is left out of a problem: all chunks for which it is there are empty.
    pub fn is_left_out(&self, problem: &Problem) -> bool {
        self.chunks().is_some_and(|chunks| !problem.any_filled(chunks))
    }
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Local::Copy { to, from } => write!(f, "copy {to} <- {from}"),
            Local::Reduce { into, with } => write!(f, "reduce {into} <- {with}"),
            Local::Signal { flag, .. } => write!(f, "signal {flag}"),
            Local::Wait { flag, of, .. } => write!(f, "wait {flag} of {of}"),
            Local::Open => f.write_str("open"),
            Local::Barrier(level) => write!(f, "barrier {level}"),
            Local::Enter { level, .. } => write!(f, "enter {level}"),
            Local::Leave(level) => write!(f, "leave {level}"),
        }?;
        self.chunks().map_or(Ok(()), |chunks| write!(f, " for [{chunks}]"))
    }
}

/// Messages that run at once, then local work in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Round {
    /// The messages; their number is the papers' ports.
    pub messages: Vec<Message>,
    /// The work after them.
    pub local: Vec<Local>,
}

/// What the text says of itself and the verifier must find true.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Claims {
    /// All ranks compute the same expression, so floating-point results have the same bits everywhere.
    pub consistent: bool,
    /// Expressions keep rank order, so a non-commutative operation is right.
    pub ordered: bool,
    /// No rank sends more messages than this.
    pub messages: Option<u64>,
    /// No rank sends more elements than this.
    pub sent: Option<u64>,
    /// No rank has more elements of temporary memory, its share of segments not counted.
    pub memory: Option<u64>,
}

/// A collective written out for some or all ranks: `B` is what one rank does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Whole<B> {
    /// What is to be done.
    pub problem: Problem,
    /// Where the ranks are.
    pub topology: Topology,
    /// How many rounds early a message may start, if what it needs is there: 0 where rounds do not overlap.
    pub overlap: u32,
    /// What is claimed.
    pub claims: Claims,
    /// What each rank does.
    pub ranks: BTreeMap<Rank, B>,
}

/// A collective in rounds, on slots without number.
pub type Schedule = Whole<Vec<Round>>;

impl<B> Whole<B> {
    /// The same heading with something else made from what each rank does.
    pub fn into<C>(self, mut f: impl FnMut(Rank, B) -> C) -> Whole<C> {
        let Whole { problem, topology, overlap, claims, ranks } = self;
        let ranks = ranks.into_iter().map(|(rank, body)| (rank, f(rank, body))).collect();
        Whole { problem, topology, overlap, claims, ranks }
    }

    /// The same heading with something else for each rank.
    pub fn map<C>(&self, mut f: impl FnMut(Rank, &B) -> C) -> Whole<C> {
        Whole {
            problem: self.problem.clone(),
            topology: self.topology.clone(),
            overlap: self.overlap,
            claims: self.claims.clone(),
            ranks: self.ranks.iter().map(|(&rank, body)| (rank, f(rank, body))).collect(),
        }
    }
}
