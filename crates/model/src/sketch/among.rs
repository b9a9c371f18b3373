//! Cost formulas (sketches) of messages among the members of a group: all ranks, or one rank of each node.

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_schedule::Collective;

use super::{NOTHING, Shape, Stage};
use crate::steps::LinkClass;

/// Group of ranks that exchange messages.
#[derive(Clone, Copy)]
pub(super) struct Members {
    pub(super) count: u32,
    pub(super) at: At,
}

/// Placement of the members.
#[derive(Clone, Copy)]
pub(super) enum At {
    /// One member on each node. The number is that of groups that exchange messages between the same nodes at the same time.
    Nodes(u32),
    /// Every rank of a communicator of this shape.
    Ranks(Shape),
}

/// Makes a stage with the copies that a rank makes of its own data, in algorithms among all ranks. Reductions copy the whole input,
/// because they work on the copy.
pub(super) fn input_copies(collective: Collective, ranks: u32, bytes: f64) -> Stage {
    Stage::copies(match collective {
        Collective::ReduceScatter => bytes * f64::from(ranks),
        Collective::Allgather | Collective::Allreduce | Collective::Alltoall => bytes,
    })
}

impl Members {
    /// Returns the link class of a round's messages to ranks at `distance`, and the number of ranks of a node that send over it. If the
    /// messages of a round use several link classes, the class between the most distant ranks counts or, with `is_near`, the class within
    /// a node.
    fn reach(self, distance: u32, is_near: bool) -> (LinkClass, u32) {
        match self.at {
            At::Nodes(groups) => (LinkClass::Network, groups),
            At::Ranks(shape) if shape.nodes == 1 => (LinkClass::Socket, shape.on_node),
            At::Ranks(shape) if !shape.in_order => (LinkClass::Network, shape.on_node),
            At::Ranks(shape) if is_near && distance < shape.on_node => (LinkClass::Socket, shape.on_node),
            At::Ranks(shape) => (LinkClass::Network, shape.on_node.min(distance)),
        }
    }

    /// Makes a stage of `messages` concurrent messages over a distance in ranks.
    fn round_stage(self, distance: u32, is_near: bool, messages: u32, bytes: f64) -> Stage {
        let (reach, senders) = self.reach(distance, is_near);
        Stage { senders, reach, messages: f64::from(messages), bytes, ..NOTHING }
    }

    /// Makes a stage of concurrent messages to all other members. On several nodes only inter-node messages count, because intra-node
    /// messages end earlier.
    fn to_all(self, bytes: f64) -> Stage {
        let far = match self.at {
            At::Ranks(shape) if shape.nodes > 1 => self.count - shape.on_node,
            _ => self.count - 1,
        };
        self.round_stage(self.count, false, far, bytes)
    }

    /// Makes a stage of messages to all other members, at most `window` of them at once.
    fn windows(self, window: u32, bytes: f64) -> Stage {
        let all = self.to_all(bytes);
        let messages = all.messages.min(f64::from(window));
        Stage { messages, ..all }.times(if messages > 0.0 { all.messages / messages } else { 1.0 })
    }

    /// Whether a round costs only as much as its intra-node messages, if `to_come` rounds are left. In rounds with growing distances, data
    /// crosses from node to node at most as often as there are nodes, so the inter-node messages of earlier rounds delay no rank.
    fn is_intra_node(self, distance: u32, to_come: u32) -> bool {
        matches!(self.at, At::Ranks(shape) if shape.in_order && distance < shape.on_node && to_come > shape.nodes)
    }

