//! How the elements of a reduction are combined.

use std::ffi::c_int;
use std::sync::Arc;

use bruckner_mpi::{Handle, TypeLayout};
use bruckner_runtime::Reduction;
use bruckner_runtime::reduce::{ElementType, Operation};
use bruckner_schedule::Order;

use super::layout::{Pair, reduce_in_form, shape_of};
use crate::Error;
use crate::backend::Backend;
use crate::reason::Reason;
use crate::refusal::Refusal;

/// How the elements of a reduction are combined, as far as all ranks share it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Combine {
    /// Elements are not combined.
    Nothing,
    /// Elements are combined by a reduction kernel of the library.
    Kernel(Operation, ElementType),
    /// Elements are combined by `MPI_Reduce_local`. MPI may reuse handles for other objects, so the operation is not stored with a plan.
    UserOp,
}

impl Combine {
    /// Whether the order of operands may affect the result although the operation is commutative: floating-point sums and products are
    /// rounded, and a maximum of NaN and a number, or of zeros of both signs, is whichever came first.
    pub(crate) fn is_order_sensitive(self) -> bool {
        match self {
            Combine::Nothing => false,
            Combine::Kernel(_, kind) => kind.is_float(),
            Combine::UserOp => true,
        }
    }

    /// Returns the layout of the elements, if they are value-index pairs with padding.
    #[inline]
    pub(crate) fn pair(self) -> Option<Pair> {
        match self {
            Combine::Kernel(_, kind) => Pair::of(kind),
            Combine::Nothing | Combine::UserOp => None,
        }
    }

    /// Returns the reduction kernel; `Reduction::None` if there is none.
    pub(crate) fn kernel(self) -> Reduction {
        match self {
            Combine::Kernel(operation, kind) => Reduction::of(operation, kind).unwrap_or(Reduction::None),
            Combine::Nothing | Combine::UserOp => Reduction::None,
        }
    }

    /// Whether results are rounded, or may be: a user-defined operation counts as rounding.
    pub(crate) fn rounds(self) -> bool {
        match self {
            Combine::Kernel(operation, kind) => {
                matches!(operation, Operation::Sum | Operation::Prod) && kind.is_float()
            }
            other => other.is_order_sensitive(),
        }
    }
}

/// A reduction by `MPI_Reduce_local`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserOp {
    pub(super) datatype: Handle,
    op: Handle,
    pub(super) shape: TypeLayout,
}

impl UserOp {
    /// Returns the reduction in the form that a plan runs.
    pub(super) fn reduction<B: Backend>(self, backend: &'static B) -> Reduction {
        let UserOp { datatype, op, shape } = self;
        let reduce = move |left: *const u8, into: *mut u8, elements: usize| {
            // Errors cannot be returned from here. An invalid datatype or operation was already found when the data was packed.
            if !shape.is_dense() {
                let _ = reduce_in_form(backend, (datatype, &shape, op), left, into, elements);
                return;
            }
            for at in (0..elements).step_by(c_int::MAX as usize) {
                let count = (elements - at).min(c_int::MAX as usize) as c_int;
                let (left, into) = (left.wrapping_add(at * shape.size), into.wrapping_add(at * shape.size));
                // SAFETY: both addresses hold `count` elements of this datatype, in a plan's memory or the user's.
                let _ = unsafe { backend.reduce_local(left, into, count, datatype, op) };
            }
        };
        Reduction::Foreign(Arc::new(reduce))
    }
}

/// The reduction of a call: size of an element, order of operands, and operation.
pub(super) struct Reduced {
    /// Bytes from one element to the next in a plan's memory.
    pub(super) element: u32,
    pub(super) order: Order,
    pub(super) combine: Combine,
    pub(super) user_op: Option<UserOp>,
}

/// Returns how an operation reduces elements of a datatype. Built-in datatypes and operations are the same on all ranks, so an unsupported
/// one can be passed through.
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
    // MPI_Reduce_local would not raise its error on the user's communicator.
    let defined = operation.map_or(backend.is_user_defined(op), |operation| backend.is_defined(operation, datatype));
    if !defined {
        return Err(Reason::Undefined.into());
    }
    if shape.size == 0 {
        return Err(Reason::EmptyElement.into());
    }
    // User-defined operations, whether they commute, and the layouts of datatypes may differ between ranks. Ranks share only the bytes of
    // data in an element.
    let element = u32::try_from(shape.size).map_err(|_| Reason::HugeElement)?;
    let order = if operation.is_some() { Order::Any } else { Order::Ranks };
    let user_op = Some(UserOp { datatype, op, shape: backend.determine_order(datatype, shape) });
    Ok(Reduced { element, order, combine: Combine::UserOp, user_op })
}

/// Returns the extent, in bytes, of a built-in datatype that reduction kernels support.
fn kind_bytes(kind: ElementType) -> u32 {
    match kind {
        ElementType::I8 | ElementType::U8 | ElementType::Byte | ElementType::Bool => 1,
        ElementType::I16 | ElementType::U16 | ElementType::F16 | ElementType::Bf16 => 2,
        ElementType::I32 | ElementType::U32 | ElementType::F32 => 4,
        ElementType::I64 | ElementType::U64 | ElementType::F64 | ElementType::C32 => 8,
        ElementType::I16Index | ElementType::I32Index | ElementType::F32Index | ElementType::F32Pair => 8,
        ElementType::C64 | ElementType::I64Index | ElementType::F64Index | ElementType::F64Pair => 16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A floating-point maximum depends on the order of operands, too, because of NaN and signed zeros; integer results never do.
    #[test]
    fn the_order_of_floating_point_operands_shows() {
        let shows = |operation, kind| Combine::Kernel(operation, kind).is_order_sensitive();
        assert!(shows(Operation::Sum, ElementType::F64) && shows(Operation::Max, ElementType::F64));
        assert!(shows(Operation::Min, ElementType::F32) && shows(Operation::MaxLoc, ElementType::F64Index));
        assert!(!shows(Operation::Sum, ElementType::I64) && !shows(Operation::BitXor, ElementType::U8));
        assert!(Combine::UserOp.is_order_sensitive() && !Combine::Nothing.is_order_sensitive());
    }
}
