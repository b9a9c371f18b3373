//! From a call to what is planned: the problem that all ranks share, and how this rank's buffers lie.
//!
//! What may differ between ranks (datatypes of one signature, displacements, addresses) only decides how a buffer is
//! staged; what all ranks share, the [`Common`], decides what is planned.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use bruckner_mpi::{Family, Mpi, Shape, Word, has_device_runtime};
use bruckner_runtime::reduce::{Kind, Operation};
use bruckner_runtime::{Compiled, Reduction};
use bruckner_schedule::{Collective, Counts, Order, Problem, Rank};

use crate::Error;
use crate::call::{Call, Count, List, Name};
use crate::pack::reduce_in_form;

/// How elements are combined, as far as all ranks share it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Combine {
    /// They are not.
    Nothing,
    /// By a kernel.
    Kernel(Operation, Kind),
    /// By `MPI_Reduce_local`. Handles may be used again for something else, so this is not kept with a plan.
    Foreign,
}

impl Combine {
    /// Whether the order of operands may show in the result, though the operation is commutative: sums and products of
    /// floating point are rounded, and a maximum of NaN and a number, or of zeros of both signs, is whichever came first.
    pub(crate) fn shows_order(self) -> bool {
        match self {
            Combine::Nothing => false,
            Combine::Kernel(_, kind) => kind.is_float(),
            Combine::Foreign => true,
        }
    }

    /// The kernel; nothing where there is none.
    pub(crate) fn kernel(self) -> Reduction {
        match self {
            Combine::Kernel(operation, kind) => Reduction::of(operation, kind).unwrap_or(Reduction::None),
            Combine::Nothing | Combine::Foreign => Reduction::None,
        }
    }

    /// Whether results are rounded.
    pub(crate) fn rounds(self) -> bool {
        match self {
            Combine::Kernel(operation, kind) => {
                matches!(operation, Operation::Sum | Operation::Prod) && kind.is_float()
            }
            other => other.shows_order(),
        }
    }
}

/// What all ranks share of a call.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Common {
    pub(crate) name: Name,
    /// Its blocks in one piece each, until an algorithm wants more.
    pub(crate) problem: Problem,
    pub(crate) combine: Combine,
}

impl Common {
    /// A call that moves data.
    fn moves(name: Name, collective: Collective, ranks: u32, counts: Counts, element: u32) -> Common {
        let problem = Problem { collective, ranks, counts, pieces: 1, element, order: Order::Any };
        Common { name, problem, combine: Combine::Nothing }
    }

    /// Whether nobody gives anything to anybody: then nobody need wait for anybody.
    pub(crate) fn is_nothing(&self) -> bool {
        self.name != Name::Barrier && !self.is_local() && self.problem.largest() == 0
    }

    /// Whether ranks may leave before others have come: nobody waits for those who only receive, or only give.
    pub(crate) fn is_rooted(&self) -> bool {
        matches!(self.name, Name::Bcast | Name::Reduce)
    }

    /// Whether each rank knows only its own sizes.
    pub(crate) fn is_local(&self) -> bool {
        self.problem.counts == Counts::Local
    }

    /// Bytes of the largest block, or of the vector.
    pub(crate) fn bytes(&self) -> u64 {
        self.problem.largest() * u64::from(self.problem.element)
    }
}

/// One of the user's buffers.
#[derive(Clone, Debug)]
pub(crate) enum Side {
    /// Nothing is there on this rank.
    None,
    /// An output that the user has already, as input: a broadcast's root. It may be memory that cannot be written.
    Kept,
    /// The bytes of all blocks, one behind the other.
    Direct(*mut c_void),
    /// Blocks here and there, or of a type with gaps: packed and unpacked, one behind the other, or one every `pitch` bytes.
    Blocks {
        data: *mut c_void,
        datatype: Word,
        shape: Shape,
        blocks: Vec<(isize, usize)>,
        pitch: Option<usize>,
    },
}

