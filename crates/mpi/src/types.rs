//! What datatypes and operations are.

use std::ffi::c_int;

use bruckner_runtime::reduce::{Kind, Operation};
use rustc_hash::FxHashMap as HashMap;

use crate::family::{Meaning, Sort};
use crate::functions::Word;
use crate::{Mpi, MpiError, check};

/// The built-in types and operations that kernels know.
#[derive(Clone, Debug)]
pub struct Types {
    kinds: HashMap<Word, Kind>,
    /// Built-in types that the kernels do not know.
    opaque: Vec<Word>,
    /// C's types that are only moved, and lie densely.
    moved: Vec<Word>,
    operations: HashMap<Word, Operation>,
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
}

impl Shape {
    /// Whether elements are bytes one behind the other, without gaps.
    pub fn is_dense(self) -> bool {
        self.lower == 0 && self.extent == self.size as isize && self.span == self.size as isize
    }
}

impl Types {
    pub(crate) fn of(mpi: &Mpi) -> Types {
        let (mut kinds, mut operations, mut opaque) = (HashMap::default(), HashMap::default(), Vec::new());
        for (handle, meaning) in mpi.constants.meanings() {
            match meaning {
                Meaning::Op(operation) => {
                    operations.insert(handle, operation);
                }
                Meaning::Type(kind) => {
                    kinds.insert(handle, kind);
                }
                Meaning::Sized(sort) => {
                    let size = mpi.shape(handle).map_or(0, |shape| shape.size);
                    match sized(sort, size) {
                        Some(kind) => drop(kinds.insert(handle, kind)),
                        None => opaque.push(handle),
                    }
                }
                Meaning::Opaque => opaque.push(handle),
                Meaning::Plain => {}
            }
        }
        // No type may stand for "none".
        let null = mpi.constants.must("MPI_DATATYPE_NULL");
        kinds.remove(&null);
        opaque.retain(|handle| *handle != null);
        let moved = ["MPI_CHAR", "MPI_PACKED", "MPI_WCHAR", "MPI_LONG_DOUBLE"];
        let moved = moved.iter().filter_map(|name| mpi.constants.get(name)).collect();
        Types { kinds, opaque, moved, operations }
    }

    /// Whether a datatype is built in, so that its handle never means anything else, and dense or a pair.
    pub fn is_built_in(&self, datatype: Word) -> bool {
        self.kinds.contains_key(&datatype) || self.moved.contains(&datatype)
    }

    /// Whether a datatype is one of the built-in ones that are known here.
    pub fn is_named(&self, datatype: Word) -> bool {
        self.kinds.contains_key(&datatype) || self.opaque.contains(&datatype)
    }

    /// What a datatype's elements are, if kernels know it.
    pub fn kind(&self, datatype: Word) -> Option<Kind> {
        self.kinds.get(&datatype).copied()
    }

    /// What an operation does, if kernels know it.
    pub fn operation(&self, op: Word) -> Option<Operation> {
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
        _ => return None,
    })
}

impl Mpi {
    /// Whether this is no datatype.
    pub fn is_null_type(&self, datatype: Word) -> bool {
        datatype == 0 || self.constants.get("MPI_DATATYPE_NULL") == Some(datatype)
    }

    /// Whether this is no operation.
    pub fn is_null_op(&self, op: Word) -> bool {
        op == 0 || self.constants.get("MPI_OP_NULL") == Some(op)
    }

    /// How a datatype lies in memory.
    pub fn shape(&self, datatype: Word) -> Result<Shape, MpiError> {
        let mut size: c_int = 0;
        let (mut bound, mut extent, mut lower, mut span) = (0isize, 0isize, 0isize, 0isize);
        // SAFETY: a valid handle by contract; each function writes what it is given room for.
        unsafe {
            check("MPI_Type_size", (self.f.type_size)(datatype, &mut size))?;
            check("MPI_Type_get_extent", (self.f.type_get_extent)(datatype, &mut bound, &mut extent))?;
            check(
                "MPI_Type_get_true_extent",
                (self.f.type_get_true_extent)(datatype, &mut lower, &mut span),
            )?;
        }
        let size = match usize::try_from(size) {
            Ok(size) => size,
            Err(_) => self.large_size(datatype)?,
        };
        Ok(Shape { size, extent, lower, span })
    }

    /// A size that no C integer can say.
    fn large_size(&self, datatype: Word) -> Result<usize, MpiError> {
        type Size = unsafe extern "C" fn(Word, *mut i64) -> c_int;
        let call = "MPI_Type_size_x";
        let symbol =
            [c"PMPI_Type_size_c", c"PMPI_Type_size_x"].iter().find_map(|name| self.library.symbol(name));
        let symbol = symbol.ok_or(MpiError { call, code: self.constants.must("MPI_ERR_COUNT") as c_int })?;
        let mut size = 0i64;
        // SAFETY: both functions have this signature; a valid handle by contract.
        check(call, unsafe {
            std::mem::transmute::<*mut std::ffi::c_void, Size>(symbol)(datatype, &mut size)
        })?;
        Ok(size as usize)
    }

    /// A datatype of so many elements, where their number is no C integer. To be freed.
    pub fn large_type(&self, count: usize, of: Word) -> Result<Word, MpiError> {
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

    /// Whether an operation may be applied in any order.
    pub fn is_commutative(&self, op: Word) -> Result<bool, MpiError> {
        let mut commutes = 0;
        // SAFETY: a valid handle by contract.
        check("MPI_Op_commutative", unsafe { (self.f.op_commutative)(op, &mut commutes) })?;
        Ok(commutes != 0)
    }
}
