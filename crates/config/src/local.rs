//! The configuration of one process, for commands that run without an MPI.

use bruckner_choose::{Policy, Profile, Rules};

use crate::profile::ProfileFile;
use crate::settings::Settings;
use crate::sources::find_settings;

/// The files and the environment of this process, as far as choices depend on them.
pub struct LocalConfig {
    /// The algorithms that the user named.
    pub rules: Rules,
    /// The limits of what may be chosen.
    pub policy: Policy,
    profile: ProfileFile,
}

impl LocalConfig {
    /// Reads them for a job of this many ranks.
    pub fn read(ranks: u32) -> LocalConfig {
        let settings = Settings::of(&find_settings(), ranks);
        let policy = settings.policy();
        LocalConfig { profile: ProfileFile::find(&settings.profiles), rules: settings.rules, policy }
    }

    /// The profile of this machine, if there is one, and what is wrong with it.
    pub fn profile(&self) -> (Option<Profile>, Vec<String>) {
        let mut complaints = Vec::new();
        (self.profile.read(&mut complaints), complaints)
    }
}
