//! What datatypes and operations are.

use bruckner_runtime::reduce::{Kind, Operation};
use rustc_hash::FxHashMap as HashMap;

use crate::family::{Meaning, Sort};
use crate::functions::Word;
use crate::{Mpi, MpiError, check};

/// The built-in types and operations that kernels know.
#[derive(Clone, Debug)]
pub struct Types {
    kinds: HashMap<Word, Kind>,
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
        let (mut kinds, mut operations) = (HashMap::default(), HashMap::default());
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
                    if let Some(kind) = sized(sort, size) {
                        kinds.insert(handle, kind);
                    }
                }
                Meaning::Opaque | Meaning::Plain => {}
            }
        }
        // No type may stand for "none".
        kinds.remove(&mpi.constants.must("MPI_DATATYPE_NULL"));
        let moved = ["MPI_CHAR", "MPI_PACKED", "MPI_WCHAR", "MPI_LONG_DOUBLE"];
        let moved = moved.iter().filter_map(|name| mpi.constants.get(name)).collect();
        Types { kinds, moved, operations }
    }

    /// Whether a datatype is built in, so that its handle never means anything else, and dense or a pair.
    pub fn is_built_in(&self, datatype: Word) -> bool {
        self.kinds.contains_key(&datatype) || self.moved.contains(&datatype)
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
    /// How a datatype lies in memory.
    pub fn shape(&self, datatype: Word) -> Result<Shape, MpiError> {
        let mut size = 0;
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
        Ok(Shape { size: size as usize, extent, lower, span })
    }

    /// Whether an operation may be applied in any order.
    pub fn is_commutative(&self, op: Word) -> Result<bool, MpiError> {
        let mut commutes = 0;
        // SAFETY: a valid handle by contract.
        check("MPI_Op_commutative", unsafe { (self.f.op_commutative)(op, &mut commutes) })?;
        Ok(commutes != 0)
    }
}
