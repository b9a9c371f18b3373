//! A collective call as it comes in: the arguments of the MPI function of the same name, and that function itself.

mod large;

use std::ffi::{c_int, c_void};

use bruckner_mpi::{Flavour, Function, Mpi, MpiError, Word};

/// The collectives by the names that people use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Name {
    /// `MPI_Allgather`, `MPI_Allgatherv`.
    Allgather,
    /// `MPI_Allreduce`.
    Allreduce,
    /// `MPI_Reduce_scatter`, `MPI_Reduce_scatter_block`.
    ReduceScatter,
    /// `MPI_Alltoall`, `MPI_Alltoallv`.
    Alltoall,
    /// `MPI_Bcast`.
    Bcast,
    /// `MPI_Reduce`.
    Reduce,
    /// `MPI_Barrier`.
    Barrier,
}

impl Name {
    /// All seven.
    pub const ALL: [Name; 7] = [
        Name::Allgather,
        Name::Allreduce,
        Name::ReduceScatter,
        Name::Alltoall,
        Name::Bcast,
        Name::Reduce,
        Name::Barrier,
    ];

    /// As it is written.
    pub fn text(self) -> &'static str {
        match self {
            Name::Allgather => "allgather",
            Name::Allreduce => "allreduce",
            Name::ReduceScatter => "reduce_scatter",
            Name::Alltoall => "alltoall",
            Name::Bcast => "bcast",
            Name::Reduce => "reduce",
            Name::Barrier => "barrier",
        }
    }

    /// The collective of this name.
    pub fn read(text: &str) -> Option<Name> {
        Name::ALL.into_iter().find(|name| name.text() == text)
    }
}

/// A user's buffer to read.
pub type Read = *const c_void;
/// A user's buffer to write.
pub type Write = *mut c_void;
/// How many elements.
pub type Count = i64;

/// One number for each rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum List {
    /// C integers.
    Ints(*const c_int),
    /// `MPI_Count` and `MPI_Aint`.
    Wide(*const i64),
}

impl List {
    #[inline(always)]
    fn word(self) -> Word {
        match self {
            List::Ints(at) => at as Word,
            List::Wide(at) => at as Word,
        }
    }

    /// Reads one number for each rank; zeros if there is no list.
    ///
    /// # Safety
    /// So many numbers are there, or the address is null.
    pub(crate) unsafe fn read(self, size: u32) -> Vec<i64> {
        let size = size as usize;
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                List::Ints(at) if !at.is_null() => {
                    std::slice::from_raw_parts(at, size).iter().map(|n| i64::from(*n)).collect()
                }
                List::Wide(at) if !at.is_null() => std::slice::from_raw_parts(at, size).to_vec(),
                _ => vec![0; size],
            }
        }
    }
}

/// The arguments of a collective, but for the communicator: named and ordered as the standard does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the standard's arguments, by its names")]
pub enum Call {
    /// `MPI_Allgather`.
    Allgather {
        send: Read,
        send_count: Count,
        send_type: Word,
        recv: Write,
        recv_count: Count,
        recv_type: Word,
    },
    /// `MPI_Allgatherv`.
    Allgatherv {
        send: Read,
        send_count: Count,
        send_type: Word,
        recv: Write,
        recv_counts: List,
        displacements: List,
        recv_type: Word,
    },
    /// `MPI_Allreduce`.
    Allreduce { send: Read, recv: Write, count: Count, datatype: Word, op: Word },
    /// `MPI_Reduce_scatter`.
    ReduceScatter { send: Read, recv: Write, counts: List, datatype: Word, op: Word },
    /// `MPI_Reduce_scatter_block`.
    ReduceScatterBlock { send: Read, recv: Write, count: Count, datatype: Word, op: Word },
    /// `MPI_Alltoall`.
    Alltoall {
        send: Read,
        send_count: Count,
        send_type: Word,
        recv: Write,
        recv_count: Count,
        recv_type: Word,
    },
    /// `MPI_Alltoallv`.
    Alltoallv {
        send: Read,
        send_counts: List,
        send_displacements: List,
        send_type: Word,
        recv: Write,
        recv_counts: List,
        recv_displacements: List,
        recv_type: Word,
    },
    /// `MPI_Bcast`.
    Bcast { data: Write, count: Count, datatype: Word, root: c_int },
    /// `MPI_Reduce`.
    Reduce { send: Read, recv: Write, count: Count, datatype: Word, op: Word, root: c_int },
    /// `MPI_Barrier`.
    Barrier,
}

// SAFETY: addresses of the user's, who vouches for them; a plan that is tested by another thread carries them there.
unsafe impl Send for Call {}

/// The arguments of a call as words, with room for what follows them: communicator, info, request.
struct Words {
    words: [Word; 11],
    len: usize,
}

impl Words {
    #[inline(always)]
    fn of<const N: usize>(words: [Word; N]) -> Words {
        Words { words: [0; 11], len: 0 }.and(words)
    }

