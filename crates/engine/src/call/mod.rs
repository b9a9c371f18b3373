//! A collective call: the arguments of the MPI function, in one form for all functions.

use std::ffi::{c_int, c_uint, c_void};

use bruckner_choose::Name;
use bruckner_mpi::{Function, Handle};

/// Number of elements of a buffer.
pub type Count = i64;

/// A list of counts or displacements, with one number for each rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum List {
    /// Numbers as C integers (`int`).
    Ints(*const c_int),
    /// Numbers as `MPI_Count` or `MPI_Aint`.
    Wide(*const i64),
}

impl List {
    /// Stands for a missing list: its address is null.
    pub const NONE: List = List::Ints(std::ptr::null());

    #[inline(always)]
    pub(crate) fn word(self) -> Handle {
        match self {
            List::Ints(at) => at as Handle,
            List::Wide(at) => at as Handle,
        }
    }

    /// Returns the largest of the list's `size` numbers, or a negative one if there is any; 0 if there is no list.
    ///
    /// # Safety
    /// The list has `size` numbers, or its address is null.
    #[inline]
    pub(crate) unsafe fn largest(self, size: u32) -> Count {
        let size = size as usize;
        // Read as unsigned, a negative number is larger than any other.
        // SAFETY: the caller guarantees that the list has `size` numbers.
        unsafe {
            match self {
                List::Ints(at) if !at.is_null() => {
                    let largest = |most: c_uint, number: &c_int| most.max(*number as c_uint);
                    Count::from(std::slice::from_raw_parts(at, size).iter().fold(0, largest) as c_int)
                }
                List::Wide(at) if !at.is_null() => {
                    let largest = |most: u64, number: &i64| most.max(*number as u64);
                    std::slice::from_raw_parts(at, size).iter().fold(0, largest) as Count
                }
                _ => 0,
            }
        }
    }

    /// Returns the number at index `at`; 0 if there is no list.
    ///
    /// # Safety
    /// The list has more than `at` numbers, or its address is null.
    #[inline]
    pub(crate) unsafe fn get(self, at: usize) -> i64 {
        // SAFETY: the caller guarantees that the list has more than `at` numbers.
        unsafe {
            match self {
                List::Ints(list) if !list.is_null() => i64::from(*list.add(at)),
                List::Wide(list) if !list.is_null() => *list.add(at),
                _ => 0,
            }
        }
    }

    /// Reads the list's `size` numbers; returns zeros if there is no list.
    ///
    /// # Safety
    /// The list has `size` numbers, or its address is null.
    pub unsafe fn read(self, size: u32) -> Vec<i64> {
        let size = size as usize;
        // SAFETY: the caller guarantees that the list has `size` numbers.
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

/// Number of a buffer's elements that belong to a call, or their numbers and displacements for each rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// Number of elements: of each rank's block or of the whole buffer, as the MPI function defines it.
    Each(Count),
    /// A count and a displacement for each rank's block.
    Listed {
        /// Number of elements of each rank's block.
        counts: List,
        /// Displacement of each rank's block, in elements; [`List::NONE`] where the function stores blocks contiguously.
        displacements: List,
    },
}

impl Amount {
    /// Returns the count; 0 if the call has lists of counts.
    #[inline(always)]
    pub fn each(self) -> Count {
        match self {
            Amount::Each(count) => count,
            Amount::Listed { .. } => 0,
        }
    }

    /// Returns the lists of counts and displacements; [`List::NONE`] for both if the call has a single count.
    #[inline(always)]
    pub fn lists(self) -> (List, List) {
        match self {
            Amount::Each(_) => (List::NONE, List::NONE),
            Amount::Listed { counts, displacements } => (counts, displacements),
        }
    }
}

/// A send or receive buffer of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserBuffer {
    /// Address of the buffer, or `MPI_IN_PLACE`. A buffer that is only sent from is never written to.
    pub data: *mut c_void,
    /// Number of elements, or lists of counts and displacements.
    pub amount: Amount,
    /// Datatype of the elements.
    pub datatype: Handle,
}

impl UserBuffer {
    const NONE: UserBuffer = UserBuffer { data: std::ptr::null_mut(), amount: Amount::Each(0), datatype: 0 };

    #[inline(always)]
    fn of(data: *const c_void, count: Count, datatype: Handle) -> UserBuffer {
        UserBuffer { data: data.cast_mut(), amount: Amount::Each(count), datatype }
    }

