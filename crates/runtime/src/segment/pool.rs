//! POSIX shared memory of a node, of which each process owns a slice.
//!
//! One object for all processes of a node: created by one, opened by all, and unlinked at once, so that nothing is left
//! behind whatever happens later. It is as large as all slices together but takes no memory: what a process lends out of
//! its slice is reserved first, each share by the process that will touch it first, and an object that cannot be
//! reserved is refused rather than found missing by a bus error.
//!
//! A process maps only what is lent to it: a program that locks its memory (`mlockall`) locks what is mapped, whether it was
//! touched or not, and its limits (`ulimit -l`, `ulimit -v`) count address space that nothing lies behind.
//!
//! A process lends from its own slice only, so that no lock is shared. A lease returns to its owner when all who use it
//! have left: they count themselves out in its first word, which the owner keeps mapped until then.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FallocateFlags, Mode};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::Resource;
use rustix::shm;

/// Why there is no pool.
#[derive(Debug, thiserror::Error)]
#[error("shared memory: {call}: {cause}")]
pub struct PoolError {
    call: &'static str,
    cause: rustix::io::Errno,
}

/// A stretch of the object in this process's memory.
struct Mapping {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: memory that is shared between processes anyway.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &OwnedFd, offset: usize, bytes: usize) -> Option<Mapping> {
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address of the system's choice.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, file, offset as u64) }
                .ok()?;
        // SAFETY: the mapping just made. A core dump need not contain it; refusing that is no harm.
        let _ = unsafe { rustix::mm::madvise(start, bytes, Advice::LinuxDontDump) };
        Some(Mapping { start: start.cast(), bytes })
    }

    /// How many users of a lease have left: its first word.
    fn leavers(&self) -> &AtomicU32 {
        // SAFETY: the first page of a lease, which its owner has reserved.
        unsafe { &*self.start.cast::<AtomicU32>() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our mapping, which nobody uses any more.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.bytes) };
    }
}

/// Part of a slice, in use or on the way back.
struct Lent {
    offset: usize,
    bytes: usize,
    users: u32,
    first_page: Mapping,
}

#[derive(Default)]
struct Books {
    /// Free stretches of the slice, in order.
    free: Vec<(usize, usize)>,
    lent: Vec<Lent>,
}

/// A node's shared memory, as one process sees it.
pub struct Pool {
    slices: u32,
    file: OwnedFd,
    books: Mutex<Books>,
}

/// The unit in which slices are lent.
const PAGE: usize = 4096;

impl Pool {
    /// The most that one process can lend.
    pub const SLICE: usize = 1 << 30;

    /// A name that no other process of this node uses.
    pub fn name() -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let time = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |t| t.subsec_nanos());
        format!("/bruckner-{}-{count}-{time:08x}", std::process::id())
    }

    /// Creates the object under a name, for the one process that does so.
    pub fn create(name: &str, slices: u32, me: u32) -> Result<Pool, PoolError> {
        Pool::is_within_limits(slices)?;
        let flags = shm::OFlags::CREATE | shm::OFlags::EXCL | shm::OFlags::RDWR;
        let file = open(name, flags)?;
        let pool = rustix::fs::ftruncate(&file, slices as u64 * Pool::SLICE as u64)
            .map_err(|cause| PoolError { call: "ftruncate", cause })
            .and_then(|()| Pool::new(file, slices, me));
        if pool.is_err() {
            Pool::unlink(name);
        }
        pool
    }

    /// Opens the object that another process made.
    pub fn attach(name: &str, slices: u32, me: u32) -> Result<Pool, PoolError> {
        Pool::new(open(name, shm::OFlags::RDWR)?, slices, me)
    }

    /// Takes the name away; the memory stays for those who have it.
    pub fn unlink(name: &str) {
        if let Ok(name) = CString::new(name) {
            // Gone already is as good.
            let _ = shm::unlink(name.as_c_str());
        }
    }

    /// Whether the limit of a file's size leaves room: beyond it the system would end the process.
    fn is_within_limits(slices: u32) -> Result<(), PoolError> {
        let bytes = u64::from(slices) * Pool::SLICE as u64;
        match rustix::process::getrlimit(Resource::Fsize).current.is_none_or(|limit| bytes <= limit) {
            true => Ok(()),
            false => Err(PoolError { call: "getrlimit", cause: Errno::NOMEM }),
        }
    }

    fn new(file: OwnedFd, slices: u32, me: u32) -> Result<Pool, PoolError> {
        Pool::is_within_limits(slices)?;
        let own = me as usize * Pool::SLICE;
        let books = Mutex::new(Books { free: vec![(own, Pool::SLICE)], lent: Vec::new() });
        Ok(Pool { slices, file, books })
    }

    /// Lends so many bytes, all zero, to so many users; says where. `None` where the slice, or the node's shared memory, is
    /// used up.
    pub fn lend(&self, bytes: usize, users: u32) -> Option<usize> {
        let bytes = bytes.next_multiple_of(PAGE);
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        self.collect(&mut books);
        let fit = books.free.iter().position(|(_, len)| *len >= bytes)?;
        let (offset, len) = books.free[fit];
        if len == bytes {
            books.free.remove(fit);
        } else {
            books.free[fit] = (offset + bytes, len - bytes);
        }
        // The first page holds the count of leavers, which is read from now on.
        let first_page = self.reserve(offset, PAGE).then(|| Mapping::new(&self.file, offset, PAGE)).flatten();
        let Some(first_page) = first_page else {
            give_back(&mut books.free, offset, bytes);
            return None;
        };
        books.lent.push(Lent { offset, bytes, users, first_page });
        Some(offset)
    }

    /// Takes back what all users have left, and gives the memory back to the system: so it is zero when it is lent again.
    fn collect(&self, books: &mut Books) {
        let mut back = Vec::new();
        books.lent.retain(|lent| {
            let left = lent.first_page.leavers().load(Ordering::Acquire) >= lent.users;
            if left {
                back.push((lent.offset, lent.bytes));
            }
            !left
        });
        for (offset, bytes) in back {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if rustix::fs::fallocate(&self.file, flags, offset as u64, bytes as u64).is_err() {
                // What cannot be cleared is not lent again.
                let Some(all) = Mapping::new(&self.file, offset, bytes) else { continue };
                // SAFETY: as many bytes, which nobody uses any more.
                unsafe { all.start.write_bytes(0, bytes) };
            }
            give_back(&mut books.free, offset, bytes);
        }
    }

    /// Makes sure that memory is behind a stretch; it then lies near this process.
    pub fn reserve(&self, offset: usize, bytes: usize) -> bool {
        rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset as u64, bytes as u64).is_ok()
    }

    /// The bytes of all leases that are not back yet.
    pub fn lent(&self) -> usize {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        self.collect(&mut books);
        books.lent.iter().map(|lent| lent.bytes).sum()
    }
}

