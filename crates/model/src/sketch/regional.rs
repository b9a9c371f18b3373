//! Cost formulas (sketches) of node-aware algorithms: the messages between nodes, and the work of the ranks of a node before and after
//! them.

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Lanes;
use bruckner_schedule::{Collective, Level};

use super::among::{At, Members};
use super::{NOTHING, Shape, Stage};
use crate::steps::LinkClass;

/// Returns the stages (local work and messages) of the rank that has the most to do in a node-aware algorithm, if its formula is known.
/// Algorithms for levels other than nodes have no formula.
pub(super) fn stages(collective: Collective, expression: &Expression, shape: Shape, bytes: f64) -> Option<Vec<Stage>> {
    match expression {
        Expression::Locality { level: Level::NODE, inside, lanes } => {
            // Within a node, only the shared-memory algorithm has a formula.
            (inside.to_string() == "shm").then(|| locality(collective, *lanes, shape, bytes))
        }
        Expression::Leader { level: Level::NODE, between, leaders } => {
            leader_stages(collective, between, *leaders, shape, bytes)
        }
        Expression::MultiLane { level: Level::NODE, between } => lane_stages(collective, between, shape, bytes),
        _ => None,
    }
}

/// A round in which the ranks of a node exchange messages with other nodes.
struct Reached {
    /// Number of nodes whose data each message contains.
    carried: f64,
    /// Number of messages that each sending rank sends.
    messages: f64,
    /// Number of nodes whose data a node receives in this round.
    got: f64,
    /// Number of ranks of a node that send messages in this round.
    senders: u32,
}

fn rounds(lanes: Lanes, shape: Shape) -> Vec<Reached> {
    let ports = if let Lanes::PerRank(ports) = lanes { ports.max(1) } else { 1 };
    let groups = match lanes {
        Lanes::Paper => shape.on_node.max(2),
        _ => shape.on_node.saturating_mul(ports).saturating_add(1),
    };
    let (mut have, mut rounds) = (1u32, Vec::new());
    while have < shape.nodes {
        let now = have.saturating_mul(groups).min(shape.nodes);
        let reached = (now - have).div_ceil(have);
        let messages = reached.div_ceil(shape.on_node);
        rounds.push(Reached {
            carried: f64::from(have.min(shape.nodes - have)),
            messages: f64::from(messages),
            got: f64::from(now - have),
            senders: reached.min(shape.on_node),
        });
        have = now;
    }
    rounds
}

fn locality(collective: Collective, lanes: Lanes, shape: Shape, bytes: f64) -> Vec<Stage> {
    let on_node = f64::from(shape.on_node);
    let (others, block) = (on_node - 1.0, on_node * bytes);
    let message = |senders: u32, messages: f64, bytes: f64| Stage {
        senders,
        reach: LinkClass::Network,
        messages,
        bytes,
        ..NOTHING
    };
    let (copies, shares, reduces, meets) = (Stage::copies, Stage::shares, Stage::reduces, Stage::meets());
    let rounds = rounds(lanes, shape);
    match collective {
        Collective::Allgather => {
            let mut stages = vec![copies(bytes), shares(on_node * bytes), meets];
            for Reached { carried, messages, got, senders } in rounds {
                let each = carried * block;
                stages.extend([message(senders, messages, each), shares(got * block), meets]);
            }
            stages.push(meets);
            stages
        }
        Collective::ReduceScatter => {
            let mut stages = vec![copies(f64::from(shape.ranks()) * bytes)];
            for Reached { carried, messages, got, senders } in rounds.into_iter().rev() {
                let each = carried * block;
                let sent = messages * each;
                stages.extend([shares((got * block - sent).max(0.0)), meets]);
                stages.extend([reduces(others * sent), message(senders, messages, each), reduces(sent)]);
            }
            stages.extend([shares(others * bytes), meets, copies(bytes), reduces(others * bytes), meets]);
            stages
        }
        Collective::Allreduce => {
            let mut stages =
                vec![copies(2.0 * bytes), shares(bytes), meets, shares(others * bytes), reduces(others * bytes)];
            let mut have = 1.0;
            for Reached { messages, got, senders, .. } in rounds {
                // Number of partial results that a node receives, rounded up if the last round is not full.
                let told = (got / have).ceil();
                stages.extend([message(senders, messages, bytes), shares(messages * bytes), meets, copies(bytes)]);
                stages.extend([shares((told - messages).max(0.0) * bytes), reduces(told * bytes)]);
                have += got;
            }
            stages.push(meets);
            stages
        }
        Collective::Alltoall => {
            let nodes = f64::from(shape.nodes);
            let messages = f64::from((shape.nodes - 1).div_ceil(shape.on_node));
            let mine = messages * on_node * bytes;
            let all = f64::from(shape.ranks()) * bytes;
            vec![
                copies(bytes + mine),
                shares(all - bytes - mine),
                meets,
                shares(others * (mine + bytes)),
                message(shape.on_node.min(shape.nodes - 1), messages, on_node * block),
                copies(mine),
                shares(others * mine),
                meets,
                shares((nodes - 1.0 - messages).max(0.0) * block),
                meets,
            ]
        }
    }
}

