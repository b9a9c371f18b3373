//! Messages: posted, met in order, finished.

use super::expr::Expr;
use super::machine::{Machine, Piece, Posted, Sent, Size, Slot, Step};
use super::memory::Toucher;
use super::{Invariant, Site};
use crate::schedule::{Area, End, Message, Payload};
use crate::{Rank, Request, Set, Tag};

impl Machine<'_> {
    pub(super) fn post(&mut self, rank: usize, request: Request, message: &Message, site: Site) {
        let program = self.programs[site.execution as usize];
        if message.peer.0 >= program.problem.ranks || message.peer == site.rank {
            // The request counts as done, so that its `finish` is not an error too.
            let (end, payload) = (message.end, message.payload);
            let arrived = Some((Vec::new(), None));
            let posted = Posted { site, end, payload, slots: Vec::new(), arrived, matched: true };
            self.states[rank].requests.insert(request, posted);
            return self.complain(Invariant::Bounds, site, format!("no message can go to {}", message.peer));
        }
        if self.states[rank].requests.contains_key(&request) {
            return self.complain(Invariant::Request, site, format!("request {request} is still under way"));
        }
        let (mut slots, mut all_found) = (Vec::new(), true);
        for place in &message.places {
            match self.slots(rank, place, site) {
                Some(found) => slots.extend(found),
                None => all_found = false,
            }
        }
        let (peer, payload) = (message.peer, message.payload);
        if site.execution == 0 && message.end == End::Send && all_found {
            self.count(rank, message);
        }
        let key = match message.end {
            End::Send => (site.rank, peer, message.tag),
            End::Recv => (peer, site.rank, message.tag),
        };
        match message.end {
            End::Send => {
                let pieces = slots.iter().map(|&slot| self.take(rank, slot, payload, site)).collect();
                let stamp = self.clocks.release(rank);
                self.channels.entry(key).or_default().sends.push_back(Sent {
                    request,
                    site,
                    payload,
                    pieces,
                    stamp,
                });
            }
            End::Recv => {
                for &slot in slots.iter().filter(|_| payload == Payload::Data) {
                    self.write(rank, slot, Expr::UNKNOWN, site);
                    self.memory.begin_receive(slot.at);
                }
                self.channels.entry(key).or_default().recvs.push_back((request, site));
            }
        }
        let posted = Posted { site, end: message.end, payload, slots, arrived: None, matched: false };
        self.states[rank].requests.insert(request, posted);
        self.meet(key);
    }

    /// What a send takes from a slot.
    pub(super) fn take(&mut self, rank: usize, slot: Slot, payload: Payload, site: Site) -> Piece {
        match payload {
            Payload::Data => {
                let piece = self.read(rank, slot, site);
                self.memory.begin_send(slot.at);
                piece
            }
            Payload::Sizes => {
                let size = self.slot_size(slot, site.rank, site.execution);
                if size == Size::Unknown {
                    let message = format!("the length of {}[{}] is not known", slot.area, slot.chunk);
                    self.complain(Invariant::Length, site, message);
                }
                Piece { value: Expr::UNKNOWN, size }
            }
        }
    }

    pub(super) fn count(&mut self, rank: usize, message: &Message) {
        let program = self.programs[0];
        let topology = &program.topology;
        let apart =
            topology.apart(Rank(rank as u32), message.peer).map_or(topology.levels(), |level| level.0);
        let elements: u64 = match message.payload {
            Payload::Data => message.places.iter().filter_map(|p| program.problem.elements_of(&p.set)).sum(),
            Payload::Sizes => 0,
        };
        let traffic = &mut self.traffic[rank];
        traffic.messages[usize::from(apart)] += 1;
        traffic.elements[usize::from(apart)] += elements;
    }

    /// Lets the next send and receive of a channel meet.
    pub(super) fn meet(&mut self, key: (Rank, Rank, Tag)) {
        let channel = self.channels.get_mut(&key).expect("just used");
        if channel.sends.is_empty() || channel.recvs.is_empty() {
            return;
        }
        let sent = channel.sends.pop_front().expect("not empty");
        let (recv, _) = channel.recvs.pop_front().expect("not empty");
        let (from, to) = (key.0.0 as usize, key.1.0 as usize);
        if let Some(posted) = self.states[from].requests.get_mut(&sent.request) {
            posted.matched = true;
        }
        let Some(received) = self.states[to].requests.get_mut(&recv) else { return };
        received.matched = true;
        let (site, payload, slots) = (received.site, received.payload, received.slots.clone());
        let Sent { pieces, stamp, .. } = sent;
        let agree = if (sent.payload, sent.site.execution) != (payload, site.execution) {
            Err("the send that it meets is of another kind or execution".to_owned())
        } else if pieces.len() != slots.len() {
            Err(format!("receives {} chunks, but rank {from} sends {}", slots.len(), pieces.len()))
        } else {
            let differs = |(slot, piece): &(&Slot, &Piece)| {
                let shared = self.programs[site.execution as usize].problem.elements(slot.chunk);
                shared.is_some_and(|elements| piece.size != Size::Elements(elements))
            };
            match slots.iter().zip(&pieces).find(differs) {
                Some((slot, _)) => Err(format!("chunk {} comes with another size", slot.chunk)),
                None => Ok(()),
            }
        };
        if let Err(message) = agree {
            self.complain(Invariant::Match, site, message);
        }
        if let Some(received) = self.states[to].requests.get_mut(&recv) {
            received.arrived = Some((pieces, stamp));
        }
        self.ready.extend([from, to]);
    }

    pub(super) fn finish(&mut self, rank: usize, requests: &Set, site: Site) -> Step {
        let named = || requests.iter().map(|r| Request(r as u32));
        let state = &self.states[rank];
        let mut unknown = named().filter(|r| !state.requests.contains_key(r));
        if let Some(request) = unknown.next() {
            self.complain(Invariant::Request, site, format!("request {request} is not under way"));
            return Step::Next;
        }
        if named().any(|r| !state.requests[&r].matched) {
            return Step::Wait;
        }
        for request in named() {
            let Some(posted) = self.states[rank].requests.remove(&request) else {
                self.complain(Invariant::Request, site, format!("request {request} is named twice"));
                continue;
            };
            match posted.end {
                End::Send if posted.payload == Payload::Data => {
                    let by = Toucher { rank, execution: site.execution };
                    for slot in posted.slots {
                        self.memory.end_send(slot.at, by, &self.clocks);
                        if let Area::Shared(level, _) = slot.area {
                            self.touch(rank, level, site);
                        }
                    }
                }
                End::Send => {}
                End::Recv => self.deliver(rank, posted, site),
            }
        }
        Step::Next
    }

    pub(super) fn deliver(&mut self, rank: usize, posted: Posted, site: Site) {
        let (pieces, stamp) = posted.arrived.expect("matched receives have arrived");
        self.clocks.acquire(rank, &stamp);
        let by = Toucher { rank, execution: site.execution };
        let missing = std::iter::repeat(Piece { value: Expr::UNKNOWN, size: Size::Unknown });
        for (slot, piece) in posted.slots.into_iter().zip(pieces.into_iter().chain(missing)) {
            match posted.payload {
                Payload::Sizes => match (slot.area, piece.size) {
                    (Area::Line(_) | Area::Shared(..), Size::Pair(s, d)) => {
                        self.memory.lengths.insert(slot.at, (s, d));
                    }
                    _ => self.complain(
                        Invariant::Length,
                        posted.site,
                        format!("{}[{}] cannot be given a length", slot.area, slot.chunk),
                    ),
                },
                Payload::Data => {
                    // Where sizes are shared knowledge, they were compared when the two ends met.
                    let local = matches!(piece.size, Size::Pair(..) | Size::Unknown);
                    if local
                        && piece.value != Expr::UNKNOWN
                        && self.slot_size(slot, site.rank, site.execution) != piece.size
                    {
                        let message =
                            format!("{}[{}] does not have its data's length", slot.area, slot.chunk);
                        self.complain(Invariant::Length, posted.site, message);
                    }
                    self.memory.end_receive(slot.at, piece.value, by, &self.clocks);
                    if let Area::Shared(level, _) = slot.area {
                        self.touch(rank, level, site);
                    }
                }
            }
        }
    }
}
