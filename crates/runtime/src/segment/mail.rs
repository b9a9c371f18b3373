//! Questions and answers, for what the kernel does not let a process read.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// What a member asks another for, and whether it was answered. A question has a number and the member that is asked, in one
/// word: nobody else may look at the rest, which is the next question's as soon as this one is answered.
#[repr(C)]
pub(super) struct Mail {
    asked: AtomicU64,
    answered: AtomicU64,
    address: AtomicU64,
    bytes: AtomicU64,
}

/// A question to one member: its word, and what is asked for.
#[derive(Clone, Copy)]
pub(super) struct Question {
    word: u64,
    pub(super) address: u64,
    pub(super) bytes: u64,
}

impl Mail {
    /// Asks a member for so many bytes at an address of its. The question before must be answered.
    pub(super) fn ask(&self, member: u32, address: u64, bytes: u64) {
        self.address.store(address, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        let number = (self.asked.load(Ordering::Relaxed) >> 32) + 1;
        self.asked.store(number << 32 | u64::from(member), Ordering::Release);
    }

    /// A question to this member that it has not answered; nobody else does.
    pub(super) fn question(&self, me: u32) -> Option<Question> {
        // In this order: whoever sees that somebody else has answered a later question sees that question, too, not its own
        // which it has answered long ago.
        let answered = self.answered.load(Ordering::Acquire);
        let word = self.asked.load(Ordering::Acquire);
        if word as u32 != me || word == answered {
            return None;
        }
        let (address, bytes) = (self.address.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        Some(Question { word, address, bytes })
    }

    /// Says that the answer is there.
    pub(super) fn answer(&self, question: Question) {
        self.answered.store(question.word, Ordering::Release);
    }

    /// Whether the question is answered, for the member that asked it.
    pub(super) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire) == self.asked.load(Ordering::Relaxed)
    }
}

/// Tells a member that somebody may have asked it for something.
#[repr(transparent)]
pub(super) struct Bell(AtomicU64);

impl Bell {
    /// Rings, after a question was asked.
    pub(super) fn ring(&self) {
        // Not a store: that would hide from the owner what those who rang before have asked.
        self.0.swap(1, Ordering::Release);
    }

    /// Whether it has rung since the last time: all who rang before then have their questions there.
    pub(super) fn has_rung(&self) -> bool {
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

    fn mail() -> Mail {
        let word = || AtomicU64::new(0);
        Mail { asked: word(), answered: word(), address: word(), bytes: word() }
    }

    /// Two that ask, and the two members, 1 and 2, that they ask.
    struct Node {
        mails: [Mail; 2],
        rooms: [UnsafeCell<u64>; 2],
        bells: [Bell; 2],
    }

    fn node() -> Arc<Node> {
        Arc::new(Node {
            mails: [mail(), mail()],
            rooms: [UnsafeCell::new(0), UnsafeCell::new(0)],
            bells: [Bell(AtomicU64::new(0)), Bell(AtomicU64::new(0))],
        })
    }

    /// Answers so many questions to a member, each of which is for an address of its own.
    fn serve(node: &Node, me: u32, times: u64) {
        let mut served = 0;
        while served < times {
            if !node.bells[me as usize - 1].has_rung() {
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
        node.bells[member as usize - 1].ring();
        while !node.mails[asker].is_answered() {
            thread::yield_now();
        }
        assert_eq!(node.rooms[asker].with(|p| unsafe { *p }), address);
    }

    /// One asks 1, then 2, then 1 again. Whoever answers finds its own question, and the answer arrives whole.
    #[test]
    fn loom_everybody_answers_its_own_questions() {
        bounded(2, || {
            let node = node();
            let (one, two) = (node.clone(), node.clone());
            let threads =
                [thread::spawn(move || serve(&one, 1, 2)), thread::spawn(move || serve(&two, 2, 1))];
            ask(&node, 0, 1, 10);
            ask(&node, 0, 2, 20);
            ask(&node, 0, 1, 11);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    /// Whoever has answered looks again, for somebody else's sake, while the next question goes to another.
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
                thread::spawn(move || {
                    two.mails[0].question(2).into_iter().for_each(|q| two.mails[0].answer(q))
                }),
            ];
            mail.ask(2, 20, 8);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    /// Two ring at once: whoever answers the bell finds both questions, or is rung for again.
    #[test]
    fn loom_a_bell_may_be_anybodys() {
        bounded(2, || {
            let node = node();
            let askers = [0, 1].map(|asker| {
                let node = node.clone();
                thread::spawn(move || {
                    node.mails[asker].ask(1, 10, 8);
                    node.bells[0].ring();
                })
            });
            serve(&node, 1, 2);
            askers.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}
