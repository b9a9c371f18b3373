//! Meaning of datatypes and operations, and memory layout of datatypes.

use std::ffi::{c_int, c_void};

use bruckner_runtime::reduce::{ElementType, Operation};
use rustc_hash::FxHashMap as HashMap;

use crate::family::{Family, Meaning, SizedKind};
use crate::functions::Handle;
use crate::{Mpi, MpiError, check};

/// For handles of predefined datatypes and operations, the element types and operations of the reduction kernels.
#[derive(Clone, Debug)]
pub struct Types {
    kinds: HashMap<Handle, ElementType>,
    /// Predefined datatypes without reduction kernels, each with the operations that MPI defines for it.
    opaque: HashMap<Handle, &'static [Operation]>,
    /// `MPI_CHAR`, `MPI_PACKED`, `MPI_WCHAR` and `MPI_LONG_DOUBLE`: they have no reduction kernels, but no gaps either, so calls that only
    /// move data can be cached by the handle.
    moved: Vec<Handle>,
    operations: HashMap<Handle, Operation>,
}

/// Memory layout of a datatype, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TypeLayout {
    /// Number of data bytes in one element (MPI's size).
    pub size: usize,
    /// Distance from one element to the next (MPI's extent).
    pub extent: isize,
    /// Offset of the first data byte (MPI's true lower bound).
    pub lower: isize,
    /// Distance from the first data byte to the end of the last (MPI's true extent).
    pub span: isize,
    /// Whether the bytes are known to lie in the order in which they are sent, each byte once. Meaningful only if there are no gaps.
    in_order: bool,
}

impl TypeLayout {
    /// Memory layout of a single byte.
    pub const BYTE: TypeLayout = TypeLayout::dense(1);

    /// Returns the memory layout of elements of `size` bytes without gaps.
    pub const fn dense(size: usize) -> TypeLayout {
        TypeLayout { size, extent: size as isize, lower: 0, span: size as isize, in_order: true }
    }

    /// Returns the memory layout of elements that have `size` bytes of data each and begin `extent` bytes apart.
    pub const fn spread(size: usize, extent: isize) -> TypeLayout {
        TypeLayout { extent, ..TypeLayout::dense(size) }
    }

    /// Returns whether consecutive elements fill memory without gaps. The bytes of an element may still be sent in another order.
    pub fn has_no_gaps(self) -> bool {
        self.lower == 0 && self.extent == self.size as isize && self.span == self.size as isize
    }

    /// Returns whether MPI is known to send exactly the bytes in memory, in the same order.
    pub fn is_dense(self) -> bool {
        self.has_no_gaps() && self.in_order
    }
}

impl Types {
    pub(crate) fn of(mpi: &Mpi) -> Types {
        let (mut kinds, mut operations, mut opaque) = (HashMap::default(), HashMap::default(), HashMap::default());
        for (handle, meaning) in mpi.constants.meanings() {
            match meaning {
                Meaning::Op(operation) => {
                    operations.insert(handle, operation);
                }
                Meaning::Type(kind) => {
                    kinds.insert(handle, kind);
                }
                Meaning::Sized(sort) => {
                    let size = mpi.bounds(handle).map_or(0, |shape| shape.size);
                    match sized(sort, size) {
                        Some(kind) => drop(kinds.insert(handle, kind)),
                        None => drop(opaque.insert(handle, [].as_slice())),
                    }
                }
                Meaning::Opaque(defined) => drop(opaque.insert(handle, defined)),
                Meaning::Plain => {}
            }
        }
        // The null datatype never counts as a datatype, even if another constant has the same value.
        let null = mpi.constants.required("MPI_DATATYPE_NULL");
        kinds.remove(&null);
        opaque.remove(&null);
        let moved = ["MPI_CHAR", "MPI_PACKED", "MPI_WCHAR", "MPI_LONG_DOUBLE"];
        let moved = moved.iter().filter_map(|name| mpi.constants.get(name)).collect();
        Types { kinds, opaque, moved, operations }
    }

    /// Returns whether a datatype is predefined, so that its handle never gets another meaning, and either has no gaps or is a pair for
    /// `MPI_MINLOC`.
    pub fn is_built_in(&self, datatype: Handle) -> bool {
        self.kinds.contains_key(&datatype) || self.moved.contains(&datatype)
    }

    /// Returns whether a datatype is one of the predefined datatypes in the table of constants.
    pub fn is_named(&self, datatype: Handle) -> bool {
        self.kinds.contains_key(&datatype) || self.opaque.contains_key(&datatype)
    }

