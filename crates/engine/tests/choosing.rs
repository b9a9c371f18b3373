//! Cost of choosing algorithms for a communicator of 10,000 nodes with 128 ranks each: the sizes at which choices change are computed
//! once, in at most 1 MiB of memory. The time is only printed; `cargo testbed instructions` guards it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bruckner_choose::{Ability, DecisionTables, Knowledge, Name, Policy, Question, Rules, Vendor, choose};
use bruckner_schedule::{Collective, Counts, Problem, Topology};

/// Allocator that counts the allocated bytes and their maximum.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn choosing_costs_next_to_nothing() {
    let topology: Arc<Topology> = Arc::new("10000x128".parse().unwrap());
    let known = Arc::new(Knowledge::defaults(Vendor::OpenMpi));
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let start = Instant::now();
    let tables = DecisionTables::new(topology, known, Policy::default(), Ability::default());
    for collective in Collective::ALL {
        let name = Name::read(&collective.to_string()).unwrap();
        let problem = Problem::new(collective, 1_280_000, Counts::Equal(1), 8).unwrap();
        for shows_order in [false, true] {
            let question = Question { name, problem: &problem, is_order_sensitive: shows_order };
            assert!(!choose(&tables.kind(&question), &tables, &Rules::default()).is_empty());
        }
    }
    let (took, most) = (start.elapsed(), MOST.load(Ordering::Relaxed) - before);
    println!("10000x128: all break points in {took:?}, {} KiB", most / 1024);
    assert!(most <= 1 << 20);
}
