//! Shares the capacities of ranks and nodes among concurrent messages by max–min fairness: all messages get the same rate, except that a
//! message that cannot use it leaves the rest to the others.
//!
//! Every rank and every node has two capacities: one for what it sends to other nodes, and one for what it receives from them. When
//! messages begin or end, rates change only for those that share an exhausted capacity with them, directly or through other messages.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use smallvec::SmallVec;

/// Relative difference of times below which events count as simultaneous. Equal times may differ by rounding errors.
const SAME_TIME: f64 = 1e-12;

/// Least rate of a flow, in bytes per second: rounding errors must not stop it.
const MIN_RATE: f64 = 1e-6;

/// Index of a capacity of a rank or a node. Ranks of one class have the same index, and so have nodes with ranks of the same classes,
/// because all of them do the same at the same time.
pub(super) type Capacity = u32;

/// A flow: a message in transfer between nodes. It represents the messages that all ranks of its class send at the same time.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// Class that sends the message, and index of the message in `Class::partners`.
    pub(super) message: (u32, u32),
    /// Bytes that remain to be sent.
    pub(super) left: f64,
    /// Rate of the message without limits of ranks or nodes, in bytes per second.
    pub(super) most: f64,
    /// Capacities that the message uses, each with the part of it that the message uses per byte per second of its rate.
    pub(super) uses: SmallVec<[(Capacity, f64); 4]>,
}

/// Beginning or end of a flow.
#[derive(Clone, Copy, Debug)]
struct Event {
    time: f64,
    /// Index of the flow.
    flow: u32,
    /// Number of changes of the flow's rate before the event. An end is void if the rate has changed since.
    version: u32,
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
        self.time.total_cmp(&other.time).then((self.flow, self.version).cmp(&(other.flow, other.version)))
    }
}

/// A flow that was added, with its current rate.
#[derive(Clone, Debug)]
struct Active {
    flow: Flow,
    /// Bytes per second; 0 before the flow begins.
    rate: f64,
    /// Time up to which `flow.left` is right.
    since: f64,
    version: u32,
    /// Whether the flow is among those whose rates are being computed.
    is_affected: bool,
}

/// State of a capacity.
#[derive(Clone, Default, Debug)]
struct Load {
    /// Flows that use the capacity.
    flows: Vec<u32>,
    /// Whether the capacity is among those whose flows' rates are being computed.
    is_affected: bool,
    /// Part of the capacity that is used by flows whose new rates are known.
    used: f64,
    /// Part of the capacity that the other flows use per byte per second of their rates, and their number.
    rising: f64,
    open: u32,
}

impl Load {
    /// Returns the rate of the flows whose new rates are not known yet, if they exhaust the capacity.
    fn level(&self) -> f64 {
        if self.open == 0 { f64::INFINITY } else { ((1.0 - self.used) / self.rising).max(0.0) }
    }
}

pub(super) struct Sharing {
    flows: Vec<Active>,
    /// Indices in `flows` of flows that have ended.
    free: Vec<u32>,
    loads: Vec<Load>,
    events: BinaryHeap<Reverse<Event>>,
}

impl Sharing {
    pub(super) fn new(capacities: usize) -> Sharing {
        Sharing {
            flows: Vec::new(),
            free: Vec::new(),
            loads: vec![Load::default(); capacities],
            events: BinaryHeap::new(),
        }
    }

    /// Adds a flow that begins at `time`, which must not be before the last event returned by `next`.
    pub(super) fn add(&mut self, time: f64, flow: Flow) {
        let active = Active { flow, rate: 0.0, since: time, version: 0, is_affected: false };
        let index = match self.free.pop() {
            Some(index) => {
                // Events of the flow that had the index before are void.
                let version = self.flows[index as usize].version + 1;
                self.flows[index as usize] = Active { version, ..active };
                index
            }
            None => {
                self.flows.push(active);
                self.flows.len() as u32 - 1
            }
        };
        self.events.push(Reverse(Event { time, flow: index, version: self.flows[index as usize].version }));
    }

    /// Processes the next event and those at the same time, and appends the messages whose transfer is complete to `through`. Returns the
    /// time of the event, or `None` if no event is left.
    pub(super) fn next(&mut self, through: &mut Vec<(u32, u32)>) -> Option<f64> {
        let Reverse(first) = *self.events.peek()?;
        let now = first.time;
        let mut changed: Vec<Capacity> = Vec::new();
        let mut begun: Vec<u32> = Vec::new();
        while let Some(&Reverse(event)) = self.events.peek() {
            if event.time > now + now.abs() * SAME_TIME {
                break;
            }
            self.events.pop();
            let active = &mut self.flows[event.flow as usize];
            if active.version != event.version {
                continue;
            }
            let is_end = active.rate > 0.0;
            for &(capacity, _) in &active.flow.uses {
                let flows = &mut self.loads[capacity as usize].flows;
                // A capacity that was not exhausted with the flow does not limit the others without it.
                changed.push(capacity);
                match is_end {
                    true => flows.retain(|flow| *flow != event.flow),
                    false => flows.push(event.flow),
                }
            }
            match is_end {
                true => {
                    active.version += 1;
                    through.push(active.flow.message);
                    self.free.push(event.flow);
                }
                false => begun.push(event.flow),
            }
        }
        self.share(now, changed, begun);
        Some(now)
    }

