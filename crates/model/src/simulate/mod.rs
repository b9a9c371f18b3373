//! Simulates a collective on a machine, to find the time at which each rank finishes. Ranks that do the same at the same time form a class
//! and are simulated once.
//!
//! Every class has its own clock and advances until it needs something that another class has not done yet. The time of a message is known
//! as soon as both ends are ready (for an eager message, as soon as it is sent), unless it is a message between nodes, which shares what
//! ranks and nodes can send and receive with others. Such messages are simulated in order of time ([`sharing`]). The result depends only on the steps, the machine and the
//! arrival times.
//!
//! - A message takes its latency, then its transfer at its own rate, or at its share of what the ranks and nodes at its two ends can send
//!   and receive if that is lower. Messages within a node have no such limits.
//! - An *eager* message is complete for the sender as soon as it starts. A rendezvous message starts when both ends are ready, and
//!   is complete for both when it has arrived.
//! - The rank spends the time `overhead` on starting a message, and again on finishing it.
//! - A flag is seen one flag time after it was raised. A barrier takes one flag time for each doubling of the number of ranks.

mod sharing;

use std::collections::VecDeque;

use bruckner_schedule::{Flag, Level};
use smallvec::SmallVec;

use crate::classes::{Class, Classes};
use crate::machine::Machine;
use crate::steps::{CostStep, LinkClass};
use sharing::{Flow, Sharing};

/// Error for a deadlock: ranks wait for each other forever.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("deadlock: a rank waits forever at step {step}")]
pub struct Deadlock {
    /// Index of the step in which one of the ranks waits.
    pub step: usize,
}

/// State of one end of a message. Times are in seconds, and `NAN` until they are known.
#[derive(Clone, Copy)]
struct End {
    /// Time at which the rank is ready to send or receive the message.
    ready: f64,
    /// Time at which the message arrives; only at the receiving end.
    arrived: f64,
    /// Time at which the message is complete for the rank.
    done: f64,
}

const UNKNOWN: End = End { ready: f64::NAN, arrived: f64::NAN, done: f64::NAN };

#[derive(Default)]
struct State {
    next: usize,
    now: f64,
    /// Number of completed steps that communicate with another rank (its partner): sends, receives and waits.
    partner: u32,
    /// State of this class's end of each message, with the same indices as [`Class::partners`]; unused for waits.
    ends: Vec<End>,
    /// For each request, the index of its message in `ends` and in [`Class::partners`].
    requests: Vec<u32>,
    /// Times at which each flag was raised, in ascending order.
    raised: SmallVec<[(Flag, Vec<f64>); 2]>,
    /// Classes that wait for a flag of this class.
    waiting: Vec<u32>,
    /// Earliest time at which the class can start its next message.
    port: f64,
    /// Whether the class waits in a barrier.
    meets: bool,
}

/// A barrier in progress: the classes that have reached it, and the latest time at which a class reached it, in seconds.
#[derive(Default, Clone)]
struct Meeting {
    there: Vec<u32>,
    latest: f64,
}

struct Simulator<'a> {
    machine: &'a Machine,
    classes: &'a Classes,
    states: Vec<State>,
    meetings: Vec<Vec<Meeting>>,
    sharing: Sharing,
    runnable: VecDeque<u32>,
}

/// Simulates each class of ranks that do the same at the same time. Returns the time at which each class finishes, in seconds.
pub(crate) fn simulate(machine: &Machine, classes: &Classes) -> Result<Vec<f64>, Deadlock> {
    let state = |class: &Class| State {
        now: class.arrival,
        port: f64::NEG_INFINITY,
        ends: vec![UNKNOWN; class.partners.len()],
        ..State::default()
    };
    let meetings = classes.regions.iter().map(|regions| vec![Meeting::default(); regions.len()]);
    let mut simulator = Simulator {
        machine,
        classes,
        states: classes.classes.iter().map(state).collect(),
        meetings: meetings.collect(),
        sharing: Sharing::new(2 * (classes.classes.len() + classes.regions[0].len())),
        runnable: (0..classes.classes.len() as u32).collect(),
    };
    simulator.run()?;
    Ok(simulator.states.iter().map(|state| state.now).collect())
}

