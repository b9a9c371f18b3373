//! Calls that come again, recognised by their arguments alone: all that decides about them is in these.
//!
//! There are two kinds of memory. A communicator has [`Memos`] of calls that plans serve; they are looked at while the
//! communicator is taken. Calls that go to native are remembered by the process, in [`Natives`], which any thread may look
//! at without taking anything: nothing must be slower than native by more than a look.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use bruckner_mpi::{Mpi, Word};
use bruckner_schedule::Problem;

use crate::call::{Call, Count};
use crate::normal::Combine;
use crate::plans::Slot;

/// The arguments of a call that decide about it.
pub(crate) type Arguments = [u64; 5];

/// The arguments that decide about a call, if they alone do.
#[inline(always)]
pub(crate) fn arguments(mpi: &Mpi, call: &Call) -> Option<Arguments> {
    Some(match *call {
        Call::Allreduce { count, datatype, op, .. } => [1, count as u64, datatype, op, 0],
        Call::Allgather { send, send_count, send_type, recv_count, recv_type, .. } => {
            let in_place = mpi.is_in_place(send);
            let sent = |given: Count| if in_place { recv_count } else { given };
            let send_type = if in_place { recv_type } else { send_type };
            [2, sent(send_count) as u64, send_type, recv_count as u64, recv_type]
        }
        Call::Alltoall { send, send_count, send_type, recv_count, recv_type, .. }
            if !mpi.is_in_place(send) =>
        {
            [3, send_count as u64, send_type, recv_count as u64, recv_type]
        }
        Call::ReduceScatterBlock { count, datatype, op, .. } => [4, count as u64, datatype, op, 0],
        Call::Reduce { count, datatype, op, root, .. } => [5, count as u64, datatype, op, root as u64],
        Call::Bcast { count, datatype, root, .. } => [6, count as u64, datatype, root as u64, 0],
        Call::Barrier => [7, 0, 0, 0, 0],
        _ => return None,
    })
}

/// Whether the types of a call are built in and dense: their handles never mean anything else.
pub(crate) fn is_built_in(mpi: &Mpi, call: &Call) -> bool {
    let is = |datatype: Word| mpi.types().is_built_in(datatype);
    match *call {
        Call::Allgather { send, send_type, recv_type, .. }
        | Call::Alltoall { send, send_type, recv_type, .. } => {
            is(recv_type) && (mpi.is_in_place(send) || is(send_type))
        }
        Call::Allreduce { datatype, op, .. }
        | Call::ReduceScatterBlock { datatype, op, .. }
        | Call::Reduce { datatype, op, .. } => is(datatype) && mpi.types().operation(op).is_some(),
        Call::Bcast { datatype, .. } => is(datatype),
        _ => true,
    }
}

/// A place for some arguments among so many.
#[inline]
fn place(arguments: &Arguments, places: usize) -> usize {
    (arguments[0] ^ arguments[1] ^ (arguments[1] >> 3)) as usize % places
}

/// A call that a plan serves.
pub(crate) struct Memo {
    pub(crate) arguments: Arguments,
    /// Its plan, in the store; whatever changes the store clears the memos.
    pub(crate) slot: *mut Slot,
    /// What the plan is to be bound to.
    pub(crate) problem: Problem,
    pub(crate) combine: Combine,
    /// Bytes of one block, for allgather in place.
    pub(crate) bytes: usize,
}

/// Memos of a communicator.
#[derive(Default)]
pub(crate) struct Memos([Option<Memo>; 8]);

impl Memos {
    #[inline]
    pub(crate) fn get(&self, arguments: &Arguments) -> Option<&Memo> {
        self.0[place(arguments, self.0.len())].as_ref().filter(|memo| memo.arguments == *arguments)
    }

    pub(crate) fn put(&mut self, memo: Memo) {
        let at = place(&memo.arguments, self.0.len());
        self.0[at] = Some(memo);
    }

    pub(crate) fn clear(&mut self) {
        self.0 = Default::default();
    }
}

/// A call that goes to native: its communicator, the generation of handles, its arguments.
type Key = [u64; 7];

/// One such call. A writer makes the version odd, writes, and makes it even again; a reader who finds it odd, or changed
/// when it has read, has read nothing. All of it lies on one cache line.
#[repr(align(64))]
struct Cell {
    version: AtomicU64,
    words: [AtomicU64; 7],
}

impl Cell {
    const fn empty() -> Cell {
        Cell { version: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; 7] }
    }

    #[inline(always)]
    fn holds(&self, key: &Key) -> bool {
        let version = self.version.load(Ordering::Acquire);
        let differ = |word: &AtomicU64, key: &u64| word.load(Ordering::Relaxed) ^ key;
        let different = self.words.iter().zip(key).fold(0, |bits, (word, key)| bits | differ(word, key));
        fence(Ordering::Acquire);
        different == 0 && version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version
    }

    fn put(&self, key: &Key) {
        let version = self.version.load(Ordering::Relaxed);
        let odd = version | 1;
        // Another thread writes: one of the two is enough.
        if version == odd
            || self.version.compare_exchange(version, odd, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        fence(Ordering::Release);
        for (word, key) in self.words.iter().zip(key) {
            word.store(*key, Ordering::Relaxed);
        }
        self.version.store(odd + 1, Ordering::Release);
    }
}

/// Calls of this process that go to native.
pub(crate) struct Natives([Cell; 16]);

impl Natives {
    pub(crate) const fn new() -> Natives {
        Natives([const { Cell::empty() }; 16])
    }

    #[inline(always)]
    fn key(comm: Word, generation: u64, a: &Arguments) -> Key {
        // A generation is at least one more than nothing.
        [comm, generation + 1, a[0], a[1], a[2], a[3], a[4]]
    }

    /// Whether a call is known to go to native.
    #[inline(always)]
    pub(crate) fn has(&self, comm: Word, generation: u64, arguments: &Arguments) -> bool {
        self.0[place(arguments, self.0.len())].holds(&Natives::key(comm, generation, arguments))
    }

    pub(crate) fn put(&self, comm: Word, generation: u64, arguments: &Arguments) {
        self.0[place(arguments, self.0.len())].put(&Natives::key(comm, generation, arguments));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_to_native_is_found_again_and_nothing_else() {
        let natives = Natives::new();
        let call = [1, 8, 5, 6, 0];
        assert!(!natives.has(0, 0, &[0; 5]));
        natives.put(7, 3, &call);
        assert!(natives.has(7, 3, &call));
        assert!(
            !natives.has(8, 3, &call) && !natives.has(7, 4, &call) && !natives.has(7, 3, &[1, 8, 5, 6, 1])
        );
    }

    /// Two threads write keys that agree with themselves; no reader finds a mixture.
    #[test]
    fn a_reader_never_finds_halves_of_two_calls() {
        let cell = Cell::empty();
        let of = |n: u64| [n; 7];
        std::thread::scope(|scope| {
            for start in [1, 2] {
                let cell = &cell;
                scope.spawn(move || (0..200_000u64).for_each(|i| cell.put(&of(start + 2 * (i % 4)))));
            }
            for _ in 0..200_000 {
                for (a, b) in [(1, 2), (3, 4), (5, 6)] {
                    let mixed = [a, a, a, b, b, b, b];
                    assert!(!cell.holds(&mixed) && !cell.holds(&[b, b, b, b, a, a, a]));
                }
            }
        });
        assert!((1..=8).any(|n| cell.holds(&of(n))));
    }
}
