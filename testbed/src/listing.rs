//! Compares listings in the documentation with the output of the commands that they show.

use anyhow::{Context, Result, bail};

use crate::mpis::root;

/// Compares the output of a command with its listing in `page`: the lines after the command, without lines that are an ellipsis.
/// `keep` returns the part of a line that is the same on every machine and in every run, or `None` to leave out the line.
pub(crate) fn compare(page: &str, command: &str, said: &str, keep: impl Fn(&str) -> Option<String>) -> Result<()> {
    let text = std::fs::read_to_string(root().join(page))?;
    let (_, behind) = text.split_once(command).with_context(|| format!("{page} has no `{command}`"))?;
    let listing = behind.lines().skip(1).take_while(|line| !line.starts_with("```"));
    let told: Vec<String> = listing.filter(|line| *line != "…").filter_map(&keep).collect();
    let said: Vec<String> = said.lines().filter_map(&keep).collect();
    if told != said {
        bail!("{page}, `{command}`:\n{}\nbut it says:\n{}", told.join("\n"), said.join("\n"));
    }
    println!("{page}  {command}: as it says");
    Ok(())
}
