//! What datatypes and operations are.

use std::ffi::{c_int, c_void};

use bruckner_runtime::reduce::{Kind, Operation};
use rustc_hash::FxHashMap as HashMap;

use crate::family::{Family, Meaning, Sort};
use crate::functions::Handle;
use crate::{Mpi, MpiError, check};

/// The built-in types and operations that kernels know.
#[derive(Clone, Debug)]
pub struct Types {
    kinds: HashMap<Handle, Kind>,
    /// Built-in types that the kernels do not know, and what is defined for them.
    opaque: HashMap<Handle, &'static [Operation]>,
    /// C's types that are only moved, and lie densely.
    moved: Vec<Handle>,
    operations: HashMap<Handle, Operation>,
}

/// How a datatype lies in memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Data.
    pub size: usize,
    /// From one element to the next.
    pub extent: isize,
    /// Where the first byte lies.
    pub lower: isize,
    /// From the first byte to the last.
    pub span: isize,
    /// Whether bytes are known to lie in the order in which they are sent, each once; said only of what is whole.
    in_order: bool,
}

impl Shape {
    /// How a byte lies.
    pub const BYTE: Shape = Shape::dense(1);

    /// So many bytes without gaps.
    pub const fn dense(size: usize) -> Shape {
        Shape { size, extent: size as isize, lower: 0, span: size as isize, in_order: true }
    }

    /// So many bytes of data, and so many from one element to the next.
    pub const fn spread(size: usize, extent: isize) -> Shape {
        Shape { extent, ..Shape::dense(size) }
    }

    /// Whether elements lie one behind the other, without gaps; in whatever order their parts are sent.
    pub fn is_whole(self) -> bool {
        self.lower == 0 && self.extent == self.size as isize && self.span == self.size as isize
    }

    /// Whether what is sent is known to be just the bytes in memory, one behind the other.
    pub fn is_dense(self) -> bool {
        self.is_whole() && self.in_order
    }
}

impl Types {
    pub(crate) fn of(mpi: &Mpi) -> Types {
        let (mut kinds, mut operations, mut opaque) =
            (HashMap::default(), HashMap::default(), HashMap::default());
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
        // No type may stand for "none".
        let null = mpi.constants.must("MPI_DATATYPE_NULL");
        kinds.remove(&null);
        opaque.remove(&null);
        let moved = ["MPI_CHAR", "MPI_PACKED", "MPI_WCHAR", "MPI_LONG_DOUBLE"];
        let moved = moved.iter().filter_map(|name| mpi.constants.get(name)).collect();
        Types { kinds, opaque, moved, operations }
    }

    /// Whether a datatype is built in, so that its handle never means anything else, and dense or a pair.
    pub fn is_built_in(&self, datatype: Handle) -> bool {
        self.kinds.contains_key(&datatype) || self.moved.contains(&datatype)
    }

    /// Whether a datatype is one of the built-in ones that are known here.
    pub fn is_named(&self, datatype: Handle) -> bool {
        self.kinds.contains_key(&datatype) || self.opaque.contains_key(&datatype)
    }

    /// Whether an operation is defined for a datatype that kernels do not know.
    pub fn is_defined(&self, operation: Operation, datatype: Handle) -> bool {
        self.opaque.get(&datatype).is_some_and(|defined| defined.contains(&operation))
    }

    /// What a datatype's elements are, if kernels know it.
    pub fn kind(&self, datatype: Handle) -> Option<Kind> {
        self.kinds.get(&datatype).copied()
    }

    /// What an operation does, if kernels know it.
    pub fn operation(&self, op: Handle) -> Option<Operation> {
        self.operations.get(&op).copied()
    }
}

fn sized(sort: Sort, size: usize) -> Option<Kind> {
    Some(match (sort, size) {
        (Sort::Signed, 1) => Kind::I8,
        (Sort::Signed, 2) => Kind::I16,
        (Sort::Signed, 4) => Kind::I32,
        (Sort::Signed, 8) => Kind::I64,
        (Sort::Float, 4) => Kind::F32,
        (Sort::Float, 8) => Kind::F64,
        (Sort::Complex, 8) => Kind::C32,
        (Sort::Complex, 16) => Kind::C64,
        (Sort::SignedPair, 8) => Kind::I32Index,
        (Sort::FloatPair, 8) => Kind::F32Pair,
        (Sort::FloatPair, 16) => Kind::F64Pair,
        _ => return None,
    })
}

impl Mpi {
    /// `MPI_BYTE`.
    pub fn byte(&self) -> Handle {
        self.byte
    }

    /// Whether this is no datatype.
    pub fn is_null_type(&self, datatype: Handle) -> bool {
        datatype == 0 || self.null_type == Some(datatype)
    }

    /// Whether this is no operation.
    pub fn is_null_op(&self, op: Handle) -> bool {
        op == 0 || self.null_op == Some(op)
    }

