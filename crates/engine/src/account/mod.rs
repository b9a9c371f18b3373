//! What the report is told of calls and operations.

mod operation;
mod sampling;

pub(crate) use operation::OperationCounters;
pub(crate) use sampling::CommCounters;
