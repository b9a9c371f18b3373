//! `BRUCKNER_CHECK`: a result compared with the MPI's own, in the open.
//!
//! Before a call is served, its input is packed and given to the native function; afterwards the output is packed and
//! compared. What differs is told on standard error, counted in the report, and replaced by native's.

use std::ffi::c_void;

use bruckner_algorithms::Expression;
use bruckner_mpi::{Flavour, Mpi, Word};
use bruckner_runtime::reduce::{Kind, Operation};
use bruckner_schedule::{Collective, Counts};

use crate::Error;
use crate::call::{Call, Count, List, Name};
use crate::communicator::Communicator;
use crate::normal::{Combine, Normal, Side, personal};

/// What native makes of a call's input.
pub(crate) struct Shadow {
    output: Side,
    expected: Vec<u8>,
    /// For reductions of floating point: of what kind, and by how much each may differ.
    rounded: Option<(Kind, Vec<u8>, f64)>,
}

/// Lists for a native call on packed bytes.
fn displacements(lengths: &[i64]) -> Vec<i64> {
    lengths.iter().scan(0, |at, length| Some(std::mem::replace(at, *at + length))).collect()
}

/// So many bytes, at an address that is one: an empty vector's may be that of `MPI_IN_PLACE`.
fn room(bytes: usize) -> Vec<u8> {
    let mut room = Vec::with_capacity(bytes.max(1));
    room.resize(bytes, 0);
    room
}

