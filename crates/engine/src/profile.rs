//! The profile of the machine: found by rank 0, given to all.

use std::path::{Path, PathBuf};

use bruckner_choose::{Knowledge, LONGEST, Profile, Vendor};
use bruckner_mpi::variable;

use crate::files;

/// The administrator's profile, which comes before the user's.
const ADMINISTRATORS: &str = "/etc/bruckner/profile.toml";

/// Where to look for a profile.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Profiles {
    /// In the administrator's place, then in the user's.
    #[default]
    Usual,
    /// Nowhere.
    Off,
    /// Here.
    File(PathBuf),
}

/// The user's place.
fn users() -> Option<PathBuf> {
    let config = variable("XDG_CONFIG_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let config = config.or_else(|| Some(Path::new(&variable("HOME")?).join(".config")))?;
    Some(config.join("bruckner/profile.toml"))
}

/// What this process finds: nothing, or a path, a line's end and what the file there says, or an exclamation mark and what is wrong.
pub(crate) fn find(profiles: &Profiles) -> String {
    // SAFETY: always succeeds.
    let me = unsafe { libc::geteuid() };
    let (named, places) = match profiles {
        Profiles::Off => return String::new(),
        Profiles::File(path) => (true, vec![(path.clone(), vec![0, me])]),
        Profiles::Usual => {
            let users = users().map(|path| (path, vec![0, me]));
            (false, [Some((ADMINISTRATORS.into(), vec![0])), users].into_iter().flatten().collect())
        }
    };
    for (path, trusted) in places {
        let shown = path.display();
        match files::read(&path, &trusted, LONGEST as u64) {
            Ok(Some(text)) => return format!("{shown}\n{text}"),
            Ok(None) if named => return format!("!{shown}: there is no such file"),
            Ok(None) => {}
            Err(why) => return format!("!{shown} {why}"),
        }
    }
    String::new()
}

/// The profile of a finding, if it is one; what is wrong with it is told.
pub(crate) fn read(found: &str, complaints: &mut Vec<String>) -> Option<Profile> {
    if let Some(why) = found.strip_prefix('!') {
        complaints.push(format!("the profile {why}"));
        return None;
    }
    let (path, text) = found.split_once('\n')?;
    match Profile::read(text) {
        Ok((profile, dropped)) => {
            complaints.extend(dropped.into_iter().map(|line| format!("{path}, {line}: not used")));
            Some(profile)
        }
        Err(why) => {
            complaints.push(format!("{path}, {why}: the profile is not used"));
            None
        }
    }
}

/// What a finding comes to on an MPI of this name.
pub(crate) fn knowledge(found: &str, mpi: &str, complaints: &mut Vec<String>) -> Knowledge {
    let Some(profile) = read(found, complaints) else { return Knowledge::nominal(Vendor::of(mpi)) };
    let (knowledge, why) = profile.knowledge(mpi);
    complaints.extend(why);
    knowledge
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
        let found = |name: &str| find(&Profiles::File(at(name)));
        assert!(found("none").ends_with(": there is no such file"));
        std::fs::write(at("good"), "name = 1").unwrap();
        std::fs::set_permissions(at("good"), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(found("good").ends_with("good\nname = 1"));
        std::os::unix::fs::symlink(at("good"), at("link")).unwrap();
        assert!(found("link").ends_with("is not read: it is a symbolic link"));
        std::fs::write(at("open"), "").unwrap();
        std::fs::set_permissions(at("open"), std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(found("open").ends_with("others may write to it"));
        let huge = std::fs::File::create(at("huge")).unwrap();
        huge.set_len(1 << 40).unwrap();
        huge.set_permissions(std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(found("huge").ends_with("more than 1048576"), "{}", found("huge"));
        std::fs::remove_dir_all(directory).unwrap();
        assert_eq!(find(&Profiles::Off), "");
    }

    #[test]
    fn a_profile_that_is_wrong_leaves_what_is_usual() {
        let of = |found: &str| {
            let mut complaints = Vec::new();
            let known = knowledge(found, "MPICH 5.0.0", &mut complaints);
            assert_eq!(known, Knowledge::nominal(Vendor::Mpich));
            complaints.join("; ")
        };
        assert_eq!(of(""), "");
        assert_eq!(of("!p is not read: it is no file"), "the profile p is not read: it is no file");
        assert_eq!(
            of("p\nname ="),
            "p, line 1: string values must be quoted, expected literal string: the profile is not used"
        );
    }
}