/// A call that can be planned.
#[derive(Clone, Debug)]
pub(crate) struct Normal {
    pub(crate) common: Common,
    pub(crate) input: Side,
    pub(crate) output: Side,
    /// Whether the input is read from the output's memory and must be put aside unless the plan reads it all first.
    pub(crate) overlaps: bool,
    /// Bytes of the input and of the output, as all ranks have them.
    pub(crate) bytes: (usize, usize),
    /// How long a block of this rank's really is, and how long it should be, where it gives more or less than is received.
    /// That is wrong, but only it knows: it takes part all the same.
    pub(crate) misfit: Option<(usize, usize)>,
    pub(crate) foreign: Option<Foreign>,
}

/// A reduction by `MPI_Reduce_local`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Foreign {
    datatype: Word,
    op: Word,
    shape: Shape,
}

/// Why a call goes to the MPI's own function; the same on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Native {
    /// The operation is not defined for the type.
    Misfit,
    /// An element of more than 4 GiB.
    Huge,
    /// Elements without data.
    Empty,
}

impl Native {
    /// In words.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Native::Misfit => "the built-in operation is not known for this datatype",
            Native::Huge => "an element of more than 4 GiB",
            Native::Empty => "elements without data",
        }
    }
}

impl Normal {
    /// Whether a plan works on the user's own buffers; input and output that overlap are looked at elsewhere if `in_place`.
    pub(crate) fn is_direct(&self, compiled: &Compiled, in_place: bool) -> bool {
        let kept = matches!(self.output, Side::Kept) && !compiled.only_reads;
        let device = has_device_runtime();
        let staged = self.input.is_staged(device) || self.output.is_staged(device);
        !staged && !kept && (in_place || !self.overlaps)
    }

    /// How many bytes of room the input takes when it is staged.
    pub(crate) fn staged_input(&self) -> usize {
        // Each block lies where it should begin, and the last of those that are too long goes on behind the end.
        self.bytes.0 + self.misfit.map_or(0, |(given, wanted)| given.saturating_sub(wanted))
    }

    /// What is to be said of a call that has been served: more was given than was received.
    pub(crate) fn verdict(&self, mpi: &Mpi) -> Result<(), Error> {
        match self.misfit {
            Some((given, wanted)) if given > wanted => Err(Error::Mpi(mpi.truncated())),
            _ => Ok(()),
        }
    }

    /// The reduction, for a plan of this call.
    pub(crate) fn reduction(&self, mpi: &'static Mpi) -> Reduction {
        match (self.common.combine, self.foreign) {
            (Combine::Foreign, Some(foreign)) => {
                let Foreign { datatype, op, shape } = foreign;
                let reduce = move |left: *const u8, into: *mut u8, elements: usize| {
                    if !shape.is_dense() {
                        // There is nobody to tell: what is wrong with a type or operation was found when it was packed.
                        let _ = reduce_in_form(mpi, (datatype, &shape, op), left, into, elements);
                        return;
                    }
                    for at in (0..elements).step_by(c_int::MAX as usize) {
                        let count = (elements - at).min(c_int::MAX as usize) as c_int;
                        let (left, into) =
                            (left.wrapping_add(at * shape.size), into.wrapping_add(at * shape.size));
                        // SAFETY: both have so many elements of this type.
                        unsafe { (mpi.f.reduce_local)(left.cast(), into.cast(), count, datatype, op) };
                    }
                };
                Reduction::Foreign(Arc::new(reduce))
            }
            (combine, _) => combine.kernel(),
        }
    }
}

/// Counts, one for each rank.
fn counted(numbers: List, size: u32) -> Result<Vec<usize>, Error> {
    placed(numbers, size).into_iter().map(positive).collect()
}

/// Displacements, one for each rank.
fn placed(numbers: List, size: u32) -> Vec<i64> {
    // SAFETY: MPI asks for one number for each rank.
    unsafe { numbers.read(size) }
}

fn positive(count: Count) -> Result<usize, Error> {
    usize::try_from(count).map_err(|_| Error::Negative(count))
}

/// How a datatype lies in memory. One that is none is left to MPI, which raises the error where it belongs.
fn shape_of(mpi: &Mpi, datatype: Word) -> Result<Shape, Error> {
    if mpi.is_null_type(datatype) {
        return Err(Error::Argument("MPI_DATATYPE_NULL is no datatype".into()));
    }
    Ok(mpi.shape(datatype)?)
}

