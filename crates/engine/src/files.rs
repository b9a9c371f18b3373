//! Files of others, read and written with care.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// What a file says that one of these users owns and nobody else may change; nothing if it is not there.
pub(crate) fn read(path: &Path, trusted: &[u32], most: u64) -> Result<Option<String>, String> {
    // What is looked at is what is read: one descriptor, and no link in its place.
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
        return Err("is not read: it is no file".into());
    }
    if !trusted.contains(&about.uid()) {
        return Err(format!("is not read: it belongs to user {}", about.uid()));
    }
    if about.mode() & 0o022 != 0 {
        return Err("is not read: others may write to it".into());
    }
    if about.len() > most {
        return Err(format!("is not read: it has {} bytes, more than {most}", about.len()));
    }
    let mut text = String::new();
    // It may grow meanwhile.
    let read = file.take(most + 1).read_to_string(&mut text);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    match text.len() as u64 <= most {
        true => Ok(Some(text)),
        false => Err(format!("is not read: it has more than {most} bytes")),
    }
}

/// Opens a file to write a report to: a new one, or one that is there, but not what a link points to.
pub(crate) fn create(path: &Path) -> std::io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().write(true).create(true).truncate(false).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "it is no file"));
    }
    file.set_len(0)?;
    Ok(file)
}
