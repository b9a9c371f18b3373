//! Reads settings and profile files only if they can be trusted, and creates report files without overwriting any.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Reads a text file that is owned by one of the users `trusted` and that nobody else may write to. Returns `None` if there is no such
/// file, and an error if it has more than `most` bytes.
pub fn read(path: &Path, trusted: &[u32], most: u64) -> Result<Option<String>, String> {
    // The checks and the reading use the same descriptor, and links are refused, so the file cannot be exchanged in between.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            return Err("is not read: it is a symbolic link".into());
        }
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    let about = file.metadata().map_err(|error| format!("cannot be read: {error}"))?;
    if !about.is_file() {
        return Err("is not read: it is not a regular file".into());
    }
    if !trusted.contains(&about.uid()) {
        return Err(format!("is not read: it belongs to user {}", about.uid()));
    }
    if about.mode() & 0o022 != 0 {
        return Err("is not read: other users may write to it (chmod go-w)".into());
    }
    if about.len() > most {
        return Err(format!("is not read: it has {} bytes, more than {most}", about.len()));
    }
    let mut text = String::new();
    // The file may have grown since its size was checked.
    let read = file.take(most + 1).read_to_string(&mut text);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    match text.len() as u64 <= most {
        true => Ok(Some(text)),
        false => Err(format!("is not read: it has more than {most} bytes")),
    }
}

/// Replaces the placeholders in a file name: `%j` by the job ID, `%h` by the name of this host and `%p` by the process ID.
pub fn expand_pattern(pattern: &str) -> PathBuf {
    const JOBS: [&str; 5] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "JOB_ID"];
    let mut name = String::new();
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '%' => match letters.next() {
                Some('j') => {
                    let job = JOBS.iter().find_map(|job| std::env::var(job).ok());
                    name.push_str(&as_part(&job.unwrap_or_else(|| "nojob".into())));
                }
                Some('h') => name.push_str(&as_part(&host())),
                Some('p') => name.push_str(&std::process::id().to_string()),
                Some('%') | None => name.push('%'),
                Some(other) => name.extend(['%', other]),
            },
            letter => name.push(letter),
        }
    }
    name.into()
}

/// Replaces characters that are unsuitable for file names by `_`.
fn as_part(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    text.chars().map(|letter| if is_plain(letter) { letter } else { '_' }).collect()
}

/// Returns the name of this host.
fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Upper limit of the number that [`create_new`] adds to a file name.
const MOST: u32 = 10_000;

/// Creates a file for a report. If a file or link with this name exists, it stays as it is, and the new file gets a numbered name, which
/// is returned as well.
pub fn create_new(path: &Path) -> std::io::Result<(File, Option<PathBuf>)> {
    let mut other = None;
    for number in 1..MOST {
        match OpenOptions::new().write(true).create_new(true).open(other.as_deref().unwrap_or(path)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => other = Some(with_number(path, number)),
            file => return Ok((file?, other)),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Inserts a number before the extension of a file name.
pub(crate) fn with_number(path: &Path, number: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    if let Some(ending) = path.extension() {
        name.push(".");
        name.push(ending);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_filled_in() {
        let me = std::process::id();
        assert_eq!(expand_pattern("a/%p.json"), PathBuf::from(format!("a/{me}.json")));
        assert_eq!(expand_pattern("%%-%x-100%"), PathBuf::from("%-%x-100%"));
        assert_eq!(expand_pattern("%h.json"), PathBuf::from(format!("{}.json", as_part(&host()))));
        assert_eq!(as_part("12[3].host/../x"), "12_3_.host_.._x");
    }
}