    #[inline(always)]
    fn and<const N: usize>(mut self, words: [Word; N]) -> Words {
        for (i, word) in words.into_iter().enumerate() {
            self.words[self.len + i] = word;
        }
        self.len += N;
        self
    }
}

impl Call {
    /// Which collective it is.
    #[inline(always)]
    pub fn name(&self) -> Name {
        match self.function() {
            Function::Allgather | Function::Allgatherv => Name::Allgather,
            Function::Allreduce => Name::Allreduce,
            Function::ReduceScatter | Function::ReduceScatterBlock => Name::ReduceScatter,
            Function::Alltoall | Function::Alltoallv => Name::Alltoall,
            Function::Bcast => Name::Bcast,
            Function::Reduce => Name::Reduce,
            Function::Barrier => Name::Barrier,
        }
    }

    /// Its datatypes, as far as they mean anything.
    pub(crate) fn types_mut(&mut self, mpi: &Mpi) -> Vec<&mut Word> {
        match self {
            Call::Allgather { send, send_type, recv_type, .. }
            | Call::Allgatherv { send, send_type, recv_type, .. }
            | Call::Alltoall { send, send_type, recv_type, .. }
            | Call::Alltoallv { send, send_type, recv_type, .. } => match mpi.is_in_place(*send) {
                true => vec![recv_type],
                false => vec![send_type, recv_type],
            },
            Call::Allreduce { datatype, .. }
            | Call::ReduceScatter { datatype, .. }
            | Call::ReduceScatterBlock { datatype, .. }
            | Call::Bcast { datatype, .. }
            | Call::Reduce { datatype, .. } => vec![datatype],
            Call::Barrier => Vec::new(),
        }
    }

    /// Its operation, if it has one.
    pub(crate) fn op(&self) -> Option<Word> {
        match *self {
            Call::Allreduce { op, .. }
            | Call::ReduceScatter { op, .. }
            | Call::ReduceScatterBlock { op, .. }
            | Call::Reduce { op, .. } => Some(op),
            _ => None,
        }
    }

    /// Which function of MPI it is.
    #[inline(always)]
    pub fn function(&self) -> Function {
        match self {
            Call::Allgather { .. } => Function::Allgather,
            Call::Allgatherv { .. } => Function::Allgatherv,
            Call::Allreduce { .. } => Function::Allreduce,
            Call::ReduceScatter { .. } => Function::ReduceScatter,
            Call::ReduceScatterBlock { .. } => Function::ReduceScatterBlock,
            Call::Alltoall { .. } => Function::Alltoall,
            Call::Alltoallv { .. } => Function::Alltoallv,
            Call::Bcast { .. } => Function::Bcast,
            Call::Reduce { .. } => Function::Reduce,
            Call::Barrier => Function::Barrier,
        }
    }

    /// Whether it can only be said with wide counts.
    #[inline(always)]
    pub fn is_wide(&self) -> bool {
        let wide = |count: Count| count > Count::from(c_int::MAX);
        match *self {
            Call::Allgather { send_count, recv_count, .. }
            | Call::Alltoall { send_count, recv_count, .. } => wide(send_count) || wide(recv_count),
            Call::Allreduce { count, .. }
            | Call::ReduceScatterBlock { count, .. }
            | Call::Bcast { count, .. }
            | Call::Reduce { count, .. } => wide(count),
            Call::Allgatherv { recv_counts: list, .. }
            | Call::ReduceScatter { counts: list, .. }
            | Call::Alltoallv { recv_counts: list, .. } => matches!(list, List::Wide(_)),
            Call::Barrier => false,
        }
    }

    #[inline(always)]
    fn words(&self) -> Words {
        match *self {
            Call::Allgather { send, send_count, send_type, recv, recv_count, recv_type }
            | Call::Alltoall { send, send_count, send_type, recv, recv_count, recv_type } => Words::of([
                send as Word,
                send_count as Word,
                send_type,
                recv as Word,
                recv_count as Word,
                recv_type,
            ]),
            Call::Allgatherv { send, send_count, send_type, recv, recv_counts, displacements, recv_type } => {
                Words::of([
                    send as Word,
                    send_count as Word,
                    send_type,
                    recv as Word,
                    recv_counts.word(),
                    displacements.word(),
                    recv_type,
                ])
            }
            Call::Allreduce { send, recv, count, datatype, op }
            | Call::ReduceScatterBlock { send, recv, count, datatype, op } => {
                Words::of([send as Word, recv as Word, count as Word, datatype, op])
            }
            Call::ReduceScatter { send, recv, counts, datatype, op } => {
                Words::of([send as Word, recv as Word, counts.word(), datatype, op])
            }
            Call::Alltoallv {
                send,
                send_counts,
                send_displacements,
                send_type,
                recv,
                recv_counts,
                recv_displacements,
                recv_type,
            } => Words::of([
                send as Word,
                send_counts.word(),
                send_displacements.word(),
                send_type,
                recv as Word,
                recv_counts.word(),
                recv_displacements.word(),
                recv_type,
            ]),
            Call::Bcast { data, count, datatype, root } => {
                Words::of([data as Word, count as Word, datatype, root as Word])
            }
            Call::Reduce { send, recv, count, datatype, op, root } => {
                Words::of([send as Word, recv as Word, count as Word, datatype, op, root as Word])
            }
            Call::Barrier => Words::of([]),
        }
    }

