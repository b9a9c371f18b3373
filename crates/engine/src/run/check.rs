//! `BRUCKNER_CHECK`: compares results with those of the MPI's own functions.
//!
//! Before a call is handled, its input is packed and passed to the native function; afterwards the output is packed and compared. A
//! difference is reported on standard error and counted in the report, and the native result replaces the output.

use bruckner_algorithms::Expression;
use bruckner_choose::Name;
use bruckner_mpi::{Flavour, Function, Handle};
use bruckner_runtime::reduce::{ElementType, Operation};
use bruckner_schedule::Counts;

use crate::Error;
use crate::backend::Backend;
use crate::call::{Call, Count, Lists, UserBuffer};
use crate::group::Group;
use crate::normalize::{BufferLayout, Combine, NormalizedCall, alltoallv_layout};

/// The result of the MPI's own function for a call's input.
pub(crate) struct NativeCheck {
    output: BufferLayout,
    expected: Vec<u8>,
    /// For floating-point reductions: kind of the elements, a magnitude for each element (for sums, the sum of the absolute values), and
    /// the factor of the magnitude by which results may differ.
    rounded: Option<(ElementType, Vec<u8>, f64)>,
}

/// Returns the displacements of contiguous blocks of these lengths.
fn displacements(lengths: &[i64]) -> Vec<i64> {
    lengths.iter().scan(0, |at, length| Some(std::mem::replace(at, *at + length))).collect()
}

/// Returns `bytes` zeros in allocated memory: the address of an empty vector may be that of `MPI_IN_PLACE`.
fn workspace(bytes: usize) -> Vec<u8> {
    let mut workspace = Vec::with_capacity(bytes.max(1));
    workspace.resize(bytes, 0);
    workspace
}

impl NativeCheck {
    /// Runs the native function on a copy of the input, before a call is handled. Collective. Returns `None`, on all ranks, if results
    /// cannot be compared.
    ///
    /// # Safety
    /// The arguments are valid for the MPI function of the same name.
    pub(crate) unsafe fn run<B: Backend>(
        group: &Group<B>,
        call: &Call,
        normalized: &NormalizedCall,
    ) -> Result<Option<NativeCheck>, Error> {
        if normalized.signature.name == Name::Barrier {
            return Ok(None);
        }
        if normalized.signature.is_local() {
            // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
            return unsafe { NativeCheck::run_alltoallv(group, call) }.map(Some);
        }
        let backend = group.internal.backend;
        let mut input = workspace(normalized.staged_input());
        let mut expected = workspace(normalized.bytes.1);
        normalized.input.pack(backend, input.as_mut_ptr(), input.len())?;
        let rounded = match rounding(&normalized.signature.combine) {
            Rounding::Exact => None,
            Rounding::Unknown => return Ok(None),
            Rounding::Kernel(operation, kind) => Some((operation, kind)),
        };
        let reduces = call.op != 0;
        if call.function == Function::Bcast && group.rank.0 == call.root as u32 {
            expected.copy_from_slice(&input);
        }
        let mut lists = Lists::default();
        let packed = match reduces {
            true => on_buffers(call, input.as_ptr(), expected.as_mut_ptr()),
            false => moved(backend.byte(), call, normalized, &input, &mut expected, &mut lists),
        };
        // SAFETY: lists and buffers are as long as the call says; elements lie as in a plan's memory, which is the layout that MPI
        // expects.
        unsafe { run(group, &packed) }?;
        // Padding has no meaning, and an MPI may or may not write it.
        if let Some(pair) = normalized.output.pair() {
            pair.clear(&mut expected);
        }
        let rounded = match rounded {
            None => None,
            Some((operation, kind)) => {
                let mut bounds = workspace(expected.len());
                bounds.copy_from_slice(&expected);
                if operation == Operation::Sum {
                    absolute(kind, &mut input);
                    let packed = on_buffers(call, input.as_ptr(), bounds.as_mut_ptr());
                    // SAFETY: buffers are as long as the call says; elements lie as in a plan's memory, which is the layout that MPI
                    // expects.
                    unsafe { run(group, &packed) }?;
                }
                absolute(kind, &mut bounds);
                let rounds = matches!(operation, Operation::Sum | Operation::Prod);
                let most = if rounds { 4.0 * f64::from(group.size) * epsilon(kind) } else { 0.0 };
                Some((kind, bounds, most))
            }
        };
        if matches!(normalized.output, BufferLayout::AlreadyInPlace) {
            return Ok(Some(NativeCheck { output: BufferLayout::None, expected: Vec::new(), rounded: None }));
        }
        Ok(Some(NativeCheck { output: normalized.output.clone(), expected, rounded }))
    }