    #[inline(always)]
    fn listed(data: *const c_void, counts: List, displacements: List, datatype: Handle) -> UserBuffer {
        UserBuffer { data: data.cast_mut(), amount: Amount::Listed { counts, displacements }, datatype }
    }
}

/// The arguments of a collective, except the communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// The MPI function that is called.
    pub function: Function,
    /// The send buffer. The only buffer of a broadcast is both send and receive buffer.
    pub send: UserBuffer,
    /// The receive buffer.
    pub recv: UserBuffer,
    /// The operation of a reduction; 0 for other collectives.
    pub op: Handle,
    /// The root of a rooted collective; 0 for other collectives.
    pub root: c_int,
}

// SAFETY: a call only stores the user's addresses; its safe functions never dereference them.
unsafe impl Send for Call {}

/// One constructor for each MPI function, with the function's arguments in their order but without the communicator.
#[expect(missing_docs, reason = "the standard's functions, by its names")]
#[allow(clippy::too_many_arguments, reason = "the signatures are MPI's")]
impl Call {
    #[inline(always)]
    fn of(function: Function, send: UserBuffer, recv: UserBuffer) -> Call {
        Call { function, send, recv, op: 0, root: 0 }
    }

    #[inline(always)]
    pub fn allgather(
        send: *const c_void,
        send_count: Count,
        send_type: Handle,
        recv: *mut c_void,
        recv_count: Count,
        recv_type: Handle,
    ) -> Call {
        let (send, recv) = (UserBuffer::of(send, send_count, send_type), UserBuffer::of(recv, recv_count, recv_type));
        Call::of(Function::Allgather, send, recv)
    }

    #[inline(always)]
    pub fn allgatherv(
        send: *const c_void,
        send_count: Count,
        send_type: Handle,
        recv: *mut c_void,
        recv_counts: List,
        displacements: List,
        recv_type: Handle,
    ) -> Call {
        let recv = UserBuffer::listed(recv, recv_counts, displacements, recv_type);
        Call::of(Function::Allgatherv, UserBuffer::of(send, send_count, send_type), recv)
    }

    #[inline(always)]
    pub fn allreduce(send: *const c_void, recv: *mut c_void, count: Count, datatype: Handle, op: Handle) -> Call {
        let (send, recv) = (UserBuffer::of(send, count, datatype), UserBuffer::of(recv, count, datatype));
        Call { op, ..Call::of(Function::Allreduce, send, recv) }
    }

    #[inline(always)]
    pub fn reduce_scatter(send: *const c_void, recv: *mut c_void, counts: List, datatype: Handle, op: Handle) -> Call {
        let of = |data| UserBuffer::listed(data, counts, List::NONE, datatype);
        Call { op, ..Call::of(Function::ReduceScatter, of(send), of(recv.cast_const())) }
    }

    #[inline(always)]
    pub fn reduce_scatter_block(
        send: *const c_void,
        recv: *mut c_void,
        count: Count,
        datatype: Handle,
        op: Handle,
    ) -> Call {
        Call { function: Function::ReduceScatterBlock, ..Call::allreduce(send, recv, count, datatype, op) }
    }

    #[inline(always)]
    pub fn alltoall(
        send: *const c_void,
        send_count: Count,
        send_type: Handle,
        recv: *mut c_void,
        recv_count: Count,
        recv_type: Handle,
    ) -> Call {
        let call = Call::allgather(send, send_count, send_type, recv, recv_count, recv_type);
        Call { function: Function::Alltoall, ..call }
    }

    #[inline(always)]
    pub fn alltoallv(
        send: *const c_void,
        send_counts: List,
        send_displacements: List,
        send_type: Handle,
        recv: *mut c_void,
        recv_counts: List,
        recv_displacements: List,
        recv_type: Handle,
    ) -> Call {
        let send = UserBuffer::listed(send, send_counts, send_displacements, send_type);
        let recv = UserBuffer::listed(recv, recv_counts, recv_displacements, recv_type);
        Call::of(Function::Alltoallv, send, recv)
    }

    #[inline(always)]
    pub fn bcast(data: *mut c_void, count: Count, datatype: Handle, root: c_int) -> Call {
        let data = UserBuffer::of(data, count, datatype);
        Call { root, ..Call::of(Function::Bcast, data, data) }
    }

