//! `libbruckner.so`: the functions of MPI that are taken over, and the C API.
//!
//! Each function translates its arguments into a call of the engine, and what comes back into a code. Nothing unwinds into
//! C, and nothing is written to standard output.
//!
//! Unsafe code rests on one thing, which is cited by name. **ARGUMENTS**: whoever calls a function gives it what its
//! documentation, or the MPI standard, asks for: valid handles, buffers and lists as long as counts and datatypes say.
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
