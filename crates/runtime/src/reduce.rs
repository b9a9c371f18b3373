//! Reduction operations: `R = L ⊕ R`, element by element.
//!
//! The kernels for built-in operations on built-in types are loops that the compiler vectorises, once for the baseline CPU and once for
//! AVX2. The variant is chosen when a kernel is looked up, and does not affect results. For any other reduction the caller provides a
//! function, which usually calls `MPI_Reduce_local`.
#![allow(unsafe_code)]

use std::sync::Arc;

use half::{bf16, f16};

/// Built-in reduction operations of MPI.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Maximum (`MPI_MAX`).
    Max,
    /// Minimum (`MPI_MIN`).
    Min,
    /// Sum (`MPI_SUM`); integers wrap.
    Sum,
    /// Product (`MPI_PROD`); integers wrap.
    Prod,
    /// Logical and (`MPI_LAND`): 1 if both operands are nonzero, otherwise 0.
    LogicalAnd,
    /// Logical or (`MPI_LOR`): 1 if at least one operand is nonzero, otherwise 0.
    LogicalOr,
    /// Logical exclusive or (`MPI_LXOR`): 1 if exactly one operand is nonzero, otherwise 0.
    LogicalXor,
    /// Bitwise and (`MPI_BAND`).
    BitAnd,
    /// Bitwise or (`MPI_BOR`).
    BitOr,
    /// Bitwise exclusive or (`MPI_BXOR`).
    BitXor,
    /// Pair with the smaller value (`MPI_MINLOC`); if values are equal, the pair with the smaller index.
    MinLoc,
    /// Pair with the larger value (`MPI_MAXLOC`); if values are equal, the pair with the smaller index.
    MaxLoc,
}

impl Operation {
    /// All built-in reduction operations.
    pub const ALL: [Operation; 12] = [
        Operation::Max,
        Operation::Min,
        Operation::Sum,
        Operation::Prod,
        Operation::LogicalAnd,
        Operation::LogicalOr,
        Operation::LogicalXor,
        Operation::BitAnd,
        Operation::BitOr,
        Operation::BitXor,
        Operation::MinLoc,
        Operation::MaxLoc,
    ];
}

/// Element type of a reduction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ElementType {
    /// A signed integer of 8 bits.
    I8,
    /// A signed integer of 16 bits.
    I16,
    /// A signed integer of 32 bits.
    I32,
    /// A signed integer of 64 bits.
    I64,
    /// An unsigned integer of 8 bits.
    U8,
    /// An unsigned integer of 16 bits.
    U16,
    /// An unsigned integer of 32 bits.
    U32,
    /// An unsigned integer of 64 bits.
    U64,
    /// An uninterpreted byte: only bitwise operations are defined.
    Byte,
    /// A Boolean in one byte: only logical operations are defined.
    Bool,
    /// IEEE half precision.
    F16,
    /// bfloat16: the upper half of a single-precision number.
    Bf16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
    /// A complex number of two single-precision parts.
    C32,
    /// A complex number of two double-precision parts.
    C64,
    /// A pair of a 16-bit integer and a 32-bit index.
    I16Index,
    /// A pair of a 32-bit integer and a 32-bit index.
    I32Index,
    /// A pair of a 64-bit integer and a 32-bit index.
    I64Index,
    /// A pair of a single-precision number and a 32-bit index.
    F32Index,
    /// A pair of a double-precision number and a 32-bit index.
    F64Index,
    /// A pair of two single-precision numbers, value and index, as for Fortran's `MPI_2REAL`.
    F32Pair,
    /// A pair of two double-precision numbers, value and index, as for Fortran's `MPI_2DOUBLE_PRECISION`.
    F64Pair,
}

impl ElementType {
    /// Returns whether elements of this type are floating-point numbers, alone or in a pair with an index.
    pub fn is_float(self) -> bool {
        use ElementType::{Bf16, C32, C64, F16, F32, F32Index, F32Pair, F64, F64Index, F64Pair};
        matches!(self, F16 | Bf16 | F32 | F64 | C32 | C64 | F32Index | F64Index | F32Pair | F64Pair)
    }
}

