//! Locality-aware alltoall(v): what one region has for another goes there in one message.
//!
//! The ranks of a region first hand each other what each of them (a *lane*) will carry: lane l is for the regions at
//! distances l + 1, l + 1 + lanes, … . Then each lane exchanges with the same lane of those regions, one region a round,
//! everything that goes from region to region at once. What arrives is handed to the ranks that it is for.
//!
//! ```text
//! 4 regions of 3      round 1   lane 0 ◄──► regions ±1     lane 1 ◄──► ±2     lane 2 ◄──► ±3      9 blocks each
//! ```
//!
//! Inside a region, blocks go through the segment, or by messages (`inside=spread-out`), which is what sizes that are
//! known only locally need: their lengths then go one message ahead.
//!
//! Cost: ⌈(n − 1)/lanes⌉ non-local messages per rank instead of p − p/n, with the same non-local data.

use bruckner_schedule::{
    Area, Counts, End, Level, Message, Payload, Place, Problem, Rank, Round, Set, Tag, Topology,
};

use crate::gather::Group;
use crate::{Algorithm, Builder};

/// How blocks go from rank to rank inside a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inside {
    /// Through the segment.
    Segment,
    /// By messages, all at once.
    Messages,
}

/// The algorithm.
pub struct LocalityAlltoall {
    /// What is near.
    pub level: Level,
    /// How blocks go inside a region.
    pub inside: Inside,
}

/// What one rank sees.
struct View<'a> {
    b: Builder,
    problem: &'a Problem,
    topology: &'a Topology,
    level: Level,
    own: Group<'a>,
    region: u32,
    rank: Rank,
    lanes: u32,
}

impl View<'_> {
    fn regions(&self) -> u32 {
        self.topology.regions(self.level)
    }

    fn on(&self, distance: u32) -> Group<'_> {
        Group::region(self.topology, self.level, (self.region + distance) % self.regions())
    }

    fn ranks(&self, group: &Group<'_>) -> Set {
        self.topology.ranks_at(group.span.clone())
    }

    /// The distances to the regions that a lane is for.
    fn distances(&self, lane: u32) -> impl Iterator<Item = u32> + use<> {
        (lane + 1..self.regions()).step_by(self.lanes as usize)
    }

    /// The lanes that a rank of the own region serves.
    fn lanes_of(&self, rank: Rank) -> impl Iterator<Item = u32> + use<> {
        self.own.lanes_of(self.topology.position(rank), self.lanes)
    }

    /// The ranks of all regions that a rank of the own region carries for, to or from.
    fn carried(&self, by: Rank, end: End) -> Set {
        let mut set = Set::new();
        for distance in self.lanes_of(by).flat_map(|lane| self.distances(lane)) {
            let distance = match end {
                End::Send => distance,
                End::Recv => self.regions() - distance,
            };
            set.extend(&self.ranks(&self.on(distance)));
        }
        set
    }

    /// The ranks of the own region, in order of position.
    fn mates(&self) -> Vec<Rank> {
        self.own.span.clone().map(|at| self.topology.rank_at(at)).collect()
    }

    /// Messages, with their lengths one round ahead where nobody else knows them.
    fn messages(&mut self, messages: Vec<Message>, lengths: Lengths) {
        if self.problem.counts == Counts::Local && lengths == Lengths::Travel {
            self.b.round();
            for message in &messages {
                self.b.message(message.clone().sizes());
            }
        }
        self.b.round();
        for message in messages {
            self.b.message(message);
        }
    }
}

/// Whether the receiver has to be told how much comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lengths {
    Travel,
    Known,
}

fn message(end: End, places: Vec<Place>, peer: Rank) -> Message {
    let places = places.into_iter().filter(|p| !p.set.is_empty()).collect();
    Message { end, payload: Payload::Data, places, peer, tag: Tag(0) }
}

/// What a rank carries of another rank's: a line for each source, a slot for each destination.
fn from(source: Rank) -> Area {
    Area::Line(source.0)
}

impl Algorithm for LocalityAlltoall {
    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        if problem.counts == Counts::Equal(0) {
            return Vec::new();
        }
        let region = topology.region_of(self.level, rank);
        let own = Group::region(topology, self.level, region);
        let lanes = topology.largest(self.level);
        let (level, b) = (self.level, Builder::new());
        let mut view = View { b, problem, topology, level, own, region, rank, lanes };
        let one = Set::one(rank.0.into());
        view.b.copy(Place::new(Area::Out, one.clone()), Place::new(Area::In, one));
        match self.inside {
            Inside::Segment => view.spread_by_segment(),
            Inside::Messages => view.spread_by_messages(),
        }
        view.between();
        match self.inside {
            Inside::Segment => view.deliver_by_segment(),
            Inside::Messages => view.deliver_by_messages(),
        }
        view.b.finish()
    }
}

