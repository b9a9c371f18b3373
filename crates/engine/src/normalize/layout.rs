//! Layouts of the user's buffers, and packing and unpacking of their data.

use std::ffi::{c_int, c_void};

use bruckner_mpi::{Handle, TypeLayout};
use bruckner_runtime::Scratch;
use bruckner_runtime::reduce::ElementType;

use crate::Error;
use crate::backend::{Backend, Way};

/// Layout of one of the user's buffers.
#[derive(Clone, Debug)]
pub(crate) enum BufferLayout {
    /// This rank has no data in the buffer.
    None,
    /// The output of a broadcast's root, which already has the data as input. The memory may be read-only.
    AlreadyInPlace,
    /// Address of contiguous memory with the bytes of all blocks.
    Direct(*mut c_void),
    /// Value-index pairs with padding. The padding belongs to the user and is not changed.
    Padded(*mut c_void, Pair),
    /// Separate blocks, given by start and number of elements, or blocks of a datatype with gaps. They are packed one after the other, or
    /// at distances of `pitch` bytes.
    Blocks { data: *mut c_void, datatype: Handle, shape: TypeLayout, blocks: Vec<(isize, usize)>, pitch: Option<usize> },
}

/// Memory layout of a built-in pair with padding: a value and an index, each as its first byte and its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pair {
    extent: usize,
    value: (usize, usize),
    index: (usize, usize),
}

impl Pair {
    /// Returns the layout of an element kind, if it is a pair with padding.
    pub(crate) fn of(kind: ElementType) -> Option<Pair> {
        match kind {
            ElementType::I16Index => Some(Pair { extent: 8, value: (0, 2), index: (4, 4) }),
            ElementType::I64Index | ElementType::F64Index => Some(Pair { extent: 16, value: (0, 8), index: (8, 4) }),
            _ => None,
        }
    }

    /// Copies the values and indices of elements, but not their padding.
    ///
    /// # Safety
    /// Both addresses are valid for `bytes` bytes, which are whole elements, and the two ranges do not overlap.
    pub(crate) unsafe fn copy(self, from: *const u8, to: *mut u8, bytes: usize) {
        for at in (0..bytes).step_by(self.extent) {
            for (start, length) in [self.value, self.index] {
                // SAFETY: the bytes lie within an element, and the caller guarantees that both addresses are valid.
                unsafe { to.add(at + start).copy_from_nonoverlapping(from.add(at + start), length) };
            }
        }
    }

    /// Sets the padding of elements to zero.
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
    /// Returns the layout of the buffer's elements, if they are value-index pairs with padding.
    pub(crate) fn pair(&self) -> Option<Pair> {
        if let BufferLayout::Padded(_, pair) = self { Some(*pair) } else { None }
    }

    /// Whether the buffer is packed and unpacked. If `device`, that includes contiguous data, because it may be in device memory.
    pub(crate) fn is_staged(&self, device: bool) -> bool {
        match self {
            BufferLayout::Blocks { .. } | BufferLayout::Padded(..) => true,
            BufferLayout::Direct(_) => device,
            BufferLayout::None | BufferLayout::AlreadyInPlace => false,
        }
    }

    /// Determines whether the bytes of the datatype lie in the order in which they are sent.
    pub(crate) fn determine_order(&mut self, backend: &impl Backend) {
        if let BufferLayout::Blocks { datatype, shape, .. } = self {
            *shape = backend.determine_order(*datatype, *shape);
        }
    }

    /// Converts the layout to `Direct` if its blocks are known to be contiguous bytes.
    pub(crate) fn settled(self) -> BufferLayout {
        let BufferLayout::Blocks { data, shape, blocks, pitch: None, .. } = &self else { return self };
        let mut there = blocks.iter().filter(|(_, count)| *count > 0);
        let (first, mut next) = match there.next() {
            Some((at, count)) if shape.is_dense() => (*at, at + *count as isize),
            _ => return self,
        };
        let follows = |(at, count): &(isize, usize)| *at == std::mem::replace(&mut next, at + *count as isize);
        match there.all(follows) {
            true => BufferLayout::Direct(data.wrapping_byte_offset(first * shape.extent)),
            false => self,
        }
    }