impl Simulator<'_> {
    fn run(&mut self) -> Result<(), Deadlock> {
        let mut through = Vec::new();
        loop {
            while let Some(class) = self.runnable.pop_front() {
                self.advance(class);
            }
            let Some(now) = self.sharing.next(&mut through) else { break };
            for (class, partner) in through.drain(..) {
                self.arrive(class, partner, now);
            }
        }
        let stuck = |(class, state): (&Class, &State)| state.next < class.steps.len();
        match self.classes.classes.iter().zip(&self.states).find(|pair| stuck(*pair)) {
            Some((_, state)) => Err(Deadlock { step: state.next }),
            None => Ok(()),
        }
    }

    fn state(&mut self, class: u32) -> &mut State {
        &mut self.states[class as usize]
    }

    /// Advances a class until it needs something that another class has not done yet.
    fn advance(&mut self, class: u32) {
        let classes = self.classes;
        let steps = &classes.classes[class as usize].steps;
        while let (false, Some(&step)) =
            (self.states[class as usize].meets, steps.get(self.states[class as usize].next))
        {
            let costs = &self.machine.rank;
            match step {
                CostStep::Send { bytes, reach } => self.send(class, bytes, reach),
                CostStep::Recv { .. } => self.receive(class),
                CostStep::Finish { request } => {
                    let state = &mut self.states[class as usize];
                    let done = state.ends[state.requests[request as usize] as usize].done;
                    if done.is_nan() {
                        return;
                    }
                    state.now = state.now.max(done) + costs.overhead;
                }
                CostStep::Work(done) => self.states[class as usize].now += self.machine.work(&done),
                CostStep::Signal(flag) => self.signal(class, flag),
                CostStep::Wait { flag, before } => {
                    if !self.wait(class, flag, before) {
                        return;
                    }
                }
                CostStep::Barrier(level) => self.meet(class, level),
            }
            let state = self.state(class);
            state.next += 1;
            state.partner += u32::from(step.has_partner());
        }
    }

    fn send(&mut self, class: u32, bytes: u64, reach: LinkClass) {
        let work = &self.machine.rank;
        let state = &mut self.states[class as usize];
        state.now += work.overhead;
        let sent = state.now.max(state.port);
        state.port = sent + self.machine.gap(reach);
        let at = state.partner;
        state.requests.push(at);
        let rendezvous = self.machine.link(reach).protocol(bytes).rendezvous;
        let done = if rendezvous { f64::NAN } else { sent };
        state.ends[at as usize] = End { ready: sent, done, ..UNKNOWN };
        let (other, theirs) = self.classes.classes[class as usize].partners[at as usize];
        if !rendezvous || !self.states[other as usize].ends[theirs as usize].ready.is_nan() {
            self.start(class, at, bytes, reach);
        }
    }

    fn receive(&mut self, class: u32) {
        let overhead = self.machine.rank.overhead;
        let state = &mut self.states[class as usize];
        state.now += overhead;
        let at = state.partner;
        state.requests.push(at);
        let end = &mut state.ends[at as usize];
        end.ready = state.now;
        if !end.arrived.is_nan() {
            end.done = end.arrived.max(end.ready);
            return;
        }
        // A rendezvous message that was waiting for this receiver can start now.
        let (other, theirs) = self.classes.classes[class as usize].partners[at as usize];
        let sent = self.states[other as usize].ends[theirs as usize];
        if !sent.ready.is_nan() && sent.done.is_nan() {
            let sender = &self.classes.classes[other as usize];
            let step = sender.steps.iter().filter(|step| step.has_partner()).nth(theirs as usize);
            if let Some(&CostStep::Send { bytes, reach }) = step {
                self.start(other, theirs, bytes, reach);
            }
        }
    }

    /// Starts the transfer of a message.
    fn start(&mut self, class: u32, at: u32, bytes: u64, reach: LinkClass) {
        let protocol = self.machine.link(reach).protocol(bytes);
        let sender = &self.classes.classes[class as usize];
        let (other, theirs) = sender.partners[at as usize];
        let sent = self.states[class as usize].ends[at as usize].ready;
        let ready = match protocol.rendezvous {
            true => sent.max(self.states[other as usize].ends[theirs as usize].ready),
            false => sent,
        };
        let first_byte = ready + protocol.latency;
        let uses = || {
            let receiver = &self.classes.classes[other as usize];
            let (classes, nodes) = (self.classes.classes.len() as u32, self.classes.regions[0].len() as u32);
            let per_rank = 1.0 / self.machine.rank_rate(bytes);
            let per_node = 1.0 / self.machine.node_rate(bytes);
            [
                (class, per_rank),
                (classes + other, per_rank),
                (2 * classes + sender.regions[0], f64::from(sender.on_node) * per_node),
                (2 * classes + nodes + receiver.regions[0], f64::from(receiver.on_node) * per_node),
            ]
        };
        let uses: SmallVec<[(u32, f64); 4]> = match reach {
            LinkClass::Network if bytes > 0 => uses().into_iter().filter(|(_, part)| *part > 0.0).collect(),
            _ => SmallVec::new(),
        };
        if uses.is_empty() {
            self.arrive(class, at, first_byte + bytes as f64 * protocol.per_byte);
        } else {
            // The rate is infinite if `per_byte` is 0, so that only the limits of ranks and nodes apply.
            let flow = Flow { message: (class, at), left: bytes as f64, most: 1.0 / protocol.per_byte, uses };
            self.sharing.add(first_byte, flow);
        }
    }

    /// Records that a message has arrived, and resumes the classes that may wait for it.
    fn arrive(&mut self, class: u32, at: u32, now: f64) {
        let (other, theirs) = self.classes.classes[class as usize].partners[at as usize];
        let end = &mut self.states[other as usize].ends[theirs as usize];
        end.arrived = now;
        if !end.ready.is_nan() {
            end.done = now.max(end.ready);
            self.runnable.push_back(other);
        }
        let mine = &mut self.states[class as usize].ends[at as usize];
        if mine.done.is_nan() {
            mine.done = now;
            self.runnable.push_back(class);
        }
    }

    fn signal(&mut self, class: u32, flag: Flag) {
        let state = self.state(class);
        let now = state.now;
        match state.raised.iter_mut().find(|(raised, _)| *raised == flag) {
            Some((_, times)) => times.push(now),
            None => state.raised.push((flag, vec![now])),
        }
        let waiting = std::mem::take(&mut state.waiting);
        self.runnable.extend(waiting);
    }

    /// Waits for a flag. Returns whether the time at which the flag was raised is known.
    fn wait(&mut self, class: u32, flag: Flag, before: u32) -> bool {
        let at = self.states[class as usize].partner;
        let (of, _) = self.classes.classes[class as usize].partners[at as usize];
        let raised = self.states[of as usize].raised.iter().find(|(raised, _)| *raised == flag);
        let Some(&raised) = raised.and_then(|(_, raised)| raised.get(before as usize)) else {
            self.state(of).waiting.push(class);
            return false;
        };
        let seen = raised + self.machine.flag();
        let state = self.state(class);
        state.now = state.now.max(seen);
        true
    }

    fn meet(&mut self, class: u32, level: Level) {
        let level = usize::from(level.0).min(self.classes.regions.len() - 1);
        let number = self.classes.classes[class as usize].regions[level] as usize;
        let region = &self.classes.regions[level][number];
        let now = self.states[class as usize].now;
        let meeting = &mut self.meetings[level][number];
        meeting.there.push(class);
        self.states[class as usize].meets = true;
        meeting.latest = meeting.latest.max(now);
        if meeting.there.len() < region.classes as usize {
            return;
        }
        let met = std::mem::take(meeting);
        let until = met.latest + self.machine.barrier(region.ranks);
        for class in met.there {
            let state = self.state(class);
            (state.now, state.meets) = (until, false);
            self.runnable.push_back(class);
        }
    }
}
