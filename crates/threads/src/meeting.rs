//! Communicators, and the one thing that their ranks do together: everybody brings something and takes what all brought.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bruckner_mpi::Handle;
use bruckner_runtime::threads::Cluster;

/// The panic message of a rank that waited for one that failed.
pub(super) const GIVEN_UP: &str = "another rank has failed";

/// One communicator.
struct Comm {
    /// Its members' numbers in the world.
    members: Arc<[u32]>,
    /// It has a number that no other ever had, because handles come again.
    serial: u64,
    /// How many members have freed it.
    freed: usize,
    /// How many meetings each member has been at.
    met: Vec<u64>,
    cluster: Arc<Cluster>,
}

/// The contributions of members so far, and how many members have taken them.
struct Meeting {
    brought: Vec<Option<Vec<u8>>>,
    taken: usize,
}

#[derive(Default)]
struct Books {
    comms: HashMap<Handle, Comm>,
    meetings: HashMap<(u64, u64), Meeting>,
}

/// Which meeting a member is at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    serial: u64,
    number: u64,
}

/// All communicators of a world of threads.
pub(super) struct Meetings {
    books: Mutex<Books>,
    changed: Condvar,
    given_up: AtomicBool,
    serials: AtomicU64,
    deadline: Instant,
}

impl Meetings {
    /// The handle of the world.
    pub(super) const WORLD: Handle = 1;

    /// A world of so many ranks, which ends after some time.
    pub(super) fn new(size: u32, limit: Duration) -> Arc<Meetings> {
        let meetings = Arc::new(Meetings {
            books: Mutex::default(),
            changed: Condvar::new(),
            given_up: AtomicBool::new(false),
            serials: AtomicU64::new(0),
            deadline: Instant::now() + limit,
        });
        let world = meetings.open(&(0..size).collect::<Vec<_>>());
        assert_eq!(world, Meetings::WORLD);
        meetings
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A communicator of some ranks, under the lowest handle that is free: handles come again soon.
    pub(super) fn open(&self, members: &[u32]) -> Handle {
        let mut books = self.books();
        let handle = (1..).find(|handle| !books.comms.contains_key(handle)).expect("there are many numbers");
        let comm = Comm {
            members: members.into(),
            serial: self.serials.fetch_add(1, Ordering::Relaxed),
            freed: 0,
            met: vec![0; members.len()],
            cluster: Cluster::new(),
        };
        books.comms.insert(handle, comm);
        handle
    }

    /// One member frees a communicator.
    pub(super) fn close(&self, comm: Handle) {
        let mut books = self.books();
        let found = books.comms.get_mut(&comm).expect("a communicator");
        found.freed += 1;
        if found.freed == found.members.len() {
            books.comms.remove(&comm);
        }
    }

    /// The members of a communicator.
    pub(super) fn members(&self, comm: Handle) -> Arc<[u32]> {
        self.books().comms.get(&comm).expect("a communicator").members.clone()
    }

    /// The messages on a communicator.
    pub(super) fn cluster(&self, comm: Handle) -> Arc<Cluster> {
        self.books().comms.get(&comm).expect("a communicator").cluster.clone()
    }

    /// A member brings something to the communicator's next meeting.
    pub(super) fn bring(&self, comm: Handle, member: u32, mine: Vec<u8>) -> Ticket {
        let mut books = self.books();
        let found = books.comms.get_mut(&comm).expect("a communicator");
        let at = found.members.iter().position(|other| *other == member).expect("a member");
        let (size, serial, number) = (found.members.len(), found.serial, found.met[at]);
        found.met[at] += 1;
        let empty = || Meeting { brought: vec![None; size], taken: 0 };
        books.meetings.entry((serial, number)).or_insert_with(empty).brought[at] = Some(mine);
        self.changed.notify_all();
        Ticket { serial, number }
    }

    /// The contributions of all, once all are there.
    fn take(books: &mut Books, ticket: Ticket) -> Option<Vec<Vec<u8>>> {
        let key = (ticket.serial, ticket.number);
        let meeting = books.meetings.get_mut(&key).expect("a meeting");
        let all: Vec<Vec<u8>> = meeting.brought.iter().cloned().collect::<Option<_>>()?;
        meeting.taken += 1;
        if meeting.taken == all.len() {
            books.meetings.remove(&key);
        }
        Some(all)
    }

    /// The same, without waiting.
    pub(super) fn look(&self, ticket: Ticket) -> Option<Vec<Vec<u8>>> {
        self.still_waiting();
        Meetings::take(&mut self.books(), ticket)
    }

    /// Brings something, and waits for what all have brought.
    pub(super) fn meet(&self, comm: Handle, member: u32, mine: Vec<u8>) -> Vec<Vec<u8>> {
        let ticket = self.bring(comm, member, mine);
        let mut books = self.books();
        loop {
            if let Some(all) = Meetings::take(&mut books, ticket) {
                return all;
            }
            let nap = Duration::from_millis(20);
            books = self.changed.wait_timeout(books, nap).unwrap_or_else(PoisonError::into_inner).0;
            self.still_waiting();
        }
    }

    /// A rank has failed: whoever waits need not any more.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Called by whoever waits, again and again.
    pub(super) fn still_waiting(&self) {
        if self.given_up.load(Ordering::Acquire) {
            std::panic::panic_any(GIVEN_UP);
        }
        assert!(Instant::now() < self.deadline, "ranks hang");
    }
}
