//! The user's buffers: how they lie, and how their data is packed and unpacked.

use std::ffi::{c_int, c_void};

use bruckner_mpi::{Handle, Shape};
use bruckner_runtime::Scratch;
use bruckner_runtime::reduce::Kind;

use crate::Error;
use crate::backend::{Backend, Way};

/// One of the user's buffers.
#[derive(Clone, Debug)]
pub(crate) enum BufferLayout {
    /// Nothing is there on this rank.
    None,
    /// An output that the user has already, as input: a broadcast's root. It may be memory that cannot be written.
    Kept,
    /// The bytes of all blocks, one behind the other.
    Direct(*mut c_void),
    /// Elements of a pair type with padding, which is the user's and stays as it is.
    Padded(*mut c_void, Pair),
    /// Blocks here and there, or of a type with gaps: packed and unpacked, one behind the other, or one every `pitch` bytes.
    Blocks {
        data: *mut c_void,
        datatype: Handle,
        shape: Shape,
        blocks: Vec<(isize, usize)>,
        pitch: Option<usize>,
    },
}

/// How a built-in pair with padding lies in memory: a value and an index, each with its first byte and its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pair {
    extent: usize,
    value: (usize, usize),
    index: (usize, usize),
}

impl Pair {
    /// Of a kind of elements, if it is such a pair.
    pub(crate) fn of(kind: Kind) -> Option<Pair> {
        match kind {
            Kind::I16Index => Some(Pair { extent: 8, value: (0, 2), index: (4, 4) }),
            Kind::I64Index | Kind::F64Index => Some(Pair { extent: 16, value: (0, 8), index: (8, 4) }),
            _ => None,
        }
    }

    /// Copies the data of elements and leaves padding alone.
    ///
    /// # Safety
    /// So many bytes at both addresses, whole elements, which do not overlap.
    pub(crate) unsafe fn copy(self, from: *const u8, to: *mut u8, bytes: usize) {
        for at in (0..bytes).step_by(self.extent) {
            for (start, length) in [self.value, self.index] {
                // SAFETY: within an element, as asked for above.
                unsafe { to.add(at + start).copy_from_nonoverlapping(from.add(at + start), length) };
            }
        }
    }

    /// Sets padding to zero.
    pub(crate) fn clear(self, elements: &mut [u8]) {
        for element in elements.chunks_exact_mut(self.extent) {
            let is_data = |at: usize| {
                [self.value, self.index].iter().any(|(start, length)| (*start..start + length).contains(&at))
            };
            element.iter_mut().enumerate().filter(|(at, _)| !is_data(*at)).for_each(|(_, byte)| *byte = 0);
        }
    }
}

impl BufferLayout {
    /// The pairs that it is of, if they have padding.
    pub(crate) fn pair(&self) -> Option<Pair> {
        if let BufferLayout::Padded(_, pair) = self { Some(*pair) } else { None }
    }

    /// Whether it is packed and unpacked: also dense data, where it may be in device memory.
    pub(crate) fn is_staged(&self, device: bool) -> bool {
        match self {
            BufferLayout::Blocks { .. } | BufferLayout::Padded(..) => true,
            BufferLayout::Direct(_) => device,
            BufferLayout::None | BufferLayout::Kept => false,
        }
    }

    /// Finds out whether the bytes of its datatype lie in order.
    pub(crate) fn look_closer(&mut self, backend: &impl Backend) {
        if let BufferLayout::Blocks { datatype, shape, .. } = self {
            *shape = backend.look_closer(*datatype, *shape);
        }
    }

    /// Direct, if its blocks are known to be bytes one behind the other.
    pub(crate) fn settled(self) -> BufferLayout {
        let BufferLayout::Blocks { data, shape, blocks, pitch: None, .. } = &self else { return self };
        let mut there = blocks.iter().filter(|(_, count)| *count > 0);
        let (first, mut next) = match there.next() {
            Some((at, count)) if shape.is_dense() => (*at, at + *count as isize),
            _ => return self,
        };
        let follows =
            |(at, count): &(isize, usize)| *at == std::mem::replace(&mut next, at + *count as isize);
        match there.all(follows) {
            true => BufferLayout::Direct(data.wrapping_byte_offset(first * shape.extent)),
            false => self,
        }
    }

