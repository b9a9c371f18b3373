//! Counters of calls and operations, for the report.

mod operation;
mod sampling;

pub(crate) use operation::OperationCounters;
pub(crate) use sampling::CommCounters;
