//! Plans: from a task and an algorithm expression to the schedules of ranks.

use std::collections::BTreeSet;

use bruckner_schedule::{
    Claims, Code, Collective, Counts, Level, LocalOp, Order, Problem, Rank, RankCode, Round, Schedule, Topology,
};

use crate::alltoall::Direct;
use crate::bruck::{BruckAlltoall, Slots};
use crate::direct::ReadDirect;
use crate::exchange::Exchange;
use crate::expression::{Expression, Factor, Lanes, Plain};
use crate::factors::Factored;
use crate::gather::{BlockNumbering, Gather, GatherAll, Numbering, PatternGather, ShmGather};
use crate::gather_reduce::GatherReduce;
use crate::intra_region::Inside;
use crate::leader::{LeaderGather, Leaders};
use crate::leader_allreduce::LeaderAllreduce;
use crate::locality::Locality;
use crate::lower::{LineMemory, MessagePurpose, OnNode, lower_part};
use crate::nap::{Nap, RankPerRegion};
use crate::patterns::reordered::order;
use crate::patterns::{
    Bruck, CyclicShift, NeighborExchange, Pattern, RecursiveDoubling, Reordered, Ring, Sparbit, SpreadOut,
};
use crate::pipeline::Pipelined;
use crate::properties::{RankPlacement, properties};
use crate::regional_alltoall::{RegionalAlltoall, Share};
use crate::reversed::{ReduceScatterAllgather, Reversed};
use crate::route::{BruckRoute, DealtRoute, DirectRoute, Route};
use crate::shm::ShmAllreduce;
use crate::shm_rotate::ShmRotate;
use crate::shm_split::ShmSplit;
use crate::{Algorithm, PlanError};

/// A collective on given ranks with given counts, without the algorithm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// The collective.
    pub collective: Collective,
    /// Regions and placement of the ranks.
    pub topology: Topology,
    /// Number of elements of each block; for an allreduce `Counts::Equal` with the length of the vector.
    pub counts: Counts,
    /// Bytes of one element.
    pub element: u32,
    /// Order in which a reduction must combine its operands.
    pub order: Order,
}

impl Task {
    /// Creates a task with blocks of one element of 8 bytes.
    pub fn new(collective: Collective, topology: Topology) -> Task {
        Task { collective, topology, counts: Counts::Equal(1), element: 8, order: Order::Any }
    }

    /// Sets the size of every block, or of the vector, in bytes. Elements have 8 bytes if `bytes` is a multiple of 8, otherwise 1 byte.
    pub fn bytes(mut self, bytes: u64) -> Task {
        self.element = if bytes.is_multiple_of(8) { 8 } else { 1 };
        self.counts = Counts::Equal(bytes / u64::from(self.element));
        self
    }

    /// Sets the numbers of elements of the blocks.
    pub fn counts(mut self, counts: Counts) -> Task {
        self.counts = counts;
        self
    }
}

/// An algorithm together with the problem and topology that it is planned for.
pub struct TaskPlan {
    /// The problem, with blocks cut into the pieces that the algorithm needs.
    pub problem: Problem,
    /// Regions and placement of the ranks.
    pub topology: Topology,
    /// How the ranks of a region exchange data through their shared-memory segment.
    pub exchange: Exchange,
    /// Purpose of the messages: to carry data only, or also to order accesses to shared memory.
    pub purpose: MessagePurpose,
    algorithm: Box<dyn Algorithm>,
}

impl TaskPlan {
    /// Creates a plan from any algorithm, even one that no expression names.
    pub fn new(problem: Problem, topology: Topology, algorithm: Box<dyn Algorithm>) -> TaskPlan {
        TaskPlan { problem, topology, exchange: Exchange::Barrier, purpose: MessagePurpose::OrdersMemory, algorithm }
    }

    /// Converts the plan to one for blocks of any size, in which every chunk counts as one element. Plans for sizes that are known only
    /// locally have this form already.
    pub fn for_every_size(mut self) -> TaskPlan {
        self.problem = self.problem.in_chunks();
        self
    }

