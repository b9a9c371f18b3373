//! Table of one rank's schedule, with its cost and the lower bounds.

use std::fmt::Write;

use bruckner_algorithms::{Expression, TaskPlan};
use bruckner_schedule::bound::{Unit, bound};
use bruckner_schedule::{Collective, Counts, End, Level, LocalOp, Message, Payload, Place, Rank, Round, Topology};

use crate::columns::{self, numbers, words};

/// Totals over one rank's schedule.
#[derive(Default)]
pub(crate) struct Totals {
    /// Rounds that have messages.
    pub(crate) steps: u64,
    /// Maximum number of messages that the rank sends in one round.
    pub(crate) ports: u32,
    /// Number of messages sent between regions of each level; the last entry counts messages within the innermost region.
    pub(crate) messages: Vec<u64>,
    /// Elements sent, with the same indices as `messages`; `None` if each rank knows only its own sizes (alltoallv).
    pub(crate) sent: Option<Vec<u64>>,
    /// Elements received; `None` if each rank knows only its own sizes (alltoallv).
    pub(crate) received: Option<u64>,
}

impl Totals {
    pub(crate) fn of(plan: &TaskPlan, rank: Rank, rounds: &[Round]) -> Totals {
        let levels = usize::from(plan.topology.levels()) + 1;
        let known = plan.problem.counts != Counts::Local;
        let mut totals = Totals {
            messages: vec![0; levels],
            sent: known.then(|| vec![0; levels]),
            received: known.then_some(0),
            ..Totals::default()
        };
        for round in rounds {
            totals.steps += u64::from(!round.messages.is_empty());
            let sends = round.messages.iter().filter(|m| m.end == End::Send).count() as u32;
            totals.ports = totals.ports.max(sends);
            for message in &round.messages {
                let elements = elements(plan, message).unwrap_or(0);
                let apart = apart(&plan.topology, rank, message.peer);
                match message.end {
                    End::Send => {
                        totals.messages[apart] += 1;
                        if let Some(sent) = &mut totals.sent {
                            sent[apart] += elements;
                        }
                    }
                    End::Recv => totals.received = totals.received.map(|n| n + elements),
                }
            }
        }
        totals
    }
}

pub(crate) fn apart(topology: &Topology, a: Rank, b: Rank) -> usize {
    usize::from(topology.outermost_difference(a, b).map_or(topology.levels(), |level| level.0))
}

fn reach(topology: &Topology, apart: usize) -> String {
    if apart == usize::from(topology.levels()) {
        format!("within a {}", Level(topology.levels() - 1))
    } else {
        format!("between {}s", Level(apart as u8))
    }
}

pub(crate) fn elements(plan: &TaskPlan, message: &Message) -> Option<u64> {
    match message.payload {
        Payload::Data => message.places.iter().map(|p| plan.problem.elements_of(&p.set)).sum(),
        Payload::Sizes => Some(0),
    }
}

