//! The MPI families, and a table of all MPI constants that this library needs.
//!
//! This library stores every handle in 64 bits; in memory that MPI reads or writes, a handle has the width of the MPI's family. Handles
//! are 4-byte constants in MPICH, addresses of symbols in Open MPI, and small numbers in the MPI-5 ABI.

use std::collections::HashMap;
use std::ffi::CStr;

use bruckner_runtime::reduce::{ElementType, Operation};

use crate::load::Library;

/// A family of MPI libraries, which have the same constants and the same handle width.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Family {
    /// MPICH and its derivatives: Intel MPI, MVAPICH, Cray MPICH.
    Mpich,
    /// Open MPI.
    OpenMpi,
    /// The standard ABI of MPI 5, regardless of which MPI implements it.
    Abi,
}

impl Family {
    /// Returns the size of a handle in memory, in bytes.
    pub fn width(self) -> usize {
        match self {
            Family::Mpich => 4,
            Family::OpenMpi | Family::Abi => 8,
        }
    }

    /// Returns the size of an `MPI_Status`, in bytes.
    pub fn status_bytes(self) -> usize {
        match self {
            Family::Mpich => 20,
            Family::OpenMpi => 24,
            Family::Abi => 32,
        }
    }

    /// Returns the name of the family that users see.
    pub fn name(self) -> &'static str {
        match self {
            Family::Mpich => "MPICH",
            Family::OpenMpi => "Open MPI",
            Family::Abi => "MPI-5 ABI",
        }
    }
}

/// Value of a constant in Open MPI.
#[derive(Clone, Copy, Debug)]
enum Open {
    Number(i64),
    /// The value is the address of this symbol.
    Symbol(&'static CStr),
    Missing,
}

/// Meaning of an MPI constant to this library, in addition to its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meaning {
    /// A constant that is neither a datatype nor an operation with reduction kernels.
    Plain,
    /// A datatype that the reduction kernels support, with its element type.
    Type(ElementType),
    /// A datatype whose size must be queried, because it depends on the platform: Fortran types and address types.
    Sized(SizedKind),
    /// A datatype without reduction kernels, with the operations that MPI defines for it. Its data is only copied, or reduced by
    /// `MPI_Reduce_local`.
    Opaque(&'static [Operation]),
    /// An operation that the reduction kernels support.
    Op(Operation),
}

/// Kind of the elements of a datatype whose size depends on the platform.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SizedKind {
    /// Signed integers.
    Signed,
    /// Floating point.
    Float,
    /// Complex numbers.
    Complex,
    /// Pairs of two signed integers, value and index.
    SignedPair,
    /// Pairs of two floating-point numbers, value and index.
    FloatPair,
}

struct Row {
    name: &'static str,
    mpich: Option<i64>,
    abi: Option<i64>,
    open: Open,
    meaning: Meaning,
}

macro_rules! table {
    ($($name:ident $mpich:tt $abi:tt $open:tt $meaning:expr;)*) => {
        const ROWS: &[Row] = &[$(Row {
            name: stringify!($name),
            mpich: table!(@number $mpich),
            abi: table!(@number $abi),
            open: table!(@open $open),
            meaning: $meaning,
        }),*];
    };
    (@number -) => { None };
    (@number ($n:expr)) => { Some($n) };
    (@number $n:literal) => { Some($n) };
    (@open -) => { Open::Missing };
    (@open ($n:expr)) => { Open::Number($n) };
    (@open $symbol:ident) => {
        Open::Symbol(match CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a symbol"),
        })
    };
}

use Meaning::{Op, Opaque, Plain, Sized, Type};

const REAL: &[Operation] = &[Operation::Max, Operation::Min, Operation::Sum, Operation::Prod];
const COMPLEX: &[Operation] = &[Operation::Sum, Operation::Prod];
const LOGICAL: &[Operation] = &[Operation::LogicalAnd, Operation::LogicalOr, Operation::LogicalXor];
const LOCATED: &[Operation] = &[Operation::MinLoc, Operation::MaxLoc];