    /// Returns the stages (local work and messages) of a member in an algorithm, if its formula is known. `bytes` is the size of a block
    /// in an allgather and a reduce_scatter, of the whole vector in an allreduce, and of the data from one member to one other in an
    /// alltoall.
    pub(super) fn stages(self, collective: Collective, expression: &Expression, bytes: f64) -> Option<Vec<Stage>> {
        let (count, members) = (self.count, f64::from(self.count));
        if count < 2 {
            return Some(Vec::new());
        }
        Some(match collective {
            Collective::Allgather => self.gathers(expression, bytes)?,
            // A reduce_scatter is an allgather run backwards, with received data reduced.
            Collective::ReduceScatter => {
                let adding = |stage: Stage| [stage, Stage::reduces(stage.messages * stage.bytes).times(stage.times)];
                self.gathers(reverse(expression), bytes)?.into_iter().rev().flat_map(adding).collect()
            }
            Collective::Allreduce => match expression {
                Expression::Plain(Plain::RecursiveDoubling) => {
                    let rounds = (0..count.next_power_of_two().ilog2())
                        .map(|round| self.round_stage(1 << round, count.is_power_of_two(), 1, bytes));
                    let adding = |stage| [Stage::copies(bytes), stage, Stage::reduces(bytes)];
                    rounds.flat_map(adding).collect()
                }
                Expression::Plain(Plain::Rabenseifner) => {
                    self.rsag(&Expression::Plain(Plain::RecursiveHalving), bytes)?
                }
                Expression::Plain(Plain::Ring) => self.rsag(expression, bytes)?,
                Expression::ReduceScatterAllgather(of) => self.rsag(of, bytes)?,
                // Every member receives the vectors of all members, then reduces them.
                Expression::Plain(Plain::SpreadOut) | Expression::SpreadOut { .. } | Expression::Bruck(_) => {
                    let mut stages = self.gathers(expression, bytes)?;
                    stages.extend([Stage::copies(bytes), Stage::reduces((members - 1.0) * bytes)]);
                    stages
                }
                _ => return None,
            },
            Collective::Alltoall => match expression {
                Expression::Plain(Plain::SpreadOut) => vec![self.to_all(bytes)],
                Expression::Plain(Plain::Pairwise) => vec![self.windows(1, bytes)],
                Expression::SpreadOut { window } => vec![self.windows(*window, bytes)],
                Expression::Bruck(radix) | Expression::ModifiedBruck(radix) => {
                    let mut stages = vec![Stage::copies(members * bytes)];
                    let radix = (*radix).max(2);
                    let mut digit = 1u32;
                    while digit < count {
                        let ports = (radix - 1).min((count - 1) / digit);
                        let each = members / f64::from(radix.min(count.div_ceil(digit))) * bytes;
                        let near = self.is_intra_node(digit, rounds_left(count, digit, radix));
                        stages.push(self.round_stage(digit, near, 1, each).times(f64::from(ports)));
                        stages.push(Stage::copies(each * f64::from(ports)));
                        digit = digit.saturating_mul(radix);
                    }
                    if matches!(expression, Expression::Bruck(_)) {
                        stages.push(Stage::copies(members * bytes));
                    }
                    stages
                }
                _ => return None,
            },
        })
    }

    /// Returns the stages of an allreduce of `bytes` as a reduce_scatter and an allgather. In recursive doubling and halving, only a power
    /// of two members own pieces. Each of the others sends its vector to one of these members first, and receives the result at the end.
    fn rsag(self, of: &Expression, bytes: f64) -> Option<Vec<Stage>> {
        let (core, fold) = match of {
            Expression::Plain(Plain::RecursiveDoubling | Plain::RecursiveHalving) if !self.count.is_power_of_two() => {
                let distance = if *of == Expression::Plain(Plain::RecursiveDoubling) { self.count } else { 1 };
                let core = Members { count: 1 << self.count.ilog2(), ..self };
                (core, Some(self.round_stage(distance, true, 1, bytes)))
            }
            _ => (self, None),
        };
        let piece = bytes / f64::from(core.count);
        let mut stages: Vec<Stage> = fold.into_iter().flat_map(|stage| [stage, Stage::reduces(bytes)]).collect();
        stages.extend(core.stages(Collective::ReduceScatter, reverse(of), piece)?);
        stages.extend(core.gathers(of, piece)?);
        stages.extend(fold);
        Some(stages)
    }

