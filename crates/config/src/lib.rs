//! Settings and the profile: their sources, which files are trusted, and complaints about wrong values.
//!
//! Files and environments may differ between ranks, so only rank 0 reads them and sends the text that it found to all ranks. Every rank,
//! including rank 0, builds its [`Settings`] and its [`ProfileFile`] from that text alone. A wrong value is reported and ignored. A
//! process with raised privileges reads no environment variable.

pub mod files;
mod local;
mod profile;
mod settings;
mod sources;

pub use local::LocalConfig;
pub use profile::{ProfileFile, ProfileSource};
pub use settings::{Destination, Mode, Settings, is_off_here, is_report_wanted_here, parse_bytes};
pub use sources::{ShownSetting, find_settings, show_settings};
