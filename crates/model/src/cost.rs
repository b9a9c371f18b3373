//! Cost formulas from the literature, evaluated on the steps of one rank without simulating the others.
//!
//! The rounds of a rank run one after the other; messages of one round run concurrently. The cost of a rank is the sum of its rounds and
//! its local work. If all ranks do the same, this is the cost of the collective, computed from the steps of one rank only. Only the
//! [simulation](crate::Simulation) accounts for ranks that wait for others with more work.

use crate::machine::Machine;
use crate::steps::{CostStep, LinkClass};

/// Cost model from the literature. The models are in order of increasing detail: each refines the model before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Model {
    /// Postal model (Hockney): the latency and transfer rate of the network for all messages.
    Postal,
    /// Locality-aware model: latency and transfer rate by the link class of each message.
    Locality,
    /// Max-rate model: also limits the rates at which a node and a rank send and receive, assuming that all ranks of the node send and
    /// receive the same amount.
    MaxRate,
    /// LogGP model: also counts a rank's overhead for starting and finishing messages, and the gap between two messages.
    LogGp,
}

/// Messages of one round, added up. Times are in seconds.
#[derive(Default)]
struct Round {
    messages: u32,
    /// Time from the start of the round until the next message can start.
    busy: f64,
    longest: f64,
    finished: u32,
    /// Time from the start of the round until the transfer of the first inter-node message starts. `shared` is the time that all
    /// inter-node messages take at the rate limit.
    first: f64,
    shared: f64,
}

impl Model {
    /// Returns the cost of a rank's steps by this model, in seconds, with `on_node` ranks on its node.
    pub fn cost(self, machine: &Machine, steps: &[CostStep], on_node: u32) -> f64 {
        let costs = &machine.rank;
        let is_loggp = self == Model::LogGp;
        let overhead = if is_loggp { costs.overhead } else { 0.0 };
        let message = |bytes: u64, reach: LinkClass| {
            let reach = if self == Model::Postal { LinkClass::Network } else { reach };
            let protocol = machine.link(reach).protocol(bytes);
            (protocol.latency, bytes as f64 * protocol.per_byte)
        };
        // Inter-node messages share the rate limit of the node, which all its ranks use, and the rate limit of the rank.
        let shared = |bytes: u64, reach: LinkClass| {
            if self < Model::MaxRate || reach != LinkClass::Network {
                return 0.0;
            }
            let node = f64::from(on_node) / machine.node_rate(bytes);
            bytes as f64 * node.max(1.0 / machine.rank_rate(bytes))
        };
        let (mut total, mut round) = (0.0, Round::default());
        let mut close = |round: &mut Round| {
            let Round { messages, longest, first, shared, .. } = std::mem::take(round);
            total += longest.max(first + shared) + 2.0 * overhead * f64::from(messages);
        };
        let mut others = 0.0;
        for (at, step) in steps.iter().enumerate() {
            if round.finished > 0 && !matches!(step, CostStep::Finish { .. }) {
                close(&mut round);
            }
            match *step {
                CostStep::Send { bytes, reach } => {
                    let (latency, transfer) = message(bytes, reach);
                    let (start, share) = (round.busy + latency, shared(bytes, reach));
                    round.longest = round.longest.max(start + transfer);
                    if share > 0.0 {
                        round.first = if round.shared > 0.0 { round.first.min(start) } else { start };
                        round.shared += share;
                    }
                    round.busy += if is_loggp { machine.gap(reach) } else { 0.0 };
                    round.messages += 1;
                }
                CostStep::Recv { bytes, reach } => {
                    let (latency, transfer) = message(bytes, reach);
                    round.longest = round.longest.max(latency + transfer.max(shared(bytes, reach)));
                    round.messages += 1;
                }
                CostStep::Finish { .. } => round.finished += 1,
                CostStep::Work(work) => others += machine.work(&work),
                CostStep::Signal(_) => {}
                // Consecutive waits take the time of one wait, because their flags are seen at the same time.
                CostStep::Wait { .. } if matches!(steps.get(at + 1), Some(CostStep::Wait { .. })) => {}
                CostStep::Wait { .. } => others += machine.flag(),
                CostStep::Barrier(_) => others += machine.barrier(on_node),
            }
        }
        close(&mut round);
        total + others
    }
}

#[cfg(test)]
mod tests {
    //! Closed formulas from the papers. If a formula in a paper is wrong, the test uses the corrected one and its comment gives the
    //! difference.
    use bruckner_algorithms::{Task, TaskPlan, plan};
    use bruckner_schedule::{Collective, Level, Rank};

    use super::*;
    use crate::machine::{Injection, Link, Protocol};
    use crate::steps_of;

    const ALPHA: f64 = 1e-6;
    const BETA: f64 = 1e-9;
    const NEAR: (f64, f64) = (2e-7, 3e-10);
    const GAMMA: f64 = 5e-11;

    /// Makes a machine with a network and a cost of reductions, and with intra-node parameters and an injection limit if they are given.
    fn machine(near: Option<(f64, f64)>, rate: Option<f64>) -> Machine {
        let mut machine = Machine::postal(ALPHA, BETA);
        machine.rank.reduce = GAMMA;
        machine.socket = near.map(|(latency, per_byte)| Link {
            source: String::new(),
            gap: None,
            protocols: vec![Protocol { below: None, latency, per_byte, rendezvous: false, injection: None }],
        });
        machine.injection = rate.map(|rate| Injection { rate, source: String::new() });
        machine
    }

