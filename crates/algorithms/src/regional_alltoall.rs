//! Topology-aware alltoall(v): all data from one region to another is sent together.
//!
//! First the ranks of a region exchange blocks, so that each rank has the blocks that it will send to other regions as a *lane*. Then the
//! lanes send the blocks from region to region, and finally the ranks of a region pass the blocks that arrived to their destinations.
//!
//! ```text
//! locality(node)            lane l is for the regions at distances l + 1, l + 1 + lanes, …
//!   4 regions of 3          lane 0 ◄──► regions ±1     lane 1 ◄──► ±2     lane 2 ◄──► ±3      9 blocks each
//! leader(node, leaders=k)   lane l is for every k-th rank of its region, and goes to all regions
//! lanes(node)               every rank sends its own blocks to other regions, which distribute them on arrival
//! ```
//!
//! Leaders and lanes may send straight to every region (`between=spread-out` or `pairwise`) or by radix-r Bruck. Lanes are virtual: in a
//! region with fewer ranks than lanes, one rank acts as several.
//!
//! Cost of `locality`: ⌈(n − 1)/lanes⌉ non-local messages per rank instead of p − p/n, with the same non-local data.

use bruckner_schedule::{Area, Counts, End, Level, Place, Problem, Rank, Round, Set, Topology};

use crate::gather::Group;
use crate::intra_region::Inside;
pub use crate::regional_view::Share;
use crate::regional_view::{Lengths, View, from, message};
use crate::route::{Load, Route};
use crate::{Algorithm, Builder};

/// Topology-aware alltoall: blocks are exchanged inside regions and between regions in separate steps.
pub struct RegionalAlltoall {
    /// Level of the regions.
    pub level: Level,
    /// How blocks are exchanged inside a region.
    pub inside: Inside,
    /// Route of blocks between regions.
    pub route: Box<dyn Route>,
    /// Which ranks of a region have their blocks carried by a lane.
    pub share: Share,
}

impl Algorithm for RegionalAlltoall {
    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        if problem.counts == Counts::Equal(0) {
            return Vec::new();
        }
        let region = topology.region_of(self.level, rank);
        let own = Group::region(topology, self.level, region);
        let lanes = match self.share {
            Share::All => topology.largest(self.level),
            Share::Every(leaders) => leaders.count(topology, self.level),
        };
        let (level, b) = (self.level, Builder::new());
        let (route, share) = (&*self.route, self.share);
        let mut view = View { b, problem, topology, level, route, share, own, region, rank, lanes };
        let one = Set::one(rank.0.into());
        view.b.copy(Place::new(Area::Out, one.clone()), Place::new(Area::In, one));
        self.inside.spread(&mut view);
        between(&mut view);
        self.inside.deliver(&mut view);
        view.b.finish()
    }
}

/// Writes the messages by which the lanes carry their loads from region to region.
fn between(view: &mut View<'_>) {
    let steps = |lane: u32| view.route.steps(view.regions(), view.region, lane);
    let mine: Vec<_> = view.lanes_of(view.rank).into_iter().map(|lane| (lane, steps(lane))).collect();
    for step in 0..steps(0).len() {
        let mut messages = Vec::new();
        for (lane, steps) in &mine {
            let lane = *lane;
            let places = |load: &Load| {
                let blocks = view.topology.ranks_at(view.topology.span(view.level, load.target));
                let sources = view.sources(load.source, lane).into_iter();
                sources.map(move |source| Place::new(from(source), blocks.clone()))
            };
            for leg in &steps[step] {
                let (sends, recvs) = (leg.sends.iter().flat_map(places), leg.recvs.iter().flat_map(places));
                messages.push(message(End::Send, sends.collect(), view.group(leg.to).rank_of_lane(lane)));
                messages.push(message(End::Recv, recvs.collect(), view.group(leg.from).rank_of_lane(lane)));
            }
        }
        view.messages(messages, Lengths::Travel);
    }
}
