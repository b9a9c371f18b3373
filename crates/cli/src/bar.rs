//! Progress bar on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// Returns a progress bar for `length` steps.
pub(crate) fn bar(length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {eta}").expect("a fixed template");
    ProgressBar::new(length).with_style(style)
}