impl View<'_> {
    /// Own blocks go to the lanes that carry them, and to mates at once.
    fn spread_by_messages(&mut self) {
        let (me, mates) = (self.rank, self.mates());
        let mine = self.carried(me, End::Send);
        self.b.copy(Place::new(from(me), mine.clone()), Place::new(Area::In, mine.clone()));
        let (mut carry, mut direct) = (Vec::new(), Vec::new());
        for &mate in mates.iter().filter(|&&mate| mate != me) {
            let theirs = self.carried(mate, End::Send);
            carry.push(message(End::Send, vec![Place::new(Area::In, theirs)], mate));
            carry.push(message(End::Recv, vec![Place::new(from(mate), mine.clone())], mate));
            let block = |area| vec![Place::new(area, Set::one(mate.0.into()))];
            direct.push(message(End::Send, block(Area::In), mate));
            direct.push(message(End::Recv, block(Area::Out), mate));
        }
        self.messages(carry, Lengths::Travel);
        self.messages(direct, Lengths::Known);
    }

    fn line(&self, number: u32) -> Area {
        Area::Shared(self.level, number)
    }

    /// All put all that they have, and take what they carry and what is for them.
    fn spread_by_segment(&mut self) {
        let (me, mates) = (self.rank, self.mates());
        let mine = self.carried(me, End::Send);
        self.b.copy(Place::new(from(me), mine.clone()), Place::new(Area::In, mine.clone()));
        if mates.len() < 2 {
            return;
        }
        let at = |rank: Rank| mates.iter().position(|&mate| mate == rank).expect("a mate") as u32;
        let others: Set = (0..u64::from(self.problem.ranks)).filter(|&d| d != u64::from(me.0)).collect();
        self.b.copy(Place::new(self.line(at(me)), others.clone()), Place::new(Area::In, others));
        self.b.barrier(self.level);
        for &mate in mates.iter().filter(|&&mate| mate != me) {
            let line = self.line(at(mate));
            self.b.copy(Place::new(from(mate), mine.clone()), Place::new(line, mine.clone()));
            let own = Set::one(me.0.into());
            self.b.copy(Place::new(Area::Out, Set::one(mate.0.into())), Place::new(line, own));
        }
    }

    /// Each lane exchanges with one region a round.
    fn between(&mut self) {
        let mine: Vec<u32> = self.lanes_of(self.rank).collect();
        let rounds = self.distances(0).count();
        for round in 0..rounds {
            let mut messages = Vec::new();
            for &lane in &mine {
                let Some(distance) = self.distances(lane).nth(round) else { continue };
                let (to, source) = (self.on(distance), self.on(self.regions() - distance));
                let theirs = self.ranks(&to);
                let give = self.mates().into_iter().map(|mate| Place::new(from(mate), theirs.clone()));
                messages.push(message(End::Send, give.collect(), to.server(lane)));
                let ours = self.ranks(&self.own);
                let sources = source.span.clone().map(|at| self.topology.rank_at(at));
                let get = sources.map(|rank| Place::new(from(rank), ours.clone()));
                messages.push(message(End::Recv, get.collect(), source.server(lane)));
            }
            self.messages(messages, Lengths::Travel);
        }
    }

    /// What arrived goes to the ranks that it is for; they know how much it is.
    fn deliver_by_messages(&mut self) {
        let (me, mut handed) = (self.rank, Vec::new());
        let arrived = self.carried(me, End::Recv);
        for mate in self.mates().into_iter().filter(|&mate| mate != me) {
            let block = |source: u64| Place::new(from(Rank(source as u32)), Set::one(mate.0.into()));
            handed.push(message(End::Send, arrived.iter().map(block).collect(), mate));
            let theirs = self.carried(mate, End::Recv);
            handed.push(message(End::Recv, vec![Place::new(Area::Out, theirs)], mate));
        }
        self.messages(handed, Lengths::Known);
        self.take_own(&arrived);
    }

    fn take_own(&mut self, arrived: &Set) {
        let own = Set::one(self.rank.0.into());
        for source in arrived.iter() {
            let line = from(Rank(source as u32));
            self.b.copy(Place::new(Area::Out, Set::one(source)), Place::new(line, own.clone()));
        }
    }

    /// Lanes put what arrived, a line for each mate, and mates take theirs.
    fn deliver_by_segment(&mut self) {
        let (me, mates) = (self.rank, self.mates());
        let arrived = self.carried(me, End::Recv);
        self.take_own(&arrived);
        if mates.len() < 2 || self.regions() < 2 {
            return;
        }
        let size = mates.len() as u32;
        for (number, mate) in mates.iter().enumerate().filter(|(_, mate)| **mate != me) {
            for source in arrived.iter() {
                let to = Place::new(self.line(size + number as u32), Set::one(source));
                self.b.copy(to, Place::new(from(Rank(source as u32)), Set::one(mate.0.into())));
            }
        }
        self.b.barrier(self.level);
        let number = mates.iter().position(|&mate| mate == me).expect("a mate") as u32;
        for mate in mates.into_iter().filter(|&mate| mate != me) {
            let theirs = self.carried(mate, End::Recv);
            self.b.copy(Place::new(Area::Out, theirs.clone()), Place::new(self.line(size + number), theirs));
        }
    }
}