    /// Brings the user's data into memory as a plan wants it.
    pub(crate) fn pack(&self, backend: &impl Backend, into: *mut u8, bytes: usize) -> Result<(), Error> {
        self.copy(backend, into, bytes, Way::Pack)
    }

    /// Brings what a plan made to the user.
    pub(crate) fn unpack(&self, backend: &impl Backend, from: *const u8, bytes: usize) -> Result<(), Error> {
        self.copy(backend, from.cast_mut(), bytes, Way::Unpack)
    }

    fn copy(&self, backend: &impl Backend, ours: *mut u8, bytes: usize, way: Way) -> Result<(), Error> {
        match self {
            BufferLayout::None | BufferLayout::Kept => {}
            BufferLayout::Direct(data) => move_bytes(backend, data.cast(), ours, bytes, way)?,
            // Device memory is the MPI's to move, with its padding.
            BufferLayout::Padded(data, _) if backend.has_device() => {
                move_bytes(backend, data.cast(), ours, bytes, way)?;
            }
            BufferLayout::Padded(data, pair) => {
                let theirs = data.cast::<u8>();
                let (from, to) = if way == Way::Pack { (theirs, ours) } else { (ours, theirs) };
                if way == Way::Pack {
                    // SAFETY: ours has so many bytes.
                    unsafe { ours.write_bytes(0, bytes) };
                }
                // SAFETY: both have so many bytes, by the user's promise and because ours was made so.
                unsafe { pair.copy(from.cast_const(), to, bytes) };
            }
            BufferLayout::Blocks { data, datatype, shape, blocks, pitch } => {
                let mut at = ours;
                for (start, count) in blocks {
                    let theirs = data.wrapping_byte_offset(start * shape.extent);
                    if shape.is_dense() {
                        move_bytes(backend, theirs.cast(), at, count * shape.size, way)?;
                    } else {
                        let typed = Typed { backend, datatype: *datatype, shape };
                        typed.each(theirs, *count, |theirs, count, done| {
                            typed.packed(theirs, count, at.wrapping_add(done * shape.size), way)
                        })?;
                    }
                    let given = count * shape.size;
                    if let Some(pitch) = pitch.filter(|pitch| *pitch > given) {
                        // SAFETY: there is room for `pitch` bytes for each block; the rest of this one means nothing.
                        unsafe { at.wrapping_add(given).write_bytes(0, pitch - given) };
                    }
                    at = at.wrapping_add(pitch.unwrap_or(given));
                }
            }
        }
        Ok(())
    }
}

/// Moves bytes from or to the user. Device memory is never followed here: the MPI, to which it was given, moves it.
fn move_bytes(
    backend: &impl Backend,
    theirs: *mut u8,
    ours: *mut u8,
    bytes: usize,
    way: Way,
) -> Result<(), Error> {
    if backend.has_device() {
        let shape = &Shape::BYTE;
        let typed = Typed { backend, datatype: backend.byte(), shape };
        return typed.each(theirs.cast(), bytes, |theirs, count, done| {
            typed.packed(theirs, count, ours.wrapping_add(done), way)
        });
    }
    let (from, to) = if way == Way::Pack { (theirs, ours) } else { (ours, theirs) };
    // SAFETY: both have so many bytes, by the user's promise and because ours was made so; they do not overlap, because
    // one is ours.
    unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), to, bytes) };
    Ok(())
}