    /// Returns whether MPI defines an operation for a predefined datatype that has no reduction kernels.
    pub fn is_defined(&self, operation: Operation, datatype: Handle) -> bool {
        self.opaque.get(&datatype).is_some_and(|defined| defined.contains(&operation))
    }

    /// Returns the element type of a datatype, if the reduction kernels support it.
    pub fn kind(&self, datatype: Handle) -> Option<ElementType> {
        self.kinds.get(&datatype).copied()
    }

    /// Returns the operation of an MPI handle, if the reduction kernels support it.
    pub fn operation(&self, op: Handle) -> Option<Operation> {
        self.operations.get(&op).copied()
    }
}

fn sized(sort: SizedKind, size: usize) -> Option<ElementType> {
    Some(match (sort, size) {
        (SizedKind::Signed, 1) => ElementType::I8,
        (SizedKind::Signed, 2) => ElementType::I16,
        (SizedKind::Signed, 4) => ElementType::I32,
        (SizedKind::Signed, 8) => ElementType::I64,
        (SizedKind::Float, 4) => ElementType::F32,
        (SizedKind::Float, 8) => ElementType::F64,
        (SizedKind::Complex, 8) => ElementType::C32,
        (SizedKind::Complex, 16) => ElementType::C64,
        (SizedKind::SignedPair, 8) => ElementType::I32Index,
        (SizedKind::FloatPair, 8) => ElementType::F32Pair,
        (SizedKind::FloatPair, 16) => ElementType::F64Pair,
        _ => return None,
    })
}

impl Mpi {
    /// Returns the handle of `MPI_BYTE`.
    pub fn byte(&self) -> Handle {
        self.byte
    }

    /// Returns whether this handle is `MPI_DATATYPE_NULL` or 0.
    pub fn is_null_type(&self, datatype: Handle) -> bool {
        datatype == 0 || self.null_type == Some(datatype)
    }

    /// Returns whether this handle is `MPI_OP_NULL` or 0.
    pub fn is_null_op(&self, op: Handle) -> bool {
        op == 0 || self.null_op == Some(op)
    }

    /// Returns whether an operation is user-defined.
    pub fn is_user_defined(&self, op: Handle) -> bool {
        let of_access = ["MPI_REPLACE", "MPI_NO_OP"].iter().any(|name| self.constants.get(name) == Some(op));
        // The two highest bits of a 32-bit MPICH handle are 01 for predefined objects.
        let built_in = self.family == Family::Mpich && op >> 30 == 1;
        !of_access && !built_in && self.types().operation(op).is_none()
    }

    /// Returns the memory layout of a datatype. The order of its bytes is determined only if it is predefined; otherwise see
    /// [`Mpi::look_closer`].
    pub fn shape(&self, datatype: Handle) -> Result<TypeLayout, MpiError> {
        let shape = self.bounds(datatype)?;
        Ok(TypeLayout { in_order: self.types().is_named(datatype), ..shape })
    }

    /// Returns `shape`, the memory layout of a datatype, after determining the order of the bytes.
    pub fn look_closer(&self, datatype: Handle, shape: TypeLayout) -> TypeLayout {
        TypeLayout { in_order: shape.in_order || self.is_in_order(datatype, &shape), ..shape }
    }

    /// Returns the number of bytes of data in one element of a datatype.
    pub fn type_size(&self, datatype: Handle) -> Result<usize, MpiError> {
        let mut size: c_int = 0;
        // SAFETY: the handle is valid by contract.
        check("MPI_Type_size", unsafe { (self.f.type_size)(datatype, &mut size) })?;
        usize::try_from(size).or_else(|_| self.large_size(datatype))
    }

    /// Returns the memory layout of a datatype, and assumes that its bytes lie in the order in which they are sent.
    pub(crate) fn bounds(&self, datatype: Handle) -> Result<TypeLayout, MpiError> {
        let size = self.type_size(datatype)?;
        let (mut bound, mut extent, mut lower, mut span) = (0isize, 0isize, 0isize, 0isize);
        // SAFETY: the handle is valid by contract; each function writes to the variables passed.
        unsafe {
            check("MPI_Type_get_extent", (self.f.type_get_extent)(datatype, &mut bound, &mut extent))?;
            check("MPI_Type_get_true_extent", (self.f.type_get_true_extent)(datatype, &mut lower, &mut span))?;
        }
        Ok(TypeLayout { size, extent, lower, span, in_order: true })
    }