/// Input and output that are the same, where the MPI takes that for an error.
fn not_aliased(mpi: &Mpi, call: &Call, rank: u32) -> Result<(), Error> {
    let wrong = match *call {
        Call::Allreduce { send, recv, count, .. } | Call::ReduceScatterBlock { send, recv, count, .. } => {
            count > 0 && send == recv.cast_const()
        }
        Call::Reduce { send, recv, count, root, .. } => {
            count > 0 && rank == root as u32 && send == recv.cast_const()
        }
        Call::Allgather { send, send_count, send_type, recv, recv_count, recv_type } => {
            let same = send_count == recv_count && send_type == recv_type && send_count > 0;
            let own = || Ok::<_, Error>(i64::from(rank) * recv_count * shape_of(mpi, recv_type)?.size as i64);
            same && send == recv.wrapping_byte_offset(own()? as isize).cast_const()
        }
        Call::Alltoall { send, send_count, send_type, recv, recv_count, recv_type } => {
            let same = send_count == recv_count && send_type == recv_type && send_count > 0;
            same && send == recv.cast_const()
        }
        _ => false,
    };
    match wrong && mpi.refuses_aliases() {
        true => Err(Error::Argument("input and output are the same memory".into())),
        false => Ok(()),
    }
}

/// `MPI_IN_PLACE` where it is not allowed: MPI says so.
fn not_in_place(mpi: &Mpi, call: &Call, rank: u32) -> Result<(), Error> {
    let wrong = match *call {
        Call::Allgather { recv, .. }
        | Call::Allgatherv { recv, .. }
        | Call::Allreduce { recv, .. }
        | Call::ReduceScatter { recv, .. }
        | Call::ReduceScatterBlock { recv, .. }
        | Call::Alltoall { recv, .. }
        | Call::Alltoallv { recv, .. } => mpi.is_in_place(recv),
        Call::Bcast { data, .. } => mpi.is_in_place(data),
        Call::Reduce { send, recv, root, .. } => match rank == root as u32 {
            true => mpi.is_in_place(recv),
            // Open MPI says so; others read the other buffer.
            false => mpi.family == Family::OpenMpi && mpi.is_in_place(send),
        },
        Call::Barrier => false,
    };
    if wrong { Err(Error::Argument("MPI_IN_PLACE is not allowed here".into())) } else { Ok(()) }
}

