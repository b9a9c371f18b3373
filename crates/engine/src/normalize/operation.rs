//! How the elements of a reduction are combined.

use std::ffi::c_int;
use std::sync::Arc;

use bruckner_mpi::{Handle, Shape};
use bruckner_runtime::Reduction;
use bruckner_runtime::reduce::{Kind, Operation};
use bruckner_schedule::Order;

use super::layout::{Pair, reduce_in_form, shape_of};
use crate::Error;
use crate::backend::Backend;
use crate::reason::Reason;
use crate::refusal::Refusal;

/// How elements are combined, as far as all ranks share it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Combine {
    /// They are not.
    Nothing,
    /// By a kernel.
    Kernel(Operation, Kind),
    /// By `MPI_Reduce_local`. Handles may be used again for something else, so this is not kept with a plan.
    UserOp,
}

impl Combine {
    /// Whether the order of operands may show in the result, though the operation is commutative: sums and products of
    /// floating point are rounded, and a maximum of NaN and a number, or of zeros of both signs, is whichever came first.
    pub(crate) fn shows_order(self) -> bool {
        match self {
            Combine::Nothing => false,
            Combine::Kernel(_, kind) => kind.is_float(),
            Combine::UserOp => true,
        }
    }

    /// The pairs that are reduced, if they have padding.
    #[inline]
    pub(crate) fn pair(self) -> Option<Pair> {
        match self {
            Combine::Kernel(_, kind) => Pair::of(kind),
            Combine::Nothing | Combine::UserOp => None,
        }
    }

    /// The kernel; nothing where there is none.
    pub(crate) fn kernel(self) -> Reduction {
        match self {
            Combine::Kernel(operation, kind) => Reduction::of(operation, kind).unwrap_or(Reduction::None),
            Combine::Nothing | Combine::UserOp => Reduction::None,
        }
    }

    /// Whether results are rounded.
    pub(crate) fn rounds(self) -> bool {
        match self {
            Combine::Kernel(operation, kind) => {
                matches!(operation, Operation::Sum | Operation::Prod) && kind.is_float()
            }
            other => other.shows_order(),
        }
    }
}

/// A reduction by `MPI_Reduce_local`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserOp {
    pub(super) datatype: Handle,
    op: Handle,
    pub(super) shape: Shape,
}

impl UserOp {
    /// The reduction, for a plan.
    pub(super) fn reduction<B: Backend>(self, backend: &'static B) -> Reduction {
        let UserOp { datatype, op, shape } = self;
        let reduce = move |left: *const u8, into: *mut u8, elements: usize| {
            // There is nobody to tell: what is wrong with a type or operation was found when it was packed.
            if !shape.is_dense() {
                let _ = reduce_in_form(backend, (datatype, &shape, op), left, into, elements);
                return;
            }
            for at in (0..elements).step_by(c_int::MAX as usize) {
                let count = (elements - at).min(c_int::MAX as usize) as c_int;
                let (left, into) = (left.wrapping_add(at * shape.size), into.wrapping_add(at * shape.size));
                // SAFETY: both have so many elements of this type: a plan's memory, or the user's.
                let _ = unsafe { backend.reduce_local(left, into, count, datatype, op) };
            }
        };
        Reduction::Foreign(Arc::new(reduce))
    }
}

/// How elements are reduced.
pub(super) struct Reduced {
    /// Bytes from one element to the next in a plan's memory.
    pub(super) element: u32,
    pub(super) order: Order,
    pub(super) combine: Combine,
    pub(super) user_op: Option<UserOp>,
}

/// How a type is reduced by an operation. Built-in ones are the same on all ranks, so this may send the call to native.
pub(super) fn reduced<B: Backend>(backend: &B, datatype: Handle, op: Handle) -> Result<Reduced, Refusal> {
    let operation = backend.operation(op);
    if let (Some(operation), Some(kind)) = (operation, backend.kind(datatype))
        && Reduction::of(operation, kind).is_some()
    {
        let (element, combine) = (kind_bytes(kind), Combine::Kernel(operation, kind));
        return Ok(Reduced { element, order: Order::Any, combine, user_op: None });
    }
    if backend.is_null_op(op) {
        return Err(Error::Argument("the operation is MPI_OP_NULL".into()).into());
    }
    let shape = shape_of(backend, datatype)?;
    // MPI_Reduce_local would raise its error elsewhere than on the user's communicator.
    let defined = operation.map_or(backend.is_users(op), |operation| backend.is_defined(operation, datatype));
    if !defined {
        return Err(Reason::Undefined.into());
    }
    if shape.size == 0 {
        return Err(Reason::EmptyElement.into());
    }
    // Operations of the user's may differ between ranks, and so may whether they commute, and how their types lie: what is
    // shared is how much data an element has.
    let element = u32::try_from(shape.size).map_err(|_| Reason::HugeElement)?;
    let order = if operation.is_some() { Order::Any } else { Order::Ranks };
    let user_op = Some(UserOp { datatype, op, shape: backend.look_closer(datatype, shape) });
    Ok(Reduced { element, order, combine: Combine::UserOp, user_op })
}

/// The extent of a built-in type that kernels know.
fn kind_bytes(kind: Kind) -> u32 {
    match kind {
        Kind::I8 | Kind::U8 | Kind::Byte | Kind::Bool => 1,
        Kind::I16 | Kind::U16 | Kind::F16 | Kind::Bf16 => 2,
        Kind::I32 | Kind::U32 | Kind::F32 => 4,
        Kind::I64 | Kind::U64 | Kind::F64 | Kind::C32 => 8,
        Kind::I16Index | Kind::I32Index | Kind::F32Index | Kind::F32Pair => 8,
        Kind::C64 | Kind::I64Index | Kind::F64Index | Kind::F64Pair => 16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NaN and signed zeros make a maximum depend on the order, too; integers never do.
    #[test]
    fn the_order_of_floating_point_operands_shows() {
        let shows = |operation, kind| Combine::Kernel(operation, kind).shows_order();
        assert!(shows(Operation::Sum, Kind::F64) && shows(Operation::Max, Kind::F64));
        assert!(shows(Operation::Min, Kind::F32) && shows(Operation::MaxLoc, Kind::F64Index));
        assert!(!shows(Operation::Sum, Kind::I64) && !shows(Operation::BitXor, Kind::U8));
        assert!(Combine::UserOp.shows_order() && !Combine::Nothing.shows_order());
    }
}