    #[inline(always)]
    pub fn reduce(
        send: *const c_void,
        recv: *mut c_void,
        count: Count,
        datatype: Handle,
        op: Handle,
        root: c_int,
    ) -> Call {
        Call { function: Function::Reduce, root, ..Call::allreduce(send, recv, count, datatype, op) }
    }

    #[inline(always)]
    pub fn barrier() -> Call {
        Call::of(Function::Barrier, UserBuffer::NONE, UserBuffer::NONE)
    }
}

/// Returns the collective that an MPI function performs.
#[inline(always)]
pub(crate) fn name(function: Function) -> Name {
    match function {
        Function::Allgather | Function::Allgatherv => Name::Allgather,
        Function::Allreduce => Name::Allreduce,
        Function::ReduceScatter | Function::ReduceScatterBlock => Name::ReduceScatter,
        Function::Alltoall | Function::Alltoallv => Name::Alltoall,
        Function::Bcast => Name::Bcast,
        Function::Reduce => Name::Reduce,
        Function::Barrier => Name::Barrier,
    }
}

impl Call {
    /// Returns the collective that the call performs.
    #[inline(always)]
    pub fn name(&self) -> Name {
        name(self.function)
    }

    /// Whether the call needs an MPI function with wide counts (`MPI_Count`).
    #[inline(always)]
    pub fn is_wide(&self) -> bool {
        match self.recv.amount {
            Amount::Listed { counts, .. } => matches!(counts, List::Wide(_)),
            Amount::Each(count) => count.max(self.send.amount.each()) > Count::from(c_int::MAX),
        }
    }

    /// Returns the call with all counts and displacements as C integers, and the new lists that it refers to; `None` if the call has no
    /// lists or a number does not fit. If `in_place`, lists of the send buffer are ignored.
    ///
    /// # Safety
    /// Each list has `size` numbers.
    pub unsafe fn narrowed(&self, in_place: bool, size: u32) -> Option<(Call, Lists)> {
        if let Amount::Each(_) = self.recv.amount {
            return None;
        }
        let mut lists = Lists::default();
        let mut narrow = |buffer: &UserBuffer| {
            let amount = match buffer.amount {
                Amount::Each(count) => c_int::try_from(count).ok().map(|_| buffer.amount),
                Amount::Listed { counts, displacements } => {
                    let mut kept = |list: List| match list == List::NONE {
                        true => Some(list),
                        // SAFETY: the caller guarantees that each list has `size` numbers.
                        false => lists.keep_narrow(&unsafe { list.read(size) }),
                    };
                    let (counts, displacements) = (kept(counts)?, kept(displacements)?);
                    Some(Amount::Listed { counts, displacements })
                }
            };
            Some(UserBuffer { amount: amount?, ..*buffer })
        };
        let send = match (self.send.amount, in_place) {
            (Amount::Listed { .. }, true) => {
                let amount = Amount::Listed { counts: List::NONE, displacements: List::NONE };
                UserBuffer { amount, ..self.send }
            }
            _ => narrow(&self.send)?,
        };
        let recv = narrow(&self.recv)?;
        Some((Call { send, recv, ..*self }, lists))
    }
}

/// Storage of the lists that a call refers to.
#[derive(Debug, Default)]
pub struct Lists {
    ints: Vec<Box<[c_int]>>,
    wide: Vec<Box<[i64]>>,
}

impl Lists {
    /// Stores a list of numbers and returns its address: as C integers if all numbers fit, otherwise as wide ones.
    pub fn keep(&mut self, numbers: &[i64]) -> List {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_number_is_not_overlooked() {
        let mut lists = Lists::default();
        for (numbers, largest) in [
            (vec![3, 0, 7, 2], 7),
            (vec![3, -1, 7], -1),
            (vec![0, -5, -2], -2),
            (vec![1 << 40, 5], 1 << 40),
            (vec![1 << 40, -6], -6),
            (vec![c_int::MIN.into(), c_int::MAX.into()], c_int::MIN.into()),
        ] {
            let list = lists.keep(&numbers);
            // SAFETY: the list has as many numbers as were stored.
            assert_eq!(unsafe { list.largest(numbers.len() as u32) }, largest, "{numbers:?}");
            // SAFETY: the list has more than one number.
            assert_eq!(unsafe { list.get(1) }, numbers[1]);
        }
        // SAFETY: the address of `List::NONE` is null.
        assert_eq!(unsafe { (List::NONE.largest(4), List::NONE.get(3)) }, (0, 0));
    }
}
