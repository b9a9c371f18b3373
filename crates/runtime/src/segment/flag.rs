//! Flags, and barriers made of them.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter in shared memory that only its owner increases.
///
/// The upper 48 bits of its value are the number of the execution, the lower 16 bits the number of raises in that execution. So the value
/// never decreases, and a rank can compute the value to wait for, such as "third raise in execution 7", without knowledge of the plans
/// that ran before.
///
/// Beside the value, the owner stores a hash of its call's sizes. The hash stays unchanged as long as any member may await the flag in
/// this execution. So a member that has seen the flag raised can check that the owner's call has the same sizes.
#[repr(C)]
pub(crate) struct Flag {
    value: AtomicU64,
    sizes: AtomicU64,
}

impl Flag {
    #[cfg(loom)]
    pub(crate) fn new() -> Flag {
        Flag { value: AtomicU64::new(0), sizes: AtomicU64::new(0) }
    }

    pub(crate) fn value(execution: u64, times: u16) -> u64 {
        execution << 16 | u64::from(times)
    }

    /// Raises the flag to `value`. A rank that reads this value also sees everything that the owner wrote before.
    #[inline]
    pub(crate) fn raise(&self, value: u64) {
        self.value.store(value, Ordering::Release);
    }

    /// Raises the flag to `value`, and stores `sizes`, the hash of the call's sizes.
    #[inline]
    pub(crate) fn raise_for(&self, value: u64, sizes: u64) {
        self.sizes.store(sizes, Ordering::Relaxed);
        self.raise(value);
    }

    /// Returns the hash of sizes that the owner stored. It is valid only for a rank that has seen the flag raised.
    #[inline]
    pub(crate) fn sizes(&self) -> u64 {
        self.sizes.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn has_reached(&self, value: u64) -> bool {
        self.reached() >= value
    }

    #[inline]
    pub(crate) fn reached(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }
}

/// Maximum radix of a barrier: in each round, a member awaits at most `MOST - 1` others.
const MOST: u32 = 8;

/// Returns the members that `me` awaits in each round of a dissemination barrier among `members`. With radix r, in round k a member raises
/// its flag and awaits the flags of the members at distances j·r^k before it, for all j from 1 to r - 1. After each round, r times as many
/// members are known to have arrived.
///
/// The radix is at most eight. It is chosen for the fewest rounds, because each round has to wait for the previous one, and is then as
/// small as possible.
pub(crate) fn barrier_rounds(members: u32, me: u32) -> Vec<Vec<u32>> {
    let rounds = (1..).find(|rounds| u64::from(MOST).pow(*rounds) >= members.into()).unwrap_or(1);
    let radix = (2..=u64::from(MOST)).find(|radix| radix.pow(rounds) >= members.into()).unwrap_or(2);
    let (members, me) = (u64::from(members), u64::from(me));
    let distances = |k: u32| (1..radix).map(move |j| j * radix.pow(k)).take_while(|distance| *distance < members);
    let awaited = |k: u32| distances(k).map(|distance| ((me + members - distance) % members) as u32).collect();
    (0..rounds).map(awaited).filter(|awaited: &Vec<u32>| !awaited.is_empty()).collect()
}

#[cfg(all(test, loom))]
pub(super) mod model {
    //! Checks every interleaving within loom's bounds: `RUSTFLAGS="--cfg loom" cargo test -p bruckner-runtime --release loom`.
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    struct Node {
        flags: Vec<Vec<Flag>>,
        data: Vec<UnsafeCell<u64>>,
    }

    fn node(members: usize, cells: usize) -> Arc<Node> {
        Arc::new(Node {
            flags: (0..members).map(|_| (0..3).map(|_| Flag::new()).collect()).collect(),
            data: (0..cells).map(|_| UnsafeCell::new(0)).collect(),
        })
    }

    fn await_flag(flag: &Flag, value: u64) {
        while !flag.has_reached(value) {
            thread::yield_now();
        }
    }

    fn barrier(node: &Node, members: u32, me: u32, execution: u64, times: u16) {
        for (k, awaited) in barrier_rounds(members, me).iter().enumerate() {
            node.flags[me as usize][k].raise(Flag::value(execution, times));
            for member in awaited {
                await_flag(&node.flags[*member as usize][k], Flag::value(execution, times));
            }
        }
    }

