//! Groups ranks that do the same at the same time into classes, before a simulation: a million ranks often form a handful of classes.
//!
//! Initially, ranks with the same steps and arrival time form a class. A class is then split if the partners of its ranks (the ranks with
//! which they communicate) are in different classes, if its messages match different steps of the partners, or if its ranks share regions
//! with ranks of different classes. When no class is split any more, all ranks of a class do the same at all times, so each class is
//! simulated once.
//!
//! A class is identified by a 64-bit hash of all its properties. Different classes have the same hash only by chance.

use std::ops::Range;
use std::sync::Arc;

use bruckner_schedule::{Flag, Level, Rank, Topology};
use rustc_hash::FxHashMap;

use crate::steps::{CostStep, Partner, Steps};

/// A class: ranks that do the same at the same time.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) steps: Arc<[CostStep]>,
    /// For each send, receive or wait: class of the partner, and index of the matching step among the partner's own sends, receives and
    /// waits.
    pub(crate) partners: Box<[(u32, u32)]>,
    /// For each level, the index in [`Classes::regions`] of the region in which the ranks of the class are.
    pub(crate) regions: Box<[u32]>,
    /// Number of ranks of the class on one node.
    pub(crate) on_node: u32,
    /// Arrival time in seconds.
    pub(crate) arrival: f64,
}

/// A region. It represents all regions whose ranks are in the same classes.
#[derive(Debug)]
pub(crate) struct Region {
    /// Number of ranks in the region.
    pub(crate) ranks: u32,
    /// Number of different classes in the region.
    pub(crate) classes: u32,
}

/// The classes of all ranks.
#[derive(Debug)]
pub(crate) struct Classes {
    pub(crate) classes: Vec<Class>,
    /// For each level, its regions. Of the regions with ranks of the same classes, one is listed.
    pub(crate) regions: Vec<Vec<Region>>,
    /// The class of each rank.
    pub(crate) of: Vec<u32>,
}

/// Error for a message that has a sender but no receiver, or a receiver but no sender.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("rank {rank} has a message with rank {other} for which rank {other} has no matching send or receive")]
pub struct Unmatched {
    /// Rank that sends or receives the message.
    pub rank: u32,
    /// Rank that lacks the matching receive or send.
    pub other: u32,
}

/// Type of a step that communicates with another rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum StepKind {
    Send,
    Recv,
    /// Wait for a flag, with the number of earlier waits for the same flag.
    Wait(Flag, u32),
    /// Wait for a flag right after another wait, with the number of earlier waits for the same flag. The order of consecutive waits does
    /// not matter.
    FurtherWait(Flag, u32),
}

impl StepKind {
    /// Returns the type of the matching step of the partner, if the step is a message.
    fn other(self) -> Option<StepKind> {
        match self {
            StepKind::Send => Some(StepKind::Recv),
            StepKind::Recv => Some(StepKind::Send),
            _ => None,
        }
    }

    /// Returns the types of all sends, receives and waits.
    fn all(steps: &[CostStep]) -> Box<[StepKind]> {
        let before = [None].into_iter().chain(steps.iter().map(Some));
        let way = |(step, before): (&CostStep, Option<&CostStep>)| match (step, before) {
            (CostStep::Send { .. }, _) => Some(StepKind::Send),
            (CostStep::Recv { .. }, _) => Some(StepKind::Recv),
            (CostStep::Wait { flag, before }, Some(CostStep::Wait { .. })) => {
                Some(StepKind::FurtherWait(*flag, *before))
            }
            (CostStep::Wait { flag, before }, _) => Some(StepKind::Wait(*flag, *before)),
            _ => None,
        };
        steps.iter().zip(before).filter_map(way).collect()
    }
}

/// Steps that one or more ranks have in common; their partners may differ.
struct List {
    steps: Arc<[CostStep]>,
    /// Type of each send, receive and wait.
    ways: Box<[StepKind]>,
    hash: u64,
}

