//! Messages: posting, matching in order, and completion.

use smallvec::SmallVec;

use super::expr::Expr;
use super::machine::{Cargo, Machine, Posted, Size, Step};
use super::memory::Block;
use super::memory::{Blocks, chunks, len};
use super::places::first_other_size;
use super::{Invariant, Site};
use crate::schedule::{Area, End, Message, Payload};
use crate::{Level, Rank, Request, Set, Tag};

impl Machine<'_> {
    pub(super) fn post(&mut self, rank: usize, request: Request, message: &Message, site: Site) {
        let program = self.programs[site.execution as usize];
        let (end, payload, peer) = (message.end, message.payload, message.peer);
        let mut posted = Posted {
            site,
            end,
            payload,
            parts: SmallVec::new(),
            levels: SmallVec::new(),
            expected: Vec::new(),
            cargo: Cargo::default(),
            matched: false,
            awaited: false,
        };
        let is_foreign = message.places.iter().any(|place| place.area.remote().is_some());
        if peer.0 >= program.problem.ranks || peer == site.rank || message.tag > Tag::MAX || is_foreign {
            // The request counts as matched, so that its `finish` is not reported as well.
            posted.matched = true;
            self.states[rank].requests.insert(request, posted);
            let what = if peer == site.rank {
                "a rank cannot send to itself: use `copy`".to_owned()
            } else if is_foreign {
                "a message cannot carry the buffers of another rank".to_owned()
            } else if message.tag > Tag::MAX {
                format!("tags go up to {}", Tag::MAX)
            } else {
                format!("there is no rank {peer}: ranks go up to {}", program.problem.ranks - 1)
            };
            return self.report(Invariant::Bounds, site, what);
        }
        if self.states[rank].requests.get_mut(request).is_some() {
            return self.report(Invariant::Request, site, format!("request {request} is still in flight"));
        }
        let mut all_found = true;
        for place in &message.places {
            let mut blocks = Blocks::new();
            if self.blocks(rank, place, site, &mut blocks) {
                posted.parts.push((place.area, blocks));
            } else {
                all_found = false;
            }
        }
        if site.execution == 0 && end == End::Send && all_found {
            self.count(rank, message);
        }
        let key = match end {
            End::Send => (site.rank, peer, message.tag),
            End::Recv => (peer, site.rank, message.tag),
        };
        posted.levels = message.places.iter().filter_map(|place| self.shared_level(place, site)).collect();
        posted.levels.dedup();
        match end {
            End::Send => posted.cargo = self.take(rank, &posted.parts, payload, site),
            End::Recv => posted.expected = self.expect(rank, &posted.parts, payload, site),
        }
        self.states[rank].requests.insert(request, posted);
        if let Some((other, other_site)) = self.channels.entry(key).or_default().meet(end, request, site) {
            match end {
                End::Send => self.meet(key, (request, site), (other, other_site)),
                End::Recv => self.meet(key, (other, other_site), (request, site)),
            }
        }
    }

    /// Reads the slots of a send and returns the content of the message.
    fn take(&mut self, rank: usize, parts: &[(Area, Blocks)], payload: Payload, site: Site) -> Cargo {
        let (mut values, mut sizes) = (Vec::new(), Vec::new());
        for (area, blocks) in parts {
            match payload {
                Payload::Data => {
                    values.reserve(len(blocks) as usize);
                    sizes.extend(self.read(rank, *area, blocks, site, &mut values));
                    blocks.iter().for_each(|block| self.memory.begin_send(block));
                }
                Payload::Sizes => {
                    let lengths = match self.local(site) {
                        true => self.lengths(*area, blocks, site.rank),
                        false => vec![Size::Shared; len(blocks) as usize],
                    };
                    if let Some(chunk) = first_unknown(blocks, &lengths) {
                        let message = format!("the length of {area}[{chunk}] is not known");
                        self.report(Invariant::Length, site, message);
                    }
                    sizes.extend(lengths);
                }
            }
        }
        Cargo { values, sizes, stamp: self.clocks.release(rank) }
    }

    /// Marks the slots of a posted receive as in use by it. Returns the lengths of the slots if data is received and sizes are known only
    /// locally.
    fn expect(&mut self, rank: usize, parts: &[(Area, Blocks)], payload: Payload, site: Site) -> Vec<Size> {
        let (local, mut expected) = (self.local(site), Vec::new());
        for (area, blocks) in parts {
            match payload {
                Payload::Data => {
                    if local {
                        let sizes = self.lengths(*area, blocks, site.rank);
                        if let Some(chunk) = first_unknown(blocks, &sizes) {
                            let message = format!("the length of {area}[{chunk}] is not known yet");
                            self.report(Invariant::Length, site, message);
                        }
                        expected.extend(sizes);
                    }
                    if *area == Area::In && !blocks.is_empty() {
                        self.report(Invariant::Bounds, site, "writes the user's input");
                    }
                    for block in blocks {
                        if let Err(fault) = self.memory.begin_receive(block, rank, &self.clocks) {
                            self.complain_fault(fault, *area, site, "writes");
                        }
                    }
                }
                Payload::Sizes if local => {
                    let mut double = None;
                    for block in blocks {
                        for (cell, chunk) in block.each().zip(block.chunks.iter()) {
                            let (length, arriving) = self.memory.length(block.space, cell);
                            *length = None;
                            if std::mem::replace(arriving, true) {
                                double = double.or(Some(chunk));
                            }
                        }
                    }
                    if let Some(chunk) = double {
                        let message = format!("another message with the length of {area}[{chunk}] is in flight");
                        self.report(Invariant::InFlight, site, message);
                    }
                }
                Payload::Sizes => {}
            }
        }
        expected
    }

    fn count(&mut self, rank: usize, message: &Message) {
        let program = self.programs[0];
        let topology = &program.topology;
        let apart =
            topology.outermost_difference(Rank(rank as u32), message.peer).map_or(topology.levels(), |level| level.0);
        let elements: u64 = match message.payload {
            Payload::Data => message.places.iter().filter_map(|p| program.problem.elements_of(&p.set)).sum(),
            Payload::Sizes => 0,
        };
        let traffic = &mut self.traffic[rank];
        traffic.messages[usize::from(apart)] += 1;
        traffic.elements[usize::from(apart)] += elements;
    }

    /// Marks a request as matched. Its rank becomes ready when all requests that it waits for are matched.
    fn matched(&mut self, rank: usize, request: Request, site: Site) -> Option<&mut Posted> {
        let state = &mut self.states[rank];
        // A request that was never finished may have been dropped and its number reused.
        let posted = state.requests.get_mut(request).filter(|posted| posted.site == site)?;
        posted.matched = true;
        if posted.awaited {
            state.awaited -= 1;
            if state.awaited == 0 {
                self.ready.push_back(rank);
            }
        }
        Some(posted)
    }

    /// Matches a send with a receive: gives the receive the content of the message, and checks that the two agree.
    fn meet(&mut self, key: (Rank, Rank, Tag), send: (Request, Site), recv: (Request, Site)) {
        let (from, to) = (key.0.0 as usize, key.1.0 as usize);
        let sent = self
            .matched(from, send.0, send.1)
            .map(|sent| (std::mem::take(&mut sent.cargo), sent.payload, std::mem::take(&mut sent.parts)));
        let Some(received) = self.matched(to, recv.0, recv.1) else { return };
        // If a send was never finished, this was reported and its content was dropped.
        let Some((cargo, sent_payload, sent_parts)) = sent else { return };
        received.cargo = cargo;
        let (site, payload, parts) = (recv.1, received.payload, std::mem::take(&mut received.parts));
        let agree = if (sent_payload, send.1.execution) != (payload, site.execution) {
            Err("the matching send is of another kind (data or sizes) or of another execution".to_owned())
        } else if count(&sent_parts) != count(&parts) {
            let (wanted, sent) = (count(&parts), count(&sent_parts));
            Err(format!("receives {wanted} chunks, but rank {from} sends {sent}"))
        } else {
            let problem = &self.programs[site.execution as usize].problem;
            let flat = |parts: &[(Area, Blocks)]| -> Blocks {
                parts.iter().flat_map(|(_, blocks)| blocks.iter().copied()).collect()
            };
            let differs = match (&sent_parts[..], &parts[..]) {
                _ if problem.chunk_elements().is_some() => None,
                ([(_, sent)], [(_, received)]) => first_other_size(problem, received, sent),
                (sent, received) => first_other_size(problem, &flat(received), &flat(sent)),
            };
            differs.map_or(Ok(()), |chunk| Err(format!("the chunk sent for chunk {chunk} has another size")))
        };
        if let Err(message) = agree {
            self.report(Invariant::Match, site, message);
        }
        for (rank, request, parts) in [(from, send.0, sent_parts), (to, recv.0, parts)] {
            if let Some(posted) = self.states[rank].requests.get_mut(request) {
                posted.parts = parts;
            }
        }
    }

    pub(super) fn finish(&mut self, rank: usize, requests: &Set, site: Site) -> Step {
        let named = || requests.iter().map(|r| Request(r as u32));
        let state = &mut self.states[rank];
        if requests.len() > state.requests.len as u64 || requests.bounds().is_some_and(|b| b.end > 1 << 32) {
            self.report(Invariant::Request, site, "finishes more requests than are in flight");
            return Step::Next;
        }
        if let Some(request) = named().find(|&request| state.requests.get_mut(request).is_none()) {
            self.report(Invariant::Request, site, format!("request {request} is not in flight"));
            return Step::Next;
        }
        let mut open = 0;
        for request in named() {
            let posted = state.requests.get_mut(request).expect("all are under way");
            if !posted.matched && !posted.awaited {
                posted.awaited = true;
                open += 1;
            }
        }
        state.awaited += open;
        if state.awaited > 0 {
            return Step::Wait;
        }
        for request in named() {
            let Some(posted) = self.states[rank].requests.remove(request) else {
                self.report(Invariant::Request, site, format!("request {request} is named twice"));
                continue;
            };
            let levels: SmallVec<[Level; 2]> = posted.levels.clone();
            match posted.end {
                End::Send if posted.payload == Payload::Data => {
                    for block in posted.parts.iter().flat_map(|(_, blocks)| blocks) {
                        self.memory.end_send(block, rank, &self.clocks);
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

    fn deliver(&mut self, rank: usize, posted: Posted) {
        let Cargo { mut values, mut sizes, stamp } = posted.cargo;
        self.clocks.acquire(rank, &stamp);
        let (local, mut at) = (self.local(posted.site), 0);
        let wanted = posted.parts.iter().map(|(_, blocks)| len(blocks) as usize).sum();
        values.resize(wanted, Expr::UNKNOWN);
        sizes.resize(wanted, Size::Unknown);
        for (area, blocks) in &posted.parts {
            let count = len(blocks) as usize;
            let here = at..at + count;
            let (values, sizes) = (&values[here.clone()], &sizes[here.clone()]);
            at += count;
            match posted.payload {
                Payload::Sizes => self.learn(*area, blocks, sizes, posted.site),
                Payload::Data => {
                    if local {
                        // The length that a slot had when the receive was posted must be the length of the data.
                        let expected = &posted.expected[here];
                        let wrong = |i: &usize| {
                            let known = matches!(expected[*i], Size::Pair(..)) && values[*i] != Expr::UNKNOWN;
                            known && expected[*i] != sizes[*i]
                        };
                        if let Some(i) = (0..count).find(wrong) {
                            let chunk = chunks(blocks).nth(i).unwrap_or(0);
                            let message = format!("the length of {area}[{chunk}] differs from that of its data");
                            self.report(Invariant::Length, posted.site, message);
                        }
                    }
                    let mut at = 0;
                    for block in blocks {
                        let end = at + block.len() as usize;
                        self.memory.end_receive(block, &values[at..end], rank, &self.clocks);
                        at = end;
                    }
                }
            }
        }
    }

    /// Sets the lengths of slots to the received lengths.
    fn learn(&mut self, area: Area, blocks: &[Block], sizes: &[Size], site: Site) {
        let (local, mut sizes) = (self.local(site), sizes.iter());
        let mut refused = None;
        for block in blocks {
            if !local {
                refused = refused.or(Some(block.chunks.start()));
                continue;
            }
            for ((cell, chunk), size) in block.each().zip(block.chunks.iter()).zip(&mut sizes) {
                let (length, arriving) = self.memory.length(block.space, cell);
                *arriving = false;
                match (area, size) {
                    (Area::Line(_), Size::Pair(s, d)) => *length = Some((*s, *d)),
                    _ => refused = refused.or(Some(chunk)),
                }
            }
        }
        if let Some(chunk) = refused {
            let message =
                format!("{area}[{chunk}] cannot receive a length: only private lines can, with counts `local`");
            self.report(Invariant::Length, site, message);
        }
    }
}

/// Returns the number of chunks in a message.
fn count(parts: &[(Area, Blocks)]) -> u64 {
    parts.iter().map(|(_, blocks)| len(blocks)).sum()
}

/// Returns the first chunk whose length is not known.
fn first_unknown(blocks: &[Block], sizes: &[Size]) -> Option<u64> {
    chunks(blocks).zip(sizes).find(|(_, size)| **size == Size::Unknown).map(|(chunk, _)| chunk)
}
