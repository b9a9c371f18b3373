//! The few datatypes and operations that threads know.

use std::ffi::{c_int, c_void};

use bruckner_mpi::{Handle, MpiError, Shape};
use bruckner_runtime::Reduction;
use bruckner_runtime::reduce::{Kind, Operation};

use crate::{Rank, lock};
use bruckner_engine::backend::{Datatypes, Way};

/// Bytes.
pub const BYTE: Handle = 101;
/// 64-bit integers.
pub const I64: Handle = 102;
/// 64-bit floating point.
pub const F64: Handle = 103;
/// 64-bit floating point with as much nothing behind each: a type of the user's, with gaps.
pub const F64_WITH_GAP: Handle = 104;
/// Two 64-bit integers, a type of the user's: the function x ↦ ax + b.
pub const PAIR: Handle = 105;
/// The sum.
pub const SUM: Handle = 201;
/// The maximum.
pub const MAX: Handle = 202;
/// An operation of the user's on [`PAIR`]: one function after the other, which is not commutative.
pub const COMPOSE: Handle = 203;
/// `MPI_IN_PLACE`.
pub const IN_PLACE: *mut c_void = std::ptr::dangling_mut::<u64>().cast();

/// A wrong argument, and data that does not fit.
const BAD_COUNT: i32 = 2;
const TRUNCATED: i32 = 15;
const OTHER: i32 = 16;

fn shape_of(datatype: Handle) -> Option<Shape> {
    Some(match datatype {
        BYTE => Shape::BYTE,
        I64 | F64 => Shape::dense(8),
        PAIR => Shape::dense(16),
        F64_WITH_GAP => Shape::spread(8, 16),
        _ => return None,
    })
}

impl Datatypes for Rank {
    fn is_in_place(&self, data: *const c_void) -> bool {
        data == IN_PLACE
    }

    fn in_place(&self) -> *const c_void {
        IN_PLACE
    }

    fn refuses_aliases(&self) -> bool {
        false
    }

    fn refuses_in_place_off_root(&self) -> bool {
        false
    }

    fn is_null_type(&self, datatype: Handle) -> bool {
        datatype == 0
    }

    fn is_null_op(&self, op: Handle) -> bool {
        op == 0
    }

    fn type_size(&self, datatype: Handle) -> Result<usize, MpiError> {
        self.shape(datatype).map(|shape| shape.size)
    }

    fn shape(&self, datatype: Handle) -> Result<Shape, MpiError> {
        shape_of(datatype).ok_or(MpiError { call: "shape", code: OTHER })
    }

    fn look_closer(&self, _datatype: Handle, shape: Shape) -> Shape {
        shape
    }

    fn kind(&self, datatype: Handle) -> Option<Kind> {
        match datatype {
            BYTE => Some(Kind::Byte),
            I64 => Some(Kind::I64),
            F64 => Some(Kind::F64),
            _ => None,
        }
    }

    fn operation(&self, op: Handle) -> Option<Operation> {
        match op {
            SUM => Some(Operation::Sum),
            MAX => Some(Operation::Max),
            _ => None,
        }
    }

    fn is_built_in(&self, datatype: Handle) -> bool {
        self.kind(datatype).is_some()
    }

    fn is_defined(&self, _operation: Operation, _datatype: Handle) -> bool {
        false
    }

    fn is_users(&self, op: Handle) -> bool {
        op == COMPOSE
    }

    fn byte(&self) -> Handle {
        BYTE
    }

    unsafe fn pack(
        &self,
        way: Way,
        datatype: Handle,
        data: *mut c_void,
        count: usize,
        bytes: *mut u8,
        _length: usize,
    ) -> Result<(), MpiError> {
        let shape = self.shape(datatype)?;
        for at in 0..count {
            let theirs = data.wrapping_byte_offset(at as isize * shape.extent).cast::<u8>();
            let ours = bytes.wrapping_add(at * shape.size);
            let (from, to) = if way == Way::Pack { (theirs, ours) } else { (ours, theirs) };
            // SAFETY: elements and bytes as the caller says.
            unsafe { std::ptr::copy_nonoverlapping(from, to, shape.size) };
        }
        Ok(())
    }

    unsafe fn reduce_local(
        &self,
        left: *const u8,
        into: *mut u8,
        count: c_int,
        datatype: Handle,
        op: Handle,
    ) -> Result<(), MpiError> {
        let count = count as usize;
        if let (Some(operation), Some(kind)) = (self.operation(op), self.kind(datatype))
            && let Some(reduction) = Reduction::of(operation, kind)
        {
            // SAFETY: so many elements at both addresses, as the caller says.
            unsafe { reduction.apply(left, into, count) };
            return Ok(());
        }
        if (datatype, op) != (PAIR, COMPOSE) {
            return Err(MpiError { call: "reduce_local", code: OTHER });
        }
        for at in 0..count {
            let (left, into) = (
                left.wrapping_add(16 * at).cast::<[u64; 2]>(),
                into.wrapping_add(16 * at).cast::<[u64; 2]>(),
            );
            // SAFETY: as above.
            unsafe { into.write_unaligned(compose(left.read_unaligned(), into.read_unaligned())) };
        }
        Ok(())
    }

    fn has_device(&self) -> bool {
        lock(&self.options).device
    }

    fn truncated(&self) -> MpiError {
        MpiError { call: "a collective", code: TRUNCATED }
    }

    fn bad_count(&self) -> i32 {
        BAD_COUNT
    }

    fn other_error(&self) -> i32 {
        OTHER
    }
}

/// The left function after the right one.
pub fn compose(left: [u64; 2], right: [u64; 2]) -> [u64; 2] {
    let ([a, b], [c, d]) = (left, right);
    [a.wrapping_mul(c), a.wrapping_mul(d).wrapping_add(b)]
}
