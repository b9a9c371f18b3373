//! Messages: posted, met in order, finished.

use super::expr::Expr;
use super::machine::{Machine, Piece, Posted, Sent, Size, Slot, Step};
use super::{Invariant, Site};
use crate::schedule::{Area, End, Message, Payload};
use crate::{Level, Rank, Request, Set, Tag};

impl Machine<'_> {
    pub(super) fn post(&mut self, rank: usize, request: Request, message: &Message, site: Site) {
        let program = self.programs[site.execution as usize];
        if message.peer.0 >= program.problem.ranks || message.peer == site.rank || message.tag > Tag::MAX {
            // The request counts as done, so that its `finish` is not an error too.
            let (end, payload) = (message.end, message.payload);
            let arrived = Some((Vec::new(), None));
            let slots = Vec::new();
            let (sizes, levels) = (Vec::new(), Vec::new());
            let posted = Posted { site, end, payload, slots, levels, sizes, arrived, matched: true };
            self.states[rank].requests.insert(request, posted);
            let what = if message.peer == site.rank {
                "a rank sends itself nothing: use `copy`".to_owned()
            } else if message.tag > Tag::MAX {
                format!("tags go up to {}", Tag::MAX)
            } else {
                format!("there is no rank {}: ranks go up to {}", message.peer, program.problem.ranks - 1)
            };
            return self.complain(Invariant::Bounds, site, what);
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
                for &slot in &slots {
                    self.expect(rank, slot, payload, site);
                }
                self.channels.entry(key).or_default().recvs.push_back((request, site));
            }
        }
        let sizes = slots.iter().map(|&slot| self.slot_size(slot, site.rank, site.execution)).collect();
        let mut levels: Vec<Level> =
            message.places.iter().filter_map(|place| self.shared_level(place, site)).collect();
        levels.dedup();
        let end = message.end;
        let posted = Posted { site, end, payload, slots, levels, sizes, arrived: None, matched: false };
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

    /// What posting a receive does to a slot.
    fn expect(&mut self, rank: usize, slot: Slot, payload: Payload, site: Site) {
        match payload {
            Payload::Data => {
                if self.slot_size(slot, site.rank, site.execution) == Size::Unknown {
                    let message = format!("the length of {}[{}] is not known yet", slot.area, slot.chunk);
                    self.complain(Invariant::Length, site, message);
                }
                self.write(rank, slot, Expr::UNKNOWN, site);
                self.memory.begin_receive(slot.at);
            }
            Payload::Sizes => {
                self.memory.lengths.remove(&slot.at);
                if !self.memory.arriving.insert(slot.at) {
                    let message = format!("another length of {}[{}] is on its way", slot.area, slot.chunk);
                    self.complain(Invariant::InFlight, site, message);
                }
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
        let (recv, posted_at) = channel.recvs.pop_front().expect("not empty");
        let (from, to) = (key.0.0 as usize, key.1.0 as usize);
        // A request that was never finished may have been forgotten, and its number be another's.
        let send = self.states[from].requests.get_mut(&sent.request).filter(|p| p.site == sent.site);
        if let Some(posted) = send {
            posted.matched = true;
        }
        let received = self.states[to].requests.get_mut(&recv).filter(|p| p.site == posted_at);
        let Some(received) = received else { return };
        received.matched = true;
        let (site, payload) = (received.site, received.payload);
        let slots = std::mem::take(&mut received.slots);
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
            received.slots = slots;
        }
        self.ready.extend([from, to]);
    }

    pub(super) fn finish(&mut self, rank: usize, requests: &Set, site: Site) -> Step {
        let named = || requests.iter().map(|r| Request(r as u32));
        let state = &self.states[rank];
        if requests.len() > state.requests.len() as u64 || requests.bounds().is_some_and(|b| b.end > 1 << 32)
        {
            self.complain(Invariant::Request, site, "finishes more requests than are under way");
            return Step::Next;
        }
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
            let levels = posted.levels.clone();
            match posted.end {
                End::Send if posted.payload == Payload::Data => {
                    for slot in posted.slots {
                        self.memory.end_send(slot.at, rank, &self.clocks);
                    }
                }
                End::Send => {}
                End::Recv => self.deliver(rank, posted),
            }
            for level in levels {
                self.touch(rank, level, site);
            }
        }
        Step::Next
    }

    pub(super) fn deliver(&mut self, rank: usize, posted: Posted) {
        let (pieces, stamp) = posted.arrived.expect("matched receives have arrived");
        self.clocks.acquire(rank, &stamp);
        let missing = std::iter::repeat(Piece { value: Expr::UNKNOWN, size: Size::Unknown });
        let pieces = pieces.into_iter().chain(missing);
        for ((slot, expected), piece) in posted.slots.into_iter().zip(posted.sizes).zip(pieces) {
            match posted.payload {
                Payload::Sizes => {
                    self.memory.arriving.remove(&slot.at);
                    match (slot.area, piece.size) {
                        (Area::Line(_), Size::Pair(s, d)) => {
                            self.memory.lengths.insert(slot.at, (s, d));
                        }
                        _ => {
                            let message = format!("{}[{}] cannot be given a length", slot.area, slot.chunk);
                            self.complain(Invariant::Length, posted.site, message);
                        }
                    }
                }
                Payload::Data => {
                    // Where sizes are shared knowledge, they were compared when the two ends met.
                    let local = matches!(expected, Size::Pair(..));
                    if local && piece.value != Expr::UNKNOWN && expected != piece.size {
                        let message =
                            format!("{}[{}] does not have its data's length", slot.area, slot.chunk);
                        self.complain(Invariant::Length, posted.site, message);
                    }
                    self.memory.end_receive(slot.at, piece.value, rank, &self.clocks);
                }
            }
        }
    }
}
