//! How a rank waits: by spinning, calling MPI, yielding the core, and sleeping.
//!
//! A waiting rank must let others proceed: the awaited rank, which may need this core; MPI, because the awaited rank may itself wait for a
//! message from this rank; and the rest of the machine, if the wait is long.
//!
//! On an oversubscribed node, waiting ranks share a core, so the time that one of them spends delays the rank that could proceed. Checking
//! a flag takes nanoseconds, but calling MPI takes microseconds if MPI asks the kernel for messages. So on such a node, a rank that waits
//! for a flag yields after every check, and spends only a small share of its time in MPI.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How a rank waits, depending on whether ranks share cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backoff {
    /// Each rank has a core of its own.
    CoreEach,
    /// Ranks share cores (oversubscription): the awaited rank may need this core.
    SharedCores,
}

/// Number of checks before the first call into MPI or yield; `SPINS_SHARED` is the number if ranks share cores.
const SPINS: u32 = 300;
const SPINS_SHARED: u32 = 10;

/// Number of calls into MPI before the rank also yields its core, if each rank has a core of its own.
const CALLS: u32 = 400;

/// Number of checks before a waiting rank sleeps for the first time.
const YIELDS: u32 = 20_000;

/// Sleeping time between two checks.
const NAP: Duration = Duration::from_micros(50);

/// If ranks share cores, the pause before the next call into MPI is `SHARE` times as long as the last call took, but at most
/// `LONGEST_PAUSE`. It is zero if the last call found a message to work on.
const SHARE: u32 = 16;

/// A call into MPI that takes more than `BUSY` times as long as an idle call, which finds nothing to do, is assumed to have found a
/// message.
const BUSY: u32 = 4;
/// Bounds for the estimated duration of an idle call into MPI, which finds nothing to do.
const SHORTEST_IDLE: Duration = Duration::from_nanos(200);
const LONGEST_IDLE: Duration = Duration::from_micros(10);

thread_local! {
    /// Estimated duration of an idle call into MPI, which finds nothing to do: the duration of the shortest recent call.
    static IDLE: Cell<Duration> = const { Cell::new(LONGEST_IDLE) };
}
const FIRST_PAUSE: Duration = Duration::from_micros(5);
const LONGEST_PAUSE: Duration = Duration::from_micros(100);

impl Backoff {
    /// Waits until `done` returns true; `done` must be cheap. Spins briefly, then also calls `progress` repeatedly so that MPI proceeds,
    /// then also yields the core, and finally sleeps for 50 µs between checks.
    pub fn wait(self, mut done: impl FnMut() -> bool, mut progress: impl FnMut()) {
        let spins = match self {
            Backoff::CoreEach => SPINS,
            Backoff::SharedCores => SPINS_SHARED,
        };
        for _ in 0..spins {
            if done() {
                return;
            }
            std::hint::spin_loop();
        }
        match self {
            Backoff::CoreEach => self.wait_for(|| {
                done() || {
                    progress();
                    false
                }
            }),
            Backoff::SharedCores => {
                let mut pause = Pause::new();
                self.wait_for(|| {
                    done() || {
                        pause.between(&mut progress);
                        false
                    }
                });
            }
        }
    }

    /// Waits until `done` returns true, if `done` itself calls MPI to make progress.
    pub fn wait_for(self, mut done: impl FnMut() -> bool) {
        let calls = match self {
            Backoff::CoreEach => CALLS,
            Backoff::SharedCores => 0,
        };
        let mut looks = 0u32;
        while !done() {
            looks = looks.saturating_add(1);
            if looks > YIELDS {
                std::thread::sleep(NAP);
            } else if looks > calls {
                std::thread::yield_now();
            }
        }
    }
}

/// Pause between two calls into MPI.
struct Pause {
    since: Instant,
    length: Duration,
}

impl Pause {
    fn new() -> Pause {
        Pause { since: Instant::now(), length: FIRST_PAUSE }
    }

    /// Makes the call into MPI if the pause is over, and starts the next pause.
    fn between(&mut self, call: impl FnOnce()) {
        let begun = Instant::now();
        if self.is_over(begun) {
            call();
            let ended = Instant::now();
            let idle = idle_after(IDLE.get(), ended - begun);
            IDLE.set(idle);
            *self = Pause::after(begun, ended, idle);
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        now - self.since >= self.length
    }

    /// Returns the pause after a call from `begun` to `ended`; `idle` is the estimated duration of a call that finds nothing to do.
    fn after(begun: Instant, ended: Instant, idle: Duration) -> Pause {
        let took = ended - begun;
        let length = if took > idle * BUSY { Duration::ZERO } else { (took * SHARE).min(LONGEST_PAUSE) };
        Pause { since: ended, length }
    }
}

/// Returns the new estimate for the duration of an idle call into MPI, after a call of duration `took`. The estimate falls to `took` at
/// once, but rises by at most 1/64.
fn idle_after(idle: Duration, took: Duration) -> Duration {
    took.min(idle + idle / 64).clamp(SHORTEST_IDLE, LONGEST_IDLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until the wait has called MPI `times` times.
    fn until_called(backoff: Backoff, times: u32) {
        let calls = std::cell::Cell::new(0);
        backoff.wait(|| calls.get() >= times, || calls.set(calls.get() + 1));
    }

    #[test]
    fn mpi_is_called_again_and_again() {
        until_called(Backoff::CoreEach, 1000);
        until_called(Backoff::SharedCores, 1000);
    }

    #[test]
    fn on_shared_cores_mpi_gets_a_small_share_of_the_time() {
        let (start, micros) = (Instant::now(), Duration::from_micros);
        let pause = Pause::after(start, start + micros(3), micros(2));
        assert!(!pause.is_over(start + micros(3 + 47)));
        assert!(pause.is_over(start + micros(3 + 48)));
        let pause = Pause::after(start, start + micros(9), micros(9));
        assert!(!pause.is_over(start + micros(9 + 99)));
        assert!(pause.is_over(start + micros(9 + 100)));
    }

    #[test]
    fn mpi_is_called_again_at_once_while_it_finds_something_to_do() {
        let (start, micros) = (Instant::now(), Duration::from_micros);
        assert!(Pause::after(start, start + micros(80), micros(2)).is_over(start + micros(80)));
        // Even after many long calls, a long call is not taken for an idle one, which finds nothing to do.
        let mut idle = micros(2);
        for _ in 0..10_000 {
            idle = idle_after(idle, micros(80));
        }
        assert!(Pause::after(start, start + micros(80), idle).is_over(start + micros(80)));
        assert_eq!(idle_after(idle, micros(3)), micros(3));
    }
}