/// Returns the table of a rank's schedule, followed by a summary.
pub(crate) fn table(expression: &Expression, plan: &TaskPlan, rank: Rank, rounds: &[Round]) -> String {
    let (problem, topology) = (&plan.problem, &plan.topology);
    let mut text = format!(
        "{} on {topology} by {expression}, counts {}, elements of {} bytes: rank {rank}\n\n",
        problem.collective, problem.counts, problem.element
    );
    let head = [
        numbers("round"),
        words("does"),
        numbers("peer"),
        words("reach"),
        numbers("chunks"),
        numbers("bytes"),
        words("locations (buffers and chunks)"),
    ];
    let bytes = |elements: Option<u64>| {
        elements
            .map_or("unknown until run time".to_owned(), |n| (u128::from(n) * u128::from(problem.element)).to_string())
    };
    let named = |places: &[Place]| places.iter().map(Place::to_string).collect::<Vec<_>>().join(" ");
    let mut rows = Vec::new();
    for (number, round) in rounds.iter().enumerate() {
        let mut row = |cells: [String; 6]| rows.push([number.to_string()].into_iter().chain(cells).collect());
        for message in &round.messages {
            let does = match (message.end, message.payload) {
                (End::Send, Payload::Data) => "send",
                (End::Recv, Payload::Data) => "recv",
                (End::Send, Payload::Sizes) => "send sizes",
                (End::Recv, Payload::Sizes) => "recv sizes",
            };
            let amount = match message.payload {
                Payload::Data => bytes(elements(plan, message)),
                Payload::Sizes => String::new(),
            };
            let reach = reach(topology, apart(topology, rank, message.peer));
            let (peer, chunks) = (message.peer.to_string(), message.len().to_string());
            row([does.to_owned(), peer, reach, chunks, amount, named(&message.places)]);
        }
        for local in &round.local {
            let none = String::new;
            match local {
                LocalOp::Copy { to: left, from: right } | LocalOp::Reduce { into: left, with: right } => {
                    let does = if matches!(local, LocalOp::Copy { .. }) { "copy" } else { "reduce" }.to_owned();
                    let (chunks, amount) = (left.set.len().to_string(), bytes(problem.elements_of(&left.set)));
                    row([does, none(), none(), chunks, amount, format!("{left} <- {right}")]);
                }
                other => {
                    let said = other.to_string();
                    let (does, what) = said.split_once(' ').unwrap_or((&said, ""));
                    row([does.to_owned(), none(), none(), none(), none(), what.to_owned()]);
                }
            }
        }
    }
    text += &columns::table(&head, &rows);
    summary(&mut text, expression, plan, &Totals::of(plan, rank, rounds));
    text
}

fn summary(text: &mut String, expression: &Expression, plan: &TaskPlan, totals: &Totals) {
    let (problem, topology) = (&plan.problem, &plan.topology);
    let (party, shared) = if expression.groups_regions() {
        (Unit::Node, ", if ranks of a node share received data")
    } else {
        (Unit::Rank, "")
    };
    let ports = totals.ports.max(1);
    let least = bound(problem, topology, party, ports);
    let element = u128::from(problem.element);
    let with = format!("{ports} port{}{shared}", if ports == 1 { "" } else { "s" });
    let _ =
        writeln!(text, "\nsteps     {} (lower bound for the busiest rank: {} with {with})", totals.steps, least.rounds);
    for (apart, messages) in totals.messages.iter().enumerate().filter(|(_, n)| **n > 0) {
        let sent = totals.sent.as_ref().map_or("bytes unknown until run time".to_owned(), |sent| {
            format!("{} bytes", u128::from(sent[apart]) * element)
        });
        let _ = writeln!(text, "sent      {messages} messages, {sent}, {}", reach(topology, apart));
    }
    if let (Some(received), Some(least)) = (totals.received, least.elements_of_rank()) {
        let _ = writeln!(
            text,
            "received  {} bytes (lower bound if evenly shared: {})",
            u128::from(received) * element,
            u128::from(least) * element
        );
    }
    if let (Collective::Allreduce, Counts::Equal(elements), Some(sent)) =
        (problem.collective, &problem.counts, &totals.sent)
    {
        let _ = writeln!(text, "sent      {} times the vector in total", fraction(sent.iter().sum(), *elements));
    }
}

/// Formats a fraction in lowest terms: `76/39`, `8`.
fn fraction(a: u64, b: u64) -> String {
    fn gcd(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    match gcd(a, b) {
        _ if b == 0 => "0".to_owned(),
        g if b / g == 1 => (a / g).to_string(),
        g => format!("{}/{}", a / g, b / g),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_in_lowest_terms() {
        assert_eq!(fraction(312, 39), "8");
        assert_eq!(fraction(152, 78), "76/39");
        assert_eq!(fraction(0, 0), "0");
    }
}