/// Steps and partners of a range of ranks.
struct RankRange {
    lists: Vec<List>,
    /// For each rank, the index of its steps in `lists`.
    list: Vec<u32>,
    /// For each rank, the index of its first partner in `partners`; then the number of all partners.
    starts: Vec<usize>,
    partners: Vec<Partner>,
}

fn mix(state: u64, word: u64) -> u64 {
    let mut mixed = (state ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^= mixed >> 29;
    mixed = mixed.wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 32
}

fn hash_of(steps: &[CostStep]) -> u64 {
    use std::hash::{Hash, Hasher};
    struct Mixer(u64);
    impl Hasher for Mixer {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, bytes: &[u8]) {
            bytes.iter().for_each(|byte| self.0 = mix(self.0, u64::from(*byte) + 1));
        }
        fn write_u32(&mut self, word: u32) {
            self.0 = mix(self.0, u64::from(word) + 1);
        }
        fn write_u64(&mut self, word: u64) {
            self.0 = mix(self.0, word.wrapping_add(1));
        }
        fn write_isize(&mut self, word: isize) {
            self.0 = mix(self.0, word as u64 + 1);
        }
    }
    let mut mixer = Mixer(0x9e37_79b9_7f4a_7c15);
    steps.hash(&mut mixer);
    mixer.finish()
}

fn gather(ranks: Range<u32>, steps_of: &impl Fn(Rank) -> Steps) -> RankRange {
    let mut stretch = RankRange { lists: Vec::new(), list: Vec::new(), starts: vec![0], partners: Vec::new() };
    let mut known: FxHashMap<u64, u32> = FxHashMap::default();
    for rank in ranks {
        let Steps { steps, partners } = steps_of(Rank(rank));
        let hash = hash_of(&steps);
        let list = *known.entry(hash).or_insert_with(|| {
            let ways = StepKind::all(&steps);
            stretch.lists.push(List { steps: steps.into(), ways, hash });
            stretch.lists.len() as u32 - 1
        });
        stretch.list.push(list);
        stretch.partners.extend(partners);
        stretch.starts.push(stretch.partners.len());
    }
    stretch
}

/// Steps and partners of all ranks, in ranges that were processed in parallel.
struct Gathered {
    stretches: Vec<RankRange>,
    each: u32,
}

impl Gathered {
    fn at(&self, rank: u32) -> (&RankRange, usize) {
        (&self.stretches[(rank / self.each) as usize], (rank % self.each) as usize)
    }

    fn list(&self, rank: u32) -> &List {
        let (stretch, at) = self.at(rank);
        &stretch.lists[stretch.list[at] as usize]
    }

    fn partners(&self, rank: u32) -> &[Partner] {
        let (stretch, at) = self.at(rank);
        &stretch.partners[stretch.starts[at]..stretch.starts[at + 1]]
    }

    /// Returns, for each send and receive of a rank, the index of the matching step in the partner's list of partners: the n-th message
    /// with a tag from one rank to another matches the n-th receive with this tag there. The entry is 0 for a wait.
    fn match_partners(&self, rank: u32, index: &mut Index) -> Result<Vec<u32>, Unmatched> {
        let (partners, ways) = (self.partners(rank), &self.list(rank).ways);
        let mut met = Vec::with_capacity(partners.len());
        index.begin(partners.len());
        for (at, (partner, way)) in partners.iter().zip(ways.iter()).enumerate() {
            let Some(other_way) = way.other() else {
                met.push(0);
                continue;
            };
            let nth = index.nth(partners, ways, at);
            let other = partner.rank.0;
            let (theirs, their_ways) = (self.partners(other), &self.list(other).ways);
            let wanted = (Partner { rank: Rank(rank), tag: partner.tag }, other_way);
            let same = |at: &usize| (theirs[*at], their_ways[*at]) == wanted;
            // Usually there is one match, at the same index or beside it.
            let found = match nth {
                0 => [at ^ 1, at]
                    .into_iter()
                    .filter(|at| *at < theirs.len())
                    .find(|at| same(at) && !theirs[..*at].contains(&wanted.0)),
                _ => None,
            };
            let found = found.or_else(|| (0..theirs.len()).filter(same).nth(nth));
            met.push(found.ok_or(Unmatched { rank, other })? as u32);
        }
        Ok(met)
    }
}