    fn planned(collective: Collective, topology: &str, algorithm: &str, bytes: u64) -> TaskPlan {
        let task = Task::new(collective, topology.parse().unwrap()).bytes(bytes);
        plan(&task, &algorithm.parse().unwrap()).unwrap()
    }

    fn cost(model: Model, machine: &Machine, plan: &TaskPlan, rank: u32) -> f64 {
        let steps = steps_of(plan, Rank(rank)).steps;
        model.cost(machine, &steps, plan.topology.span(Level::NODE, 0).len() as u32)
    }

    fn assert_near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-9, "{found} is not {expected}");
    }

    /// Costs of Sparbit, Bruck, ring, neighbour exchange and recursive doubling by Loch et al., where m is all data. Bienz et al. 2022,
    /// Eq. 3, counts m − 1 values for Bruck, which holds if every rank has one value.
    #[test]
    fn allgathers_of_loch_and_bienz() {
        let (p, n) = (16u32, 1000u64);
        let bytes = f64::from(p - 1) * n as f64 * BETA;
        let rounds = |algorithm: &str| match algorithm {
            "ring" => p - 1,
            "neighbor-exchange" => p / 2,
            _ => p.ilog2(),
        };
        for algorithm in ["sparbit", "bruck(2)", "ring", "neighbor-exchange", "recursive-doubling"] {
            let plan = planned(Collective::Allgather, "16x1", algorithm, n);
            let expected = f64::from(rounds(algorithm)) * ALPHA + bytes;
            assert_near(cost(Model::Postal, &machine(None, None), &plan, 3), expected);
        }
    }

    /// Jocksch et al., Eq. 1 and 2, with r − 1 ports, each of which carries (p−1)/(r−1) blocks. In Eq. 2 the ports reduce concurrently;
    /// here one processor reduces p − 1 blocks.
    #[test]
    fn ports_of_jocksch() {
        let (p, r, n) = (27u32, 3u32, 1000u64);
        let sent = f64::from((p - 1) / (r - 1)) * n as f64;
        let gather = planned(Collective::Allgather, "27x1", "bruck(3)", n);
        assert_near(cost(Model::Postal, &machine(None, None), &gather, 5), 3.0 * ALPHA + sent * BETA);
        let scatter = planned(Collective::ReduceScatter, "27x1", "bruck(3)", n);
        let reduced = f64::from(p - 1) * n as f64 * GAMMA;
        assert_near(cost(Model::Postal, &machine(None, None), &scatter, 5), 3.0 * ALPHA + sent * BETA + reduced);
    }

    /// Bienz et al. 2019, Eq. 4: recursive doubling with intra-node rounds first; in the other rounds all ranks of a node send at once.
    #[test]
    fn recursive_doubling_of_bienz() {
        let (ppn, nodes, s) = (4.0, 8.0f64, 4096.0);
        let plan = planned(Collective::Allreduce, "8x4", "recursive-doubling", 4096);
        for rate in [2e9, 1e12] {
            let far = ALPHA + ppn * s / f64::min(rate, ppn / BETA);
            let expected = 2.0 * (NEAR.0 + NEAR.1 * s) + far * nodes.log2() + GAMMA * s * 5.0;
            assert_near(cost(Model::MaxRate, &machine(Some(NEAR), Some(rate)), &plan, 0), expected);
        }
    }

    /// Bienz et al. 2019, Eq. 5 and 6, restricted to the network: log2 n messages if one rank of a node sends, log_ppn n if all do. Within
    /// a node, these algorithms use shared memory here.
    #[test]
    fn leaders_and_nap_of_bienz() {
        let far = |plan: &TaskPlan, rank| {
            let steps = steps_of(plan, Rank(rank)).steps;
            let sends = |step: &&CostStep| matches!(step, CostStep::Send { reach: LinkClass::Network, .. });
            steps.iter().filter(sends).count()
        };
        let leader = planned(Collective::Allreduce, "16x4", "leader(node, between=recursive-doubling)", 8);
        assert_eq!((far(&leader, 0), far(&leader, 1)), (4, 0));
        let nap = planned(Collective::Allreduce, "16x4", "locality(node, lanes=paper)", 8);
        assert_eq!((0..64).map(|rank| far(&nap, rank)).max(), Some(2));
    }

    /// Bienz et al. 2022, Eq. 4, counts b/p_ℓ bytes that leave a region for each rank. This holds if there are as many regions as ranks in
    /// a region. With 64 ranks in regions of 4, the number is 20 values, not 16.
    #[test]
    fn locality_aware_bruck_of_bienz() {
        let far = |topology: &str| {
            let plan = planned(Collective::Allgather, topology, "locality(node, lanes=paper)", 8);
            let bytes = |rank| {
                let steps = steps_of(&plan, Rank(rank)).steps;
                let far = steps.iter().map(|step| match step {
                    CostStep::Send { bytes, reach: LinkClass::Network } => *bytes,
                    _ => 0,
                });
                far.sum::<u64>()
            };
            (0..plan.topology.ranks()).map(bytes).max().unwrap() / 8
        };
        assert_eq!((far("4x4"), far("16x4")), (4, 20));
    }
}
