//! What the report is told of calls and operations.

mod operation;

pub(crate) use operation::OperationCounters;
