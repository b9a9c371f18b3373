//! Interrupts, asked about at a time that suits: what was put up is taken down first.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on an interrupt does not end this process; programs that it starts hear of it as always.
pub(crate) fn listen() -> Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, ASKED.get_or_init(Arc::default).clone())?;
    }
    Ok(())
}

/// Whether there was one.
pub(crate) fn was_asked() -> bool {
    ASKED.get().is_some_and(|asked| asked.load(Ordering::Relaxed))
}