    /// Returns the rounds of one rank, without rounds in which the rank is idle. The last round ends with a barrier for each segment in
    /// use, so that the next execution cannot overwrite data that a rank still reads; lowering replaces this barrier by two halves of the
    /// segment used in turn where it can. With [`Exchange::Ring`] the last round instead marks that the rank no longer uses its ring slot.
    pub fn rounds(&self, rank: Rank) -> Vec<Round> {
        let mut rounds = self.algorithm.rounds(&self.problem, &self.topology, rank);
        rounds.retain(|round| *round != Round::default());
        let local = rounds.iter().flat_map(|round| &round.local);
        let used: BTreeSet<Level> = local.flat_map(LocalOp::shared).collect();
        if let Some(last) = rounds.last_mut().filter(|_| !self.algorithm.closes_segments()) {
            let close = match self.exchange {
                Exchange::Barrier => LocalOp::Barrier,
                Exchange::Ring => LocalOp::Leave,
            };
            last.local.extend(used.into_iter().map(close));
        }
        rounds
    }

    /// Returns the schedule of the given ranks.
    pub fn schedule_of(&self, ranks: impl IntoIterator<Item = Rank>) -> Schedule {
        RankCode {
            problem: self.problem.clone(),
            topology: self.topology.clone(),
            overlap: self.algorithm.overlap(),
            claims: Claims::default(),
            ranks: ranks.into_iter().map(|rank| (rank, self.rounds(rank))).collect(),
        }
    }

    /// Returns the lowered code of one rank, for use at run time. Besides this rank, only ranks that exchange two messages with it in one
    /// round are planned, because these messages may be joined. If messages replace shared memory, all ranks are planned.
    pub fn code(&self, rank: Rank, expression: &Expression, on_node: OnNode, line_memory: LineMemory) -> Option<Code> {
        let schedule = match (expression.groups_regions(), on_node) {
            (true, OnNode::Messages) => self.schedule(),
            _ => self.schedule_with_partners([rank]),
        };
        lower_part(&schedule, on_node, self.purpose, line_memory).ranks.remove(&rank)
    }

    fn schedule_with_partners(&self, ranks: impl IntoIterator<Item = Rank>) -> Schedule {
        let mut schedule = self.schedule_of(ranks);
        let mut partners: BTreeSet<Rank> = BTreeSet::new();
        for round in schedule.ranks.values().flatten() {
            let mut ways: Vec<_> = round.messages.iter().map(|m| (m.end, m.peer, m.tag)).collect();
            ways.sort_unstable();
            partners.extend(ways.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0].1));
        }
        for partner in partners {
            schedule.ranks.entry(partner).or_insert_with(|| self.rounds(partner));
        }
        schedule
    }

    /// Returns the schedule of all ranks.
    pub fn schedule(&self) -> Schedule {
        self.schedule_of((0..self.problem.ranks).map(Rank))
    }
}

/// Plans a task by the algorithm that an expression names; ranks of a node exchange data through a shared-memory segment.
pub fn plan(task: &Task, expression: &Expression) -> Result<TaskPlan, PlanError> {
    plan_on(task, expression, OnNode::Segment)
}

/// Plans a task by the algorithm that an expression names; `on_node` selects how ranks of a node exchange data.
pub fn plan_on(task: &Task, expression: &Expression, on_node: OnNode) -> Result<TaskPlan, PlanError> {
    let through = match on_node {
        OnNode::Segment => Exchange::of(&task.counts, expression),
        // Messages that replace a segment must be correct for any root, but the flags on a ring suit only the given root.
        OnNode::Messages => Exchange::Barrier,
    };
    let algorithm = find(task, expression, through)?;
    let mut problem = Problem::new(task.collective, task.topology.ranks(), task.counts.clone(), task.element)
        .and_then(|whole| whole.cut(algorithm.pieces(&task.topology)))
        .map_err(|message| PlanError(message.to_owned()))?;
    problem.order = task.order;
    let placement = RankPlacement::of(&task.topology);
    if task.order == Order::Ranks && !properties(task.collective, expression, placement, task.topology.ranks()).ordered
    {
        return Err(PlanError(format!("`{expression}` does not keep rank order on {}", task.topology)));
    }
    let purpose = match through {
        Exchange::Barrier => MessagePurpose::expected(expression, &task.topology),
        // Flags and ring entries order all accesses to shared memory.
        Exchange::Ring => MessagePurpose::CarriesData,
    };
    Ok(TaskPlan { problem, topology: task.topology.clone(), exchange: through, purpose, algorithm })
}