/// What is to be planned for a call by this rank of so many. An error is one that MPI finds before it talks to anybody: what
/// only this rank can know to be wrong does not send it alone to MPI's function.
pub(crate) fn normal(
    mpi: &'static Mpi,
    call: &Call,
    rank: u32,
    size: u32,
) -> Result<Result<Normal, Native>, Error> {
    not_in_place(mpi, call, rank)?;
    not_aliased(mpi, call, rank)?;
    let moves = |name, collective, counts, element| Common::moves(name, collective, size, counts, element);
    let plain = |common, input, output, bytes| Normal {
        common,
        input,
        output,
        overlaps: false,
        bytes,
        misfit: None,
        foreign: None,
    };
    match *call {
        Call::Barrier => {
            let common = moves(Name::Barrier, Collective::Allgather, Counts::Equal(1), 0);
            Ok(Ok(plain(common, Side::None, Side::None, (0, 0))))
        }
        Call::Allgather { send, send_count, send_type, recv, recv_count, recv_type } => {
            let (count, shape) = (positive(recv_count)?, shape_of(mpi, recv_type)?);
            let bytes = count * shape.size;
            let blocks = (0..size as usize).map(|r| ((r * count) as isize, count)).collect();
            let output = side(recv, recv_type, shape, blocks, bytes * size as usize)?;
            let given = (send, send_count, send_type);
            let (input, misfit) = gather_input(mpi, given, &output, rank, rank as usize * bytes, bytes)?;
            let common = moves(Name::Allgather, Collective::Allgather, Counts::Equal(bytes as u64), 1);
            Ok(Ok(Normal { misfit, ..plain(common, input, output, (bytes, bytes * size as usize)) }))
        }
        Call::Allgatherv { send, send_count, send_type, recv, recv_counts, displacements, recv_type } => {
            let shape = shape_of(mpi, recv_type)?;
            let counts = counted(recv_counts, size)?;
            let at = placed(displacements, size);
            let blocks = at.iter().zip(&counts).map(|(at, count)| (*at as isize, *count)).collect();
            let total: usize = counts.iter().map(|count| count * shape.size).sum();
            let output = side(recv, recv_type, shape, blocks, total)?;
            let own = counts[rank as usize] * shape.size;
            let before = counts[..rank as usize].iter().sum::<usize>() * shape.size;
            let given = (send, send_count, send_type);
            let (input, misfit) = gather_input(mpi, given, &output, rank, before, own)?;
            let bytes: Vec<u64> = counts.iter().map(|count| (count * shape.size) as u64).collect();
            let common = moves(Name::Allgather, Collective::Allgather, Counts::Listed(bytes), 1);
            Ok(Ok(Normal { misfit, ..plain(common, input, output, (own, total)) }))
        }
        Call::Alltoall { send, send_count, send_type, recv, recv_count, recv_type } => {
            let (count, shape) = (positive(recv_count)?, shape_of(mpi, recv_type)?);
            let bytes = count * shape.size;
            let all = bytes * size as usize;
            let blocks = |count: usize| (0..size as usize).map(|r| ((r * count) as isize, count)).collect();
            let output = side(recv, recv_type, shape, blocks(count), all)?;
            let overlaps = mpi.is_in_place(send);
            let (input, misfit) = if overlaps {
                (output.clone(), None)
            } else {
                let (count, shape) = (positive(send_count)?, shape_of(mpi, send_type)?);
                fitted((send.cast_mut(), send_type, shape), blocks(count), count * shape.size, bytes)?
            };
            let common = moves(Name::Alltoall, Collective::Alltoall, Counts::Equal(bytes as u64), 1);
            Ok(Ok(Normal { overlaps, misfit, ..plain(common, input, output, (all, all)) }))
        }
        Call::Alltoallv { .. } => {
            let common = moves(Name::Alltoall, Collective::Alltoall, Counts::Local, 1);
            Ok(Ok(plain(common, Side::None, Side::None, (0, 0))))
        }
        Call::Bcast { data, count, datatype, root } => {
            let (count, shape, root) = (positive(count)?, shape_of(mpi, datatype)?, rooted(root, size)?);
            let bytes = count * shape.size;
            let theirs = side(data, datatype, shape, vec![(0, count)], bytes)?;
            let (input, output) = if root == rank { (theirs, Side::Kept) } else { (Side::None, theirs) };
            let counts = Counts::Root { root: Rank(root), count: bytes as u64 };
            let common = moves(Name::Bcast, Collective::Allgather, counts, 1);
            Ok(Ok(plain(common, input, output, (if root == rank { bytes } else { 0 }, bytes))))
        }
        Call::Allreduce { send, recv, count, datatype, op } => {
            let count = positive(count)?;
            let counts = Counts::Equal(count as u64);
            let made = scattered(mpi, size, (send, recv), counts, (datatype, op), (count, count))?;
            Ok(made.map(|mut normal| {
                normal.common.name = Name::Allreduce;
                normal.common.problem.collective = Collective::Allreduce;
                normal
            }))
        }
        Call::ReduceScatterBlock { send, recv, count, datatype, op } => {
            let count = positive(count)?;
            scattered(
                mpi,
                size,
                (send, recv),
                Counts::Equal(count as u64),
                (datatype, op),
                (count, count * size as usize),
            )
        }
        Call::ReduceScatter { send, recv, counts, datatype, op } => {
            let counts = counted(counts, size)?;
            let listed = Counts::Listed(counts.iter().map(|n| *n as u64).collect());
            let sizes = (counts[rank as usize], counts.iter().sum());
            scattered(mpi, size, (send, recv), listed, (datatype, op), sizes)
        }
        Call::Reduce { send, recv, count, datatype, op, root } => {
            let (count, root) = (positive(count)?, rooted(root, size)?);
            let counts = Counts::Root { root: Rank(root), count: count as u64 };
            let own = if root == rank { count } else { 0 };
            let made = scattered(mpi, size, (send, recv), counts, (datatype, op), (own, count))?;
            Ok(made.map(|mut normal| {
                normal.common.name = Name::Reduce;
                normal
            }))
        }
    }
}

