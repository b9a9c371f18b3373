//! Communicators of threads. Their ranks have a single operation, the *meeting*: each rank contributes bytes and receives the
//! contributions of all ranks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bruckner_mpi::Handle;
use bruckner_runtime::threads::Cluster;

/// Panic message of a rank that waited in vain because another rank has failed.
pub(super) const GIVEN_UP: &str = "another rank has failed";

/// State of a communicator.
struct Comm {
    /// Ranks of the members in the world communicator.
    members: Arc<[u32]>,
    /// Unique number of the communicator, needed because handles are reused.
    serial: u64,
    /// Number of members that have freed the communicator.
    freed: usize,
    /// Number of meetings to which each member has contributed.
    met: Vec<u64>,
    cluster: Arc<Cluster>,
}

/// A meeting on a communicator: the contributions made so far, and the number of members that have received all contributions.
struct Exchange {
    brought: Vec<Option<Vec<u8>>>,
    taken: usize,
}

#[derive(Default)]
struct State {
    comms: HashMap<Handle, Comm>,
    meetings: HashMap<(u64, u64), Exchange>,
}

/// Identifier of a meeting to which a member has contributed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    serial: u64,
    number: u64,
}

/// All communicators of the ranks of a test, and the meetings in progress on them.
pub(super) struct World {
    state: Mutex<State>,
    changed: Condvar,
    given_up: AtomicBool,
    serials: AtomicU64,
    deadline: Instant,
}

impl World {
    /// Handle of the world communicator.
    pub(super) const WORLD: Handle = 1;

    /// Creates a world of `size` ranks, all of which must finish within `limit`.
    pub(super) fn new(size: u32, limit: Duration) -> Arc<World> {
        let meetings = Arc::new(World {
            state: Mutex::default(),
            changed: Condvar::new(),
            given_up: AtomicBool::new(false),
            serials: AtomicU64::new(0),
            deadline: Instant::now() + limit,
        });
        let world = meetings.create_comm(&(0..size).collect::<Vec<_>>());
        assert_eq!(world, World::WORLD);
        meetings
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a communicator of the ranks `members` of the world communicator. It gets the lowest free handle, so that handles are soon
    /// reused.
    pub(super) fn create_comm(&self, members: &[u32]) -> Handle {
        let mut state = self.state();
        let handle = (1..).find(|handle| !state.comms.contains_key(handle)).expect("there are many numbers");
        let comm = Comm {
            members: members.into(),
            serial: self.serials.fetch_add(1, Ordering::Relaxed),
            freed: 0,
            met: vec![0; members.len()],
            cluster: Cluster::new(),
        };
        state.comms.insert(handle, comm);
        handle
    }

    /// Frees a communicator on one member; the last member removes it.
    pub(super) fn free_comm(&self, comm: Handle) {
        let mut state = self.state();
        let found = state.comms.get_mut(&comm).expect("a communicator");
        found.freed += 1;
        if found.freed == found.members.len() {
            state.comms.remove(&comm);
        }
    }

    /// Returns the ranks of a communicator's members in the world communicator.
    pub(super) fn members(&self, comm: Handle) -> Arc<[u32]> {
        self.state().comms.get(&comm).expect("a communicator").members.clone()
    }

    /// Returns the message channels of a communicator.
    pub(super) fn cluster(&self, comm: Handle) -> Arc<Cluster> {
        self.state().comms.get(&comm).expect("a communicator").cluster.clone()
    }

    /// Contributes bytes to the next meeting of `member` on a communicator, without waiting.
    pub(super) fn contribute(&self, comm: Handle, member: u32, mine: Vec<u8>) -> Ticket {
        let mut state = self.state();
        let found = state.comms.get_mut(&comm).expect("a communicator");
        let at = found.members.iter().position(|other| *other == member).expect("a member");
        let (size, serial, number) = (found.members.len(), found.serial, found.met[at]);
        found.met[at] += 1;
        let empty = || Exchange { brought: vec![None; size], taken: 0 };
        state.meetings.entry((serial, number)).or_insert_with(empty).brought[at] = Some(mine);
        self.changed.notify_all();
        Ticket { serial, number }
    }

    /// Returns the contributions of all members to a meeting, or `None` if some are missing.
    fn take(state: &mut State, ticket: Ticket) -> Option<Vec<Vec<u8>>> {
        let key = (ticket.serial, ticket.number);
        let meeting = state.meetings.get_mut(&key).expect("a meeting");
        let all: Vec<Vec<u8>> = meeting.brought.iter().cloned().collect::<Option<_>>()?;
        meeting.taken += 1;
        if meeting.taken == all.len() {
            state.meetings.remove(&key);
        }
        Some(all)
    }

    /// Returns the contributions of all members to a meeting, or `None` if some are missing. Panics if a rank has failed.
    pub(super) fn try_take(&self, ticket: Ticket) -> Option<Vec<Vec<u8>>> {
        self.panic_if_aborted();
        World::take(&mut self.state(), ticket)
    }

    /// Contributes bytes to a meeting, and waits for and returns the contributions of all members.
    pub(super) fn allgather(&self, comm: Handle, member: u32, mine: Vec<u8>) -> Vec<Vec<u8>> {
        let ticket = self.contribute(comm, member, mine);
        let mut state = self.state();
        loop {
            if let Some(all) = World::take(&mut state, ticket) {
                return all;
            }
            let nap = Duration::from_millis(20);
            state = self.changed.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner).0;
            self.panic_if_aborted();
        }
    }

    /// Records that a rank has failed and wakes the waiting ranks, which then panic.
    pub(super) fn abort(&self) {
        self.given_up.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Panics if a rank has failed or the deadline has passed. Waiting ranks call this repeatedly.
    pub(super) fn panic_if_aborted(&self) {
        if self.given_up.load(Ordering::Acquire) {
            std::panic::panic_any(GIVEN_UP);
        }
        assert!(Instant::now() < self.deadline, "the ranks exceeded the time limit: they hang");
    }
}