fn find(task: &Task, expression: &Expression, through: Exchange) -> Result<Box<dyn Algorithm>, PlanError> {
    if let Expression::Plain(Plain::Shm | Plain::ShmSplit | Plain::ShmRotate) | Expression::ShmTree(_) = expression {
        one_node(expression, task)?;
    }
    if *expression == Expression::Plain(Plain::Direct) {
        one_node(expression, task)?;
        match task.counts {
            Counts::Local => {
                return Err(PlanError(format!("`{expression}` needs block sizes that are known on all ranks")));
            }
            Counts::Root { .. } => {
                return Err(PlanError(format!(
                    "`{expression}` does not support collectives with a root: the root would wait for all ranks"
                )));
            }
            _ => return Ok(Box::new(ReadDirect(task.collective))),
        }
    }
    if let Expression::File(written) = expression {
        let fits = written.is_for(task.collective, &task.topology)
            && !matches!(task.counts, Counts::Local | Counts::Root { .. });
        return match fits {
            true => Ok(Box::new(written.clone())),
            false => Err(PlanError(format!("`{expression}` is for {}", written.purpose()))),
        };
    }
    if let Expression::Pipeline { parts, of } = expression {
        if of.reads_buffers() {
            return Err(PlanError(format!("`{of}` cannot be pipelined: it opens the buffers only once")));
        }
        return Ok(Box::new(Pipelined { parts: *parts, of: find(task, of, through)? }));
    }
    match task.collective {
        Collective::Allgather if gathers(expression) => Ok(Box::new(gather_all(expression, task, through)?)),
        Collective::Allgather => Err(unknown(task, expression)),
        Collective::ReduceScatter => reduce_scatter(task, expression, through),
        Collective::Allreduce => allreduce(task, expression, through),
        Collective::Alltoall => alltoall(task, expression),
    }
}

fn unknown(task: &Task, expression: &Expression) -> PlanError {
    PlanError(format!("`{expression}` does not implement {}", task.collective))
}

/// Builds a reduce_scatter as the reverse of an allgather.
fn reduce_scatter(task: &Task, expression: &Expression, through: Exchange) -> Result<Box<dyn Algorithm>, PlanError> {
    let forward = match expression {
        // Time reversal turns growing distances into shrinking ones.
        Expression::Plain(Plain::RecursiveHalving) => Expression::Plain(Plain::RecursiveDoubling),
        Expression::Plain(Plain::RecursiveDoubling) => Expression::Plain(Plain::RecursiveHalving),
        Expression::Factors(factors) => Expression::Factors(backwards(factors)?),
        _ if gathers(expression) => expression.clone(),
        _ => return Err(unknown(task, expression)),
    };
    Ok(Box::new(Reversed(gather_all(&forward, task, through)?)))
}

