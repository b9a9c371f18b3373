//! POSIX shared memory of a node, divided into one slice for each process.
//!
//! All processes of a node use one shared-memory object. One process creates it, all open it, and it is unlinked at once, so that nothing
//! is left behind however the job ends. The object is as large as all slices together, but takes no memory until ranges of it are
//! allocated. A process lends ranges of its slice to the ranks of a region (leases). Before a lease is used, each user allocates a share
//! of it, which then lies in memory near that user. If memory is short, the allocation fails; without it, a bus error would follow later.
//!
//! A process maps only the ranges it uses, because `mlockall` locks everything that is mapped, even if it was never accessed, and the
//! limits `ulimit -l` and `ulimit -v` also count mapped addresses without memory behind them.
//!
//! A process lends only from its own slice, so no lock is shared between processes. A lease returns to its owner when all users have left.
//! Each user that leaves increments a counter in the first word of the lease; the owner keeps this word mapped until then.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FallocateFlags, Mode};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::Resource;
use rustix::shm;

/// Why shared memory cannot be set up: the failed system call and its error.
#[derive(Debug, thiserror::Error)]
#[error("on-node shared memory: {call} failed: {cause}")]
pub struct PoolError {
    call: &'static str,
    cause: rustix::io::Errno,
}

/// A range of the shared-memory object that is mapped in this process.
struct Mapping {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the memory is shared between processes anyway, so threads add no new kind of access.
unsafe impl Send for Mapping {}
// SAFETY: the memory is shared between processes anyway, so threads add no new kind of access.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &OwnedFd, offset: usize, bytes: usize) -> Option<Mapping> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address that the system chooses.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, file, offset as u64) }.ok()?;
        // SAFETY: the range was just mapped. Leaving it out of core dumps is optional, so an error is ignored.
        let _ = unsafe { rustix::mm::madvise(start, bytes, Advice::LinuxDontDump) };
        Some(Mapping { start: start.cast(), bytes })
    }

    /// Returns the first word of the lease, which counts the users that have left.
    fn leavers(&self) -> &AtomicU32 {
        // SAFETY: the mapping begins with the first page of a lease, which its owner has reserved.
        unsafe { &*self.start.cast::<AtomicU32>() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping is not used any more.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.bytes) };
    }
}

/// A lent range of this process's slice. As far as this process knows, some of its users have not left yet.
struct LentRange {
    offset: usize,
    bytes: usize,
    users: u32,
    first_page: Mapping,
}

#[derive(Default)]
struct SliceState {
    /// Offset and length of the free ranges of the slice, in ascending order.
    free: Vec<(usize, usize)>,
    lent: Vec<LentRange>,
}

/// The shared-memory object of a node, as one process has opened it.
pub struct Pool {
    slices: u32,
    file: OwnedFd,
    state: Mutex<SliceState>,
}

/// Unit in which slices are lent, in bytes.
const PAGE: usize = 4096;

impl Pool {
    /// Size of a slice in bytes: the maximum that one process can lend.
    pub const SLICE: usize = 1 << 30;

