//! Exchange of alltoall blocks between the ranks of a region, through the segment or by messages. Block sizes that are known only locally
//! need messages; the lengths are then sent one message ahead of the blocks.

use bruckner_schedule::{Area, End, Place, Places, Rank, Set};

use crate::patterns::{Parcel, Pattern};
use crate::regional_view::{Lengths, View, from, message};

/// How blocks are exchanged between the ranks of a region.
pub enum Inside {
    /// Blocks are exchanged through the shared-memory segment.
    Segment,
    /// Blocks are exchanged by messages, following a pattern in which every member sends directly to every other.
    Messages(Box<dyn Pattern>),
}

impl Inside {
    /// Adds the exchange before the steps between regions: a rank's blocks for other regions go to the ranks that carry them, and its
    /// blocks for ranks of its own region go directly to these.
    pub(crate) fn spread(&self, view: &mut View<'_>) {
        let me = view.rank;
        for (mates, targets) in view.carried(me) {
            if mates.contains(&me) {
                view.b.copy(Place::new(from(me), targets.clone()), Place::new(Area::In, targets));
            }
        }
        match self {
            Inside::Segment => spread_by_segment(view),
            Inside::Messages(pattern) => spread_by_messages(view, &**pattern),
        }
    }

    /// Adds the exchange after the steps between regions: blocks from other regions go to their destination ranks, which know the sizes.
    pub(crate) fn deliver(&self, view: &mut View<'_>) {
        let (arrived, own) = (view.arrived(view.rank), Set::one(view.rank.0.into()));
        for source in arrived.iter() {
            let line = from(Rank(source as u32));
            view.b.copy(Place::new(Area::Out, Set::one(source)), Place::new(line, own.clone()));
        }
        match self {
            Inside::Segment => deliver_by_segment(view, &arrived),
            Inside::Messages(pattern) => deliver_by_messages(view, &arrived, &**pattern),
        }
    }
}

fn others(view: &View<'_>) -> Vec<Rank> {
    view.mates().into_iter().filter(|&mate| mate != view.rank).collect()
}

/// Adds messages with the other ranks of the region, at the steps of a pattern. `give` and `take` return the places sent to another rank
/// and received from it.
fn exchange(
    view: &mut View<'_>,
    pattern: &dyn Pattern,
    lengths: Lengths,
    give: &dyn Fn(&View<'_>, Rank) -> Places,
    take: &dyn Fn(&View<'_>, Rank) -> Places,
) {
    let mates = view.mates();
    let me = mates.iter().position(|&mate| mate == view.rank).expect("a mate") as u32;
    for step in pattern.steps(mates.len() as u32, me) {
        let mate = |parcel: &Parcel| mates[parcel.peer as usize];
        let mut messages = Vec::new();
        for to in step.sends.iter().map(mate) {
            messages.push(message(End::Send, give(view, to), to));
        }
        for from in step.recvs.iter().map(mate) {
            messages.push(message(End::Recv, take(view, from), from));
        }
        view.messages(messages, lengths);
    }
}

fn spread_by_messages(view: &mut View<'_>, pattern: &dyn Pattern) {
    let me = view.rank;
    let one = |area, set: Set| Places::from_buf([Place::new(area, set)]);
    let give = |view: &View<'_>, mate| one(Area::In, view.carried_of(me, mate));
    let take = |view: &View<'_>, mate| one(from(mate), view.carried_of(mate, me));
    exchange(view, pattern, Lengths::Travel, &give, &take);
    let block = |area, mate: Rank| one(area, Set::one(mate.0.into()));
    exchange(view, pattern, Lengths::Known, &|_, mate| block(Area::In, mate), &|_, mate| block(Area::Out, mate));
}

/// Adds the first exchange through the segment: every rank puts in the blocks that others need, and copies out the blocks that it will
/// carry to other regions and the blocks for itself.
fn spread_by_segment(view: &mut View<'_>) {
    let (me, others) = (view.rank, others(view));
    if others.is_empty() {
        return;
    }
    let mates = view.mates();
    let line = |of: Rank| Area::Shared(view.level, mates.iter().position(|&mate| mate == of).expect("a mate") as u32);
    let mut needed: Vec<u64> = others.iter().map(|mate| mate.0.into()).collect();
    needed.extend(others.iter().flat_map(|&by| view.carried_of(me, by).iter().collect::<Vec<_>>()));
    needed.sort_unstable();
    let needed: Set = needed.into_iter().collect();
    let taken: Vec<Set> = others.iter().map(|&mate| view.carried_of(mate, me)).collect();
    view.b.copy(Place::new(line(me), needed.clone()), Place::new(Area::In, needed));
    view.b.barrier(view.level);
    for (&mate, taken) in others.iter().zip(taken) {
        view.b.copy(Place::new(from(mate), taken.clone()), Place::new(line(mate), taken));
        let own = Set::one(me.0.into());
        view.b.copy(Place::new(Area::Out, Set::one(mate.0.into())), Place::new(line(mate), own));
    }
}

fn deliver_by_messages(view: &mut View<'_>, arrived: &Set, pattern: &dyn Pattern) {
    let give = |_: &View<'_>, mate: Rank| {
        let block = |source: u64| Place::new(from(Rank(source as u32)), Set::one(mate.0.into()));
        arrived.iter().map(block).collect()
    };
    let take = |view: &View<'_>, mate| Places::from_buf([Place::new(Area::Out, view.arrived(mate))]);
    exchange(view, pattern, Lengths::Known, &give, &take);
}

/// Adds the last exchange through the segment: every rank puts in the blocks that it received from other regions, one line for each
/// destination rank, and copies out the blocks for itself.
fn deliver_by_segment(view: &mut View<'_>, arrived: &Set) {
    let (mates, others) = (view.mates(), others(view));
    if others.is_empty() || view.regions() < 2 {
        return;
    }
    let first = mates.len();
    let line = |of: Rank| {
        let number = mates.iter().position(|&mate| mate == of).expect("a mate");
        Area::Shared(view.level, (first + number) as u32)
    };
    for &mate in &others {
        for source in arrived.iter() {
            let block = Place::new(from(Rank(source as u32)), Set::one(mate.0.into()));
            view.b.copy(Place::new(line(mate), Set::one(source)), block);
        }
    }
    view.b.barrier(view.level);
    for &mate in &others {
        let theirs = view.arrived(mate);
        view.b.copy(Place::new(Area::Out, theirs.clone()), Place::new(line(view.rank), theirs));
    }
}
