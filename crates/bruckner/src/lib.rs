//! The Rust API of Bruckner: MPI collectives by proven schedules, on the MPI that is found at run time.
//!
//! A [`Communicator`] holds the handle of any MPI communicator. A collective on slices is run at once, or made into a [`Plan`] that
//! borrows the slices. The crate links no MPI: it finds the MPI of the process at run time. The feature `rsmpi` adds
//! `bruckner::rsmpi::Collectives`, which turns any rsmpi communicator into a [`Communicator`]. Programs without rsmpi can start MPI with
//! [`init`].
//!
//! ```no_run
//! fn main() -> Result<(), bruckner::Error> {
//!     let universe = bruckner::init()?;
//!     let world = universe.world()?;
//!     let mut sum = [0];
//!     world.allreduce(&[world.rank()? + 1], &mut sum, bruckner::Operation::Sum)?.run()?;
//!     println!("the sum is {}", sum[0]);
//!     Ok(())
//! }
//! ```

mod collective;
#[cfg(feature = "rsmpi")]
pub mod rsmpi;
mod safe;
mod universe;

pub use bruckner_engine::mpi::ExternalCollectives;
pub use bruckner_engine::{Error, Name};
pub use bruckner_runtime::reduce::Operation;
pub use collective::{Collective, Plan, Progress};
pub use safe::{Communicator, Element, InPlace, Input};
pub use universe::{Universe, example, init};