impl Shadow {
    /// Runs native beside a call that is about to be served. Collective. `None`, on all ranks, where there is nothing to
    /// compare.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of the same name.
    pub(crate) unsafe fn cast(
        mpi: &'static Mpi,
        communicator: &Communicator,
        call: &Call,
        normal: &Normal,
    ) -> Result<Option<Shadow>, Error> {
        let byte = mpi.byte();
        if normal.common.name == Name::Barrier {
            return Ok(None);
        }
        if normal.common.is_local() {
            let personal = personal(mpi, call, communicator.size)?;
            let total = |lengths: &[usize]| lengths.iter().sum::<usize>();
            let mut input = room(total(&personal.sent));
            let mut expected = room(total(&personal.received));
            personal.input.pack(mpi, input.as_mut_ptr(), input.len())?;
            let wide = |lengths: &[usize]| lengths.iter().map(|n| *n as i64).collect::<Vec<i64>>();
            let (sent, received) = (wide(&personal.sent), wide(&personal.received));
            let (sent_at, received_at) = (displacements(&sent), displacements(&received));
            let packed = Call::Alltoallv {
                send: input.as_ptr().cast(),
                send_counts: List::Wide(sent.as_ptr()),
                send_displacements: List::Wide(sent_at.as_ptr()),
                send_type: byte,
                recv: expected.as_mut_ptr().cast(),
                recv_counts: List::Wide(received.as_ptr()),
                recv_displacements: List::Wide(received_at.as_ptr()),
                recv_type: byte,
            };
            // SAFETY: lists and buffers as long as they say.
            unsafe { run(mpi, &packed, communicator) }?;
            return Ok(Some(Shadow { output: personal.output, expected, rounded: None }));
        }
        let mut input = room(normal.staged_input());
        let mut expected = room(normal.bytes.1);
        normal.input.pack(mpi, input.as_mut_ptr(), input.len())?;
        let rounded = match rounding(&normal.common.combine) {
            Rounding::Exact => None,
            Rounding::Unknown => return Ok(None),
            Rounding::Kernel(operation, kind) => Some((operation, kind)),
        };
        let reduce = |send, recv| reduction(call, send, recv);
        let (send, recv): (*const c_void, *mut c_void) =
            (input.as_ptr().cast(), expected.as_mut_ptr().cast());
        let mut bounds = Vec::new();
        let mut most = 0.0;
        match (normal.common.problem.collective, &normal.common.problem.counts) {
            (Collective::Allgather, Counts::Root { root, .. }) => {
                if communicator.rank == *root {
                    expected.copy_from_slice(&input);
                }
                let (count, root) = (expected.len() as Count, root.0 as i32);
                let packed = Call::Bcast { data: recv, count, datatype: byte, root };
                // SAFETY: buffers as long as they say.
                unsafe { run(mpi, &packed, communicator) }?;
            }
            (Collective::Allgather, Counts::Listed(counts)) => {
                let element = i64::from(normal.common.problem.element);
                let lengths: Vec<i64> = counts.iter().map(|n| *n as i64 * element).collect();
                let at = displacements(&lengths);
                let packed = Call::Allgatherv {
                    send,
                    send_count: input.len() as Count,
                    send_type: byte,
                    recv,
                    recv_counts: List::Wide(lengths.as_ptr()),
                    displacements: List::Wide(at.as_ptr()),
                    recv_type: byte,
                };
                // SAFETY: lists and buffers as long as they say.
                unsafe { run(mpi, &packed, communicator) }?;
            }
            (Collective::Allgather | Collective::Alltoall, _) => {
                let count = (expected.len() / communicator.size as usize) as Count;
                let (send_count, recv_count, send_type, recv_type) = (count, count, byte, byte);
                let packed = match normal.common.problem.collective {
                    Collective::Alltoall => {
                        Call::Alltoall { send, send_count, send_type, recv, recv_count, recv_type }
                    }
                    _ => Call::Allgather { send, send_count, send_type, recv, recv_count, recv_type },
                };
                // SAFETY: buffers as long as they say.
                unsafe { run(mpi, &packed, communicator) }?;
            }
            _ => {
                // SAFETY: elements as they lie in a plan's memory, which is how MPI wants them.
                unsafe { run(mpi, &reduce(send, recv), communicator) }?;
                if let Some((operation, kind)) = rounded {
                    if matches!(operation, Operation::Sum | Operation::Prod) {
                        most = 4.0 * f64::from(communicator.size) * epsilon(kind);
                    }
                    bounds = room(expected.len());
                    bounds.copy_from_slice(&expected);
                    if operation == Operation::Sum {
                        absolute(kind, &mut input);
                        let recv = bounds.as_mut_ptr().cast();
                        // SAFETY: as above.
                        unsafe { run(mpi, &reduce(input.as_ptr().cast(), recv), communicator) }?;
                    }
                    absolute(kind, &mut bounds);
                }
            }
        }
        let rounded = rounded.map(|(_, kind)| (kind, bounds, most));
        if matches!(normal.output, Side::Kept) {
            return Ok(Some(Shadow { output: Side::None, expected: Vec::new(), rounded: None }));
        }
        Ok(Some(Shadow { output: normal.output.clone(), expected, rounded }))
    }

    /// Compares what was served with it; whether they are the same, up to rounding.
    pub(crate) fn compare(
        &self,
        mpi: &Mpi,
        comm: Word,
        call: &Call,
        expression: &Expression,
    ) -> Result<bool, Error> {
        let mut found = vec![0u8; self.expected.len()];
        self.output.pack(mpi, found.as_mut_ptr(), found.len())?;
        let wrong = match &self.rounded {
            None => found.iter().zip(&self.expected).position(|(a, b)| a != b),
            Some((kind, bounds, most)) => {
                let numbers = |bytes: &[u8]| values(*kind, bytes);
                let bounds = numbers(bounds);
                let pairs = numbers(&found).into_iter().zip(numbers(&self.expected)).zip(bounds);
                let width = found.len() / numbers(&found).len().max(1);
                let differ = |((a, b), bound): ((f64, f64), f64)| {
                    let same = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= bound * most;
                    let either = *most == 0.0 && (a.is_nan() || b.is_nan());
                    !same && !either && bound.is_finite()
                };
                pairs.into_iter().position(differ).map(|at| at * width)
            }
        };
        if let Some(at) = wrong {
            let rank = mpi.rank(comm)?;
            eprintln!(
                "bruckner: check: rank {rank}: {} by {expression} differs from native at byte {at} of {}",
                call.name().text(),
                found.len()
            );
            self.output.unpack(mpi, self.expected.as_ptr(), self.expected.len())?;
        }
        Ok(wrong.is_none())
    }
}

