//! `bruckner generate`: writes man pages and shell completions for an installation.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::{Answer, Cli};

/// Writes man pages and shell completions
#[derive(Args)]
pub(crate) struct Generate {
    /// Directory for the man pages
    #[arg(long, value_name = "DIRECTORY")]
    man: Option<PathBuf>,
    /// Directory for the completions of bash, zsh and fish
    #[arg(long, value_name = "DIRECTORY")]
    completions: Option<PathBuf>,
}

impl Generate {
    pub(crate) fn run(&self) -> Result<Answer> {
        let mut command = Cli::command();
        if let Some(place) = &self.man {
            clap_mangen::generate_to(command.clone(), place).with_context(|| place.display().to_string())?;
        }
        if let Some(place) = &self.completions {
            for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
                clap_complete::generate_to(shell, &mut command, "bruckner", place)
                    .with_context(|| place.display().to_string())?;
            }
        }
        Ok(Answer::Success)
    }
}
