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
    /// The time of the node that each byte of it takes: 0 where there is no limit.
    pub(super) of_node: f64,
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
    /// The most that one rank sends at a time, in bytes a second.
    rank: Option<f64>,
    nodes: Vec<Node>,
    events: BinaryHeap<Reverse<Event>>,
}

impl Sharing {
    pub(super) fn new(rank: Option<f64>, nodes: usize) -> Sharing {
        Sharing { rank, nodes: vec![Node::default(); nodes], events: BinaryHeap::new() }
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
        share(self.rank, &mut node.flows);
        node.plan += 1;
        let soonest = node.flows.iter().map(|(flow, rate)| flow.left / rate).fold(f64::INFINITY, f64::min);
        if soonest.is_finite() {
            let event = Event { time: first.time + soonest, node: first.node, what: What::Ends(node.plan) };
            self.events.push(Reverse(event));
        }
        Some(first.time)
    }
}

/// Gives every flow its rate: all rise together; a flow stops where it can use no more, those of a rank where the rank can send no
/// more, all where the node cannot.
fn share(rank: Option<f64>, flows: &mut [(Flow, f64)]) {
    // Flows of one class are next to each other.
    flows.sort_by_key(|(flow, _)| flow.message.0);
    flows.iter_mut().for_each(|(flow, rate)| *rate = flow.most);
    if let Some(limit) = rank {
        for rank in flows.chunk_by_mut(|(a, _), (b, _)| a.message.0 == b.message.0) {
            fill(rank, |_| 1.0 / limit);
        }
    }
    fill(flows, |flow| f64::from(flow.ranks) * flow.of_node);
}

/// Cuts off rates at the level at which all together take the whole time of somebody. Those that take none of it stay.
fn fill(flows: &mut [(Flow, f64)], each: impl Fn(&Flow) -> f64) {
    let mut level = f64::INFINITY;
    // Flows that use no more than this are content. What they leave raises the level of the others, and more may be.
    let mut below = 0.0;
    loop {
        let (mut used, mut rising) = (0.0, 0.0);
        for (flow, rate) in &*flows {
            match *rate <= below {
                true => used += rate * each(flow),
                false => rising += each(flow),
            }
        }
        if rising == 0.0 {
            break;
        }
        level = (1.0 - used) / rising;
        if flows.iter().all(|(_, rate)| *rate <= below || *rate > level) {
            break;
        }
        below = level;
    }
    flows.iter_mut().filter(|(flow, _)| each(flow) > 0.0).for_each(|(_, rate)| *rate = rate.min(level));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(rank: Option<f64>, most: &[(u32, f64, u32)]) -> Vec<f64> {
        let flow = |&(class, most, ranks): &(u32, f64, u32)| {
            (Flow { message: (class, 0), left: 1.0, most, ranks, of_node: 0.1 }, 0.0)
        };
        let mut flows: Vec<_> = most.iter().map(flow).collect();
        share(rank, &mut flows);
        // What rounding leaves is nothing.
        flows.into_iter().map(|(_, rate)| (rate * 1e9).round() / 1e9).collect()
    }

    #[test]
    fn what_one_cannot_use_the_others_get() {
        let node = None;
        assert_eq!(rates(node, &[(0, 4.0, 1), (1, 4.0, 1)]), [4.0, 4.0]);
        assert_eq!(rates(node, &[(0, 8.0, 1), (1, 8.0, 1)]), [5.0, 5.0]);
        assert_eq!(rates(node, &[(0, 8.0, 1), (1, 2.0, 1), (2, 9.0, 1)]), [4.0, 2.0, 4.0]);
        assert_eq!(rates(node, &[(0, 8.0, 3), (1, 1.0, 1)]), [3.0, 1.0]);
    }

    #[test]
    fn messages_of_one_rank_share_what_it_can_send() {
        let both = Some(4.0);
        assert_eq!(rates(both, &[(0, 8.0, 1), (0, 8.0, 1), (1, 8.0, 1)]), [2.0, 2.0, 4.0]);
        assert_eq!(rates(both, &[(0, 1.0, 1), (0, 8.0, 1)]), [1.0, 3.0]);
        assert_eq!(rates(both, &[(0, 8.0, 5)]), [2.0]);
    }

    #[test]
    fn kinds_of_messages_take_more_of_a_node_or_less() {
        let flow =
            |class, of_node| (Flow { message: (class, 0), left: 1.0, most: 8.0, ranks: 1, of_node }, 0.0);
        // One kind can be sent at 10, one at 5, one without limit: 10/3 and 10/3 take a third and two thirds.
        let mut flows = [flow(0, 0.1), flow(1, 0.2), flow(2, 0.0)];
        share(None, &mut flows);
        let rates = flows.map(|(_, rate)| rate);
        assert!((rates[0] - 10.0 / 3.0).abs() < 1e-12 && (rates[1] - 10.0 / 3.0).abs() < 1e-12, "{rates:?}");
        assert_eq!(rates[2], 8.0);
    }

    #[test]
    fn flows_slow_each_other_down_while_both_last() {
        let mut sharing = Sharing::new(None, 1);
        let flow = |class, left| Flow { message: (class, 0), left, most: 10.0, ranks: 1, of_node: 0.1 };
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