table! {
    // name                   MPICH        ABI    Open MPI                          meaning
    MPI_COMM_WORLD            0x44000000   0x101  ompi_mpi_comm_world               Plain;
    MPI_COMM_SELF             0x44000001   0x102  ompi_mpi_comm_self                Plain;
    MPI_COMM_NULL             0x04000000   0x100  ompi_mpi_comm_null                Plain;
    MPI_GROUP_NULL            0x08000000   0x108  ompi_mpi_group_null               Plain;
    MPI_REQUEST_NULL          0x2c000000   0x180  ompi_request_null                 Plain;
    MPI_INFO_NULL             0x1c000000   0x130  ompi_mpi_info_null                Plain;
    MPI_ERRORS_RETURN         0x54000001   0x143  ompi_mpi_errors_return            Plain;
    MPI_DATATYPE_NULL         0x0c000000   0x200  ompi_mpi_datatype_null            Plain;
    MPI_OP_NULL               0x18000000   0x020  ompi_mpi_op_null                  Plain;
    MPI_IN_PLACE              (-1)         1      (1)                               Plain;
    MPI_STATUS_IGNORE         1            0      (0)                               Plain;
    MPI_STATUSES_IGNORE       1            0      (0)                               Plain;
    MPI_PROC_NULL             (-1)         (-3)   (-2)                              Plain;
    MPI_ANY_SOURCE            (-2)         (-1)   (-1)                              Plain;
    MPI_ANY_TAG               (-1)         (-2)   (-1)                              Plain;
    MPI_UNDEFINED             (-32766)     (-32766) (-32766)                        Plain;
    MPI_COMBINER_NAMED        1            101    (0)                               Plain;
    MPI_COMBINER_DUP          2            102    (1)                               Plain;
    MPI_COMBINER_CONTIGUOUS   3            103    (2)                               Plain;
    MPI_COMBINER_VECTOR       4            104    (3)                               Plain;
    MPI_COMBINER_HVECTOR      6            105    (5)                               Plain;
    MPI_COMBINER_INDEXED      7            106    (6)                               Plain;
    MPI_COMBINER_HINDEXED     9            107    (8)                               Plain;
    MPI_COMBINER_INDEXED_BLOCK 10          108    (9)                               Plain;
    MPI_COMBINER_HINDEXED_BLOCK 19         109    (18)                              Plain;
    MPI_COMBINER_STRUCT       12           110    (11)                              Plain;
    MPI_COMBINER_F90_REAL     15           113    (14)                              Plain;
    MPI_COMBINER_F90_COMPLEX  16           114    (15)                              Plain;
    MPI_COMBINER_F90_INTEGER  17           115    (16)                              Plain;
    MPI_COMBINER_RESIZED      18           116    (17)                              Plain;
    MPI_COMM_TYPE_SHARED      1            221    (0)                               Plain;
    MPI_THREAD_SINGLE         0            0      (0)                               Plain;
    MPI_THREAD_FUNNELED       1            1024   (1)                               Plain;
    MPI_THREAD_SERIALIZED     2            2048   (2)                               Plain;
    MPI_THREAD_MULTIPLE       3            4096   (3)                               Plain;
    MPI_TAG_UB                0x64400001   501    (0)                               Plain;
    MPI_ERR_COUNT             2            2      (2)                               Plain;
    MPI_ERR_OTHER             15           16     (16)                              Plain;
    MPI_ERR_TRUNCATE          14           15     (15)                              Plain;
    MPI_ERR_IN_STATUS         17           19     (18)                              Plain;
    MPI_KEYVAL_INVALID        0x24000000   0      (-1)                              Plain;

    MPI_MAX                   0x58000001   0x23   ompi_mpi_op_max                   Op(Operation::Max);
    MPI_MIN                   0x58000002   0x22   ompi_mpi_op_min                   Op(Operation::Min);
    MPI_SUM                   0x58000003   0x21   ompi_mpi_op_sum                   Op(Operation::Sum);
    MPI_PROD                  0x58000004   0x24   ompi_mpi_op_prod                  Op(Operation::Prod);
    MPI_LAND                  0x58000005   0x30   ompi_mpi_op_land                  Op(Operation::LogicalAnd);
    MPI_BAND                  0x58000006   0x28   ompi_mpi_op_band                  Op(Operation::BitAnd);
    MPI_LOR                   0x58000007   0x31   ompi_mpi_op_lor                   Op(Operation::LogicalOr);
    MPI_BOR                   0x58000008   0x29   ompi_mpi_op_bor                   Op(Operation::BitOr);
    MPI_LXOR                  0x58000009   0x32   ompi_mpi_op_lxor                  Op(Operation::LogicalXor);
    MPI_BXOR                  0x5800000a   0x2a   ompi_mpi_op_bxor                  Op(Operation::BitXor);
    MPI_MINLOC                0x5800000b   0x38   ompi_mpi_op_minloc                Op(Operation::MinLoc);
    MPI_MAXLOC                0x5800000c   0x39   ompi_mpi_op_maxloc                Op(Operation::MaxLoc);
    MPI_REPLACE               0x5800000d   0x3c   ompi_mpi_op_replace               Plain;
    MPI_NO_OP                 0x5800000e   0x3d   ompi_mpi_op_no_op                 Plain;

    MPI_BYTE                  0x4c00010d   0x247  ompi_mpi_byte                     Type(ElementType::Byte);
    MPI_PACKED                0x4c00010f   0x207  ompi_mpi_packed                   Opaque(&[]);
    MPI_CHAR                  0x4c000101   0x243  ompi_mpi_char                     Opaque(&[]);
    MPI_SIGNED_CHAR           0x4c000118   0x244  ompi_mpi_signed_char              Type(ElementType::I8);
    MPI_UNSIGNED_CHAR         0x4c000102   0x245  ompi_mpi_unsigned_char            Type(ElementType::U8);
    MPI_WCHAR                 0x4c00040e   0x23c  ompi_mpi_wchar                    Opaque(&[]);
    MPI_SHORT                 0x4c000203   0x208  ompi_mpi_short                    Type(ElementType::I16);
    MPI_UNSIGNED_SHORT        0x4c000204   0x20c  ompi_mpi_unsigned_short           Type(ElementType::U16);
    MPI_INT                   0x4c000405   0x209  ompi_mpi_int                      Type(ElementType::I32);
    MPI_UNSIGNED              0x4c000406   0x20d  ompi_mpi_unsigned                 Type(ElementType::U32);
    MPI_LONG                  0x4c000807   0x20a  ompi_mpi_long                     Type(ElementType::I64);
    MPI_UNSIGNED_LONG         0x4c000808   0x20e  ompi_mpi_unsigned_long            Type(ElementType::U64);
    MPI_LONG_LONG             0x4c000809   0x20b  ompi_mpi_long_long_int            Type(ElementType::I64);
    MPI_UNSIGNED_LONG_LONG    0x4c000819   0x20f  ompi_mpi_unsigned_long_long       Type(ElementType::U64);
    MPI_FLOAT                 0x4c00040a   0x210  ompi_mpi_float                    Type(ElementType::F32);
    MPI_DOUBLE                0x4c00080b   0x214  ompi_mpi_double                   Type(ElementType::F64);
    MPI_LONG_DOUBLE           0x4c00100c   0x220  ompi_mpi_long_double              Opaque(REAL);
    MPI_C_BOOL                0x4c00013f   0x238  ompi_mpi_c_bool                   Type(ElementType::Bool);
    MPI_CXX_BOOL              0x4c000133   0x239  ompi_mpi_cxx_bool                 Type(ElementType::Bool);
    MPI_C_FLOAT_COMPLEX       0x4c000840   0x212  ompi_mpi_c_float_complex          Type(ElementType::C32);
    MPI_C_DOUBLE_COMPLEX      0x4c001041   0x216  ompi_mpi_c_double_complex         Type(ElementType::C64);
    MPI_C_LONG_DOUBLE_COMPLEX 0x4c002042   0x224  ompi_mpi_c_long_double_complex    Opaque(COMPLEX);
    MPI_CXX_FLOAT_COMPLEX     0x4c000834   0x213  ompi_mpi_cxx_cplex                Type(ElementType::C32);
    MPI_CXX_DOUBLE_COMPLEX    0x4c001035   0x217  ompi_mpi_cxx_dblcplex             Type(ElementType::C64);
    MPI_INT8_T                0x4c000137   0x240  ompi_mpi_int8_t                   Type(ElementType::I8);
    MPI_INT16_T               0x4c000238   0x248  ompi_mpi_int16_t                  Type(ElementType::I16);
    MPI_INT32_T               0x4c000439   0x250  ompi_mpi_int32_t                  Type(ElementType::I32);
    MPI_INT64_T               0x4c00083a   0x258  ompi_mpi_int64_t                  Type(ElementType::I64);
    MPI_UINT8_T               0x4c00013b   0x241  ompi_mpi_uint8_t                  Type(ElementType::U8);
    MPI_UINT16_T              0x4c00023c   0x249  ompi_mpi_uint16_t                 Type(ElementType::U16);
    MPI_UINT32_T              0x4c00043d   0x251  ompi_mpi_uint32_t                 Type(ElementType::U32);
    MPI_UINT64_T              0x4c00083e   0x259  ompi_mpi_uint64_t                 Type(ElementType::U64);
    MPI_AINT                  0x4c000843   0x201  ompi_mpi_aint                     Sized(SizedKind::Signed);
    MPI_OFFSET                0x4c000844   0x203  ompi_mpi_offset                   Sized(SizedKind::Signed);
    MPI_COUNT                 0x4c000845   0x202  ompi_mpi_count                    Sized(SizedKind::Signed);
    MPIX_C_FLOAT16            0x4c000246   -      -                                 Type(ElementType::F16);
    MPIX_BFLOAT16             0x4c00024c   -      -                                 Type(ElementType::Bf16);
    MPI_2INT                  0x4c000816   0x22b  ompi_mpi_2int                     Type(ElementType::I32Index);
    MPI_SHORT_INT             (0x8c000003) 0x22c  ompi_mpi_short_int                Type(ElementType::I16Index);
    MPI_LONG_INT              (0x8c000002) 0x22a  ompi_mpi_long_int                 Type(ElementType::I64Index);
    MPI_FLOAT_INT             (0x8c000000) 0x228  ompi_mpi_float_int                Type(ElementType::F32Index);
    MPI_DOUBLE_INT            (0x8c000001) 0x229  ompi_mpi_double_int               Type(ElementType::F64Index);
    MPI_LONG_DOUBLE_INT       (0x8c000004) 0x22d  ompi_mpi_longdbl_int              Opaque(LOCATED);

    // Fortran datatypes: the element type depends on the size. Values of LOGICAL are reduced by `MPI_Reduce_local`, because the
    // representation of `.true.` depends on the compiler.
    MPI_CHARACTER             0x4c00011a   0x21e  ompi_mpi_character                Opaque(&[]);
    MPI_LOGICAL               0x4c00041d   0x218  ompi_mpi_logical                  Opaque(LOGICAL);
    MPI_INTEGER               0x4c00041b   0x219  ompi_mpi_integer                  Sized(SizedKind::Signed);
    MPI_INTEGER1              0x4c00012d   0x2c1  ompi_mpi_integer1                 Sized(SizedKind::Signed);
    MPI_INTEGER2              0x4c00022f   0x2c9  ompi_mpi_integer2                 Sized(SizedKind::Signed);
    MPI_INTEGER4              0x4c000430   0x2d1  ompi_mpi_integer4                 Sized(SizedKind::Signed);
    MPI_INTEGER8              0x4c000831   0x2d9  ompi_mpi_integer8                 Sized(SizedKind::Signed);
    MPI_REAL                  0x4c00041c   0x21a  ompi_mpi_real                     Sized(SizedKind::Float);
    MPI_REAL4                 0x4c000427   0x2d2  ompi_mpi_real4                    Sized(SizedKind::Float);
    MPI_REAL8                 0x4c000829   0x2da  ompi_mpi_real8                    Sized(SizedKind::Float);
    MPI_REAL16                0x4c00102b   0x2e2  ompi_mpi_real16                   Opaque(REAL);
    MPI_DOUBLE_PRECISION      0x4c00081f   0x21c  ompi_mpi_dblprec                  Sized(SizedKind::Float);
    MPI_COMPLEX               0x4c00081e   0x21b  ompi_mpi_cplex                    Sized(SizedKind::Complex);
    MPI_COMPLEX8              0x4c000828   0x2db  ompi_mpi_complex8                 Sized(SizedKind::Complex);
    MPI_COMPLEX16             0x4c00102a   0x2e3  ompi_mpi_complex16                Sized(SizedKind::Complex);
    MPI_DOUBLE_COMPLEX        0x4c001022   0x21d  ompi_mpi_dblcplex                 Sized(SizedKind::Complex);
    MPI_2INTEGER              0x4c000820   0x232  ompi_mpi_2integer                 Sized(SizedKind::SignedPair);
    MPI_2REAL                 0x4c000821   0x230  ompi_mpi_2real                    Sized(SizedKind::FloatPair);
    MPI_2DOUBLE_PRECISION     0x4c001023   0x231  ompi_mpi_2dblprec                 Sized(SizedKind::FloatPair);
}