fn open(name: &str, flags: shm::OFlags) -> Result<OwnedFd, PoolError> {
    shm::open(name, flags, Mode::RUSR | Mode::WUSR).map_err(|cause| PoolError { call: "shm_open", cause })
}

/// Adds a stretch to a list of free ones and joins neighbours.
fn give_back(free: &mut Vec<(usize, usize)>, offset: usize, bytes: usize) {
    let at = free.partition_point(|(start, _)| *start < offset);
    free.insert(at, (offset, bytes));
    if at + 1 < free.len() && offset + bytes == free[at + 1].0 {
        free[at].1 += free.remove(at + 1).1;
    }
    if at > 0 && free[at - 1].0 + free[at - 1].1 == offset {
        free[at - 1].1 += free.remove(at).1;
    }
}

/// A stretch of a pool in use; dropping it counts its user out.
pub struct Lease {
    memory: Mapping,
    _pool: Arc<Pool>,
}

impl Lease {
    /// What another process or this one lent, mapped; `None` if it cannot be.
    ///
    /// # Safety
    /// The owner lent so many bytes at `offset` to this user among others, once.
    pub unsafe fn new(pool: &Arc<Pool>, offset: usize, bytes: usize) -> Option<Lease> {
        let bytes = bytes.next_multiple_of(PAGE);
        assert!(
            offset + bytes <= pool.slices as usize * Pool::SLICE && offset.is_multiple_of(PAGE),
            "a place in the pool"
        );
        let memory = Mapping::new(&pool.file, offset, bytes)?;
        Some(Lease { memory, _pool: pool.clone() })
    }

    /// Its first byte.
    pub fn start(&self) -> *mut u8 {
        self.memory.start
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.memory.leavers().fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn left_over(name: &str) -> bool {
        std::path::Path::new("/dev/shm").join(&name[1..]).exists()
    }

    #[test]
    fn two_see_one_memory_and_nothing_is_left_behind() {
        let name = Pool::name();
        let a = Arc::new(Pool::create(&name, 2, 0).unwrap());
        let b = Arc::new(Pool::attach(&name, 2, 1).unwrap());
        Pool::unlink(&name);
        assert!(!left_over(&name));
        let offset = a.lend(10_000, 2).unwrap();
        assert!(a.reserve(offset, 10_000));
        // SAFETY: just lent and reserved.
        let (one, two) =
            unsafe { (Lease::new(&a, offset, 10_000).unwrap(), Lease::new(&b, offset, 10_000).unwrap()) };
        // SAFETY: within the lease, behind its first word.
        unsafe { one.start().add(64).write(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { two.start().add(64).read() }, 7);
        assert_eq!(a.lent(), 12_288);
        drop(one);
        assert_eq!(a.lent(), 12_288);
        drop(two);
        assert_eq!(a.lent(), 0);
        // Lent again, it is zero.
        let again = a.lend(10_000, 1).unwrap();
        assert_eq!(again, offset);
        assert!(a.reserve(again, 10_000));
        // SAFETY: just lent and reserved.
        let lease = unsafe { Lease::new(&a, again, 10_000) }.unwrap();
        // SAFETY: within the lease.
        assert_eq!(unsafe { lease.start().add(64).read() }, 0);
    }

    #[test]
    fn what_comes_back_is_joined() {
        let mut free = vec![(0, 10), (30, 10)];
        give_back(&mut free, 20, 10);
        assert_eq!(free, [(0, 10), (20, 20)]);
        give_back(&mut free, 10, 10);
        assert_eq!(free, [(0, 40)]);
    }

    #[test]
    fn a_slice_has_an_end() {
        let name = Pool::name();
        let pool = Pool::create(&name, 1, 0).unwrap();
        Pool::unlink(&name);
        assert!(pool.lend(Pool::SLICE + 1, 1).is_none());
        assert!(pool.lend(Pool::SLICE, 1).is_some());
        assert!(pool.lend(1, 1).is_none());
    }
}