    /// Returns the size in bytes of a datatype whose size does not fit in a C integer.
    fn large_size(&self, datatype: Handle) -> Result<usize, MpiError> {
        type Size = unsafe extern "C" fn(Handle, *mut i64) -> c_int;
        let call = "MPI_Type_size_x";
        let symbol = [c"PMPI_Type_size_c", c"PMPI_Type_size_x"].iter().find_map(|name| self.library.symbol(name));
        let symbol = symbol.ok_or(MpiError { call, code: self.constants.required("MPI_ERR_COUNT") as c_int })?;
        let mut size = 0i64;
        // SAFETY: both functions have this signature; the handle is valid by contract.
        check(call, unsafe { std::mem::transmute::<*mut c_void, Size>(symbol)(datatype, &mut size) })?;
        Ok(size as usize)
    }

    /// Creates a datatype of `count` elements of datatype `of`, if `count` does not fit in a C integer. The caller must free it.
    pub fn large_type(&self, count: usize, of: Handle) -> Result<Handle, MpiError> {
        const UNIT: usize = 1 << 20;
        let f = &self.f;
        let extent = self.shape(of)?.extent;
        let (mut unit, mut most, mut all) = (0u64, 0u64, 0u64);
        let (units, rest) = (count / UNIT, count % UNIT);
        // SAFETY: the handles are valid; the types of the two blocks are in an array of the family's handle width.
        unsafe {
            check("MPI_Type_contiguous", (f.type_contiguous)(UNIT as c_int, of, (&raw mut unit).cast()))?;
            check(
                "MPI_Type_contiguous",
                (f.type_contiguous)(units as c_int, self.handle(unit), (&raw mut most).cast()),
            )?;
            let mut types = [0u64; 2];
            self.put_handle(types.as_mut_ptr().cast(), 0, self.handle(most));
            self.put_handle(types.as_mut_ptr().cast(), 1, of);
            let (lengths, offsets) = ([1, rest as c_int], [0, (units * UNIT) as isize * extent]);
            let made = (f.type_create_struct)(
                2,
                lengths.as_ptr(),
                offsets.as_ptr(),
                types.as_ptr().cast(),
                (&raw mut all).cast(),
            );
            check("MPI_Type_create_struct", made)?;
            check("MPI_Type_commit", (f.type_commit)((&raw mut all).cast()))?;
            (f.type_free)((&raw mut unit).cast());
            (f.type_free)((&raw mut most).cast());
        }
        Ok(self.handle(all))
    }

    /// Creates a datatype of `count` elements of datatype `of` that begin at an offset of `by` bytes. The caller must free it.
    pub fn moved_type(&self, count: usize, of: Handle, by: isize) -> Result<Handle, MpiError> {
        let (mut types, mut made) = (0u64, 0u64);
        // SAFETY: the handle is valid by contract, and lies in an array of the family's handle width.
        unsafe {
            self.put_handle((&raw mut types).cast(), 0, of);
            let (types, made) = ((&raw const types).cast(), (&raw mut made).cast());
            let count = count as c_int;
            check("MPI_Type_create_struct", (self.f.type_create_struct)(1, &count, &by, types, made))?;
            check("MPI_Type_commit", (self.f.type_commit)(made))?;
        }
        Ok(self.handle(made))
    }

    /// Duplicates a datatype. The duplicate stays valid when the user frees the original. The caller must free the duplicate.
    pub fn duplicate_type(&self, datatype: Handle) -> Result<Handle, MpiError> {
        let mut made = 0u64;
        // SAFETY: the handle is valid by contract, and `made` has space for the widest handle.
        check("MPI_Type_dup", unsafe { (self.f.type_dup)(datatype, (&raw mut made).cast()) })?;
        Ok(self.handle(made))
    }

    /// Frees a datatype that this library has created or obtained.
    pub fn free_type(&self, datatype: Handle) {
        let mut cell = datatype;
        // SAFETY: the handle is ours; on a little-endian machine the first bytes of `cell` are the handle, whatever its width.
        unsafe { (self.f.type_free)((&raw mut cell).cast()) };
    }

    /// Returns whether an operation is commutative.
    pub fn is_commutative(&self, op: Handle) -> Result<bool, MpiError> {
        let mut commutes = 0;
        // SAFETY: the handle is valid by contract.
        check("MPI_Op_commutative", unsafe { (self.f.op_commutative)(op, &mut commutes) })?;
        Ok(commutes != 0)
    }
}
