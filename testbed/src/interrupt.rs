//! Records interrupts (SIGINT, SIGTERM, SIGHUP), so that emulated nodes can be removed before this process ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Records interrupts from now on instead of ending this process; programs that it starts receive them as usual.
pub(crate) fn listen() -> Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, ASKED.get_or_init(Arc::default).clone())?;
    }
    Ok(())
}

/// Whether there was an interrupt.
pub(crate) fn was_interrupted() -> bool {
    ASKED.get().is_some_and(|asked| asked.load(Ordering::Relaxed))
}
