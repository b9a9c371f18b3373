//! `cargo testbed`: the real MPIs, and Bruckner on them.

mod mpis;
mod setup;

use clap::Parser;

/// The real MPIs, and Bruckner on them.
#[derive(Parser)]
enum Ask {
    /// Brings the MPIs: Debian's, and those of Python packages.
    Setup,
}

fn main() -> anyhow::Result<()> {
    match Ask::parse() {
        Ask::Setup => setup::run(),
    }
}
