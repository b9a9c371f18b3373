//! Changes correct actions in one place (a mutation), to test whether the verifier and the interpreter detect it.

use std::fmt;

use bruckner_schedule::random::Random;

use super::BoundActions;
use crate::bind::{Action, Bound};
use crate::class::SPREAD_CHUNK_BYTES;
use crate::compile::{FlagValue, PeerBuffer};
use crate::memory::{Bases, BufferOffset};
use crate::segment::flag_at;

/// Kind of change that makes a correct list of actions wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mutation {
    /// One action is removed.
    Drop,
    /// One action is executed twice.
    Double,
    /// Two adjacent actions are swapped.
    Swap,
    /// One address is shifted within its buffer.
    Shift,
    /// One address is moved to another buffer.
    Buffer,
    /// The length of one action is increased or decreased.
    Length,
    /// A message, or a read of another rank's buffer, has a different peer.
    Peer,
    /// A message has a different tag.
    Tag,
    /// A message uses a different request, or a wait covers different requests.
    Requests,
    /// A raise of a flag, or a wait for one, uses a different flag, or the flag of a different rank.
    Flag,
    /// The count of a flag, or the number of repetitions or a stride of an action, is changed.
    Times,
    /// A copy becomes a reduction, a reduction a copy, a send a receive, or a receive a send; two operands are swapped; or the other
    /// buffer of a rank is read.
    Work,
}

impl Mutation {
    /// All kinds of mutation.
    pub const ALL: &[Mutation] = &[
        Mutation::Drop,
        Mutation::Double,
        Mutation::Swap,
        Mutation::Shift,
        Mutation::Buffer,
        Mutation::Length,
        Mutation::Peer,
        Mutation::Tag,
        Mutation::Requests,
        Mutation::Flag,
        Mutation::Times,
        Mutation::Work,
    ];
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mutation::Drop => "drop an action",
            Mutation::Double => "duplicate an action",
            Mutation::Swap => "swap two actions",
            Mutation::Shift => "shift an address",
            Mutation::Buffer => "change the buffer of an address",
            Mutation::Length => "change a length",
            Mutation::Peer => "change the peer",
            Mutation::Tag => "change the tag",
            Mutation::Requests => "change the requests",
            Mutation::Flag => "change the flag",
            Mutation::Times => "change a count or stride",
            Mutation::Work => "change the operation",
        })
    }
}