/// Reduces packed elements of a type whose data does not lie one behind the other, by an operation that wants them in their form.
pub(super) fn reduce_in_form(
    backend: &impl Backend,
    (datatype, shape, op): (Handle, &Shape, Handle),
    left: *const u8,
    into: *mut u8,
    elements: usize,
) -> Result<(), Error> {
    const BYTES: usize = 1 << 16;
    let typed = Typed { backend, datatype, shape };
    let pitch = shape.extent.unsigned_abs().max(1);
    let most = (BYTES / pitch.max(shape.size)).clamp(1, elements.max(1));
    // From the first byte of any to the last.
    let workspace = || Scratch::new((most - 1) * pitch + shape.span.unsigned_abs());
    let (a, b) = (workspace(), workspace());
    for done in (0..elements).step_by(most) {
        let count = (elements - done).min(most);
        let first = if shape.extent < 0 { (count - 1) as isize * shape.extent } else { 0 };
        let form = |of: &Scratch| of.start().wrapping_offset(-(first + shape.lower)).cast::<c_void>();
        let at = done * shape.size;
        typed.packed(form(&a), count, left.wrapping_add(at).cast_mut(), Way::Unpack)?;
        typed.packed(form(&b), count, into.wrapping_add(at), Way::Unpack)?;
        let (left, right) = (form(&a).cast::<u8>(), form(&b).cast::<u8>());
        // SAFETY: both have so many elements of this type, in their form.
        unsafe { backend.reduce_local(left, right, count as c_int, datatype, op) }?;
        typed.packed(form(&b), count, into.wrapping_add(at), Way::Pack)?;
    }
    Ok(())
}

/// Elements of a type with gaps.
struct Typed<'a, B> {
    backend: &'a B,
    datatype: Handle,
    shape: &'a Shape,
}

impl<B: Backend> Typed<'_, B> {
    /// Elements that are packed at once: MPI counts their bytes by a C integer.
    fn most(&self) -> usize {
        const BYTES: usize = 1 << 20;
        (BYTES / self.shape.size.max(1)).max(1)
    }

    /// Calls a function for stretches of elements: where they are, how many, and how many were before them.
    fn each(
        &self,
        data: *mut c_void,
        count: usize,
        mut body: impl FnMut(*mut c_void, usize, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.shape.size == 0 {
            return Ok(());
        }
        for done in (0..count).step_by(self.most()) {
            let here = data.wrapping_byte_offset(done as isize * self.shape.extent);
            body(here, (count - done).min(self.most()), done)?;
        }
        Ok(())
    }

    /// Packs elements, or unpacks them.
    fn packed(&self, data: *mut c_void, count: usize, bytes: *mut u8, way: Way) -> Result<(), Error> {
        let length = count * self.shape.size;
        // SAFETY: room for so many bytes; elements of the type by the user's promise, or ours in its form.
        unsafe { self.backend.pack(way, self.datatype, data, count, bytes, length) }?;
        Ok(())
    }
}

/// How a datatype lies in memory. One that is none is left to MPI, which raises the error where it belongs.
pub(super) fn shape_of<B: Backend>(backend: &B, datatype: Handle) -> Result<Shape, Error> {
    if backend.is_null_type(datatype) {
        return Err(Error::Argument("the datatype is MPI_DATATYPE_NULL".into()));
    }
    Ok(backend.shape(datatype)?)
}

/// A null buffer with a dense type is left to MPI, which raises the error where it belongs.
pub(super) fn there(data: *const c_void) -> Result<(), Error> {
    if data.is_null() { Err(Error::Argument("the buffer is a null pointer".into())) } else { Ok(()) }
}

/// Blocks of an input, of which each should have so many bytes.
pub(super) fn fitted(
    (data, datatype, shape): (*mut c_void, Handle, Shape),
    blocks: Vec<(isize, usize)>,
    given: usize,
    wanted: usize,
) -> Result<(BufferLayout, Option<(usize, usize)>), Error> {
    if given == wanted {
        let all = wanted * blocks.len();
        return Ok((side(data, datatype, shape, blocks, all)?, None));
    }
    if given > 0 && shape.is_whole() {
        there(data)?;
    }
    let pitch = Some(wanted);
    Ok((BufferLayout::Blocks { data, datatype, shape, blocks, pitch }, Some((given, wanted))))
}

/// A buffer of blocks, given by where they start and how many elements they have.
pub(super) fn side(
    data: *mut c_void,
    datatype: Handle,
    shape: Shape,
    blocks: Vec<(isize, usize)>,
    bytes: usize,
) -> Result<BufferLayout, Error> {
    if bytes == 0 {
        return Ok(BufferLayout::None);
    }
    if shape.is_whole() {
        there(data)?;
    }
    Ok(BufferLayout::Blocks { data, datatype, shape, blocks, pitch: None }.settled())
}