/// Counts a rank's messages to and from each partner with the same tag.
#[derive(Default)]
struct Index {
    counts: FxHashMap<(Partner, StepKind), usize>,
    counted: bool,
}

impl Index {
    /// Number of partners up to which a linear search is faster than a hash table.
    const FEW: usize = 64;

    fn begin(&mut self, partners: usize) {
        self.counts.clear();
        self.counted = partners > Index::FEW;
    }

    fn nth(&mut self, partners: &[Partner], ways: &[StepKind], at: usize) -> usize {
        let this = (partners[at], ways[at]);
        if self.counted {
            let count = self.counts.entry(this).or_default();
            *count += 1;
            return *count - 1;
        }
        (0..at).filter(|before| (partners[*before], ways[*before]) == this).count()
    }
}

/// Calls `work` for ranges of ranks, in parallel on all cores. Returns the results in order of rank, and the number of ranks in each
/// range.
fn in_parallel<T: Send>(ranks: u32, work: impl Fn(Range<u32>) -> T + Sync) -> (Vec<T>, u32) {
    let workers = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let each = ranks.div_ceil(workers).max(1);
    let results = std::thread::scope(|scope| {
        let work = &work;
        let start = |at: u32| scope.spawn(move || work(at..(at + each).min(ranks)));
        let workers: Vec<_> = (0..ranks).step_by(each as usize).map(start).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker ends")).collect()
    });
    (results, each)
}

/// Groups all ranks into classes.
pub(crate) fn classes(
    topology: &Topology,
    steps_of: impl Fn(Rank) -> Steps + Sync,
    arrival: impl Fn(Rank) -> f64 + Sync,
) -> Result<Classes, Unmatched> {
    let ranks = topology.ranks();
    let (stretches, each) = in_parallel(ranks, |range| gather(range, &steps_of));
    let gathered = Gathered { stretches, each };
    let (met, _) = in_parallel(ranks, |range| {
        let mut index = Index::default();
        range
            .map(|rank| gathered.match_partners(rank, &mut index))
            .collect::<Result<Vec<_>, _>>()
            .map(|met| met.concat())
    });
    let met = met.into_iter().collect::<Result<Vec<Vec<u32>>, _>>()?;
    let met_of = |rank: u32| {
        let (stretch, at) = gathered.at(rank);
        &met[(rank / each) as usize][stretch.starts[at]..stretch.starts[at + 1]]
    };
    let first = |rank: u32| mix(gathered.list(rank).hash, arrival(Rank(rank)).to_bits());
    let mut colours: Vec<u64> = (0..ranks).map(first).collect();
    let mut count = distinct(&colours);
    loop {
        let shared = regions_of(topology, &colours);
        let (next, _) = in_parallel(ranks, |range| {
            let one = |rank: u32| {
                let colour = recoloured(&colours, rank, &gathered, met_of(rank));
                (0..topology.levels()).fold(colour, |colour, level| {
                    let region = topology.region_of(Level(level), Rank(rank));
                    mix(colour, shared[usize::from(level)][region as usize])
                })
            };
            range.map(one).collect::<Vec<u64>>()
        });
        colours = next.concat();
        let now = distinct(&colours);
        // If there are more classes than a quarter of the ranks, every rank gets a class of its own.
        if now > ranks as usize / 4 {
            colours = (0..u64::from(ranks)).collect();
            break;
        }
        if now == count {
            break;
        }
        count = now;
    }
    Ok(build_classes(topology, &gathered, met_of, &colours, arrival))
}

