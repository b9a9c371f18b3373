//! The configuration of one process, for commands that run without an MPI.

use bruckner_choose::{Policy, Profile, Rules};

use crate::profile::ProfileFile;
use crate::settings::Settings;
use crate::sources::find_settings;

/// Settings of this process, from files and environment, that influence the choice of algorithms, and its profile.
pub struct LocalConfig {
    /// Algorithms that the user named, by collective.
    pub rules: Rules,
    /// Policy for choosing algorithms.
    pub policy: Policy,
    profile: ProfileFile,
}

impl LocalConfig {
    /// Reads the settings and finds the profile, for a job of `ranks` ranks.
    pub fn read(ranks: u32) -> LocalConfig {
        let settings = Settings::of(&find_settings(), ranks);
        let policy = settings.policy();
        LocalConfig { profile: ProfileFile::find(&settings.profile_source), rules: settings.rules, policy }
    }

    /// Returns the profile of this machine, if there is one, and complaints about it.
    pub fn profile(&self) -> (Option<Profile>, Vec<String>) {
        let mut complaints = Vec::new();
        (self.profile.read(&mut complaints), complaints)
    }
}