    /// Whether the flows that use a capacity would exceed it at their maximum rates, or one of them has a lower rate because they did before.
    fn is_contended(&self, capacity: Capacity) -> bool {
        let part = |flow: &u32| {
            let flow = &self.flows[*flow as usize].flow;
            flow.uses.iter().find(|(used, _)| *used == capacity).map_or(0.0, |(_, part)| part * flow.most)
        };
        let flows = &self.loads[capacity as usize].flows;
        let is_slowed = |flow: &u32| {
            let active = &self.flows[*flow as usize];
            active.rate > 0.0 && active.rate < active.flow.most
        };
        flows.iter().map(part).sum::<f64>() > 1.0 + 1e-9 || flows.iter().any(is_slowed)
    }

    /// Computes the rates of all flows that are affected by a change of the flows that use the capacities `changed`.
    fn share(&mut self, now: f64, changed: Vec<Capacity>, begun: Vec<u32>) {
        let mut affected = begun;
        affected.iter().for_each(|flow| self.flows[*flow as usize].is_affected = true);
        let mut capacities: Vec<Capacity> = Vec::new();
        let mut left = changed;
        while let Some(capacity) = left.pop() {
            if self.loads[capacity as usize].is_affected || !self.is_contended(capacity) {
                continue;
            }
            self.loads[capacity as usize].is_affected = true;
            capacities.push(capacity);
            for &flow in &self.loads[capacity as usize].flows {
                let active = &mut self.flows[flow as usize];
                if !std::mem::replace(&mut active.is_affected, true) {
                    affected.push(flow);
                    left.extend(active.flow.uses.iter().map(|(capacity, _)| *capacity));
                }
            }
        }
        for &index in &affected {
            let active = &mut self.flows[index as usize];
            active.flow.left = (active.flow.left - active.rate * (now - active.since)).max(0.0);
            active.since = now;
        }
        self.fill(&mut affected, &capacities);
        for &index in &affected {
            let active = &mut self.flows[index as usize];
            active.is_affected = false;
            active.version += 1;
            let time = now + active.flow.left / active.rate;
            self.events.push(Reverse(Event { time, flow: index, version: active.version }));
        }
        capacities.iter().for_each(|capacity| self.loads[*capacity as usize].is_affected = false);
    }

    /// Sets the rates of the flows `affected`. The rates of all of them rise together; that of a flow stops rising at the flow's own maximum,
    /// or when one of `capacities` that the flow uses is exhausted.
    fn fill(&mut self, affected: &mut [u32], capacities: &[Capacity]) {
        for &capacity in capacities {
            let load = &mut self.loads[capacity as usize];
            (load.used, load.rising, load.open) = (0.0, 0.0, 0);
        }
        for &index in &*affected {
            let active = &mut self.flows[index as usize];
            active.rate = f64::NAN;
            for &(capacity, part) in &active.flow.uses {
                let load = &mut self.loads[capacity as usize];
                load.rising += part;
                load.open += 1;
            }
        }
        let most = |sharing: &Sharing, index: &u32| sharing.flows[*index as usize].flow.most;
        affected.sort_unstable_by(|a, b| most(self, a).total_cmp(&most(self, b)).then(a.cmp(b)));
        let mut levels: BinaryHeap<Reverse<(Level, Capacity)>> = capacities
            .iter()
            .map(|&capacity| Reverse((Level(self.loads[capacity as usize].level()), capacity)))
            .collect();
        let mut next = affected.iter().copied().peekable();
        loop {
            while next.next_if(|index| !self.flows[*index as usize].rate.is_nan()).is_some() {}
            let Some(&first) = next.peek() else { break };
            // Levels only rise, so an outdated one is corrected when it is the lowest.
            let lowest = loop {
                let Some(Reverse((Level(level), capacity))) = levels.pop() else { break None };
                let current = self.loads[capacity as usize].level();
                if current <= level {
                    break Some((level, capacity));
                }
                if current.is_finite() {
                    levels.push(Reverse((Level(current), capacity)));
                }
            };
            let own = most(self, &first);
            match lowest {
                Some((level, capacity)) if level < own => {
                    for index in self.loads[capacity as usize].flows.clone() {
                        if self.flows[index as usize].rate.is_nan() {
                            self.settle(index, level);
                        }
                    }
                }
                lowest => {
                    levels.extend(lowest.map(|(level, capacity)| Reverse((Level(level), capacity))));
                    self.settle(first, own);
                }
            }
        }
    }

