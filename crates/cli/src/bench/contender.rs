//! Who is compared.

use std::fmt;
use std::str::FromStr;

use bruckner::{Collective, Error};
use bruckner_algorithms::Expression;

/// A way to do a collective.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Contender {
    /// The MPI's own function.
    Native,
    /// The library as an application gets it: its own choice.
    Chosen,
    /// An algorithm of the library.
    Algorithm(String),
}

/// What stands for all that the MPI can be forced to.
pub(crate) const NATIVE_BEST: &str = "native-best";
const NATIVE: &str = "native";
const CHOSEN: &str = "chosen";

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Contender::Native => NATIVE,
            Contender::Chosen => CHOSEN,
            Contender::Algorithm(algorithm) => algorithm,
        })
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(text: &str) -> Result<Contender, String> {
        match text {
            NATIVE => Ok(Contender::Native),
            CHOSEN => Ok(Contender::Chosen),
            expression => match expression.parse::<Expression>() {
                Ok(expression) => Ok(Contender::Algorithm(expression.to_string())),
                Err(error) => Err(error.to_string()),
            },
        }
    }
}

/// A contender that is ready to run.
pub(crate) enum Ready {
    /// The MPI's own function.
    Native,
    /// As an application calls it.
    Chosen,
    /// By a plan of this number.
    Planned(usize),
}

impl Contender {
    /// Makes it ready on a collective. Collective.
    pub(crate) fn ready(&self, on: &mut Collective<'_>) -> Result<Ready, Error> {
        match self {
            Contender::Native => Ok(Ready::Native),
            Contender::Chosen => Ok(Ready::Chosen),
            Contender::Algorithm(algorithm) => on.add(algorithm).map(Ready::Planned),
        }
    }
}

impl Ready {
    /// Does the collective once.
    #[inline]
    pub(crate) fn run(&self, on: &mut Collective<'_>) -> Result<(), Error> {
        match self {
            Ready::Native => on.run_native(),
            Ready::Chosen => on.run(),
            Ready::Planned(number) => on.run_by(*number),
        }
    }
}