impl BoundActions {
    /// Returns these actions with one random action mutated, or `None` if the mutation `how` is impossible there. The program has `ranks`
    /// ranks, elements have `element` bytes, and most chunks have `chunk` bytes.
    pub fn broken(
        &self,
        how: Mutation,
        random: &mut Random,
        ranks: u32,
        element: usize,
        chunk: usize,
    ) -> Option<BoundActions> {
        let mut actions = self.0.actions.clone();
        let at = random.below(actions.len().max(1) as u64) as usize;
        let last = actions.len().checked_sub(1)?;
        let action = &mut actions[at];
        let one_of = |of: &[usize], random: &mut Random| of[random.below(of.len() as u64) as usize];
        match how {
            Mutation::Drop => {
                actions.remove(at);
            }
            // A copy that is executed twice has the same result, so it is no error.
            Mutation::Double if matches!(action, Action::Copy { .. } | Action::Copies { .. }) => return None,
            Mutation::Double => {
                let again = actions[at].clone();
                let to = at + random.below((last + 1 - at) as u64) as usize;
                actions.insert(to + 1, again);
            }
            Mutation::Swap if at < last && orders(&self.0.actions[at], &self.0.actions[at + 1]) => {
                actions.swap(at, at + 1);
            }
            Mutation::Shift => {
                let by = one_of(&[chunk, element, SPREAD_CHUNK_BYTES, 1, 2 * chunk], random);
                let back = random.below(2) == 0;
                let place = pick(action, random)?;
                place.offset = if back { place.offset.checked_sub(by)? } else { place.offset + by };
            }
            Mutation::Buffer => {
                let base = random.below(u64::from(Bases::SEGMENT) + 2) as u8;
                pick(action, random)?.base = base;
            }
            Mutation::Length => {
                let by = one_of(&[chunk, element], random);
                let less = random.below(2) == 0;
                let change = |n: &mut usize, by: usize| {
                    *n = if less { n.checked_sub(by)? } else { *n + by };
                    Some(())
                };
                match action {
                    Action::Send { bytes, .. }
                    | Action::Recv { bytes, .. }
                    | Action::Copy { bytes, .. }
                    | Action::Fetch { bytes, .. }
                    | Action::Copies { bytes, .. } => change(bytes, by)?,
                    Action::Reduce { elements, .. }
                    | Action::FetchReduce { elements, .. }
                    | Action::Reduces { elements, .. } => change(elements, by / element)?,
                    _ => return None,
                }
            }
            Mutation::Peer => match action {
                Action::Send { to: peer, .. } | Action::Recv { from: peer, .. } => {
                    peer.rank = random.below(ranks.into()) as u32;
                }
                Action::Look { member, .. } => *member = random.below(ranks.into()) as u32,
                _ => return None,
            },
            Mutation::Tag => match action {
                Action::Send { to: peer, .. } | Action::Recv { from: peer, .. } => {
                    peer.tag += 1 + random.below(2) as u32;
                }
                _ => return None,
            },
            Mutation::Requests => match action {
                Action::Send { request, .. } | Action::Recv { request, .. } => {
                    *request = if random.below(2) == 0 { *request + 1 } else { request.checked_sub(1)? };
                }
                Action::Finish { first, end } => match random.below(4) {
                    0 => *first = first.checked_sub(1)?,
                    1 => *first += 1,
                    2 => *end += 1,
                    _ => *end -= 1,
                },
                _ => return None,
            },
            Mutation::Flag => match action {
                Action::Raise(FlagValue { flag, .. }) | Action::Await(FlagValue { flag, .. }) => {
                    let by = one_of(&[flag_at(1, 0), flag_at(0, 1), 2 * flag_at(0, 1)], random);
                    flag.offset = if random.below(2) == 0 { flag.offset.checked_sub(by)? } else { flag.offset + by };
                }
                _ => return None,
            },
            Mutation::Times => match action {
                Action::Copies { times, steps, .. } | Action::Reduces { times, steps, .. } => match random.below(4) {
                    0 => *times += 1,
                    1 => *times -= 1,
                    2 => steps[0] += chunk as isize,
                    _ => steps[1] -= chunk as isize,
                },
                Action::Raise(FlagValue { times, .. }) | Action::Await(FlagValue { times, .. }) => {
                    *times = if random.below(2) == 0 { *times + 1 } else { *times - 1 };
                }
                _ => return None,
            },
            Mutation::Work => {
                actions[at] = match actions[at].clone() {
                    Action::Copy { to, from, bytes } if random.below(2) == 0 => {
                        Action::Copy { to: from, from: to, bytes }
                    }
                    Action::Copy { to, from, bytes } => {
                        Action::Reduce { into: to, with: from, elements: bytes / element }
                    }
                    Action::Reduce { into, with, elements } if random.below(2) == 0 => {
                        Action::Reduce { into: with, with: into, elements }
                    }
                    Action::Reduce { into, with, elements } => {
                        Action::Copy { to: into, from: with, bytes: elements * element }
                    }
                    Action::Look { member, side: PeerBuffer::In } => Action::Look { member, side: PeerBuffer::Out },
                    Action::Look { member, side: PeerBuffer::Out } => Action::Look { member, side: PeerBuffer::In },
                    Action::Fetch { to, from, bytes } => {
                        Action::FetchReduce { into: to, with: from, elements: bytes / element }
                    }
                    Action::FetchReduce { into, with, elements } => {
                        Action::Fetch { to: into, from: with, bytes: elements * element }
                    }
                    Action::Send { data, bytes, to, request } => Action::Recv { data, bytes, from: to, request },
                    Action::Recv { data, bytes, from, request } => Action::Send { data, bytes, to: from, request },
                    _ => return None,
                };
            }
            Mutation::Swap => return None,
        }
        (actions != self.0.actions).then(|| BoundActions(Bound::from(actions)))
    }
}

/// Returns whether the order of two adjacent actions matters: both are sends to, or both are receives from, the same rank with the same
/// tag; or one raises a flag, and the other accesses memory; or exactly one of them waits or leaves a ring slot.
fn orders(a: &Action, b: &Action) -> bool {
    let waits = |action: &Action| {
        matches!(action, Action::Finish { .. } | Action::Await(_) | Action::Enter(_) | Action::Leave(_))
    };
    let works = |action: &Action| {
        matches!(
            action,
            Action::Copy { .. }
                | Action::Copies { .. }
                | Action::Reduce { .. }
                | Action::Reduces { .. }
                | Action::Open
                | Action::Fetch { .. }
                | Action::FetchReduce { .. }
        )
    };
    match (a, b) {
        (Action::Send { to: a, .. }, Action::Send { to: b, .. })
        | (Action::Recv { from: a, .. }, Action::Recv { from: b, .. }) => a == b,
        (Action::Raise(_), other) | (other, Action::Raise(_)) => works(other),
        (a, b) => waits(a) != waits(b),
    }
}

/// Returns one of the addresses of an action, chosen at random.
fn pick<'a>(action: &'a mut Action, random: &mut Random) -> Option<&'a mut BufferOffset> {
    match action {
        Action::Send { data, .. } | Action::Recv { data, .. } => Some(data),
        Action::Copy { to: a, from: b, .. }
        | Action::Copies { to: a, from: b, .. }
        | Action::Reduce { into: a, with: b, .. }
        | Action::Fetch { to: a, from: b, .. }
        | Action::FetchReduce { into: a, with: b, .. }
        | Action::Reduces { into: a, with: b, .. } => Some(if random.below(2) == 0 { a } else { b }),
        _ => None,
    }
}