fn allreduce(task: &Task, expression: &Expression, through: Exchange) -> Result<Box<dyn Algorithm>, PlanError> {
    let p = task.topology.ranks();
    let rsag = |of: &Expression| -> Result<Box<dyn Algorithm>, PlanError> {
        let half = || gather_all(of, task, through).map(|half| GatherAll { blocks: BlockNumbering::ByMember, ..half });
        Ok(Box::new(ReduceScatterAllgather { scatter: Reversed(half()?), gather: half()? }))
    };
    match expression {
        Expression::Plain(Plain::Shm) => Ok(Box::new(ShmAllreduce { group: 1, through })),
        Expression::ShmTree(group) => Ok(Box::new(ShmAllreduce { group: *group, through })),
        Expression::Plain(Plain::ShmSplit) => Ok(Box::new(ShmSplit)),
        Expression::Plain(Plain::ShmRotate) => Ok(Box::new(ShmRotate)),
        Expression::Plain(Plain::RecursiveDoubling) => Ok(Box::new(RankPerRegion(Nap {
            level: Level::NODE,
            inside: Box::new(ShmGather(through)),
            lanes: Lanes::ALL,
        }))),
        // The distances double in the reduce_scatter, and shrink again in the allgather.
        Expression::Plain(Plain::Rabenseifner) => rsag(&Expression::Plain(Plain::RecursiveHalving)),
        Expression::Plain(Plain::Ring) => rsag(expression),
        Expression::ReduceScatterAllgather(of) if gathers(of) => rsag(of),
        Expression::Locality { level, inside, lanes } => {
            let inside = gather(inside, Members::Inside(*level), task, through)?;
            Ok(Box::new(Nap { level: *level, inside, lanes: *lanes }))
        }
        Expression::Leader { level, between, .. } | Expression::MultiLane { level, between } => {
            let regions = Topology::flat(task.topology.regions(*level));
            let among = Task { topology: regions, ..task.clone() };
            if between.groups_regions() {
                return Err(PlanError(format!("`{between}` cannot be used between regions: it needs shared memory")));
            }
            let (leaders, between) = (leaders(expression), find(&among, between, through)?);
            Ok(Box::new(LeaderAllreduce { level: *level, between, leaders }))
        }
        Expression::Factors(factors) => Ok(Box::new(Factored::new(factors, p)?)),
        Expression::Plain(Plain::RecursiveHalving) => Err(unknown(task, expression)),
        _ if gathers(expression) => Ok(Box::new(GatherReduce(gather(expression, Members::Ranks, task, through)?))),
        _ => Err(unknown(task, expression)),
    }
}

fn alltoall(task: &Task, expression: &Expression) -> Result<Box<dyn Algorithm>, PlanError> {
    match expression {
        _ if let Some(spread_out) = spread_out(expression) => Ok(Box::new(Direct(Box::new(spread_out)))),
        Expression::Locality { lanes: Lanes::PerRank(2..), .. } => Err(PlanError(format!(
            "`{expression}`: alltoall does not support `ports=`; it takes a single round between regions"
        ))),
        Expression::Locality { level, inside, .. } => {
            let inside = match &**inside {
                // Blocks whose sizes are known only locally cannot go through a segment.
                Expression::Plain(Plain::Shm) if task.counts == Counts::Local => {
                    Inside::Messages(Box::new(SpreadOut::AT_ONCE))
                }
                Expression::Plain(Plain::Shm) => Inside::Segment,
                inside => Inside::Messages(Box::new(spread_out(inside).ok_or_else(|| {
                    PlanError(format!(
                        "`{inside}` cannot be used as `inside=` of an alltoall (use shm, spread-out or pairwise)"
                    ))
                })?)),
            };
            let route = Box::new(DealtRoute(task.topology.largest(*level)));
            Ok(Box::new(RegionalAlltoall { level: *level, inside, route, share: Share::All }))
        }
        Expression::Leader { level, between, .. } | Expression::MultiLane { level, between } => {
            let inside = match task.counts {
                Counts::Local => Inside::Messages(Box::new(SpreadOut::AT_ONCE)),
                _ => Inside::Segment,
            };
            let (route, share) = (route(between)?, Share::Every(leaders(expression)));
            Ok(Box::new(RegionalAlltoall { level: *level, inside, route, share }))
        }
        Expression::Bruck(radix) => Ok(Box::new(BruckAlltoall { radix: *radix, slots: Slots::Line })),
        Expression::ModifiedBruck(radix) => {
            if task.counts == Counts::Local {
                return Err(PlanError(format!("`{expression}` needs blocks of equal size")));
            }
            Ok(Box::new(BruckAlltoall { radix: *radix, slots: Slots::Output }))
        }
        _ => Err(unknown(task, expression)),
    }
}

/// Returns whether an expression names a gathering algorithm (see [`crate::gather`]).
fn gathers(expression: &Expression) -> bool {
    match expression {
        Expression::Plain(plain) => {
            use Plain::{Direct, Rabenseifner, ShmRotate, ShmSplit};
            !expression.runs_in_mpi() && !matches!(plain, Direct | Rabenseifner | ShmSplit | ShmRotate)
        }
        Expression::Bruck(_) | Expression::Factors(_) | Expression::Reorder(_) | Expression::SpreadOut { .. } => true,
        Expression::Locality { .. } | Expression::Leader { .. } | Expression::MultiLane { .. } => true,
        _ => false,
    }
}

