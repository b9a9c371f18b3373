//! Extends a pattern that suits only some numbers of members (such as powers of two) to any number up to twice as many.
//!
//! The first `core` of n members run the pattern. Each other member (a guest) sends its block to one of them (its host) before, and
//! receives all other blocks from its host afterwards.
//!
//! ```text
//! 5 members, core 4   before  4 ─► 0      then 0 … 3, the blocks of 0 and 4 together      after  0 ─► 4
//! ```

use bruckner_schedule::Set;

use super::{Parcel, Pattern, PatternStep};

/// Pattern in which the first `core` members run another pattern, also on behalf of the other members.
pub struct Fold {
    /// Number of members that run the inner pattern: at least half of all members.
    pub core: u32,
    /// The pattern that the first `core` members run.
    pub inside: Box<dyn Pattern>,
}

impl Pattern for Fold {
    fn steps(&self, n: u32, me: u32) -> Vec<PatternStep> {
        let core = self.core;
        assert!(core <= n && n <= 2 * core, "the inner pattern must run on half to all of {n} members, not on {core}");
        if core == n {
            return self.inside.steps(n, me);
        }
        let extra = u64::from(n - core);
        let parcel = |peer: u32, blocks: Set| vec![Parcel { peer, blocks }];
        let one = |member: u32| Set::one(member.into());
        let all_but = |member: u32| {
            let mut set = Set::from(0..u64::from(member));
            set.extend(&Set::from(u64::from(member) + 1..n.into()));
            set
        };
        if me >= core {
            let host = me - core;
            let mut steps = vec![PatternStep { sends: parcel(host, one(me)), recvs: Vec::new() }];
            steps.extend(self.inside.steps(core, host).iter().map(|_| PatternStep::default()));
            steps.push(PatternStep { sends: Vec::new(), recvs: parcel(host, all_but(me)) });
            return steps;
        }
        // A message that carries the block of a host also carries the block of its guest.
        let with_guests = |blocks: &Set| {
            let mut set = blocks.clone();
            set.extend(&blocks.below(extra).shifted(core.into()));
            set
        };
        let expand = |parcels: Vec<Parcel>| -> Vec<Parcel> {
            let whole = |p: Parcel| Parcel { blocks: with_guests(&p.blocks), ..p };
            parcels.into_iter().map(whole).collect()
        };
        let hosts = u64::from(me) < extra;
        let guest = me + core;
        let mut steps = vec![PatternStep::default()];
        if hosts {
            steps[0].recvs = parcel(guest, one(guest));
        }
        let inside = self.inside.steps(core, me).into_iter();
        steps.extend(inside.map(|s| PatternStep { sends: expand(s.sends), recvs: expand(s.recvs) }));
        steps.push(PatternStep::default());
        if hosts {
            steps.last_mut().expect("just pushed").sends = parcel(guest, all_but(guest));
        }
        steps
    }
}
