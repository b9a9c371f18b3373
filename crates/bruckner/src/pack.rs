//! Packing and unpacking of the user's buffers.

use std::ffi::{c_int, c_void};

use bruckner_mpi::{Mpi, Shape, Word, has_device_runtime};
use bruckner_runtime::Scratch;

use crate::Error;
use crate::normal::Side;

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

impl Side {
    /// Whether it is packed and unpacked: also dense data, where it may be in device memory.
    pub(crate) fn is_staged(&self, device: bool) -> bool {
        match self {
            Side::Blocks { .. } => true,
            Side::Direct(_) => device,
            Side::None | Side::Kept => false,
        }
    }

    /// Brings the user's data into memory as a plan wants it.
    pub(crate) fn pack(&self, mpi: &Mpi, into: *mut u8, bytes: usize) -> Result<(), Error> {
        self.copy(mpi, into, bytes, Way::In)
    }

    /// Brings what a plan made to the user.
    pub(crate) fn unpack(&self, mpi: &Mpi, from: *const u8, bytes: usize) -> Result<(), Error> {
        self.copy(mpi, from.cast_mut(), bytes, Way::Out)
    }

    fn copy(&self, mpi: &Mpi, ours: *mut u8, bytes: usize, way: Way) -> Result<(), Error> {
        match self {
            Side::None | Side::Kept => {}
            Side::Direct(data) => move_bytes(mpi, data.cast(), ours, bytes, way)?,
            Side::Blocks { data, datatype, shape, blocks, pitch } => {
                let mut at = ours;
                for (start, count) in blocks {
                    let theirs = data.wrapping_byte_offset(start * shape.extent);
                    if shape.is_dense() {
                        move_bytes(mpi, theirs.cast(), at, count * shape.size, way)?;
                    } else {
                        let typed = Typed { mpi, datatype: *datatype, shape };
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
fn move_bytes(mpi: &Mpi, theirs: *mut u8, ours: *mut u8, bytes: usize, way: Way) -> Result<(), Error> {
    if has_device_runtime() {
        let shape = &mpi.byte_shape();
        let typed = Typed { mpi, datatype: mpi.byte(), shape };
        return typed.each(theirs.cast(), bytes, |theirs, count, done| {
            typed.packed(theirs, count, ours.wrapping_add(done), way)
        });
    }
    let (from, to) = if way == Way::In { (theirs, ours) } else { (ours, theirs) };
    // SAFETY: both have so many bytes, by the user's promise and because ours was made so; they do not overlap, because
    // one is ours.
    unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), to, bytes) };
    Ok(())
}

/// Reduces packed elements of a type whose data does not lie one behind the other, by an operation that wants them in their form.
pub(crate) fn reduce_in_form(
    mpi: &Mpi,
    (datatype, shape, op): (Word, &Shape, Word),
    left: *const u8,
    into: *mut u8,
    elements: usize,
) -> Result<(), Error> {
    const BYTES: usize = 1 << 16;
    let typed = Typed { mpi, datatype, shape };
    let pitch = shape.extent.unsigned_abs().max(1);
    let most = (BYTES / pitch.max(shape.size)).clamp(1, elements.max(1));
    // From the first byte of any to the last.
    let room = || Scratch::new((most - 1) * pitch + shape.span.unsigned_abs());
    let (a, b) = (room(), room());
    for done in (0..elements).step_by(most) {
        let count = (elements - done).min(most);
        let first = if shape.extent < 0 { (count - 1) as isize * shape.extent } else { 0 };
        let form = |of: &Scratch| of.start().wrapping_offset(-(first + shape.lower)).cast::<c_void>();
        let at = done * shape.size;
        typed.packed(form(&a), count, left.wrapping_add(at).cast_mut(), Way::Out)?;
        typed.packed(form(&b), count, into.wrapping_add(at), Way::Out)?;
        // SAFETY: both have so many elements of this type, in their form.
        let code = unsafe { (mpi.f.reduce_local)(form(&a), form(&b), count as c_int, datatype, op) };
        if code != 0 {
            return Err(Error::Mpi(bruckner_mpi::MpiError { call: "MPI_Reduce_local", code }));
        }
        typed.packed(form(&b), count, into.wrapping_add(at), Way::In)?;
    }
    Ok(())
}

/// Elements of a type with gaps.
#[derive(Clone, Copy)]
struct Typed<'a> {
    mpi: &'a Mpi,
    datatype: Word,
    shape: &'a Shape,
}

impl Typed<'_> {
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
        if data.is_null() {
            return self.packed_from_bottom(count, bytes, way);
        }
        let (f, comm) = (&self.mpi.f, self.mpi.for_packing());
        let len = c_int::try_from(count * self.shape.size)
            .map_err(|_| Error::NotServed("an element of more than 2 GiB with gaps".into()))?;
        let (mut position, count, bytes) = (0, count as c_int, bytes.cast::<c_void>());
        // SAFETY: room for so many bytes; a valid type and buffer by the user's promise, or one of ours of its form.
        let (call, code) = unsafe {
            match way {
                Way::In => {
                    ("MPI_Pack", (f.pack)(data, count, self.datatype, bytes, len, &mut position, comm))
                }
                Way::Out => {
                    ("MPI_Unpack", (f.unpack)(bytes, len, &mut position, data, count, self.datatype, comm))
                }
            }
        };
        if code == 0 { Ok(()) } else { Err(Error::Mpi(bruckner_mpi::MpiError { call, code })) }
    }

    /// The same for elements at `MPI_BOTTOM`, whose type has addresses in it: MPICH 4.0 takes that for an error. The same
    /// elements are counted from elsewhere.
    fn packed_from_bottom(&self, count: usize, bytes: *mut u8, way: Way) -> Result<(), Error> {
        let base: *mut c_void = bytes.cast();
        let moved = self.mpi.moved_type(count, self.datatype, (base as isize).wrapping_neg())?;
        let mut shape = *self.shape;
        shape.size *= count;
        let result = Typed { datatype: moved, shape: &shape, ..*self }.packed(base, 1, bytes, way);
        self.mpi.free_type(moved);
        result
    }
}
