//! What a rank and what a node can send, shared among the messages that they send: each gets what it can use, and what is left over is
//! shared evenly among those that could use more (max–min).

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Bytes of a message on their way out of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// A class, and which of its messages.
    pub(super) message: (u32, u32),
    /// Bytes that are still to go.
    pub(super) left: f64,
    /// The rate that it could use.
    pub(super) most: f64,
    /// How many ranks of the node send such a one.
    pub(super) ranks: u32,
}

/// The most that is sent at a time, in bytes a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// By all ranks of a node.
    pub(super) node: Option<f64>,
    /// By one rank.
    pub(super) rank: Option<f64>,
}

/// Something happens at a node: a flow begins, or one ends if nothing changes before.
#[derive(Clone, Copy, Debug)]
struct Event {
    time: f64,
    node: u32,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Begins(Flow),
    /// By the plans of this number; there may be newer ones.
    Ends(u32),
}

impl Event {
    fn key(&self) -> (f64, u32) {
        (self.time, self.node)
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Event) -> Ordering {
        let ((time, node), (other_time, other_node)) = (self.key(), other.key());
        time.total_cmp(&other_time).then(node.cmp(&other_node))
    }
}

#[derive(Clone, Default)]
struct Node {
    /// With the rate that each has now.
    flows: Vec<(Flow, f64)>,
    since: f64,
    plan: u32,
}

pub(super) struct Sharing {
    limits: Limits,
    nodes: Vec<Node>,
    events: BinaryHeap<Reverse<Event>>,
}

impl Sharing {
    pub(super) fn new(limits: Limits, nodes: usize) -> Sharing {
        Sharing { limits, nodes: vec![Node::default(); nodes], events: BinaryHeap::new() }
    }

    pub(super) fn is_limited(&self) -> bool {
        self.limits.node.is_some() || self.limits.rank.is_some()
    }

    /// A flow begins at some time, not before what was carried out last.
    pub(super) fn add(&mut self, node: u32, time: f64, flow: Flow) {
        self.events.push(Reverse(Event { time, node, what: What::Begins(flow) }));
    }

    /// Carries out what comes next at one node; messages that are through are added to a list. When that was, or `None` where
    /// nothing is left.
    pub(super) fn next(&mut self, through: &mut Vec<(u32, u32)>) -> Option<f64> {
        let Reverse(first) = self.events.pop()?;
        let node = &mut self.nodes[first.node as usize];
        let mut begins: Vec<Flow> = Vec::new();
        let mut ends = false;
        let mut note = |event: Event| match event.what {
            What::Begins(flow) => begins.push(flow),
            What::Ends(plan) => ends |= plan == node.plan,
        };
        note(first);
        // Whatever happens there at the same time is one change.
        while let Some(Reverse(next)) = self.events.peek() {
            if next.key() != first.key() {
                break;
            }
            note(*next);
            self.events.pop();
        }
        if begins.is_empty() && !ends {
            return Some(first.time);
        }
        let passed = first.time - node.since;
        node.since = first.time;
        for (flow, rate) in &mut node.flows {
            flow.left -= *rate * passed;
        }
        // What a rounding error leaves is nothing.
        node.flows.retain(|(flow, rate)| {
            let over = flow.left <= *rate * first.time.abs().max(1e-9) * 1e-12;
            if over {
                through.push(flow.message);
            }
            !over
        });
        node.flows.extend(begins.into_iter().map(|flow| (flow, 0.0)));
        share(self.limits, &mut node.flows);
        node.plan += 1;
        let soonest = node.flows.iter().map(|(flow, rate)| flow.left / rate).fold(f64::INFINITY, f64::min);
        if soonest.is_finite() {
            let event = Event { time: first.time + soonest, node: first.node, what: What::Ends(node.plan) };
            self.events.push(Reverse(event));
        }
        Some(first.time)
    }
}