/// Runs native on packed buffers, with C integers where the MPI knows no others.
///
/// # Safety
/// As for [`Call::native`].
unsafe fn run(mpi: &Mpi, call: &Call, communicator: &Communicator) -> Result<(), Error> {
    // SAFETY: the caller's promise; lists have a number for each rank.
    unsafe {
        let known = mpi.has(call.function(), Flavour::Blocking, true);
        let narrowed = if known { None } else { call.narrowed(mpi, communicator.size) };
        let call = narrowed.as_ref().map_or(call, |(call, _)| call);
        Ok(call.native(mpi, communicator.comm)?)
    }
}

/// The same reduction on other buffers.
fn reduction(call: &Call, send: *const c_void, recv: *mut c_void) -> Call {
    let mut call = *call;
    match &mut call {
        Call::Allreduce { send: from, recv: to, .. }
        | Call::ReduceScatter { send: from, recv: to, .. }
        | Call::ReduceScatterBlock { send: from, recv: to, .. }
        | Call::Reduce { send: from, recv: to, .. } => (*from, *to) = (send, recv),
        _ => {}
    }
    call
}

/// How far a reduction may round.
enum Rounding {
    Exact,
    Kernel(Operation, Kind),
    /// Nobody knows: an operation of the user's, or half precision.
    Unknown,
}

fn rounding(combine: &Combine) -> Rounding {
    match *combine {
        Combine::Foreign | Combine::Kernel(_, Kind::F16 | Kind::Bf16) => Rounding::Unknown,
        Combine::Kernel(operation, kind) if combine.rounds() => match (operation, kind) {
            // A complex product mixes its parts.
            (Operation::Prod, Kind::C32 | Kind::C64) => Rounding::Unknown,
            _ => Rounding::Kernel(operation, kind),
        },
        // Which of NaN and a number, or of two zeros, is the larger, is the MPI's own affair.
        Combine::Kernel(operation @ (Operation::Max | Operation::Min), kind @ (Kind::F32 | Kind::F64)) => {
            Rounding::Kernel(operation, kind)
        }
        Combine::Kernel(Operation::MinLoc | Operation::MaxLoc, kind) if kind.is_float() => Rounding::Unknown,
        _ => Rounding::Exact,
    }
}

fn is_single(kind: Kind) -> bool {
    matches!(kind, Kind::F32 | Kind::C32)
}

fn epsilon(kind: Kind) -> f64 {
    if is_single(kind) { f64::from(f32::EPSILON) } else { f64::EPSILON }
}

fn values(kind: Kind, bytes: &[u8]) -> Vec<f64> {
    match is_single(kind) {
        true => {
            bytes.chunks_exact(4).map(|b| f64::from(f32::from_ne_bytes([b[0], b[1], b[2], b[3]]))).collect()
        }
        false => {
            let eight = |b: &[u8]| f64::from_ne_bytes(b.try_into().expect("eight bytes"));
            bytes.chunks_exact(8).map(eight).collect()
        }
    }
}

/// Makes numbers positive.
fn absolute(kind: Kind, bytes: &mut [u8]) {
    let width = if is_single(kind) { 4 } else { 8 };
    // The sign is the highest bit, in the last byte.
    bytes.chunks_exact_mut(width).for_each(|number| number[width - 1] &= 0x7f);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_go_and_values_stay() {
        let mut bytes: Vec<u8> = [1.5f64, -2.5].iter().flat_map(|x| x.to_ne_bytes()).collect();
        absolute(Kind::F64, &mut bytes);
        assert_eq!(values(Kind::F64, &bytes), [1.5, 2.5]);
        let mut bytes: Vec<u8> = [-0.25f32, 4.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
        absolute(Kind::C32, &mut bytes);
        assert_eq!(values(Kind::C32, &bytes), [0.25, 4.0]);
    }
}