/// Values of the constants of an MPI library.
#[derive(Clone, Debug)]
pub struct Constants {
    values: HashMap<&'static str, u64>,
}

impl Constants {
    /// Returns the constants of a family. Constants that are addresses of symbols are looked up in the library.
    pub(crate) fn of(family: Family, library: &Library, version: &str) -> Constants {
        let value = |row: &Row| match (family, row.open) {
            (Family::Mpich, _) => row.mpich.map(|n| n as u64),
            (Family::Abi, _) => row.abi.map(|n| n as u64),
            (Family::OpenMpi, Open::Number(n)) => Some(n as u64),
            (Family::OpenMpi, Open::Symbol(name)) => library.variable(name).map(|at| at as u64),
            (Family::OpenMpi, Open::Missing) => None,
        };
        let mut values: HashMap<_, _> = ROWS.iter().filter_map(|row| Some((row.name, value(row)?))).collect();
        // MPICH and Intel MPI use different numbers for this extension, and older versions use the number for something else.
        match values.get_mut("MPIX_BFLOAT16") {
            Some(number) if version.starts_with("Intel MPI") => *number = 0x4c00_0247,
            Some(_) if version.starts_with("MPICH 5") => {}
            _ => {
                values.remove("MPIX_BFLOAT16");
            }
        }
        Constants { values }
    }