/// Returns a rank's new colour, a hash that is equal for all ranks of a class: the rank's old colour mixed with those of its partners.
/// Consecutive waits are mixed regardless of their order.
fn recoloured(colours: &[u64], rank: u32, gathered: &Gathered, met: &[u32]) -> u64 {
    let (mut colour, mut flags) = (colours[rank as usize], 0u64);
    let partners = gathered.partners(rank).iter().zip(&gathered.list(rank).ways).zip(met);
    for ((partner, way), met) in partners {
        let of = colours[partner.rank.0 as usize];
        match way {
            StepKind::Send | StepKind::Recv => colour = mix(mix(mix(colour, flags), of), u64::from(*met) + 1),
            StepKind::Wait(..) => colour = mix(colour, flags),
            StepKind::FurtherWait(..) => {}
        }
        let awaited = |flag: &Flag, before: &u32| mix(mix(of, u64::from(flag.0) + 2), u64::from(*before));
        flags = match way {
            StepKind::Send | StepKind::Recv => 0,
            StepKind::Wait(flag, before) => awaited(flag, before),
            StepKind::FurtherWait(flag, before) => flags.wrapping_add(awaited(flag, before)),
        };
    }
    mix(colour, flags)
}

fn distinct(colours: &[u64]) -> usize {
    colours.iter().collect::<rustc_hash::FxHashSet<_>>().len()
}

/// Returns, for each level and region, a hash of the colours (hashes of the classes) of the region's ranks, regardless of their order.
fn regions_of(topology: &Topology, colours: &[u64]) -> Vec<Vec<u64>> {
    let mut shared: Vec<Vec<u64>> =
        (0..topology.levels()).map(|level| vec![0; topology.regions(Level(level)) as usize]).collect();
    for (rank, colour) in colours.iter().enumerate() {
        for (level, shared) in shared.iter_mut().enumerate() {
            let region = &mut shared[topology.region_of(Level(level as u8), Rank(rank as u32)) as usize];
            *region = region.wrapping_add(mix(*colour, 1));
        }
    }
    shared
}

fn build_classes<'m>(
    topology: &Topology,
    gathered: &Gathered,
    met_of: impl Fn(u32) -> &'m [u32],
    colours: &[u64],
    arrival: impl Fn(Rank) -> f64,
) -> Classes {
    let mut number: FxHashMap<u64, u32> = FxHashMap::default();
    let mut speakers: Vec<u32> = Vec::new();
    let of: Vec<u32> = colours
        .iter()
        .enumerate()
        .map(|(rank, colour)| {
            *number.entry(*colour).or_insert_with(|| {
                speakers.push(rank as u32);
                speakers.len() as u32 - 1
            })
        })
        .collect();
    // Regions with the same classes are identified by the lowest of their classes, because a class occurs only in such regions.
    let mut regions: Vec<Vec<Region>> = (0..topology.levels()).map(|_| Vec::new()).collect();
    let mut known: Vec<FxHashMap<u32, u32>> = vec![FxHashMap::default(); regions.len()];
    let classes = speakers
        .iter()
        .map(|&rank| {
            let mut on_node = 0;
            let here = (0..topology.levels()).map(Level).map(|level| {
                let span = topology.span(level, topology.region_of(level, Rank(rank)));
                let mut inside: Vec<u32> = span.clone().map(|at| of[topology.rank_at(at).0 as usize]).collect();
                if level == Level::NODE {
                    on_node = inside.iter().filter(|class| **class == of[rank as usize]).count() as u32;
                }
                inside.sort_unstable();
                inside.dedup();
                let regions = &mut regions[usize::from(level.0)];
                *known[usize::from(level.0)].entry(inside[0]).or_insert_with(|| {
                    regions.push(Region { ranks: span.len() as u32, classes: inside.len() as u32 });
                    regions.len() as u32 - 1
                })
            });
            let here = here.collect();
            let partners = gathered.partners(rank).iter().zip(met_of(rank));
            Class {
                steps: gathered.list(rank).steps.clone(),
                partners: partners.map(|(partner, met)| (of[partner.rank.0 as usize], *met)).collect(),
                regions: here,
                on_node,
                arrival: arrival(Rank(rank)),
            }
        })
        .collect();
    Classes { classes, regions, of }
}
