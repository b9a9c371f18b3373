//! What was learned of an MPI's own algorithms, as its own tuning files.

use std::path::Path;

use anyhow::{Result, bail};
use bruckner_choose::Profile;
use clap::ValueEnum;

/// Whose files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    /// Rules for `coll_tuned` and HAN
    OpenMpi,
    /// Trees of tests for MPICH's two layers
    Mpich,
    /// Variables of the environment
    Intel,
}

pub(super) fn export(_format: Format, _profile: &Profile, _directory: &Path) -> Result<String> {
    bail!("not yet")
}
