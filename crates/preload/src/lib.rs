//! `libbruckner.so`: the intercepted functions of MPI, and the C API.
//!
//! Each function translates its arguments into a call of the engine, and the result into an error code. No panic unwinds into C, and
//! nothing is written to standard output.
//!
//! All unsafe code relies on one invariant, which is cited by name. **ARGUMENTS**: the caller of a function passes what its documentation
//! or the MPI standard requires: valid handles, and buffers and lists as long as counts and datatypes specify.
#![allow(non_camel_case_types, reason = "names of C")]

pub mod collectives;
mod communicators;
mod entries;
pub mod errors;
pub mod handles;
mod next;
pub mod plans;
mod requests;
pub mod setup;
mod table;