    /// Runs the native function on a copy of the input, before an alltoallv is handled. Collective.
    ///
    /// # Safety
    /// The arguments are valid for the MPI function of the same name.
    unsafe fn run_alltoallv<B: Backend>(group: &Group<B>, call: &Call) -> Result<NativeCheck, Error> {
        let backend = group.internal.backend;
        let layout = alltoallv_layout(backend, call, group.size)?;
        let total = |lengths: &[usize]| lengths.iter().sum::<usize>();
        let mut input = workspace(total(&layout.sent));
        let mut expected = workspace(total(&layout.received));
        layout.input.pack(backend, input.as_mut_ptr(), input.len())?;
        let mut lists = Lists::default();
        let mut listed = |lengths: &[usize]| {
            let lengths: Vec<i64> = lengths.iter().map(|n| *n as i64).collect();
            (lists.keep(&lengths), lists.keep(&displacements(&lengths)))
        };
        let ((sent, sent_at), (received, received_at)) = (listed(&layout.sent), listed(&layout.received));
        let (byte, send, recv) = (backend.byte(), input.as_ptr().cast(), expected.as_mut_ptr().cast());
        let packed = Call::alltoallv(send, sent, sent_at, byte, recv, received, received_at, byte);
        // SAFETY: lists and buffers are as long as the call says.
        unsafe { run(group, &packed) }?;
        Ok(NativeCheck { output: layout.output, expected, rounded: None })
    }

    /// Compares the output of a handled call with the native result, which replaces it if they differ; returns whether they are the same,
    /// up to rounding.
    pub(crate) fn compare(
        &self,
        backend: &impl Backend,
        comm: Handle,
        call: &Call,
        expression: &Expression,
    ) -> Result<bool, Error> {
        let mut found = vec![0u8; self.expected.len()];
        self.output.pack(backend, found.as_mut_ptr(), found.len())?;
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
            let rank = backend.rank(comm)?;
            eprintln!(
                "bruckner: BRUCKNER_CHECK: rank {rank}: result of {} by {expression} differs from the MPI's own at byte {at} of {}; \
                 the MPI's result is used; please report this",
                call.name(),
                found.len()
            );
            self.output.unpack(backend, self.expected.as_ptr(), self.expected.len())?;
        }
        Ok(wrong.is_none())
    }
}

/// Runs the native function on packed buffers, with C integers as counts if the MPI has no wide ones.
///
/// # Safety
/// The arguments are valid for the MPI function of the same name.
unsafe fn run<B: Backend>(group: &Group<B>, call: &Call) -> Result<(), Error> {
    let backend = group.internal.backend;
    let known = backend.has(call.function, Flavour::Blocking, true);
    // SAFETY: lists have one number for each rank.
    let narrowed = if known { None } else { unsafe { call.narrowed(false, group.size) } };
    let call = narrowed.as_ref().map_or(call, |(call, _)| call);
    // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
    Ok(unsafe { backend.native(call, group.comm) }?)
}

/// Returns the same reduction on other buffers.
fn on_buffers(call: &Call, send: *const u8, recv: *mut u8) -> Call {
    let send = UserBuffer { data: send.cast_mut().cast(), ..call.send };
    Call { send, recv: UserBuffer { data: recv.cast(), ..call.recv }, ..*call }
}