    /// Packs the user's data into a plan's memory.
    pub(crate) fn pack(&self, backend: &impl Backend, into: *mut u8, bytes: usize) -> Result<(), Error> {
        self.copy(backend, into, bytes, Way::Pack)
    }

    /// Unpacks a plan's output into the user's buffer.
    pub(crate) fn unpack(&self, backend: &impl Backend, from: *const u8, bytes: usize) -> Result<(), Error> {
        self.copy(backend, from.cast_mut(), bytes, Way::Unpack)
    }

    fn copy(&self, backend: &impl Backend, ours: *mut u8, bytes: usize, way: Way) -> Result<(), Error> {
        match self {
            BufferLayout::None | BufferLayout::AlreadyInPlace => {}
            BufferLayout::Direct(data) => move_bytes(backend, data.cast(), ours, bytes, way)?,
            // Only the MPI can copy device memory, and it copies the padding as well.
            BufferLayout::Padded(data, _) if backend.has_device() => {
                move_bytes(backend, data.cast(), ours, bytes, way)?;
            }
            BufferLayout::Padded(data, pair) => {
                let theirs = data.cast::<u8>();
                let (from, to) = if way == Way::Pack { (theirs, ours) } else { (ours, theirs) };
                if way == Way::Pack {
                    // SAFETY: `ours` is valid for `bytes` bytes.
                    unsafe { ours.write_bytes(0, bytes) };
                }
                // SAFETY: both are valid for `bytes` bytes: `theirs` by ARGUMENTS (see `lib.rs`), `ours` because it was allocated so.
                unsafe { pair.copy(from.cast_const(), to, bytes) };
            }
            BufferLayout::Blocks { data, datatype, shape, blocks, pitch } => {
                let mut at = ours;
                for (start, count) in blocks {
                    let theirs = data.wrapping_byte_offset(start * shape.extent);
                    if shape.is_dense() {
                        move_bytes(backend, theirs.cast(), at, count * shape.size, way)?;
                    } else {
                        let typed = TypedElements { backend, datatype: *datatype, shape };
                        typed.each(theirs, *count, |theirs, count, done| {
                            typed.packed(theirs, count, at.wrapping_add(done * shape.size), way)
                        })?;
                    }
                    let given = count * shape.size;
                    if let Some(pitch) = pitch.filter(|pitch| *pitch > given) {
                        // SAFETY: each block has `pitch` bytes of memory, and the bytes behind this block's data are unused.
                        unsafe { at.wrapping_add(given).write_bytes(0, pitch - given) };
                    }
                    at = at.wrapping_add(pitch.unwrap_or(given));
                }
            }
        }
        Ok(())
    }
}

/// Copies bytes from or to the user's buffer. Device memory is not dereferenced here: the MPI copies it.
fn move_bytes(backend: &impl Backend, theirs: *mut u8, ours: *mut u8, bytes: usize, way: Way) -> Result<(), Error> {
    if backend.has_device() {
        let shape = &TypeLayout::BYTE;
        let typed = TypedElements { backend, datatype: backend.byte(), shape };
        return typed.each(theirs.cast(), bytes, |theirs, count, done| {
            typed.packed(theirs, count, ours.wrapping_add(done), way)
        });
    }
    let (from, to) = if way == Way::Pack { (theirs, ours) } else { (ours, theirs) };
    // SAFETY: both are valid for `bytes` bytes: `theirs` by ARGUMENTS (see `lib.rs`), `ours` because it was allocated so. They do not
    // overlap, because one is the library's own memory.
    unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), to, bytes) };
    Ok(())
}

