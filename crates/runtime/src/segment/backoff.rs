//! How to wait.
//!
//! Whoever waits must let three others go on: whoever it waits for, which may need this very core; MPI, because the awaited
//! rank may itself wait for a message of ours; and the machine, if it takes long.
//!
//! On a crowded node all waiting ranks take turns on a core, so whatever one of them does in its turn, the one that could go
//! on has to wait for. A look at a flag takes nanoseconds, a call into MPI microseconds where it asks the kernel for
//! messages. So there a rank that waits for a flag yields at every look, and spends a small share of its time in MPI.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How a rank waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backoff {
    /// For ranks that have a core each.
    CoreEach,
    /// For ranks that share cores: whoever is awaited may need this very core.
    SharedCores,
}

/// Looks before anybody else is let go on.
const SPINS: u32 = 300;
const SPINS_SHARED: u32 = 10;

/// Calls into MPI before the core is yielded, where each rank has its own.
const CALLS: u32 = 400;

/// Yields before the first sleep.
const YIELDS: u32 = 20_000;

/// The longest sleep between two looks.
const NAP: Duration = Duration::from_micros(50);

/// Where cores are shared, MPI is called when so many times as long has passed as the call before has taken, but never
/// later than after the longest pause; and at once after a call that found something to do.
const SHARE: u32 = 16;

/// A call that takes so many times as long as one that finds nothing has found something.
const BUSY: u32 = 4;
/// The shortest and the longest that a call which finds nothing is taken to last.
const SHORTEST_IDLE: Duration = Duration::from_nanos(200);
const LONGEST_IDLE: Duration = Duration::from_micros(10);

thread_local! {
    /// How long a call into MPI takes that finds nothing to do: the shortest of late.
    static IDLE: Cell<Duration> = const { Cell::new(LONGEST_IDLE) };
}
const FIRST_PAUSE: Duration = Duration::from_micros(5);
const LONGEST_PAUSE: Duration = Duration::from_micros(100);

impl Backoff {
    /// Waits until `done` says so, by a look that costs next to nothing. Spins a little; then lets MPI go on by `progress`,
    /// again and again; then also yields the core; at last sleeps, never longer than 50 µs at a time.
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

    /// Waits until `done` says so, by a look that lets MPI go on, too.
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

/// When MPI is to be called next.
struct Pause {
    since: Instant,
    length: Duration,
}

impl Pause {
    fn new() -> Pause {
        Pause { since: Instant::now(), length: FIRST_PAUSE }
    }

    /// Calls, if it is time.
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

    /// The pause after a call that took from one moment to another, where one that finds nothing takes so long.
    fn after(begun: Instant, ended: Instant, idle: Duration) -> Pause {
        let took = ended - begun;
        let length = if took > idle * BUSY { Duration::ZERO } else { (took * SHARE).min(LONGEST_PAUSE) };
        Pause { since: ended, length }
    }
}

/// How long a call that finds nothing takes, after one more call: at most as long, and little longer than known before.
fn idle_after(idle: Duration, took: Duration) -> Duration {
    took.min(idle + idle / 64).clamp(SHORTEST_IDLE, LONGEST_IDLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until MPI was called so often.
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
        // However long a message takes, its calls are not taken for those that find nothing.
        let mut idle = micros(2);
        for _ in 0..10_000 {
            idle = idle_after(idle, micros(80));
        }
        assert!(Pause::after(start, start + micros(80), idle).is_over(start + micros(80)));
        assert_eq!(idle_after(idle, micros(3)), micros(3));
    }
}