/// Builds an allgather among all ranks.
fn gather_all(expression: &Expression, task: &Task, through: Exchange) -> Result<GatherAll, PlanError> {
    let numbering = match expression {
        expression if expression.groups_regions() => Numbering::Positions,
        Expression::Plain(Plain::RecursiveHalving) => Numbering::Halves,
        _ => Numbering::Ranks,
    };
    // With members numbered by halving, doubling distances of numbers are halving distances of ranks.
    let doubling = Expression::Plain(Plain::RecursiveDoubling);
    let by = if numbering == Numbering::Halves { &doubling } else { expression };
    Ok(GatherAll { gather: gather(by, Members::Ranks, task, through)?, numbering, blocks: BlockNumbering::ByRank })
}

/// Returns the factorization of the allgather whose reverse is the given reduce_scatter.
fn backwards(factors: &[Factor]) -> Result<Vec<Factor>, PlanError> {
    let reverse = |group: &Factor| {
        if group.ports.iter().any(|&q| q > 0) {
            return Err(PlanError(format!("`{group}`: a reduce_scatter cannot have allgather steps (positive ports)")));
        }
        Ok(Factor { factor: group.factor, ports: group.ports.iter().rev().map(|q| -q).collect() })
    };
    factors.iter().rev().map(reverse).collect()
}

/// Members of a gathering: who takes part.
#[derive(Clone, Copy)]
enum Members {
    /// All ranks take part.
    Ranks,
    /// The ranks of one region of this level take part.
    Inside(Level),
    /// All regions of this level take part, each as one member.
    Regions(Level),
}

impl Members {
    /// Returns the number of members, or `None` if these are the ranks of a region and regions differ in size.
    fn count(self, topology: &Topology) -> Option<u32> {
        match self {
            Members::Ranks => Some(topology.ranks()),
            Members::Inside(level) => topology.uniform_size(level),
            Members::Regions(level) => Some(topology.regions(level)),
        }
    }

    /// Returns the number of elements of each member's block, or `None` if the members are the ranks of a region.
    fn sizes(self, task: &Task) -> Option<Vec<u64>> {
        let (topology, counts) = (&task.topology, &task.counts);
        let size = |rank: Rank| match counts {
            Counts::Equal(n) => *n,
            Counts::Root { root, count } => {
                if rank == *root {
                    *count
                } else {
                    0
                }
            }
            Counts::Listed(counts) => counts[rank.0 as usize],
            Counts::Local => 1,
        };
        let all = |positions: std::ops::Range<u32>| positions.map(|at| size(topology.rank_at(at))).sum();
        match self {
            Members::Ranks => Some((0..topology.ranks()).map(|rank| size(Rank(rank))).collect()),
            Members::Inside(_) => None,
            Members::Regions(level) => {
                Some((0..topology.regions(level)).map(|region| all(topology.span(level, region))).collect())
            }
        }
    }
}

/// Returns the order in which `reorder(…)` in an expression arranges ranks or regions to balance unequal blocks; empty if the expression
/// does not reorder. For the same collective, topology and expression, equal orders give programs that differ only in block sizes.
pub fn orders(task: &Task, expression: &Expression) -> Vec<u32> {
    fn of(task: &Task, expression: &Expression, members: Members) -> Vec<u32> {
        match expression {
            Expression::Reorder(_) => members.sizes(task).map_or_else(Vec::new, |sizes| order(&sizes)),
            Expression::Pipeline { of: inner, .. } | Expression::ReduceScatterAllgather(inner) => {
                of(task, inner, members)
            }
            Expression::Leader { level, between, .. } | Expression::MultiLane { level, between } => {
                of(task, between, Members::Regions(*level))
            }
            _ => Vec::new(),
        }
    }
    of(task, expression, Members::Ranks)
}