/// Gives every flow its rate: all rise together, and stop where they can use no more, or where a limit is reached.
fn share(limits: Limits, flows: &mut [(Flow, f64)]) {
    // Flows of one class are next to each other, those who can use least first.
    flows.sort_by(|(a, _), (b, _)| a.message.0.cmp(&b.message.0).then(a.most.total_cmp(&b.most)));
    let (whole, each) = (limits.node.unwrap_or(f64::INFINITY), limits.rank.unwrap_or(f64::INFINITY));
    let mut rising: Vec<usize> = (0..flows.len()).collect();
    flows.iter_mut().for_each(|(_, rate)| *rate = 0.0);
    while !rising.is_empty() {
        let stopped = |flows: &[(Flow, f64)], of: &dyn Fn(&Flow) -> bool, weighted: bool| -> f64 {
            let all = flows.iter().enumerate().filter(|(at, (flow, _))| of(flow) && !rising.contains(at));
            all.map(|(_, (flow, rate))| if weighted { rate * f64::from(flow.ranks) } else { *rate }).sum()
        };
        let weight: f64 = rising.iter().map(|at| f64::from(flows[*at].0.ranks)).sum();
        let node = (whole - stopped(flows, &|_| true, true)) / weight;
        let level = |at: &usize| {
            let class = flows[*at].0.message.0;
            let alike = rising.iter().filter(|other| flows[**other].0.message.0 == class).count();
            let rank = (each - stopped(flows, &|flow| flow.message.0 == class, false)) / alike as f64;
            flows[*at].0.most.min(rank)
        };
        let levels: Vec<f64> = rising.iter().map(level).collect();
        let lowest = levels.iter().copied().fold(node, f64::min);
        // Nothing rises above what the node has.
        let ends: Vec<bool> = levels.iter().map(|level| node <= lowest || *level <= lowest).collect();
        for (at, _) in rising.iter().zip(&ends).filter(|(_, ends)| **ends) {
            flows[*at].1 = lowest;
        }
        rising = rising.iter().zip(&ends).filter(|(_, ends)| !**ends).map(|(at, _)| *at).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(limits: Limits, most: &[(u32, f64, u32)]) -> Vec<f64> {
        let flow = |&(class, most, ranks): &(u32, f64, u32)| {
            (Flow { message: (class, 0), left: 1.0, most, ranks }, 0.0)
        };
        let mut flows: Vec<_> = most.iter().map(flow).collect();
        share(limits, &mut flows);
        flows.into_iter().map(|(_, rate)| rate).collect()
    }

    #[test]
    fn what_one_cannot_use_the_others_get() {
        let node = Limits { node: Some(10.0), rank: None };
        assert_eq!(rates(node, &[(0, 4.0, 1), (1, 4.0, 1)]), [4.0, 4.0]);
        assert_eq!(rates(node, &[(0, 8.0, 1), (1, 8.0, 1)]), [5.0, 5.0]);
        assert_eq!(rates(node, &[(0, 8.0, 1), (1, 2.0, 1), (2, 9.0, 1)]), [4.0, 2.0, 4.0]);
        assert_eq!(rates(node, &[(0, 8.0, 3), (1, 1.0, 1)]), [3.0, 1.0]);
    }

    #[test]
    fn messages_of_one_rank_share_what_it_can_send() {
        let both = Limits { node: Some(10.0), rank: Some(4.0) };
        assert_eq!(rates(both, &[(0, 8.0, 1), (0, 8.0, 1), (1, 8.0, 1)]), [2.0, 2.0, 4.0]);
        assert_eq!(rates(both, &[(0, 1.0, 1), (0, 8.0, 1)]), [1.0, 3.0]);
        assert_eq!(rates(both, &[(0, 8.0, 5)]), [2.0]);
    }

    #[test]
    fn flows_slow_each_other_down_while_both_last() {
        let mut sharing = Sharing::new(Limits { node: Some(10.0), rank: None }, 1);
        let flow = |class, left| Flow { message: (class, 0), left, most: 10.0, ranks: 1 };
        sharing.add(0, 0.0, flow(0, 100.0));
        sharing.add(0, 5.0, flow(1, 25.0));
        let mut through = Vec::new();
        let mut log = Vec::new();
        while let Some(now) = sharing.next(&mut through) {
            log.extend(through.drain(..).map(|(class, _)| (class, now)));
        }
        // 50 are through when the other begins; both get 5 until that one is through, at 10; 25 are left then.
        assert_eq!(log, [(1, 10.0), (0, 12.5)]);
    }
}
