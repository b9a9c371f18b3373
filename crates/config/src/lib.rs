//! Settings and the machine's profile: where they are found, which files are trusted, and what is wrong with them.
//!
//! Files and environments may differ between ranks, so only rank 0 reads them. It gives the text that it found to all ranks, and every
//! rank, rank 0 too, makes its [`Settings`] and its [`ProfileFile`] of that text alone. A value that is wrong is explained and ignored.
//! A process with raised privileges reads no variable.

pub mod files;
mod local;
mod profile;
mod settings;
mod sources;

pub use local::LocalConfig;
pub use profile::{ProfileFile, ProfilePlace};
pub use settings::{Destination, Mode, Settings, is_off_here, is_report_wanted_here, parse_bytes};
pub use sources::{SettingShown, find_settings, show_settings};