/// A reduction: sizes are what this rank gets and the whole.
fn scattered(
    mpi: &'static Mpi,
    size: u32,
    (send, recv): (*const c_void, *mut c_void),
    counts: Counts,
    (datatype, op): (Word, Word),
    (own, all): (usize, usize),
) -> Result<Result<Normal, Native>, Error> {
    let reduced = match reduced(mpi, datatype, op)? {
        Ok(reduced) => reduced,
        Err(native) => return Ok(Err(native)),
    };
    let Reduced { element, order, combine, foreign } = reduced;
    let overlaps = mpi.is_in_place(send) || send == recv.cast_const();
    let side = |data: *mut c_void, count: usize| match foreign {
        _ if count == 0 => Ok(Side::None),
        Some(Foreign { datatype, shape, .. }) if !shape.is_dense() => {
            let blocks = vec![(0, count)];
            Ok(Side::Blocks { data, datatype, shape, blocks, pitch: None })
        }
        _ => there(data).map(|()| Side::Direct(data)),
    };
    let input = side(if overlaps { recv } else { send.cast_mut() }, all)?;
    let output = side(recv, own)?;
    let (name, collective) = (Name::ReduceScatter, Collective::ReduceScatter);
    let problem = Problem { collective, ranks: size, counts, pieces: 1, element, order };
    let common = Common { name, problem, combine };
    let bytes = (all * element as usize, own * element as usize);
    Ok(Ok(Normal { common, input, output, overlaps, bytes, misfit: None, foreign }))
}

/// How elements are reduced.
struct Reduced {
    /// Bytes from one element to the next in a plan's memory.
    element: u32,
    order: Order,
    combine: Combine,
    foreign: Option<Foreign>,
}

/// How a type is reduced by an operation. Built-in ones are the same on all ranks, so this may send the call to native.
fn reduced(mpi: &'static Mpi, datatype: Word, op: Word) -> Result<Result<Reduced, Native>, Error> {
    let types = mpi.types();
    let operation = types.operation(op);
    if let (Some(operation), Some(kind)) = (operation, types.kind(datatype))
        && Reduction::of(operation, kind).is_some()
    {
        let (element, combine) = (kind_bytes(kind), Combine::Kernel(operation, kind));
        return Ok(Ok(Reduced { element, order: Order::Any, combine, foreign: None }));
    }
    if mpi.is_null_op(op) {
        return Err(Error::Argument("MPI_OP_NULL is no operation".into()));
    }
    let shape = shape_of(mpi, datatype)?;
    // MPI_Reduce_local would raise its error elsewhere than on the user's communicator.
    let defined = operation.map_or(mpi.is_users(op), |operation| types.is_defined(operation, datatype));
    if !defined {
        return Ok(Err(Native::Misfit));
    }
    if shape.size == 0 {
        return Ok(Err(Native::Empty));
    }
    // Operations of the user's may differ between ranks, and so may whether they commute, and how their types lie: what is
    // shared is how much data an element has.
    let Ok(element) = u32::try_from(shape.size) else { return Ok(Err(Native::Huge)) };
    let order = if operation.is_some() { Order::Any } else { Order::Ranks };
    let foreign = Some(Foreign { datatype, op, shape });
    Ok(Ok(Reduced { element, order, combine: Combine::Foreign, foreign }))
}

/// The extent of a built-in type that kernels know.
fn kind_bytes(kind: Kind) -> u32 {
    match kind {
        Kind::I8 | Kind::U8 | Kind::Byte | Kind::Bool => 1,
        Kind::I16 | Kind::U16 | Kind::F16 | Kind::Bf16 => 2,
        Kind::I32 | Kind::U32 | Kind::F32 => 4,
        Kind::I64 | Kind::U64 | Kind::F64 | Kind::C32 => 8,
        Kind::I16Index | Kind::I32Index | Kind::F32Index | Kind::F32Pair => 8,
        Kind::C64 | Kind::I64Index | Kind::F64Index | Kind::F64Pair => 16,
    }
}

fn rooted(root: c_int, size: u32) -> Result<u32, Error> {
    u32::try_from(root)
        .ok()
        .filter(|root| *root < size)
        .ok_or_else(|| Error::Argument(format!("root {root} is not one of {size} ranks")))
}

