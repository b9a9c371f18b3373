//! The profile file of the machine: rank 0 finds and reads it, all ranks parse the text.

use std::path::{Path, PathBuf};

use bruckner_choose::{Knowledge, MAX_BYTES, Profile, Vendor};
use bruckner_mpi::variable;

use crate::files;

/// Path of the administrator's profile, which takes precedence over the user's.
const ADMINISTRATORS: &str = "/etc/bruckner/profile.toml";

/// Places to search for a profile.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ProfileSource {
    /// The administrator's file, or if it does not exist the user's file.
    #[default]
    Standard,
    /// No place: no profile is used.
    Off,
    /// The file with this path only.
    File(PathBuf),
}

/// The profile file that a process found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ProfileFile {
    /// No profile was found, or none is to be used.
    #[default]
    Missing,
    /// A profile was found in a trusted file and read.
    Found {
        /// Path of the file, as shown in messages.
        path: String,
        /// Text of the file.
        text: String,
    },
    /// A file was found that cannot be read or trusted, or the file that the user named does not exist. The text has the path and the
    /// reason.
    Refused(String),
}

/// Returns the path of the user's profile, or `None` if no home directory is known.
fn users() -> Option<PathBuf> {
    let config = variable("XDG_CONFIG_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let config = config.or_else(|| Some(Path::new(&variable("HOME")?).join(".config")))?;
    Some(config.join("bruckner/profile.toml"))
}

impl ProfileFile {
    /// Finds and reads the profile file of this process.
    pub fn find(place: &ProfileSource) -> ProfileFile {
        // SAFETY: `geteuid` always succeeds.
        let me = unsafe { libc::geteuid() };
        let (named, places) = match place {
            ProfileSource::Off => return ProfileFile::Missing,
            ProfileSource::File(path) => (true, vec![(path.clone(), vec![0, me])]),
            ProfileSource::Standard => {
                let users = users().map(|path| (path, vec![0, me]));
                (false, [Some((ADMINISTRATORS.into(), vec![0])), users].into_iter().flatten().collect())
            }
        };
        for (path, trusted) in places {
            let shown = path.display();
            match files::read(&path, &trusted, MAX_BYTES as u64) {
                Ok(Some(text)) => return ProfileFile::Found { path: shown.to_string(), text },
                Ok(None) if named => return ProfileFile::Refused(format!("{shown}: there is no such file")),
                Ok(None) => {}
                Err(why) => return ProfileFile::Refused(format!("{shown} {why}")),
            }
        }
        ProfileFile::Missing
    }

    /// Encodes the profile file as text that rank 0 sends to all ranks; [`ProfileFile::of_text`] decodes it.
    pub fn to_text(&self) -> String {
        match self {
            ProfileFile::Missing => String::new(),
            ProfileFile::Found { path, text } => format!("{}\n{text}", path.replace('\n', " ")),
            ProfileFile::Refused(why) => format!("!{why}"),
        }
    }

    /// Decodes the text that [`ProfileFile::to_text`] wrote.
    pub fn of_text(text: &str) -> ProfileFile {
        match (text.strip_prefix('!'), text.split_once('\n')) {
            (Some(why), _) => ProfileFile::Refused(why.to_owned()),
            (None, Some((path, text))) => ProfileFile::Found { path: path.to_owned(), text: text.to_owned() },
            (None, None) => ProfileFile::Missing,
        }
    }

    /// Parses the profile, if one was found, and adds complaints about the file and its content to `complaints`.
    pub fn read(&self, complaints: &mut Vec<String>) -> Option<Profile> {
        let (path, text) = match self {
            ProfileFile::Missing => return None,
            ProfileFile::Found { path, text } => (path, text),
            ProfileFile::Refused(why) => {
                complaints.push(format!("profile {why}"));
                return None;
            }
        };
        match Profile::read(text) {
            Ok((profile, dropped)) => {
                complaints.extend(dropped.into_iter().map(|line| format!("{path}, {line}; this entry is ignored")));
                Some(profile)
            }
            Err(why) => {
                complaints.push(format!("{path}, {why}; the profile is not used"));
                None
            }
        }
    }

    /// Returns what is known about the machine with the MPI named `mpi`: from the profile, or if there is none from the default machine
    /// model.
    pub fn knowledge(&self, mpi: &str, complaints: &mut Vec<String>) -> Knowledge {
        let Some(profile) = self.read(complaints) else { return Knowledge::defaults(Vendor::of(mpi)) };
        let (knowledge, why) = profile.knowledge(mpi);
        complaints.extend(why);
        knowledge
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_that_others_could_have_made_are_refused() {
        let directory = std::env::temp_dir().join(format!("bruckner-profile-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let at = |name: &str| directory.join(name);
        let found = |name: &str| ProfileFile::find(&ProfileSource::File(at(name)));
        let refused = |name: &str, why: &str| {
            let ProfileFile::Refused(said) = found(name) else { panic!("{name} is read") };
            assert!(said.ends_with(why), "{said}");
        };
        refused("none", ": there is no such file");
        std::fs::write(at("good"), "name = 1").unwrap();
        std::fs::set_permissions(at("good"), std::fs::Permissions::from_mode(0o644)).unwrap();
        let path = at("good").display().to_string();
        assert_eq!(found("good"), ProfileFile::Found { path, text: "name = 1".into() });
        std::os::unix::fs::symlink(at("good"), at("link")).unwrap();
        refused("link", "is not read: it is a symbolic link");
        std::fs::write(at("open"), "").unwrap();
        std::fs::set_permissions(at("open"), std::fs::Permissions::from_mode(0o666)).unwrap();
        refused("open", "other users may write to it (chmod go-w)");
        let huge = std::fs::File::create(at("huge")).unwrap();
        huge.set_len(1 << 40).unwrap();
        huge.set_permissions(std::fs::Permissions::from_mode(0o644)).unwrap();
        refused("huge", "more than 1048576");
        std::fs::remove_dir_all(directory).unwrap();
        assert_eq!(ProfileFile::find(&ProfileSource::Off), ProfileFile::Missing);
    }

    #[test]
    fn all_ranks_read_what_rank_0_found() {
        let found = |path: &str, text: &str| ProfileFile::Found { path: path.into(), text: text.into() };
        for file in [
            ProfileFile::Missing,
            ProfileFile::Refused("p is not read: it is not a regular file".into()),
            found("p", ""),
            found("/a b/p.toml", "name = 'm'\nabout = ''\n"),
        ] {
            assert_eq!(ProfileFile::of_text(&file.to_text()), file);
        }
        assert_eq!(ProfileFile::of_text(&found("a\nb", "x").to_text()), found("a b", "x"));
    }

    #[test]
    fn a_profile_that_is_wrong_leaves_the_default_machine_model() {
        let of = |text: &str| {
            let mut complaints = Vec::new();
            let known = ProfileFile::of_text(text).knowledge("MPICH 5.0.0", &mut complaints);
            assert_eq!(known, Knowledge::defaults(Vendor::Mpich));
            complaints.join("; ")
        };
        assert_eq!(of(""), "");
        assert_eq!(of("!p is not read: it is not a regular file"), "profile p is not read: it is not a regular file");
        assert_eq!(
            of("p\nname ="),
            "p, line 1: string values must be quoted, expected literal string; the profile is not used"
        );
    }
}