    /// Returns the stages of an allgather in which each member has a block of `bytes`, if its formula is known.
    fn gathers(self, expression: &Expression, bytes: f64) -> Option<Vec<Stage>> {
        let count = self.count;
        Some(match expression {
            // A block waits for the latency between nodes as often as there are nodes. Meanwhile, and in the other steps, all blocks
            // pass from node to node one after the other.
            Expression::Plain(Plain::Ring) => {
                let far = match self.at {
                    At::Ranks(shape) if shape.in_order => shape.nodes.min(count - 1),
                    _ => count - 1,
                };
                let beside = if self.reach(1, false).0 == LinkClass::Network { bytes } else { 0.0 };
                let near = Stage { beside, ..self.round_stage(1, true, 1, bytes) };
                let near = near.times(f64::from(count - 1 - far));
                vec![self.round_stage(1, false, 1, bytes).times(f64::from(far)), near]
            }
            // As in a ring, with two blocks in each message but the first, which pass a node's border in every other step.
            Expression::Plain(Plain::NeighborExchange) if count.is_multiple_of(2) => {
                let steps = count / 2 - 1;
                let far = match self.at {
                    At::Ranks(shape) if shape.in_order => (shape.nodes / 2).min(steps),
                    _ => steps,
                };
                let beside = if self.reach(1, false).0 == LinkClass::Network { bytes } else { 0.0 };
                let near = Stage { beside, ..self.round_stage(1, true, 1, 2.0 * bytes) };
                let [first, far] = [(1, bytes), (far, 2.0 * bytes)]
                    .map(|(times, bytes)| self.round_stage(1, false, 1, bytes).times(f64::from(times)));
                vec![first, far, near.times(f64::from(steps) - far.times)]
            }
            Expression::Plain(Plain::SpreadOut) => vec![self.to_all(bytes)],
            Expression::SpreadOut { window } => vec![self.windows(*window, bytes)],
            Expression::Plain(Plain::Pairwise) => vec![self.windows(1, bytes)],
            Expression::Plain(Plain::RecursiveDoubling | Plain::RecursiveHalving) => {
                let even = count.is_power_of_two();
                let mut stages = match expression {
                    Expression::Plain(Plain::RecursiveHalving) => self.halves(bytes),
                    _ => self.doubles(2, bytes, even),
                };
                // Members beyond the largest power of two send their block to another member first, and receive all blocks at the end.
                if !even {
                    stages.insert(0, self.round_stage(count, false, 1, bytes));
                    stages.push(self.round_stage(count, false, 1, f64::from(count - 1) * bytes));
                }
                stages
            }
            Expression::Bruck(radix) => self.doubles((*radix).max(2), bytes, false),
            // At each halved distance, the blocks whose distance is an odd multiple of it.
            Expression::Plain(Plain::Sparbit) => {
                let rounds = (0..count.next_power_of_two().ilog2()).rev().map(|power| 1 << power);
                let blocks = |distance: u32| count.div_ceil(distance) - count.div_ceil(2 * distance);
                rounds
                    .map(|distance| self.round_stage(distance, false, 1, f64::from(blocks(distance)) * bytes))
                    .collect()
            }
            _ => return None,
        })
    }

    /// Returns the stages of an allgather in which partners at halving distances exchange all the blocks that they hold.
    fn halves(self, bytes: f64) -> Vec<Stage> {
        let rounds = self.count.ilog2();
        (0..rounds)
            .map(|round| self.round_stage(1 << (rounds - 1 - round), true, 1, bytes * f64::from(1u32 << round)))
            .collect()
    }

    /// Returns the stages of an allgather in which every member receives the data of up to `radix - 1` other members in each round.
    fn doubles(self, radix: u32, bytes: f64, is_near: bool) -> Vec<Stage> {
        let count = self.count;
        let mut stages = Vec::new();
        let mut have = 1u32;
        while have < count {
            let messages = (radix - 1).min((count - 1) / have);
            let each = f64::from(have.min(count - have)) * bytes;
            let near = is_near || self.is_intra_node(have, rounds_left(count, have, radix));
            stages.push(self.round_stage(have, near, messages, each));
            have = have.saturating_mul(radix);
        }
        stages
    }
}

/// Returns the number of rounds until every member has the data of all, if each has the data of `known` members now.
fn rounds_left(count: u32, known: u32, radix: u32) -> u32 {
    count.div_ceil(known.max(1)).max(2).saturating_sub(1).ilog(radix.max(2)) + 1
}

/// Returns the allgather whose reverse is a reduce_scatter: growing distances become shrinking ones.
fn reverse(scatter: &Expression) -> &Expression {
    const DOUBLING: &Expression = &Expression::Plain(Plain::RecursiveDoubling);
    const HALVING: &Expression = &Expression::Plain(Plain::RecursiveHalving);
    match scatter {
        Expression::Plain(Plain::RecursiveDoubling) => HALVING,
        Expression::Plain(Plain::RecursiveHalving) => DOUBLING,
        other => other,
    }
}