/// A function that computes `into[i] = left[i] ⊕ into[i]` for `elements` elements at addresses of any alignment.
pub type Kernel = unsafe fn(left: *const u8, into: *mut u8, elements: usize);

/// A reduction function that the caller provides, with the arguments of a [`Kernel`].
pub type User = Arc<dyn Fn(*const u8, *mut u8, usize) + Send + Sync>;

/// How a plan reduces elements.
#[derive(Clone)]
pub enum Reduction {
    /// The plan has no reduction.
    None,
    /// The plan reduces by a built-in kernel.
    Kernel(Kernel),
    /// The plan reduces by a function that the caller provides.
    Foreign(User),
}

impl Reduction {
    /// Returns the kernel for an operation on a type, or `None` if MPI does not define that operation for it.
    pub fn of(operation: Operation, kind: ElementType) -> Option<Reduction> {
        kernel(operation, kind).map(Reduction::Kernel)
    }

    /// Reduces `elements` elements of `left` into `into`: `into[i] = left[i] ⊕ into[i]`.
    ///
    /// # Safety
    /// Both buffers have `elements` elements of the type of this reduction, and do not overlap.
    #[inline]
    pub unsafe fn apply(&self, left: *const u8, into: *mut u8, elements: usize) {
        match self {
            // SAFETY: ELEMENTS (crate documentation), guaranteed by the caller.
            Reduction::Kernel(kernel) => unsafe { kernel(left, into, elements) },
            Reduction::Foreign(call) => call(left, into, elements),
            Reduction::None => {}
        }
    }
}

/// A reduction operation on elements of type `T`.
trait Op<T> {
    fn of(left: T, right: T) -> T;
}

#[inline(always)]
unsafe fn apply<T: Copy, O: Op<T>>(left: *const u8, into: *mut u8, elements: usize) {
    let (left, into) = (left.cast::<T>(), into.cast::<T>());
    // A single element, the most common case, needs neither a loop nor vector instructions.
    if elements == 1 {
        // SAFETY: ELEMENTS (crate documentation), guaranteed by the caller.
        return unsafe { into.write_unaligned(O::of(left.read_unaligned(), into.read_unaligned())) };
    }
    for i in 0..elements {
        // SAFETY: ELEMENTS (crate documentation), and `i` is below `elements`.
        unsafe {
            let result = O::of(left.add(i).read_unaligned(), into.add(i).read_unaligned());
            into.add(i).write_unaligned(result);
        }
    }
}

unsafe fn plain<T: Copy, O: Op<T>>(left: *const u8, into: *mut u8, elements: usize) {
    // SAFETY: ELEMENTS (crate documentation), guaranteed by the caller.
    unsafe { apply::<T, O>(left, into, elements) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn wide<T: Copy, O: Op<T>>(left: *const u8, into: *mut u8, elements: usize) {
    // SAFETY: ELEMENTS (crate documentation), guaranteed by the caller.
    unsafe { apply::<T, O>(left, into, elements) }
}

fn pick<T: Copy, O: Op<T>>() -> Option<Kernel> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        return Some(wide::<T, O>);
    }
    Some(plain::<T, O>)
}

struct Max;
struct Min;
struct Sum;
struct Prod;
struct LogicalAnd;
struct LogicalOr;
struct LogicalXor;
struct BitAnd;
struct BitOr;
struct BitXor;
struct MinLoc;
struct MaxLoc;

/// A complex number.
#[derive(Clone, Copy)]
#[repr(C)]
struct Complex<T>(T, T);

