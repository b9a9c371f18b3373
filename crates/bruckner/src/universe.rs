//! MPI, for programs that have no other way to start it.

use bruckner_engine::{Error, Mpi};

use crate::safe::Communicator;

/// MPI, initialised; it is finalised when this goes.
pub struct Universe {
    mpi: &'static Mpi,
}

/// Initialises the MPI that the launcher of this process belongs to, or that `BRUCKNER_MPI` names. Collective over all processes that
/// were launched together. A program that uses rsmpi, or calls `MPI_Init` itself, does not need it.
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
        return Err(Error::Argument("MPI is running already".into()));
    }
    mpi.start()?;
    Ok(Universe { mpi })
}

impl Universe {
    /// `MPI_COMM_WORLD`.
    pub fn world(&self) -> Result<Communicator, Error> {
        Communicator::world()
    }
}

impl Drop for Universe {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = self.mpi.stop();
    }
}

/// Runs an example of this documentation where there is an MPI, as a job of one rank. Without one it does nothing, unless `BRUCKNER_MPI` says that
/// there is.
#[doc(hidden)]
pub fn example(run: impl FnOnce(Communicator) -> Result<(), Error>) {
    let universe = match init() {
        Err(Error::NoMpi(why)) if std::env::var_os("BRUCKNER_MPI").is_none() => return eprintln!("{why}"),
        universe => universe.expect("MPI starts"),
    };
    universe.world().and_then(run).expect("it works");
}
