//! What ranks tell each other about a plan before they run it.

use std::hash::BuildHasher;
use std::sync::Arc;

use bruckner_algorithms::Expression;
use bruckner_runtime::{Compiled, Extent, Shared, Turns, sized};
use bruckner_schedule::Counts;
use rustc_hash::FxBuildHasher;

use super::plans::Form;
use super::room::LEVELS;
use crate::backend::Backend;
use crate::normalize::CallSignature;
use crate::parts::Parts;

/// A rank's program, ready for its executor.
pub(crate) enum Planned<B: Backend> {
    Compiled(Arc<Compiled>),
    Sized(Box<sized::Plan<B::Wire>>),
    Parts(Parts),
}

/// What ranks tell each other about a plan: the most that any of them says counts for all.
pub(crate) struct Agreed(pub(crate) [u64; Agreed::COUNT]);

impl Agreed {
    const FAILED: usize = 0;
    const TAGS: usize = 1;
    const DEVICE: usize = 2;
    const TEMPORARY: usize = 3;
    /// A number for the call, and its complement: the greatest of all numbers for it must also be the least. The same
    /// for its size.
    const CALL: usize = 4;
    const SIZE: usize = 6;
    /// Members, which is 0 where there is no segment, and lines of each level; and how ranks that use it take turns on it, as a
    /// number and its complement.
    const SHARED: usize = 8;
    const EACH: usize = 4;
    const RING: u64 = 2;
    const COUNT: usize = Agreed::SHARED + Agreed::EACH * LEVELS;

    /// What this rank has to say of its program.
    pub(crate) fn of<B: Backend>(planned: Option<&Planned<B>>, one_round: bool, device: bool) -> Agreed {
        let mut needs = [0; Agreed::COUNT];
        needs[Agreed::DEVICE] = device.into();
        needs[Agreed::FAILED] = match planned {
            None => 1,
            Some(Planned::Parts(_)) => u64::from(one_round),
            Some(Planned::Sized(plan)) => {
                needs[Agreed::TAGS] = u64::from(plan.tags) + 1;
                u64::from(one_round && !plan.one_round)
            }
            Some(Planned::Compiled(compiled)) => {
                needs[Agreed::TAGS] = u64::from(compiled.tags) + 1;
                needs[Agreed::TEMPORARY] = compiled.extent.temporary;
                let (here, beyond) = compiled.extent.shared.split_at(LEVELS);
                for (level, shared) in here.iter().enumerate() {
                    let Some(Shared { members, lines, .. }) = *shared else { continue };
                    let at = Agreed::SHARED + Agreed::EACH * level;
                    let turns = match compiled.turns[level] {
                        Turns::None => 0,
                        Turns::Halves => 1,
                        Turns::Ring => Agreed::RING,
                    };
                    let said = [members.into(), lines.into(), turns, Agreed::RING - turns];
                    needs[at..at + Agreed::EACH].copy_from_slice(&said);
                }
                u64::from(one_round && !compiled.one_round || beyond.iter().any(Option::is_some))
            }
        };
        Agreed(needs)
    }

    /// The call, and the algorithm that this rank has chosen for it.
    pub(crate) fn say_what_for(&mut self, signature: &CallSignature, form: &Form, expression: &Expression) {
        let call = FxBuildHasher.hash_one((signature, form, expression));
        (self.0[Agreed::CALL], self.0[Agreed::CALL + 1]) = (call, !call);
        let bytes = if matches!(signature.problem.counts, Counts::Listed(_)) { 0 } else { signature.bytes() };
        (self.0[Agreed::SIZE], self.0[Agreed::SIZE + 1]) = (bytes, !bytes);
    }

    pub(crate) fn failed(&self) -> bool {
        self.0[Agreed::FAILED] != 0
    }

    /// Whether some take turns on a segment in another way than others.
    pub(crate) fn is_mixed(&self) -> bool {
        let mut levels = self.0[Agreed::SHARED..].chunks_exact(Agreed::EACH);
        levels.any(|level| level[0] > 0 && level[2] + level[3] != Agreed::RING)
    }

    pub(crate) fn has_device(&self) -> bool {
        self.0[Agreed::DEVICE] != 0
    }

    pub(crate) fn tags(&self) -> u64 {
        self.0[Agreed::TAGS]
    }

    pub(crate) fn same_call(&self) -> bool {
        self.0[Agreed::CALL] == !self.0[Agreed::CALL + 1]
    }

    pub(crate) fn same_size(&self) -> bool {
        self.0[Agreed::SIZE] == !self.0[Agreed::SIZE + 1]
    }

    pub(crate) fn extent(&self) -> Extent {
        let mut extent = Extent { temporary: self.0[Agreed::TEMPORARY], ..Extent::default() };
        for (level, shared) in extent.shared.iter_mut().enumerate().take(LEVELS) {
            let at = Agreed::SHARED + Agreed::EACH * level;
            let (members, lines) = (self.0[at] as u32, self.0[at + 1] as u32);
            let ring = self.0[at + 2] == Agreed::RING;
            *shared = (members > 0).then_some(Shared { members, lines, ring });
        }
        extent
    }
}