/// Reduces packed elements of a datatype that is not dense. The operation needs elements in the datatype's layout, so they are unpacked
/// into workspace, reduced, and packed again.
pub(super) fn reduce_in_form(
    backend: &impl Backend,
    (datatype, shape, op): (Handle, &TypeLayout, Handle),
    left: *const u8,
    into: *mut u8,
    elements: usize,
) -> Result<(), Error> {
    const BYTES: usize = 1 << 16;
    let typed = TypedElements { backend, datatype, shape };
    let pitch = shape.extent.unsigned_abs().max(1);
    let most = (BYTES / pitch.max(shape.size)).clamp(1, elements.max(1));
    // Memory from the first byte of any element to the last.
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
        // SAFETY: both addresses hold `count` elements in the layout of this datatype.
        unsafe { backend.reduce_local(left, right, count as c_int, datatype, op) }?;
        typed.packed(form(&b), count, into.wrapping_add(at), Way::Pack)?;
    }
    Ok(())
}

/// Elements of a datatype that the MPI packs and unpacks.
struct TypedElements<'a, B> {
    backend: &'a B,
    datatype: Handle,
    shape: &'a TypeLayout,
}

impl<B: Backend> TypedElements<'_, B> {
    /// Returns the number of elements that are packed at once: MPI counts their bytes by a C integer.
    fn most(&self) -> usize {
        const BYTES: usize = 1 << 20;
        (BYTES / self.shape.size.max(1)).max(1)
    }

    /// Calls a function for consecutive groups of elements, with the address of the group, its number of elements, and the number of
    /// elements before it.
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
        // SAFETY: `bytes` is valid for `length` bytes; the elements are the user's, valid by ARGUMENTS (see `lib.rs`), or in workspace of
        // the datatype's layout.
        unsafe { self.backend.pack(way, self.datatype, data, count, bytes, length) }?;
        Ok(())
    }
}

/// Returns the memory layout of a datatype. For a null datatype returns an error; an intercepted call is then passed through, and MPI
/// raises its own error.
pub(super) fn shape_of<B: Backend>(backend: &B, datatype: Handle) -> Result<TypeLayout, Error> {
    if backend.is_null_type(datatype) {
        return Err(Error::Argument("the datatype is MPI_DATATYPE_NULL".into()));
    }
    Ok(backend.shape(datatype)?)
}

/// Returns an error for a null buffer of a dense datatype; an intercepted call is then passed through, and MPI raises its own error.
pub(super) fn require_non_null(data: *const c_void) -> Result<(), Error> {
    if data.is_null() { Err(Error::Argument("the buffer is a null pointer".into())) } else { Ok(()) }
}

/// Returns the layout of input blocks of `given` bytes each. If the call requires blocks of `wanted` bytes instead, also returns both
/// numbers.
pub(super) fn input_blocks_layout(
    (data, datatype, shape): (*mut c_void, Handle, TypeLayout),
    blocks: Vec<(isize, usize)>,
    given: usize,
    wanted: usize,
) -> Result<(BufferLayout, Option<(usize, usize)>), Error> {
    if given == wanted {
        let all = wanted * blocks.len();
        return Ok((blocks_layout(data, datatype, shape, blocks, all)?, None));
    }
    if given > 0 && shape.has_no_gaps() {
        require_non_null(data)?;
    }
    let pitch = Some(wanted);
    Ok((BufferLayout::Blocks { data, datatype, shape, blocks, pitch }, Some((given, wanted))))
}

/// Returns the layout of a buffer with `bytes` bytes of data, in blocks given by start and number of elements.
pub(super) fn blocks_layout(
    data: *mut c_void,
    datatype: Handle,
    shape: TypeLayout,
    blocks: Vec<(isize, usize)>,
    bytes: usize,
) -> Result<BufferLayout, Error> {
    if bytes == 0 {
        return Ok(BufferLayout::None);
    }
    if shape.has_no_gaps() {
        require_non_null(data)?;
    }
    Ok(BufferLayout::Blocks { data, datatype, shape, blocks, pitch: None }.settled())
}