    /// Sets the rate of a flow, and subtracts what it uses from its capacities.
    fn settle(&mut self, index: u32, rate: f64) {
        let Active { flow, rate: current, .. } = &mut self.flows[index as usize];
        *current = rate.max(MIN_RATE);
        for &(capacity, part) in &flow.uses {
            let load = &mut self.loads[capacity as usize];
            load.used += part * *current;
            load.rising -= part;
            load.open -= 1;
        }
    }
}

/// Rate at which a capacity is exhausted, as a key of a heap.
#[derive(Clone, Copy, Debug)]
struct Level(f64);

impl PartialEq for Level {
    fn eq(&self, other: &Level) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Level {}

impl PartialOrd for Level {
    fn partial_cmp(&self, other: &Level) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Level {
    fn cmp(&self, other: &Level) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Capacities that a flow uses, each with its limit in bytes per second.
    type Limits<'a> = &'a [(Capacity, f64)];
    /// Time at which a flow begins, its bytes, its maximum rate and its limits.
    type Case<'a> = (f64, f64, f64, Limits<'a>);

    /// Returns the time at which each flow ends.
    fn ends(cases: &[Case<'_>]) -> Vec<f64> {
        let mut sharing = Sharing::new(8);
        for (class, (begin, left, most, limits)) in cases.iter().enumerate() {
            let uses = limits.iter().map(|(capacity, limit)| (*capacity, 1.0 / limit)).collect();
            sharing.add(*begin, Flow { message: (class as u32, 0), left: *left, most: *most, uses });
        }
        let mut ends = vec![f64::NAN; cases.len()];
        let mut through = Vec::new();
        while let Some(now) = sharing.next(&mut through) {
            // Rounding errors are removed.
            through.drain(..).for_each(|(class, _)| ends[class as usize] = (now * 1e9).round() / 1e9);
        }
        ends
    }

    #[test]
    fn what_one_cannot_use_the_others_get() {
        let node: Limits<'_> = &[(0, 10.0)];
        assert_eq!(ends(&[(0.0, 8.0, 4.0, node), (0.0, 8.0, 4.0, node)]), [2.0, 2.0]);
        assert_eq!(ends(&[(0.0, 10.0, 8.0, node), (0.0, 10.0, 8.0, node)]), [2.0, 2.0]);
        assert_eq!(ends(&[(0.0, 8.0, 8.0, node), (0.0, 4.0, 2.0, node), (0.0, 8.0, 9.0, node)]), [2.0, 2.0, 2.0]);
    }

    #[test]
    fn flows_slow_each_other_down_while_both_last() {
        let node: Limits<'_> = &[(0, 10.0)];
        // The first flow has sent 50 bytes when the second begins. Both get a rate of 5 until the second ends at time 10; then the first
        // has 25 bytes left.
        assert_eq!(ends(&[(0.0, 100.0, 10.0, node), (5.0, 25.0, 10.0, node)]), [12.5, 10.0]);
    }

    #[test]
    fn messages_to_one_receiver_share_what_it_can_receive() {
        let (a, b): (Limits<'_>, Limits<'_>) = (&[(0, 10.0), (2, 10.0)], &[(1, 10.0), (2, 10.0)]);
        assert_eq!(ends(&[(0.0, 10.0, 10.0, a), (0.0, 10.0, 10.0, b)]), [2.0, 2.0]);
        // The sender of the second message sends a third to another receiver, which gets what the second cannot use.
        let c: Limits<'_> = &[(1, 10.0), (3, 10.0)];
        let four: Limits<'_> = &[(4, 10.0), (2, 10.0)];
        assert_eq!(
            ends(&[(0.0, 10.0, 10.0, a), (0.0, 10.0, 10.0, b), (0.0, 20.0, 10.0, c), (0.0, 10.0, 10.0, four)]),
            [3.0, 3.0, 3.0, 3.0]
        );
    }

    #[test]
    fn a_flow_that_ends_leaves_its_share_along_a_chain() {
        // 0 and 1 share capacity 0, 1 and 2 share capacity 1. When 0 ends, 1 speeds up, and so 2 slows down.
        let (first, both, last): (Limits<'_>, Limits<'_>, Limits<'_>) =
            (&[(0, 4.0)], &[(0, 4.0), (1, 10.0)], &[(1, 10.0)]);
        // Rates 2, 2, 8 until time 1; then 4 and 6.
        assert_eq!(ends(&[(0.0, 2.0, 9.0, first), (0.0, 6.0, 9.0, both), (0.0, 14.0, 9.0, last)]), [1.0, 2.0, 2.0]);
    }

    #[test]
    fn kinds_of_messages_take_more_of_a_node_or_less() {
        // The node can send the first kind of message at a rate of 10, the second at 5. Both get the same rate, 10/3, which is one third and
        // two thirds of the capacity.
        assert_eq!(ends(&[(0.0, 10.0, 8.0, &[(0, 10.0)]), (0.0, 10.0, 8.0, &[(0, 5.0)])]), [3.0, 3.0]);
    }
}