/// Blocks of an input, of which each should have so many bytes.
fn fitted(
    (data, datatype, shape): (*mut c_void, Word, Shape),
    blocks: Vec<(isize, usize)>,
    given: usize,
    wanted: usize,
) -> Result<(Side, Option<(usize, usize)>), Error> {
    if given == wanted {
        let all = wanted * blocks.len();
        return Ok((side(data, datatype, shape, blocks, all)?, None));
    }
    if given > 0 && shape.is_whole() {
        there(data)?;
    }
    let pitch = Some(wanted);
    Ok((Side::Blocks { data, datatype, shape, blocks, pitch }, Some((given, wanted))))
}

/// A buffer of blocks, given by where they start and how many elements they have.
fn side(
    data: *mut c_void,
    datatype: Word,
    shape: Shape,
    blocks: Vec<(isize, usize)>,
    bytes: usize,
) -> Result<Side, Error> {
    if bytes == 0 {
        return Ok(Side::None);
    }
    if shape.is_whole() {
        there(data)?;
    }
    let mut next = 0;
    let follow = blocks.iter().all(|(at, count)| {
        let follows = *count == 0 || *at == next;
        next = if *count == 0 { next } else { at + *count as isize };
        follows
    });
    Ok(match follow && shape.is_dense() {
        true => Side::Direct(data),
        false => Side::Blocks { data, datatype, shape, blocks, pitch: None },
    })
}

/// Data without gaps from nowhere on: MPI judges that.
fn there(data: *const c_void) -> Result<(), Error> {
    if data.is_null() { Err(Error::Argument("there is no buffer".into())) } else { Ok(()) }
}

/// The input of an allgather: given, or this rank's block of the output.
fn gather_input(
    mpi: &Mpi,
    (send, count, datatype): (*const c_void, Count, Word),
    output: &Side,
    rank: u32,
    before: usize,
    bytes: usize,
) -> Result<(Side, Option<(usize, usize)>), Error> {
    if !mpi.is_in_place(send) {
        if bytes == 0 && count == 0 {
            return Ok((Side::None, None));
        }
        let (count, shape) = (positive(count)?, shape_of(mpi, datatype)?);
        return fitted((send.cast_mut(), datatype, shape), vec![(0, count)], count * shape.size, bytes);
    }
    let own = match output {
        Side::Direct(data) if bytes > 0 => Side::Direct(data.wrapping_byte_add(before)),
        Side::Blocks { data, datatype, shape, blocks, .. } if bytes > 0 => Side::Blocks {
            data: *data,
            datatype: *datatype,
            shape: *shape,
            blocks: vec![blocks[rank as usize]],
            pitch: None,
        },
        _ => Side::None,
    };
    Ok((own, None))
}

/// The blocks of an alltoallv, packed: its sides with the length of each block in bytes.
pub(crate) struct Personal {
    pub(crate) input: Side,
    pub(crate) output: Side,
    pub(crate) sent: Vec<usize>,
    pub(crate) received: Vec<usize>,
    pub(crate) overlaps: bool,
}

/// What this rank knows of an alltoallv.
pub(crate) fn personal(mpi: &Mpi, call: &Call, size: u32) -> Result<Personal, Error> {
    let Call::Alltoallv {
        send,
        send_counts,
        send_displacements,
        send_type,
        recv,
        recv_counts,
        recv_displacements,
        recv_type,
    } = *call
    else {
        return Err(Error::Argument("not an alltoallv".into()));
    };
    let blocks = |data: *mut c_void, counts: List, at: List, datatype: Word| {
        let shape = shape_of(mpi, datatype)?;
        let counts = counted(counts, size)?;
        let lengths: Vec<usize> = counts.iter().map(|count| count * shape.size).collect();
        let at = placed(at, size);
        let blocks = at.iter().zip(&counts).map(|(at, count)| (*at as isize, *count)).collect();
        Ok::<_, Error>((Side::Blocks { data, datatype, shape, blocks, pitch: None }, lengths))
    };
    let (output, received) = blocks(recv, recv_counts, recv_displacements, recv_type)?;
    let overlaps = mpi.is_in_place(send);
    let (input, sent) = match overlaps {
        true => (output.clone(), received.clone()),
        false => blocks(send.cast_mut(), send_counts, send_displacements, send_type)?,
    };
    Ok(Personal { input, output, sent, received, overlaps })
}
