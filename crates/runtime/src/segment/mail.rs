//! Read requests between the members (ranks) of a node and their answers, used if the kernel does not let one process read the other's
//! memory.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// A member's current read request to another member, and the last one that was answered. The number of the request and the requested
/// member are in one 64-bit word, `asked`. Only the requested member may read `address` and `bytes`, because they are overwritten by the
/// next request once this one is answered.
#[repr(C)]
pub(super) struct RequestSlot {
    asked: AtomicU64,
    answered: AtomicU64,
    address: AtomicU64,
    bytes: AtomicU64,
}

/// A read request: its word (number of the request, and requested member), and address and length of the requested data.
#[derive(Clone, Copy)]
pub(super) struct ReadRequest {
    word: u64,
    pub(super) address: u64,
    pub(super) bytes: u64,
}

impl RequestSlot {
    /// Requests `bytes` bytes at `address` in a member's memory. The previous request must have been answered.
    pub(super) fn ask(&self, member: u32, address: u64, bytes: u64) {
        self.address.store(address, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        let number = (self.asked.load(Ordering::Relaxed) >> 32) + 1;
        self.asked.store(number << 32 | u64::from(member), Ordering::Release);
    }

    /// Returns the read request if it is for member `me` and not yet answered.
    pub(super) fn question(&self, me: u32) -> Option<ReadRequest> {
        // `answered` must be loaded before `asked`. A member that sees another member's answer to a later request then also sees that
        // request, and not its own earlier request, which it has already answered.
        let answered = self.answered.load(Ordering::Acquire);
        let word = self.asked.load(Ordering::Acquire);
        if word as u32 != me || word == answered {
            return None;
        }
        let (address, bytes) = (self.address.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        Some(ReadRequest { word, address, bytes })
    }

    /// Marks a read request as answered.
    pub(super) fn answer(&self, question: ReadRequest) {
        self.answered.store(question.word, Ordering::Release);
    }

    /// Returns whether the current read request is answered. Only the member that made the request may call this.
    pub(super) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire) == self.asked.load(Ordering::Relaxed)
    }
}

/// A flag of a member that is set if another member may have sent it a read request.
#[repr(transparent)]
pub(super) struct RequestFlag(AtomicU64);

impl RequestFlag {
    /// Sets the flag after a read request was written.
    pub(super) fn set(&self) {
        // A swap and not a store, because a store would break the release sequence, and the owner might miss the requests of earlier
        // callers.
        self.0.swap(1, Ordering::Release);
    }

    /// Returns whether the flag was set since the last call, and clears it. The requests of all members that have set it are then visible.
    pub(super) fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0 && self.0.swap(0, Ordering::Acquire) != 0
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::segment::flag::model::bounded;

    fn mail() -> RequestSlot {
        let word = || AtomicU64::new(0);
        RequestSlot { asked: word(), answered: word(), address: word(), bytes: word() }
    }

    /// Two members that send read requests, and the two members, 1 and 2, that answer them.
    struct Node {
        mails: [RequestSlot; 2],
        rooms: [UnsafeCell<u64>; 2],
        bells: [RequestFlag; 2],
    }

    fn node() -> Arc<Node> {
        Arc::new(Node {
            mails: [mail(), mail()],
            rooms: [UnsafeCell::new(0), UnsafeCell::new(0)],
            bells: [RequestFlag(AtomicU64::new(0)), RequestFlag(AtomicU64::new(0))],
        })
    }

    /// Answers `times` read requests to member `me`, each for a different address.
    fn serve(node: &Node, me: u32, times: u64) {
        let mut served = 0;
        while served < times {
            if !node.bells[me as usize - 1].take() {
                thread::yield_now();
                continue;
            }
            for (mail, room) in node.mails.iter().zip(&node.rooms) {
                let Some(question) = mail.question(me) else { continue };
                assert_eq!(question.address / 10, u64::from(me));
                room.with_mut(|p| unsafe { *p = question.address });
                mail.answer(question);
                served += 1;
            }
        }
        assert_eq!(served, times);
    }

    fn ask(node: &Node, asker: usize, member: u32, address: u64) {
        node.mails[asker].ask(member, address, 8);
        node.bells[member as usize - 1].set();
        while !node.mails[asker].is_answered() {
            thread::yield_now();
        }
        assert_eq!(node.rooms[asker].with(|p| unsafe { *p }), address);
    }

    /// A member sends read requests to member 1, then to 2, then to 1 again. Each of the two finds only the requests to it, and every
    /// answer arrives complete.
    #[test]
    fn loom_everybody_answers_its_own_questions() {
        bounded(2, || {
            let node = node();
            let (one, two) = (node.clone(), node.clone());
            let threads = [thread::spawn(move || serve(&one, 1, 2)), thread::spawn(move || serve(&two, 2, 1))];
            ask(&node, 0, 1, 10);
            ask(&node, 0, 2, 20);
            ask(&node, 0, 1, 11);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    /// A member that has answered a read request checks for requests again, while the asking member sends its next request to another
    /// member.
    #[test]
    fn loom_what_is_answered_is_not_answered_again() {
        bounded(2, || {
            let node = node();
            let mail = &node.mails[0];
            mail.ask(1, 10, 8);
            mail.answer(mail.question(1).unwrap());
            let (one, two) = (node.clone(), node.clone());
            let threads = [
                thread::spawn(move || assert!(one.mails[0].question(1).is_none())),
                thread::spawn(move || two.mails[0].question(2).into_iter().for_each(|q| two.mails[0].answer(q))),
            ];
            mail.ask(2, 20, 8);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    /// Two members set the flag at once. The owner finds both read requests, or finds the flag set again.
    #[test]
    fn loom_a_bell_may_be_anybodys() {
        bounded(2, || {
            let node = node();
            let askers = [0, 1].map(|asker| {
                let node = node.clone();
                thread::spawn(move || {
                    node.mails[asker].ask(1, 10, 8);
                    node.bells[0].set();
                })
            });
            serve(&node, 1, 2);
            askers.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}