    fn all(members: u32, node: &Arc<Node>, run: fn(&Node, u32)) {
        let others: Vec<_> = (1..members)
            .map(|me| {
                let node = node.clone();
                thread::spawn(move || run(&node, me))
            })
            .collect();
        run(node, 0);
        others.into_iter().for_each(|t| t.join().expect("a member ends"));
    }

    /// loom rejects an access that is not ordered with another thread's write to the same data.
    #[test]
    fn loom_a_flag_carries_the_data() {
        loom::model(|| {
            all(2, &node(2, 4), |node, me| {
                for execution in 1..=3u64 {
                    let half = 2 * (execution as usize % 2);
                    node.data[half + me as usize].with_mut(|p| unsafe { *p = execution + u64::from(me) });
                    node.flags[me as usize][0].raise(Flag::value(execution, 1));
                    let other = 1 - me as usize;
                    await_flag(&node.flags[other][0], Flag::value(execution, 1));
                    let got = node.data[half + other].with(|p| unsafe { *p });
                    assert_eq!(got, execution + other as u64);
                }
            });
        });
    }

    /// A ring of two slots. The first member writes a slot and leaves it; the second member reads it and leaves it. A slot is reused only
    /// when both members have left it.
    #[test]
    fn loom_a_ring_is_entered_when_all_have_left() {
        bounded(2, || {
            all(2, &node(2, 2), |node, me| {
                for round in 1..=4u64 {
                    let slot = (round % 2) as usize;
                    let left = |member: usize| &node.flags[member][2];
                    if me == 0 {
                        await_flag(left(1), round.saturating_sub(2));
                        node.data[slot].with_mut(|p| unsafe { *p = round });
                        node.flags[0][slot].raise(Flag::value(round, 1));
                    } else {
                        await_flag(&node.flags[0][slot], Flag::value(round, 1));
                        assert_eq!(node.data[slot].with(|p| unsafe { *p }), round);
                    }
                    left(me as usize).raise(round);
                }
            });
        });
    }

    /// Checks `model` with at most `preemptions` preemptions, for at most 20 seconds.
    pub(in crate::segment) fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.max_branches = 20_000;
        builder.max_duration = Some(std::time::Duration::from_secs(20));
        builder.check(model);
    }

    #[test]
    fn loom_a_barrier_of_two_holds() {
        bounded(2, || {
            all(2, &node(2, 2), |node, me| {
                node.data[me as usize].with_mut(|p| unsafe { *p = 1 });
                barrier(node, 2, me, 1, 1);
                assert_eq!(node.data[1 - me as usize].with(|p| unsafe { *p }), 1);
                barrier(node, 2, me, 1, 2);
                node.data[me as usize].with_mut(|p| unsafe { *p = 2 });
            });
        });
    }

    #[test]
    fn loom_a_barrier_of_three_holds() {
        bounded(1, || {
            all(3, &node(3, 3), |node, me| {
                node.data[me as usize].with_mut(|p| unsafe { *p = 1 });
                barrier(node, 3, me, 1, 1);
                for other in 0..3 {
                    assert_eq!(node.data[other].with(|p| unsafe { *p }), 1);
                }
            });
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn after_all_rounds_everybody_has_heard_of_everybody() {
        for members in (1..70u32).chain([511, 512, 513]) {
            let mut heard: Vec<BTreeSet<u32>> = (0..members).map(|m| BTreeSet::from([m])).collect();
            let rounds: Vec<Vec<Vec<u32>>> = (0..members).map(|m| barrier_rounds(members, m)).collect();
            for round in 0..rounds[0].len() {
                let before = heard.clone();
                for (heard, rounds) in heard.iter_mut().zip(&rounds) {
                    rounds[round].iter().for_each(|awaited| heard.extend(&before[*awaited as usize]));
                }
            }
            assert!(heard.iter().all(|h| h.len() == members as usize), "{members} members");
        }
    }

    #[test]
    fn few_rounds_and_few_lines_of_others() {
        let shape = |members| barrier_rounds(members, 0).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!([shape(1), shape(2), shape(8)], [vec![], vec![1], vec![7]]);
        assert_eq!([shape(9), shape(64), shape(65)], [vec![2, 2], vec![7, 7], vec![4, 4, 2]]);
        assert_eq!(shape(4096).len() as u32, crate::segment::ROUNDS);
    }

    #[test]
    fn a_later_execution_counts_as_reached() {
        assert!(Flag::value(8, 0) > Flag::value(7, u16::MAX));
    }
}