/// Returns a call that moves the same data, with packed bytes in both buffers.
fn moved(
    byte: Handle,
    call: &Call,
    normalized: &NormalizedCall,
    input: &[u8],
    expected: &mut [u8],
    lists: &mut Lists,
) -> Call {
    let (send, recv) = (input.as_ptr().cast(), expected.as_mut_ptr().cast());
    let each = (expected.len() / normalized.signature.problem.ranks as usize) as Count;
    match (call.function, &normalized.signature.problem.counts) {
        (Function::Bcast, _) => Call::bcast(recv, expected.len() as Count, byte, call.root),
        (_, Counts::Listed(counts)) => {
            let element = i64::from(normalized.signature.problem.element);
            let lengths: Vec<i64> = counts.iter().map(|n| *n as i64 * element).collect();
            let (counts, at) = (lists.keep(&lengths), lists.keep(&displacements(&lengths)));
            Call::allgatherv(send, input.len() as Count, byte, recv, counts, at, byte)
        }
        (Function::Alltoall, _) => Call::alltoall(send, each, byte, recv, each, byte),
        _ => Call::allgather(send, each, byte, recv, each, byte),
    }
}

/// How results of a reduction may differ by rounding.
enum Rounding {
    Exact,
    Kernel(Operation, ElementType),
    /// The difference is unknown, so results are not compared: for example of user-defined operations and in half precision.
    Unknown,
}

fn rounding(combine: &Combine) -> Rounding {
    match *combine {
        Combine::UserOp | Combine::Kernel(_, ElementType::F16 | ElementType::Bf16) => Rounding::Unknown,
        Combine::Kernel(operation, kind) if combine.rounds() => match (operation, kind) {
            // Each part of a complex product depends on both parts of its factors.
            (Operation::Prod, ElementType::C32 | ElementType::C64) => Rounding::Unknown,
            _ => Rounding::Kernel(operation, kind),
        },
        // MPIs differ in the maximum of NaN and a number, and of zeros with different signs.
        Combine::Kernel(
            operation @ (Operation::Max | Operation::Min),
            kind @ (ElementType::F32 | ElementType::F64),
        ) => Rounding::Kernel(operation, kind),
        Combine::Kernel(Operation::MinLoc | Operation::MaxLoc, kind) if kind.is_float() => Rounding::Unknown,
        _ => Rounding::Exact,
    }
}

fn is_single(kind: ElementType) -> bool {
    matches!(kind, ElementType::F32 | ElementType::C32)
}

fn epsilon(kind: ElementType) -> f64 {
    if is_single(kind) { f64::from(f32::EPSILON) } else { f64::EPSILON }
}

fn values(kind: ElementType, bytes: &[u8]) -> Vec<f64> {
    match is_single(kind) {
        true => bytes.chunks_exact(4).map(|b| f64::from(f32::from_ne_bytes([b[0], b[1], b[2], b[3]]))).collect(),
        false => {
            let eight = |b: &[u8]| f64::from_ne_bytes(b.try_into().expect("eight bytes"));
            bytes.chunks_exact(8).map(eight).collect()
        }
    }
}

/// Makes numbers positive by clearing their signs.
fn absolute(kind: ElementType, bytes: &mut [u8]) {
    let width = if is_single(kind) { 4 } else { 8 };
    // The sign is the highest bit of the last byte (little-endian).
    bytes.chunks_exact_mut(width).for_each(|number| number[width - 1] &= 0x7f);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_go_and_values_stay() {
        let mut bytes: Vec<u8> = [1.5f64, -2.5].iter().flat_map(|x| x.to_ne_bytes()).collect();
        absolute(ElementType::F64, &mut bytes);
        assert_eq!(values(ElementType::F64, &bytes), [1.5, 2.5]);
        let mut bytes: Vec<u8> = [-0.25f32, 4.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
        absolute(ElementType::C32, &mut bytes);
        assert_eq!(values(ElementType::C32, &bytes), [0.25, 4.0]);
    }
}
