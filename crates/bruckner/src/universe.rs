//! Initialisation of MPI, for programs that do not initialise it in another way.

use bruckner_engine::{Error, Mpi};

use crate::safe::Communicator;

/// Guard of the initialised MPI: MPI is finalised when this value is dropped.
pub struct Universe {
    mpi: &'static Mpi,
}

/// Initialises MPI. Uses the MPI to which the launcher of this process belongs, or the library that `BRUCKNER_MPI` names. Collective over
/// all processes that were launched together. A program that uses rsmpi or calls `MPI_Init` itself does not need this function.
///
/// ```no_run
/// fn main() -> Result<(), bruckner::Error> {
///     let universe = bruckner::init()?;
///     let world = universe.world()?;
///     let mut sum = [0];
///     world.allreduce(&[world.rank()? + 1], &mut sum, bruckner::Operation::Sum)?.run()?;
///     println!("the sum is {}", sum[0]);
///     Ok(())
/// }
/// ```
pub fn init() -> Result<Universe, Error> {
    let mpi = Mpi::find_or_load()?;
    if mpi.is_running() {
        return Err(Error::Argument("MPI is already initialised".into()));
    }
    mpi.start()?;
    Ok(Universe { mpi })
}

impl Universe {
    /// Returns `MPI_COMM_WORLD`.
    pub fn world(&self) -> Result<Communicator, Error> {
        Communicator::world()
    }
}

impl Drop for Universe {
    fn drop(&mut self) {
        // `drop` cannot return an error.
        let _ = self.mpi.stop();
    }
}

/// Runs an example of this documentation as a job of one rank. If no MPI is found, prints the reason and returns, or panics if
/// `BRUCKNER_MPI` is set.
#[doc(hidden)]
pub fn example(run: impl FnOnce(Communicator) -> Result<(), Error>) {
    let universe = match init() {
        Err(Error::NoMpi(why)) if std::env::var_os("BRUCKNER_MPI").is_none() => return eprintln!("{why}"),
        universe => universe.expect("MPI starts"),
    };
    universe.world().and_then(run).expect("it works");
}
