//! Shares the rate limits of ranks and nodes among concurrent messages by max–min fairness: each message gets the rate that it can use,
//! and the remaining capacity is shared evenly among the messages that could use more.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A flow: a message in transfer from a node to another. It represents the messages that all ranks of one class on the node send at the
/// same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// Class that sends the message, and index of the message in `Class::partners`.
    pub(super) message: (u32, u32),
    /// Bytes that remain to be sent.
    pub(super) left: f64,
    /// Rate of the message without limits of its rank or node, in bytes per second.
    pub(super) most: f64,
    /// Number of ranks of the node that send such a message at the same time.
    pub(super) ranks: u32,
    /// Time per byte at the rate limit of the node, in seconds; 0 without a limit.
    pub(super) of_node: f64,
}

/// An event at a node: a flow begins, or a flow ends unless an earlier event changes its rate.
#[derive(Clone, Copy, Debug)]
struct Event {
    time: f64,
    node: u32,
    what: EventKind,
}

#[derive(Clone, Copy, Debug)]
enum EventKind {
    Begins(Flow),
    /// The end of a flow at its current rate, with the value of `Node::plan`, which counts changes of rates. The event is ignored if rates
    /// have changed since.
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
    /// Messages in transfer from the node, with their current rates in bytes per second.
    flows: Vec<(Flow, f64)>,
    since: f64,
    plan: u32,
}

pub(super) struct Sharing {
    /// Limit of the rate at which one rank sends, in bytes per second.
    rank: Option<f64>,
    nodes: Vec<Node>,
    events: BinaryHeap<Reverse<Event>>,
}

impl Sharing {
    pub(super) fn new(rank: Option<f64>, nodes: usize) -> Sharing {
        Sharing { rank, nodes: vec![Node::default(); nodes], events: BinaryHeap::new() }
    }

    /// Adds a flow that begins at `time`, which must not be before the last event returned by `next`.
    pub(super) fn add(&mut self, node: u32, time: f64, flow: Flow) {
        self.events.push(Reverse(Event { time, node, what: EventKind::Begins(flow) }));
    }

    /// Processes the next event at one node, and appends the messages whose transfer is complete to `through`. Returns the time of the
    /// event, or `None` if no event is left.
    pub(super) fn next(&mut self, through: &mut Vec<(u32, u32)>) -> Option<f64> {
        let Reverse(first) = self.events.pop()?;
        let node = &mut self.nodes[first.node as usize];
        let mut begins: Vec<Flow> = Vec::new();
        let mut ends = false;
        let mut note = |event: Event| match event.what {
            EventKind::Begins(flow) => begins.push(flow),
            EventKind::Ends(plan) => ends |= plan == node.plan,
        };
        note(first);
        // All events of the node at the same time are processed together.
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
        // A remainder of the size of a rounding error counts as sent.
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
            let event = Event { time: first.time + soonest, node: first.node, what: EventKind::Ends(node.plan) };
            self.events.push(Reverse(event));
        }
        Some(first.time)
    }
}

/// Sets the rates of all flows. All rates rise together; that of a flow stops rising at the flow's own maximum, or when the rate limit of
/// its rank or of the node is reached.
fn share(rank: Option<f64>, flows: &mut [(Flow, f64)]) {
    // After sorting, flows of one class are adjacent.
    flows.sort_by_key(|(flow, _)| flow.message.0);
    flows.iter_mut().for_each(|(flow, rate)| *rate = flow.most);
    if let Some(limit) = rank {
        for rank in flows.chunk_by_mut(|(a, _), (b, _)| a.message.0 == b.message.0) {
            cap_rates(rank, |_| 1.0 / limit);
        }
    }
    cap_rates(flows, |flow| f64::from(flow.ranks) * flow.of_node);
}

/// Caps the rates of flows at a common value, at which all flows together use a limit fully. `each` returns the fraction of the limit that
/// a flow uses per unit of rate; flows for which it returns 0 are not capped.
fn cap_rates(flows: &mut [(Flow, f64)], each: impl Fn(&Flow) -> f64) {
    let mut level = f64::INFINITY;
    // Flows with at most this rate keep their maximum rate. The capacity that they leave raises the common value, so more flows may keep
    // theirs.
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
        // Rounding errors are removed.
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
        let flow = |class, of_node| (Flow { message: (class, 0), left: 1.0, most: 8.0, ranks: 1, of_node }, 0.0);
        // The node can send the first kind of message at a rate of 10, the second at 5, and the third without limit. The first two get
        // 10/3 each, which is one third and two thirds of the capacity.
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
        // The first flow has sent 50 bytes when the second begins. Both get a rate of 5 until the second ends at time 10; then the first
        // has 25 bytes left.
        assert_eq!(log, [(1, 10.0), (0, 12.5)]);
    }
}