    /// Returns a name that no other process of this node uses.
    pub fn name() -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.subsec_nanos());
        format!("/bruckner-{}-{count}-{time:08x}", std::process::id())
    }

    /// Creates the shared-memory object with the given name. Exactly one process of a node calls this.
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

    /// Opens the shared-memory object that another process has created.
    pub fn attach(name: &str, slices: u32, me: u32) -> Result<Pool, PoolError> {
        Pool::new(open(name, shm::OFlags::RDWR)?, slices, me)
    }

    /// Removes the name of the object. The memory stays available to processes that have opened the object.
    pub fn unlink(name: &str) {
        if let Ok(name) = CString::new(name) {
            // It is no error if the name is already gone.
            let _ = shm::unlink(name.as_c_str());
        }
    }

    /// Checks that the limit for file sizes allows the object, because the system kills a process that exceeds this limit.
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
        let state = Mutex::new(SliceState { free: vec![(own, Pool::SLICE)], lent: Vec::new() });
        Ok(Pool { slices, file, state })
    }

    /// Lends `bytes` bytes, all zero, to `users` users. Returns the offset of the bytes in the object, or `None` if the slice, or the
    /// node's shared memory, is exhausted.
    pub fn lend(&self, bytes: usize, users: u32) -> Option<usize> {
        let bytes = bytes.next_multiple_of(PAGE);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.collect(&mut state);
        let fit = state.free.iter().position(|(_, len)| *len >= bytes)?;
        let (offset, len) = state.free[fit];
        if len == bytes {
            state.free.remove(fit);
        } else {
            state.free[fit] = (offset + bytes, len - bytes);
        }
        // The first page, with the counter of users that have left, is allocated and mapped at once, because this process reads the
        // counter.
        let first_page = self.reserve(offset, PAGE).then(|| Mapping::new(&self.file, offset, PAGE)).flatten();
        let Some(first_page) = first_page else {
            give_back(&mut state.free, offset, bytes);
            return None;
        };
        state.lent.push(LentRange { offset, bytes, users, first_page });
        Some(offset)
    }

    /// Takes back the leases that all users have left. Their memory is returned to the system, so it is zero when it is lent again.
    fn collect(&self, state: &mut SliceState) {
        let mut back = Vec::new();
        state.lent.retain(|lent| {
            let left = lent.first_page.leavers().load(Ordering::Acquire) >= lent.users;
            if left {
                back.push((lent.offset, lent.bytes));
            }
            !left
        });
        for (offset, bytes) in back {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if rustix::fs::fallocate(&self.file, flags, offset as u64, bytes as u64).is_err() {
                // A range that cannot be cleared is not lent again.
                let Some(all) = Mapping::new(&self.file, offset, bytes) else { continue };
                // SAFETY: the mapping has `bytes` bytes, which nobody uses any more.
                unsafe { all.start.write_bytes(0, bytes) };
            }
            give_back(&mut state.free, offset, bytes);
        }
    }

    /// Allocates the memory of a range of the object, near the calling process. Returns whether there was enough memory.
    pub fn reserve(&self, offset: usize, bytes: usize) -> bool {
        rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset as u64, bytes as u64).is_ok()
    }

    /// Returns the number of bytes in all leases that have not been given back yet.
    pub fn lent(&self) -> usize {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.collect(&mut state);
        state.lent.iter().map(|lent| lent.bytes).sum()
    }
}

fn open(name: &str, flags: shm::OFlags) -> Result<OwnedFd, PoolError> {
    shm::open(name, flags, Mode::RUSR | Mode::WUSR).map_err(|cause| PoolError { call: "shm_open", cause })
}

/// Adds a range to a list of free ranges, and merges it with adjacent free ranges.
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

/// A lease that this process has mapped. When it is dropped, its user counts as having left.
pub struct Lease {
    memory: Mapping,
    _pool: Arc<Pool>,
}

impl Lease {
    /// Maps a range that this or another process has lent; `None` if it cannot be mapped.
    ///
    /// # Safety
    /// The owner has lent `bytes` bytes at `offset`, and each user creates only one `Lease` of this range.
    pub unsafe fn new(pool: &Arc<Pool>, offset: usize, bytes: usize) -> Option<Lease> {
        let bytes = bytes.next_multiple_of(PAGE);
        assert!(
            offset + bytes <= pool.slices as usize * Pool::SLICE && offset.is_multiple_of(PAGE),
            "a place in the pool"
        );
        let memory = Mapping::new(&pool.file, offset, bytes)?;
        Some(Lease { memory, _pool: pool.clone() })
    }

    /// Returns the address of the first byte of the lease.
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
        // SAFETY: the range was just lent to two users, and reserved.
        let (one, two) = unsafe { (Lease::new(&a, offset, 10_000).unwrap(), Lease::new(&b, offset, 10_000).unwrap()) };
        // SAFETY: the offset lies within the lease, behind its first word.
        unsafe { one.start().add(64).write(7) };
        // SAFETY: the offset lies within the lease, behind its first word.
        assert_eq!(unsafe { two.start().add(64).read() }, 7);
        assert_eq!(a.lent(), 12_288);
        drop(one);
        assert_eq!(a.lent(), 12_288);
        drop(two);
        assert_eq!(a.lent(), 0);
        // A range that is lent again is zero.
        let again = a.lend(10_000, 1).unwrap();
        assert_eq!(again, offset);
        assert!(a.reserve(again, 10_000));
        // SAFETY: the range was just lent to one user, and reserved.
        let lease = unsafe { Lease::new(&a, again, 10_000) }.unwrap();
        // SAFETY: the offset lies within the lease.
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
