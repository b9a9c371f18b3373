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
        let word = self.asked.load(Ordering::Acquire);
        if word as u32 != me || word == self.answered.load(Ordering::Relaxed) {
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
        self.0.store(1, Ordering::Release);
    }

    /// Whether it has rung since the last time: all who rang before then have their questions there.
    pub(super) fn has_rung(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0 && self.0.swap(0, Ordering::Acquire) != 0
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Member 0 asks 1, then 2, then 1 again. Whoever answers finds its own question, and the answer arrives whole.
    #[test]
    fn loom_everybody_answers_its_own_questions() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.max_branches = 20_000;
        builder.max_duration = Some(std::time::Duration::from_secs(20));
        builder.check(|| {
            let word = || AtomicU64::new(0);
            let mail = Mail { asked: word(), answered: word(), address: word(), bytes: word() };
            let all = Arc::new((mail, [Bell(word()), Bell(word())], UnsafeCell::new(0u64)));
            let serve = |me: u32, times: u64| {
                let all = all.clone();
                thread::spawn(move || {
                    let (mail, bells, room) = &*all;
                    let mut served = 0;
                    while served < times {
                        let question = match bells[me as usize - 1].has_rung() {
                            true => mail.question(me),
                            false => None,
                        };
                        let Some(question) = question else {
                            thread::yield_now();
                            continue;
                        };
                        assert_eq!(question.address / 10, u64::from(me));
                        room.with_mut(|p| unsafe { *p = question.address });
                        mail.answer(question);
                        served += 1;
                    }
                })
            };
            let threads = [serve(1, 2), serve(2, 1)];
            let (mail, bells, room) = &*all;
            for (member, address) in [(1, 10), (2, 20), (1, 11)] {
                mail.ask(member, address, 8);
                bells[member as usize - 1].ring();
                while !mail.is_answered() {
                    thread::yield_now();
                }
                assert_eq!(room.with(|p| unsafe { *p }), address);
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}