    /// Calls the MPI's own function.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of this name.
    #[inline(always)]
    pub unsafe fn native(&self, mpi: &Mpi, comm: Word) -> Result<(), MpiError> {
        // SAFETY: the caller's promise.
        unsafe { self.call(mpi, Flavour::Blocking, [comm]) }
    }

    /// Starts the MPI's own nonblocking function; its request goes into a cell of the family's width.
    ///
    /// # Safety
    /// As for [`Call::native`], until the request is done.
    pub unsafe fn native_start(&self, mpi: &Mpi, comm: Word, request: *mut c_void) -> Result<(), MpiError> {
        // SAFETY: the caller's promise.
        unsafe { self.call(mpi, Flavour::Nonblocking, [comm, request as Word]) }
    }

    /// Makes the MPI's own persistent request in a cell of the family's width.
    ///
    /// # Safety
    /// As for [`Call::native`], as long as the request is used.
    pub unsafe fn native_init(
        &self,
        mpi: &Mpi,
        comm: Word,
        info: Word,
        request: *mut c_void,
    ) -> Result<(), MpiError> {
        // SAFETY: the caller's promise.
        unsafe { self.call(mpi, Flavour::Persistent, [comm, info, request as Word]) }
    }

    #[inline(always)]
    unsafe fn call<const N: usize>(
        &self,
        mpi: &Mpi,
        flavour: Flavour,
        more: [Word; N],
    ) -> Result<(), MpiError> {
        let wide = self.is_wide();
        if wide && flavour == Flavour::Blocking && !mpi.has(self.function(), flavour, true) {
            // SAFETY: the caller's promise.
            return unsafe { self.native_large(mpi, more[0]) };
        }
        let words = self.words().and(more);
        // SAFETY: the caller's promise.
        unsafe { mpi.collective(self.function(), flavour, wide, &words.words[..words.len]) }
    }

    /// The same call with C integers, if it has wide lists and all numbers fit; with the lists that it then refers to.
    ///
    /// # Safety
    /// Lists have so many numbers.
    pub unsafe fn narrowed(&self, mpi: &Mpi, size: u32) -> Option<(Call, Lists)> {
        let mut lists = Lists::default();
        // SAFETY: the caller's promise.
        let mut narrow = |list: List| lists.keep_narrow(&unsafe { list.read(size) });
        let call = match *self {
            Call::Allgatherv { send, send_count, send_type, recv, recv_counts, displacements, recv_type } => {
                c_int::try_from(send_count).ok()?;
                let (recv_counts, displacements) = (narrow(recv_counts)?, narrow(displacements)?);
                Call::Allgatherv { send, send_count, send_type, recv, recv_counts, displacements, recv_type }
            }
            Call::ReduceScatter { send, recv, counts, datatype, op } => {
                Call::ReduceScatter { send, recv, counts: narrow(counts)?, datatype, op }
            }
            Call::Alltoallv {
                send,
                send_counts,
                send_displacements,
                send_type,
                recv,
                recv_counts,
                recv_displacements,
                recv_type,
            } => {
                // In place, what is sent has no lists that anybody may look at.
                let given = !mpi.is_in_place(send);
                let none = List::Ints(std::ptr::null());
                Call::Alltoallv {
                    send,
                    send_counts: if given { narrow(send_counts)? } else { none },
                    send_displacements: if given { narrow(send_displacements)? } else { none },
                    send_type,
                    recv,
                    recv_counts: narrow(recv_counts)?,
                    recv_displacements: narrow(recv_displacements)?,
                    recv_type,
                }
            }
            _ => return None,
        };
        Some((call, lists))
    }
}

/// Lists that a call refers to.
#[derive(Debug, Default)]
pub struct Lists {
    ints: Vec<Box<[c_int]>>,
    wide: Vec<Box<[i64]>>,
}

impl Lists {
    /// Keeps numbers: as C integers, if they all are such.
    pub(crate) fn keep(&mut self, numbers: &[i64]) -> List {
        if let Some(list) = self.keep_narrow(numbers) {
            return list;
        }
        let numbers: Box<[i64]> = numbers.into();
        let at = List::Wide(numbers.as_ptr());
        self.wide.push(numbers);
        at
    }

    fn keep_narrow(&mut self, numbers: &[i64]) -> Option<List> {
        let numbers: Option<Box<[c_int]>> = numbers.iter().map(|n| c_int::try_from(*n).ok()).collect();
        let numbers = numbers?;
        let at = List::Ints(numbers.as_ptr());
        self.ints.push(numbers);
        Some(at)
    }
}
