//! A progress bar, on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// For work of so many steps.
pub(crate) fn bar(length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {eta}").expect("a fixed template");
    ProgressBar::new(length).with_style(style)
}