    /// Whether an operation is the user's.
    pub fn is_users(&self, op: Handle) -> bool {
        let of_access = ["MPI_REPLACE", "MPI_NO_OP"].iter().any(|name| self.constants.get(name) == Some(op));
        // MPICH says in a handle's highest bits where the object is.
        let built_in = self.family == Family::Mpich && op >> 30 == 1;
        !of_access && !built_in && self.types().operation(op).is_none()
    }

    /// How a datatype lies in memory. Of one that is not built in, nothing is said of an order: see [`Mpi::look_closer`].
    pub fn shape(&self, datatype: Handle) -> Result<Shape, MpiError> {
        let shape = self.bounds(datatype)?;
        Ok(Shape { in_order: self.types().is_named(datatype), ..shape })
    }

    /// The same, with the order of its bytes.
    pub fn look_closer(&self, datatype: Handle, shape: Shape) -> Shape {
        Shape { in_order: shape.in_order || self.is_in_order(datatype, &shape), ..shape }
    }

    /// Bytes of data that an element of a datatype has.
    pub fn type_size(&self, datatype: Handle) -> Result<usize, MpiError> {
        let mut size: c_int = 0;
        // SAFETY: a valid handle by contract.
        check("MPI_Type_size", unsafe { (self.f.type_size)(datatype, &mut size) })?;
        usize::try_from(size).or_else(|_| self.large_size(datatype))
    }

    /// The sizes of a datatype.
    pub(crate) fn bounds(&self, datatype: Handle) -> Result<Shape, MpiError> {
        let size = self.type_size(datatype)?;
        let (mut bound, mut extent, mut lower, mut span) = (0isize, 0isize, 0isize, 0isize);
        // SAFETY: a valid handle by contract; each function writes what it is given room for.
        unsafe {
            check("MPI_Type_get_extent", (self.f.type_get_extent)(datatype, &mut bound, &mut extent))?;
            check(
                "MPI_Type_get_true_extent",
                (self.f.type_get_true_extent)(datatype, &mut lower, &mut span),
            )?;
        }
        Ok(Shape { size, extent, lower, span, in_order: true })
    }

    /// A size that no C integer can say.
    fn large_size(&self, datatype: Handle) -> Result<usize, MpiError> {
        type Size = unsafe extern "C" fn(Handle, *mut i64) -> c_int;
        let call = "MPI_Type_size_x";
        let symbol =
            [c"PMPI_Type_size_c", c"PMPI_Type_size_x"].iter().find_map(|name| self.library.symbol(name));
        let symbol = symbol.ok_or(MpiError { call, code: self.constants.must("MPI_ERR_COUNT") as c_int })?;
        let mut size = 0i64;
        // SAFETY: both functions have this signature; a valid handle by contract.
        check(call, unsafe { std::mem::transmute::<*mut c_void, Size>(symbol)(datatype, &mut size) })?;
        Ok(size as usize)
    }

    /// A datatype of so many elements, where their number is no C integer. To be freed.
    pub fn large_type(&self, count: usize, of: Handle) -> Result<Handle, MpiError> {
        const UNIT: usize = 1 << 20;
        let f = &self.f;
        let extent = self.shape(of)?.extent;
        let (mut unit, mut most, mut all) = (0u64, 0u64, 0u64);
        let (units, rest) = (count / UNIT, count % UNIT);
        // SAFETY: valid handles; two blocks, whose types lie in an array of the family's width.
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

    /// A datatype of so many elements, so many bytes further on. To be freed.
    pub fn moved_type(&self, count: usize, of: Handle, by: isize) -> Result<Handle, MpiError> {
        let (mut types, mut made) = (0u64, 0u64);
        // SAFETY: a valid handle by contract, in an array of the family's width.
        unsafe {
            self.put_handle((&raw mut types).cast(), 0, of);
            let (types, made) = ((&raw const types).cast(), (&raw mut made).cast());
            let count = count as c_int;
            check("MPI_Type_create_struct", (self.f.type_create_struct)(1, &count, &by, types, made))?;
            check("MPI_Type_commit", (self.f.type_commit)(made))?;
        }
        Ok(self.handle(made))
    }

    /// A datatype that stays when the user frees the one that it is like. To be freed.
    pub fn same_type(&self, datatype: Handle) -> Result<Handle, MpiError> {
        let mut made = 0u64;
        // SAFETY: a valid handle by contract; a cell of at least its width.
        check("MPI_Type_dup", unsafe { (self.f.type_dup)(datatype, (&raw mut made).cast()) })?;
        Ok(self.handle(made))
    }

    /// Frees a datatype.
    pub fn free_type(&self, datatype: Handle) {
        let mut cell = datatype;
        // SAFETY: a handle that was made here, in a cell of its width: little-endian, so the first bytes are it.
        unsafe { (self.f.type_free)((&raw mut cell).cast()) };
    }

    /// Whether an operation may be applied in any order.
    pub fn is_commutative(&self, op: Handle) -> Result<bool, MpiError> {
        let mut commutes = 0;
        // SAFETY: a valid handle by contract.
        check("MPI_Op_commutative", unsafe { (self.f.op_commutative)(op, &mut commutes) })?;
        Ok(commutes != 0)
    }
}
