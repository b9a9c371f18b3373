//! The few datatypes and operations that this backend supports.

use std::ffi::{c_int, c_void};

use bruckner_mpi::{Handle, MpiError, TypeLayout};
use bruckner_runtime::Reduction;
use bruckner_runtime::reduce::{ElementType, Operation};

use crate::{ThreadRank, lock};
use bruckner_engine::backend::{Datatypes, Way};

/// Datatype of one byte.
pub const BYTE: Handle = 101;
/// Datatype of a 64-bit integer.
pub const I64: Handle = 102;
/// Datatype of a 64-bit floating-point number.
pub const F64: Handle = 103;
/// Derived datatype with gaps: a 64-bit floating-point number and 8 unused bytes.
pub const F64_WITH_GAP: Handle = 104;
/// Derived datatype of two 64-bit integers a and b, which stand for the function x ↦ ax + b.
pub const PAIR: Handle = 105;
/// Sum operation.
pub const SUM: Handle = 201;
/// Maximum operation.
pub const MAX: Handle = 202;
/// User-defined operation on [`PAIR`]: composition of two functions, which is not commutative.
pub const COMPOSE: Handle = 203;
/// Address that stands for `MPI_IN_PLACE`.
pub const IN_PLACE: *mut c_void = std::ptr::dangling_mut::<u64>().cast();

/// Error code for an invalid count.
const BAD_COUNT: i32 = 2;
const TRUNCATED: i32 = 15;
const OTHER: i32 = 16;

fn shape_of(datatype: Handle) -> Option<TypeLayout> {
    Some(match datatype {
        BYTE => TypeLayout::BYTE,
        I64 | F64 => TypeLayout::dense(8),
        PAIR => TypeLayout::dense(16),
        F64_WITH_GAP => TypeLayout::spread(8, 16),
        _ => return None,
    })
}

impl Datatypes for ThreadRank {
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

    fn shape(&self, datatype: Handle) -> Result<TypeLayout, MpiError> {
        shape_of(datatype).ok_or(MpiError { call: "shape", code: OTHER })
    }

    fn determine_order(&self, _datatype: Handle, shape: TypeLayout) -> TypeLayout {
        shape
    }

    fn kind(&self, datatype: Handle) -> Option<ElementType> {
        match datatype {
            BYTE => Some(ElementType::Byte),
            I64 => Some(ElementType::I64),
            F64 => Some(ElementType::F64),
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

    fn is_user_defined(&self, op: Handle) -> bool {
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
            // SAFETY: the caller passes `count` elements at `data` and room for their packed form at `bytes`.
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
            // SAFETY: the caller passes `count` elements at both addresses.
            unsafe { reduction.apply(left, into, count) };
            return Ok(());
        }
        if (datatype, op) != (PAIR, COMPOSE) {
            return Err(MpiError { call: "reduce_local", code: OTHER });
        }
        for at in 0..count {
            let (left, into) =
                (left.wrapping_add(16 * at).cast::<[u64; 2]>(), into.wrapping_add(16 * at).cast::<[u64; 2]>());
            // SAFETY: the caller passes `count` elements of 16 bytes at both addresses.
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

/// Returns the composition of two functions: `left` after `right`.
pub fn compose(left: [u64; 2], right: [u64; 2]) -> [u64; 2] {
    let ([a, b], [c, d]) = (left, right);
    [a.wrapping_mul(c), a.wrapping_mul(d).wrapping_add(b)]
}