    /// Returns the value of the constant with this name in `mpi.h`, if the family has the constant.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.values.get(name).copied()
    }

    /// Returns the value of a constant that every family has.
    ///
    /// # Panics
    /// If the family has no constant of this name. This crate passes only names from the table that all families have.
    pub(crate) fn required(&self, name: &str) -> u64 {
        self.get(name).unwrap_or_else(|| panic!("{name} is not in the table"))
    }

    /// Returns the values and meanings of all constants that are datatypes, or operations with reduction kernels.
    pub(crate) fn meanings(&self) -> impl Iterator<Item = (u64, Meaning)> {
        ROWS.iter().filter(|row| row.meaning != Plain).filter_map(|row| Some((self.get(row.name)?, row.meaning)))
    }

    /// Returns the names of all constants in the table.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ROWS.iter().map(|row| row.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_constant_is_there_twice() {
        let names: BTreeSet<&str> = Constants::names().collect();
        assert_eq!(names.len(), ROWS.len());
        let handles = |value: fn(&Row) -> Option<i64>| {
            let all: Vec<i64> = ROWS.iter().filter(|r| r.meaning != Plain).filter_map(value).collect();
            let different: BTreeSet<i64> = all.iter().copied().collect();
            (all.len(), different.len())
        };
        for value in [|row: &Row| row.mpich, |row: &Row| row.abi] {
            let (all, different) = handles(value);
            assert_eq!(all, different);
        }
    }
}
