//! Contenders: the implementations of a collective that a benchmark compares.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use bruckner::{Collective, Error, ExternalCollectives};
use bruckner_algorithms::Expression;
use bruckner_measure::native::{LIBRARY_SELECTION, NATIVE};

/// An implementation of a collective.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Contender {
    /// The MPI's own function.
    Native,
    /// The algorithm that the library itself chooses, which may be native.
    Chosen,
    /// An algorithm of the library, as an expression.
    Algorithm(String),
    /// The function of another library: a shared object that exports it under its MPI name.
    Library(PathBuf),
}

/// Reference algorithm for comparing settings of the MPI: it fits every collective, and no setting changes it.
pub(crate) const REFERENCE: &str = "locality(node)";

/// Name of the contender that stands for the MPI's own function under its fastest setting.
pub(crate) const NATIVE_BEST: &str = "native-best";
const LIBRARY: &str = "library:";

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contender::Native => f.write_str(NATIVE),
            Contender::Chosen => f.write_str(LIBRARY_SELECTION),
            Contender::Algorithm(algorithm) => f.write_str(algorithm),
            Contender::Library(path) => {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                f.write_str(name.strip_prefix("lib").unwrap_or(&name))
            }
        }
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(text: &str) -> Result<Contender, String> {
        match text {
            NATIVE => Ok(Contender::Native),
            LIBRARY_SELECTION => Ok(Contender::Chosen),
            library if library.starts_with(LIBRARY) => Ok(Contender::Library(library[LIBRARY.len()..].into())),
            expression => match expression.parse::<Expression>() {
                Ok(expression) => Ok(Contender::Algorithm(expression.to_string())),
                Err(error) => Err(error.to_string()),
            },
        }
    }
}

/// A contender that is ready to run on a given collective.
pub(crate) enum Ready {
    /// The MPI's own function, called directly.
    Native,
    /// The library's own choice, as an application would call it.
    Chosen,
    /// An algorithm of the library: the index of its plan in the [`Collective`].
    Planned(usize),
    /// A function of another library.
    External(ExternalCollectives),
}

impl Contender {
    /// Returns the contender's argument on the command line.
    pub(crate) fn argument(&self) -> String {
        match self {
            Contender::Library(path) => format!("{LIBRARY}{}", path.display()),
            other => other.to_string(),
        }
    }

    /// Prepares the contender for a collective: plans its algorithm, or loads its library. Collective.
    pub(crate) fn ready(&self, on: &mut Collective<'_>) -> Result<Ready, Error> {
        match self {
            Contender::Native => Ok(Ready::Native),
            Contender::Chosen => Ok(Ready::Chosen),
            Contender::Algorithm(algorithm) => on.add_plan(algorithm).map(Ready::Planned),
            Contender::Library(path) => {
                // SAFETY: a user who names a library to be measured vouches for it.
                #[allow(unsafe_code)]
                let loaded = unsafe { ExternalCollectives::load(path) };
                loaded.map(Ready::External).map_err(|error| Error::Argument(error.to_string()))
            }
        }
    }
}

impl Ready {
    /// Runs the collective once.
    #[inline]
    pub(crate) fn run(&self, on: &mut Collective<'_>) -> Result<(), Error> {
        match self {
            Ready::Native => on.run_native(),
            Ready::Chosen => on.run(),
            Ready::Planned(number) => on.run_plan(*number),
            Ready::External(external) => on.run_with(external),
        }
    }
}