/// A value and its index, the operands of `MPI_MINLOC` and `MPI_MAXLOC`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Pair<T, I>(T, I);

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Op<$t> for Sum { #[inline(always)] fn of(l: $t, r: $t) -> $t { l.wrapping_add(r) } }
        impl Op<$t> for Prod { #[inline(always)] fn of(l: $t, r: $t) -> $t { l.wrapping_mul(r) } }
        impl Op<$t> for LogicalAnd { #[inline(always)] fn of(l: $t, r: $t) -> $t { (l != 0 && r != 0) as $t } }
        impl Op<$t> for LogicalOr { #[inline(always)] fn of(l: $t, r: $t) -> $t { (l != 0 || r != 0) as $t } }
        impl Op<$t> for LogicalXor { #[inline(always)] fn of(l: $t, r: $t) -> $t { ((l != 0) != (r != 0)) as $t } }
        impl Op<$t> for BitAnd { #[inline(always)] fn of(l: $t, r: $t) -> $t { l & r } }
        impl Op<$t> for BitOr { #[inline(always)] fn of(l: $t, r: $t) -> $t { l | r } }
        impl Op<$t> for BitXor { #[inline(always)] fn of(l: $t, r: $t) -> $t { l ^ r } }
    )*};
}

macro_rules! floats {
    ($($t:ty),*) => {$(
        impl Op<$t> for Sum { #[inline(always)] fn of(l: $t, r: $t) -> $t { l + r } }
        impl Op<$t> for Prod { #[inline(always)] fn of(l: $t, r: $t) -> $t { l * r } }
        impl Op<Complex<$t>> for Sum {
            #[inline(always)] fn of(l: Complex<$t>, r: Complex<$t>) -> Complex<$t> { Complex(l.0 + r.0, l.1 + r.1) }
        }
        impl Op<Complex<$t>> for Prod {
            #[inline(always)] fn of(l: Complex<$t>, r: Complex<$t>) -> Complex<$t> {
                Complex(l.0 * r.0 - l.1 * r.1, l.0 * r.1 + l.1 * r.0)
            }
        }
    )*};
}

macro_rules! ordered {
    ($($t:ty),*) => {$(
        impl Op<$t> for Max { #[inline(always)] fn of(l: $t, r: $t) -> $t { if l > r { l } else { r } } }
        impl Op<$t> for Min { #[inline(always)] fn of(l: $t, r: $t) -> $t { if l < r { l } else { r } } }
    )*};
}

macro_rules! located {
    ($($t:ty, $i:ty);*) => {$(
        impl Op<Pair<$t, $i>> for MaxLoc {
            #[inline(always)] fn of(l: Pair<$t, $i>, r: Pair<$t, $i>) -> Pair<$t, $i> {
                if l.0 > r.0 || (l.0 == r.0 && l.1 < r.1) { l } else { r }
            }
        }
        impl Op<Pair<$t, $i>> for MinLoc {
            #[inline(always)] fn of(l: Pair<$t, $i>, r: Pair<$t, $i>) -> Pair<$t, $i> {
                if l.0 < r.0 || (l.0 == r.0 && l.1 < r.1) { l } else { r }
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);
floats!(f32, f64);
ordered!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, f16, bf16);
located!(i16, i32; i32, i32; i64, i32; f32, i32; f64, i32; f32, f32; f64, f64);

// Half-precision numbers are added and multiplied in single precision, and the result is rounded once.
impl Op<f16> for Sum {
    #[inline(always)]
    fn of(l: f16, r: f16) -> f16 {
        f16::from_f32(l.to_f32() + r.to_f32())
    }
}
impl Op<f16> for Prod {
    #[inline(always)]
    fn of(l: f16, r: f16) -> f16 {
        f16::from_f32(l.to_f32() * r.to_f32())
    }
}
impl Op<bf16> for Sum {
    #[inline(always)]
    fn of(l: bf16, r: bf16) -> bf16 {
        bf16::from_f32(l.to_f32() + r.to_f32())
    }
}
impl Op<bf16> for Prod {
    #[inline(always)]
    fn of(l: bf16, r: bf16) -> bf16 {
        bf16::from_f32(l.to_f32() * r.to_f32())
    }
}

fn kernel(operation: Operation, kind: ElementType) -> Option<Kernel> {
    macro_rules! number {
        ($t:ty) => {
            match operation {
                Operation::Max => pick::<$t, Max>(),
                Operation::Min => pick::<$t, Min>(),
                Operation::Sum => pick::<$t, Sum>(),
                Operation::Prod => pick::<$t, Prod>(),
                _ => None,
            }
        };
    }
    macro_rules! logical {
        ($t:ty) => {
            match operation {
                Operation::LogicalAnd => pick::<$t, LogicalAnd>(),
                Operation::LogicalOr => pick::<$t, LogicalOr>(),
                Operation::LogicalXor => pick::<$t, LogicalXor>(),
                _ => None,
            }
        };
    }
    macro_rules! bits {
        ($t:ty) => {
            match operation {
                Operation::BitAnd => pick::<$t, BitAnd>(),
                Operation::BitOr => pick::<$t, BitOr>(),
                Operation::BitXor => pick::<$t, BitXor>(),
                _ => None,
            }
        };
    }
    macro_rules! integer {
        ($t:ty) => {
            number!($t).or_else(|| logical!($t)).or_else(|| bits!($t))
        };
    }
    macro_rules! complex {
        ($t:ty) => {
            match operation {
                Operation::Sum => pick::<Complex<$t>, Sum>(),
                Operation::Prod => pick::<Complex<$t>, Prod>(),
                _ => None,
            }
        };
    }
    macro_rules! pair {
        ($t:ty, $i:ty) => {
            match operation {
                Operation::MinLoc => pick::<Pair<$t, $i>, MinLoc>(),
                Operation::MaxLoc => pick::<Pair<$t, $i>, MaxLoc>(),
                _ => None,
            }
        };
    }
    match kind {
        ElementType::I8 => integer!(i8),
        ElementType::I16 => integer!(i16),
        ElementType::I32 => integer!(i32),
        ElementType::I64 => integer!(i64),
        ElementType::U8 => integer!(u8),
        ElementType::U16 => integer!(u16),
        ElementType::U32 => integer!(u32),
        ElementType::U64 => integer!(u64),
        ElementType::Byte => bits!(u8),
        ElementType::Bool => logical!(u8),
        ElementType::F16 => number!(f16),
        ElementType::Bf16 => number!(bf16),
        ElementType::F32 => number!(f32),
        ElementType::F64 => number!(f64),
        ElementType::C32 => complex!(f32),
        ElementType::C64 => complex!(f64),
        ElementType::I16Index => pair!(i16, i32),
        ElementType::I32Index => pair!(i32, i32),
        ElementType::I64Index => pair!(i64, i32),
        ElementType::F32Index => pair!(f32, i32),
        ElementType::F64Index => pair!(f64, i32),
        ElementType::F32Pair => pair!(f32, f32),
        ElementType::F64Pair => pair!(f64, f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T: Copy>(operation: Operation, kind: ElementType, left: &[T], right: &[T]) -> Vec<T> {
        let mut into = right.to_vec();
        let kernel = kernel(operation, kind).expect("a pair that has a meaning");
        // SAFETY: `left` and `into` have the same number of elements.
        unsafe { kernel(left.as_ptr().cast(), into.as_mut_ptr().cast(), left.len()) };
        into
    }

    #[test]
    fn integers_wrap_and_compare() {
        let (l, r) = ([i32::MAX, -5, 0, 7], [1, 3, 0, 7]);
        assert_eq!(run(Operation::Sum, ElementType::I32, &l, &r), [i32::MIN, -2, 0, 14]);
        assert_eq!(run(Operation::Max, ElementType::I32, &l, &r), [i32::MAX, 3, 0, 7]);
        assert_eq!(run(Operation::Min, ElementType::I32, &l, &r), [1, -5, 0, 7]);
        assert_eq!(run(Operation::LogicalAnd, ElementType::I32, &l, &r), [1, 1, 0, 1]);
        assert_eq!(run(Operation::LogicalXor, ElementType::I32, &[5, 0, 5, 0], &[7, 7, 0, 0]), [0, 1, 1, 0]);
        assert_eq!(run(Operation::BitXor, ElementType::U8, &[0xf0u8], &[0x3c]), [0xcc]);
        // Unsigned integers are compared as unsigned.
        assert_eq!(run(Operation::Max, ElementType::U32, &[u32::MAX], &[1]), [u32::MAX]);
    }

    #[test]
    fn long_vectors_are_right_at_every_length() {
        for n in [0usize, 1, 3, 4, 5, 31, 32, 33, 1000] {
            let left: Vec<f64> = (0..n).map(|i| i as f64 * 0.5).collect();
            let right: Vec<f64> = (0..n).map(|i| 3.0 - i as f64).collect();
            let want: Vec<f64> = left.iter().zip(&right).map(|(l, r)| l + r).collect();
            assert_eq!(run(Operation::Sum, ElementType::F64, &left, &right), want);
        }
    }

    #[test]
    fn complex_numbers_multiply() {
        assert_eq!(run(Operation::Prod, ElementType::C64, &[[1.0f64, 2.0]], &[[3.0, -1.0]]), [[5.0, 5.0]]);
        assert_eq!(run(Operation::Sum, ElementType::C32, &[[1.0f32, 2.0]], &[[3.0, -1.0]]), [[4.0, 1.0]]);
    }

    #[test]
    fn halves_round_once() {
        let h = |x: f32| f16::from_f32(x);
        assert_eq!(run(Operation::Sum, ElementType::F16, &[h(2048.0)], &[h(1.0)]), [h(2048.0)]);
        assert_eq!(
            run(Operation::Max, ElementType::Bf16, &[bf16::from_f32(2.0)], &[bf16::from_f32(-3.0)]),
            [bf16::from_f32(2.0)]
        );
    }

    #[test]
    fn locations_break_ties_downwards() {
        let pair = |v: f64, i: i32| Pair(v, i);
        let (l, r) = ([pair(1.0, 4), pair(2.0, 1)], [pair(1.0, 2), pair(3.0, 0)]);
        let max = run(Operation::MaxLoc, ElementType::F64Index, &l, &r);
        assert_eq!((max[0].0, max[0].1, max[1].0, max[1].1), (1.0, 2, 3.0, 0));
        let min = run(Operation::MinLoc, ElementType::F64Index, &l, &r);
        assert_eq!((min[0].1, min[1].1), (2, 1));
    }

    #[test]
    fn what_has_no_meaning_has_no_kernel() {
        for (operation, kind) in [
            (Operation::BitAnd, ElementType::F64),
            (Operation::Max, ElementType::C64),
            (Operation::Sum, ElementType::F64Index),
            (Operation::MinLoc, ElementType::I32),
            (Operation::Sum, ElementType::Byte),
            (Operation::BitOr, ElementType::Bool),
        ] {
            assert!(kernel(operation, kind).is_none(), "{operation:?} {kind:?}");
        }
        let pairs = Operation::ALL.iter().filter(|op| kernel(**op, ElementType::I32).is_some()).count();
        assert_eq!(pairs, 10);
    }

    #[test]
    fn both_forms_of_a_kernel_agree() {
        let left: Vec<u8> = (0..800u32).map(|i| (i * 37 % 251) as u8).collect();
        let right: Vec<u8> = (0..800u32).map(|i| (i * 91 % 253) as u8).collect();
        let (mut a, mut b) = (right.clone(), right);
        let n = 100;
        // SAFETY: 800 bytes are 100 elements of 8.
        unsafe {
            plain::<i64, Max>(left.as_ptr(), a.as_mut_ptr(), n);
            kernel(Operation::Max, ElementType::I64).expect("a kernel")(left.as_ptr(), b.as_mut_ptr(), n);
        }
        assert_eq!(a, b);
    }
}
