//! Tests of the whole engine without an MPI: ranks are threads of this process.

mod collectives;
mod common;
mod life;
mod parts;
mod roots;
mod stories;
mod watching;