/// Builds the gathering algorithm that an expression names.
fn gather(
    expression: &Expression,
    members: Members,
    task: &Task,
    through: Exchange,
) -> Result<Box<dyn Gather>, PlanError> {
    let inner = |level: Level| match members {
        Members::Inside(around) if level < around => {
            Err(PlanError(format!("nested regions must be smaller: a {level} is not inside a {around}")))
        }
        _ => Ok(level),
    };
    Ok(match expression {
        Expression::Plain(Plain::Shm) => {
            if let Members::Ranks = members {
                one_node(expression, task)?;
            }
            Box::new(ShmGather(through))
        }
        Expression::Locality { level, inside, lanes } => {
            let level = inner(*level)?;
            Box::new(Locality { level, inside: gather(inside, Members::Inside(level), task, through)?, lanes: *lanes })
        }
        Expression::Leader { level, between, .. } | Expression::MultiLane { level, between } => {
            let level = inner(*level)?;
            Box::new(LeaderGather {
                level,
                between: pattern(between, Members::Regions(level), task)?,
                leaders: leaders(expression),
                through,
            })
        }
        _ => Box::new(PatternGather(pattern(expression, members, task)?)),
    })
}

/// Returns the number of leaders per region that an expression names.
fn leaders(expression: &Expression) -> Leaders {
    match expression {
        Expression::Leader { leaders, .. } => Leaders::Fixed(*leaders),
        _ => Leaders::All,
    }
}

/// Builds the route between regions that an expression names.
fn route(expression: &Expression) -> Result<Box<dyn Route>, PlanError> {
    Ok(match expression {
        _ if let Some(spread_out) = spread_out(expression) => Box::new(DirectRoute(Box::new(spread_out))),
        Expression::Bruck(radix) => Box::new(BruckRoute(*radix)),
        _ => {
            return Err(PlanError(format!(
                "`{expression}` cannot be used between regions of an alltoall (use spread-out, pairwise or bruck(R))"
            )));
        }
    })
}

/// Returns the pattern of an expression in which every member exchanges its blocks directly with every other.
fn spread_out(expression: &Expression) -> Option<SpreadOut> {
    match expression {
        Expression::Plain(Plain::SpreadOut) => Some(SpreadOut::AT_ONCE),
        Expression::Plain(Plain::Pairwise) => Some(SpreadOut::PAIRWISE),
        Expression::SpreadOut { window } => Some(SpreadOut(*window)),
        _ => None,
    }
}

/// Builds the message pattern that an expression names.
fn pattern(expression: &Expression, members: Members, task: &Task) -> Result<Box<dyn Pattern>, PlanError> {
    Ok(match expression {
        Expression::Plain(Plain::Ring) => Box::new(Ring),
        Expression::Plain(Plain::NeighborExchange) => Box::new(NeighborExchange),
        Expression::Plain(Plain::RecursiveDoubling) => Box::new(RecursiveDoubling),
        Expression::Plain(Plain::Sparbit) => Box::new(Sparbit),
        _ if let Some(spread_out) = spread_out(expression) => Box::new(spread_out),
        Expression::Bruck(radix) => Box::new(Bruck(*radix)),
        Expression::Reorder(of) => {
            let sizes = members.sizes(task).ok_or_else(|| {
                PlanError(format!(
                    "`{expression}` can be used among all ranks or between regions, but not inside a region"
                ))
            })?;
            Box::new(Reordered::new(&sizes, pattern(of, members, task)?))
        }
        Expression::Factors(factors) => {
            let count = members.count(&task.topology).ok_or_else(|| {
                PlanError(format!("`{expression}` needs regions of equal size, but those of {} differ", task.topology))
            })?;
            crate::factors::check_gathering(factors, count)?;
            Box::new(CyclicShift { ports: factors[0].ports.iter().map(|q| q.unsigned_abs()).collect() })
        }
        _ => {
            return Err(PlanError(format!(
                "`{expression}` cannot be used here: expected a message pattern such as ring or bruck(R)"
            )));
        }
    })
}

fn one_node(expression: &Expression, task: &Task) -> Result<(), PlanError> {
    match task.topology.regions(Level::NODE) {
        1 => Ok(()),
        nodes => Err(PlanError(format!(
            "`{expression}` runs only on a single node, but {} has {nodes} nodes",
            task.topology
        ))),
    }
}