/// Returns the stages of an algorithm in which `leaders` ranks of each node exchange messages on behalf of the others.
fn leader_stages(
    collective: Collective,
    between: &Expression,
    leaders: u32,
    shape: Shape,
    bytes: f64,
) -> Option<Vec<Stage>> {
    let leaders = leaders.clamp(1, shape.on_node);
    let (nodes, on_node) = (f64::from(shape.nodes), f64::from(shape.on_node));
    let (others, far) = (on_node - 1.0, nodes - 1.0);
    let share = on_node / f64::from(leaders);
    let among = |bytes: f64| Members { count: shape.nodes, at: At::Nodes(leaders) }.stages(collective, between, bytes);
    let (copies, shares, reduces, meets) = (Stage::copies, Stage::shares, Stage::reduces, Stage::meets());
    let (before, messages, after) = match collective {
        Collective::Allgather => (
            vec![copies(bytes), shares(bytes), meets, shares(others * bytes)],
            among(share * bytes)?,
            // Ranks that are not leaders copy all received data.
            vec![shares(far * share * bytes), meets, shares(far * on_node * bytes), meets],
        ),
        Collective::ReduceScatter => (
            vec![copies(f64::from(shape.ranks()) * bytes), meets, reduces(others * far * share * bytes)],
            among(share * bytes)?,
            vec![shares(others * bytes), meets, copies(bytes), reduces(others * bytes), meets],
        ),
        Collective::Allreduce => {
            let piece = bytes / f64::from(leaders);
            (
                vec![shares(bytes), meets, copies(piece), shares(piece), reduces(others * piece)],
                among(piece)?,
                vec![copies(piece), shares(piece), meets, shares(bytes), meets],
            )
        }
        Collective::Alltoall => (
            vec![
                copies((1.0 + far * on_node) * bytes),
                shares(others * bytes),
                meets,
                shares(((share - 1.0) * far * on_node + others) * bytes),
            ],
            among(on_node * share * bytes)?,
            vec![
                copies(far * share * bytes),
                shares(others * far * share * bytes),
                meets,
                shares(if leaders == 1 { far * on_node } else { far * (on_node - share) } * bytes),
                meets,
            ],
        ),
    };
    Some([before, messages, after].concat())
}

/// Returns the stages of an algorithm in which every rank of a node exchanges an equal share of the data.
fn lane_stages(collective: Collective, between: &Expression, shape: Shape, bytes: f64) -> Option<Vec<Stage>> {
    let (nodes, on_node) = (f64::from(shape.nodes), f64::from(shape.on_node));
    let others = on_node - 1.0;
    let among =
        |bytes: f64| Members { count: shape.nodes, at: At::Nodes(shape.on_node) }.stages(collective, between, bytes);
    let (copies, shares, reduces, meets) = (Stage::copies, Stage::shares, Stage::reduces, Stage::meets());
    let (before, messages, after) = match collective {
        Collective::Allgather => (
            vec![copies(bytes)],
            among(bytes)?,
            vec![shares(nodes * bytes), meets, shares(others * nodes * bytes), meets],
        ),
        Collective::ReduceScatter => (
            vec![
                copies(f64::from(shape.ranks()) * bytes),
                shares(others * nodes * bytes),
                meets,
                reduces(others * nodes * bytes),
            ],
            among(bytes)?,
            vec![copies(bytes), meets],
        ),
        Collective::Allreduce => {
            let piece = bytes / on_node;
            (
                vec![shares(others * piece), meets, copies(piece), shares(piece), reduces(others * piece)],
                among(piece)?,
                vec![shares(piece), meets, shares(others * piece), meets],
            )
        }
        Collective::Alltoall => return leader_stages(collective, between, shape.on_node, shape, bytes),
    };
    Some([before, messages, after].concat())
}
