//! TAP devices.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result, bail};

/// Opens a TAP device in the network namespace of this process; the device can be moved to another.
pub(crate) fn tap(name: &str) -> Result<File> {
    let device = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun");
    let device = device.context("/dev/net/tun: emulated nodes need root, and TUN/TAP in the kernel")?;
    // `struct ifreq`: a name of 16 bytes, then flags.
    let mut request = [0u8; 40];
    request[..name.len().min(15)].copy_from_slice(&name.as_bytes()[..name.len().min(15)]);
    let flags = (libc::IFF_TAP | libc::IFF_NO_PI) as u16;
    request[16..18].copy_from_slice(&flags.to_ne_bytes());
    // SAFETY: the request is as large as `ifreq`, and lives until the call returns.
    if unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, request.as_mut_ptr()) } != 0 {
        bail!("TUNSETIFF {name}: {}", std::io::Error::last_os_error());
    }
    Ok(device)
}
