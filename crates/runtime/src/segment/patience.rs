//! How to wait for something that is no message.

use std::time::Duration;

/// How long a rank spins before it lets MPI, and then others, go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    spins: u32,
    calls: u32,
}

/// The longest sleep between two looks.
const NAP: Duration = Duration::from_micros(50);

/// Yields before the first sleep.
const YIELDS: u32 = 20_000;

impl Patience {
    /// For ranks that have a core each.
    pub const CORE_EACH: Patience = Patience { spins: 300, calls: 400 };

    /// For ranks that share cores: whoever is awaited may need this very core.
    pub const SHARED_CORES: Patience = Patience { spins: 10, calls: 1 };

    /// Waits until `done` says so. Spins a little; then calls `progress` between looks, because the awaited rank may itself
    /// wait for a message of ours; then also yields the core; at last sleeps, never longer than 50 µs at a time.
    pub fn wait(self, mut done: impl FnMut() -> bool, mut progress: impl FnMut()) {
        for _ in 0..self.spins {
            if done() {
                return;
            }
            std::hint::spin_loop();
        }
        let mut looks = 0u32;
        while !done() {
            progress();
            looks = looks.saturating_add(1);
            if looks > YIELDS {
                std::thread::sleep(NAP);
            } else if looks > self.calls {
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_makes_progress_again_and_again() {
        let mut calls = 0;
        let mut looks = 0;
        Patience::SHARED_CORES.wait(
            || {
                looks += 1;
                looks > 1000
            },
            || calls += 1,
        );
        assert_eq!(calls, 990);
    }
}
