//! Blocks of an alltoall handed from rank to rank inside a region: through the segment, or by messages, which is what
//! sizes that are known only locally need. Their lengths then go one message ahead.

use bruckner_schedule::{Area, End, Place, Places, Rank, Set};

use crate::regional_alltoall::{Lengths, View, from, message};

/// How blocks go from rank to rank inside a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inside {
    /// Through the segment.
    Segment,
    /// By messages, all at once.
    Messages,
}

impl Inside {
    /// Own blocks go to the ranks that carry them, and to mates at once.
    pub(crate) fn spread(self, view: &mut View<'_>) {
        let me = view.rank;
        for (mates, targets) in view.carried(me) {
            if mates.contains(&me) {
                view.b.copy(Place::new(from(me), targets.clone()), Place::new(Area::In, targets));
            }
        }
        match self {
            Inside::Segment => spread_by_segment(view),
            Inside::Messages => spread_by_messages(view),
        }
    }

    /// What arrived goes to the ranks that it is for; they know how much it is.
    pub(crate) fn deliver(self, view: &mut View<'_>) {
        let (arrived, own) = (view.arrived(view.rank), Set::one(view.rank.0.into()));
        for source in arrived.iter() {
            let line = from(Rank(source as u32));
            view.b.copy(Place::new(Area::Out, Set::one(source)), Place::new(line, own.clone()));
        }
        match self {
            Inside::Segment => deliver_by_segment(view, &arrived),
            Inside::Messages => deliver_by_messages(view, &arrived),
        }
    }
}

fn others(view: &View<'_>) -> Vec<Rank> {
    view.mates().into_iter().filter(|&mate| mate != view.rank).collect()
}

/// What a rank has to hand to another for it to carry.
fn to_carry(view: &View<'_>, of: Rank, by: Rank) -> Set {
    let mut set = Set::new();
    for (mates, targets) in view.carried(by) {
        if mates.contains(&of) {
            set.extend(&targets);
        }
    }
    set
}

fn spread_by_messages(view: &mut View<'_>) {
    let me = view.rank;
    let (mut carry, mut direct) = (Vec::new(), Vec::new());
    for mate in others(view) {
        let (give, take) = (to_carry(view, me, mate), to_carry(view, mate, me));
        carry.push(message(End::Send, Places::from_buf([Place::new(Area::In, give)]), mate));
        carry.push(message(End::Recv, Places::from_buf([Place::new(from(mate), take)]), mate));
        let block = |area| Places::from_buf([Place::new(area, Set::one(mate.0.into()))]);
        direct.push(message(End::Send, block(Area::In), mate));
        direct.push(message(End::Recv, block(Area::Out), mate));
    }
    view.messages(carry, Lengths::Travel);
    view.messages(direct, Lengths::Known);
}

/// All put what others need, and take what they carry and what is for them.
fn spread_by_segment(view: &mut View<'_>) {
    let (me, others) = (view.rank, others(view));
    if others.is_empty() {
        return;
    }
    let mates = view.mates();
    let line = |of: Rank| {
        Area::Shared(view.level, mates.iter().position(|&mate| mate == of).expect("a mate") as u32)
    };
    let mut needed: Vec<u64> = others.iter().map(|mate| mate.0.into()).collect();
    needed.extend(others.iter().flat_map(|&by| to_carry(view, me, by).iter().collect::<Vec<_>>()));
    needed.sort_unstable();
    let needed: Set = needed.into_iter().collect();
    let taken: Vec<Set> = others.iter().map(|&mate| to_carry(view, mate, me)).collect();
    view.b.copy(Place::new(line(me), needed.clone()), Place::new(Area::In, needed));
    view.b.barrier(view.level);
    for (&mate, taken) in others.iter().zip(taken) {
        view.b.copy(Place::new(from(mate), taken.clone()), Place::new(line(mate), taken));
        let own = Set::one(me.0.into());
        view.b.copy(Place::new(Area::Out, Set::one(mate.0.into())), Place::new(line(mate), own));
    }
}

fn deliver_by_messages(view: &mut View<'_>, arrived: &Set) {
    let mut handed = Vec::new();
    for mate in others(view) {
        let block = |source: u64| Place::new(from(Rank(source as u32)), Set::one(mate.0.into()));
        handed.push(message(End::Send, arrived.iter().map(block).collect(), mate));
        handed.push(message(End::Recv, Places::from_buf([Place::new(Area::Out, view.arrived(mate))]), mate));
    }
    view.messages(handed, Lengths::Known);
}

/// Lanes put what arrived, a line for each mate, and mates take theirs.
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
