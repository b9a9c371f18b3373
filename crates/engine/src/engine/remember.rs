//! Adds calls to the caches, so that the fast path recognises them.

use std::sync::atomic::Ordering;

use bruckner_choose::size_class;
use bruckner_mpi::{Function, Handle};

use super::Engine;
use crate::backend::Backend;
use crate::cache::{Blocks, Bytes, CachedCall, CallKey, Cut, is_built_in, key_of};
use crate::call::{Amount, Call, UserBuffer};
use crate::communicator::{Communicator, PlannedCall, State};
use crate::normalize::{CallSignature, NormalizedCall};
use crate::plan::Prepared;

impl<B: Backend> Engine<B> {
    /// Returns the key by which the caches recognise a call, or `None` if the call's arguments alone do not decide how it is handled. The
    /// key of a call with a list of counts contains the largest count. `listed` returns how many counts to read for it, and `None` while
    /// that is undecided; then the call has no key.
    pub(super) fn key_of(&self, call: &Call, listed: impl Fn() -> Option<u32>) -> Option<CallKey> {
        match is_built_in(self.backend, call) {
            true => key_of(self.backend, call, listed),
            false => self.in_bytes(call).and_then(|bytes| key_of(self.backend, &bytes, listed)),
        }
    }

    /// Returns a call that moves data of user-defined datatypes as a call in bytes. Handles of such datatypes may soon mean other
    /// datatypes, so these calls are recognised by their sizes, and the layout of the data is checked each time.
    pub(super) fn in_bytes(&self, call: &Call) -> Option<Call> {
        let backend = self.backend;
        let moves = matches!(call.function, Function::Allgather | Function::Alltoall | Function::Bcast);
        if !moves || is_built_in(backend, call) {
            return None;
        }
        let in_bytes = |buffer: &UserBuffer| {
            let count = buffer.amount.each();
            if count < 0 || backend.is_null_type(buffer.datatype) {
                return None;
            }
            let bytes = count.checked_mul(backend.type_size(buffer.datatype).ok()? as i64)?;
            Some(UserBuffer { amount: Amount::Each(bytes), datatype: backend.byte(), ..*buffer })
        };
        let sends = call.function != Function::Bcast && !backend.is_in_place(call.send.data);
        let send = if sends { in_bytes(&call.send)? } else { call.send };
        Some(Call { send, recv: in_bytes(&call.recv)?, ..*call })
    }

    /// Adds a call to the caches if its buffers need no staging, except for pairs with padding. The cache entry also covers calls that
    /// differ only in the count, if the same plan handles them.
    pub(super) fn remember(
        &self,
        generation: u64,
        communicator: &Communicator<B>,
        state: &mut State<B>,
        key: CallKey,
        planned: &PlannedCall,
        normalized: &NormalizedCall,
    ) {
        let decision = &planned.decision;
        // Neither zero-byte calls, whose handling depends on the entry point, nor calls of a trial, whose candidates change, are
        // remembered.
        let in_trial = decision.assignment.is_in_trial();
        if !self.recognises.load(Ordering::Relaxed) || normalized.signature.is_nothing() || in_trial {
            return;
        }
        let (id, kind_id) = (planned.id, decision.kind_id);
        let why = self.counts.load(Ordering::Relaxed).then(|| state.why(planned));
        let CallSignature { problem, combine, .. } = &normalized.signature;
        let (decider, store) = (&state.decider, &mut state.store);
        let version = store.plans.versions.get(id);
        let each = |all: u64| all / key.count.max(1);
        let bytes = each(normalized.signature.bytes());
        let changed = decider.tuning.has_changed(kind_id);
        let any_count = key.is_one_count() && (version.is_preferred || changed) && !planned.fallback && bytes > 0;
        // A call with other lists of counts but the same largest count has the same key. It is recognised only if the first candidate
        // handles such calls, because another candidate is used only for some lists.
        if key.listed.is_some() && !any_count {
            return;
        }
        // Returns the counts of calls that the same plan handles. With `one_class`, returns only the counts in this call's size class,
        // which reaches from one power of two to the next.
        let counts = |one_class: bool| match any_count {
            true => {
                let mut all = decider.tables.range_of_kind(&normalized.signature.question());
                if one_class {
                    let class = size_class(decision.bytes);
                    all = *all.start().max(class.start())..=*all.end().min(class.end());
                }
                all.start().div_ceil(bytes).max(1)..=*all.end() / bytes
            }
            false => key.count..=key.count,
        };
        let cached = |why| CachedCall {
            words: key.words,
            counts: counts(changed),
            kind_id,
            plan: id,
            problem: problem.clone(),
            cut: Cut::NONE,
            bound: None,
            blocks: Blocks { bytes: bytes as usize, ..Blocks::default() },
            combine: *combine,
            padded: false,
            why,
        };
        match &version.prepared {
            Some(Prepared::Native) => {
                let tuned = decider.tuning.is_tuned(kind_id, decision.bytes);
                if decider.tuning.is_stopped(kind_id, decision.bytes) && why.is_none() {
                    self.natives.put(communicator.group.comm, generation, &key.words, counts(tuned));
                }
                if tuned || why.is_some() {
                    store.calls.put(cached(why));
                }
            }
            // The fast path checks each time whether input and output overlap.
            Some(Prepared::Ready(plan))
                if normalized.is_direct_or_padded(plan.compiled(), self.backend.has_device())
                    && normalized.user_op.is_none() =>
            {
                let listed = key.listed.is_some();
                if listed && !version.is_for_any_lists(problem) {
                    return;
                }
                let size = |datatype: Handle| self.backend.shape(datatype).map_or(0, |shape| shape.size);
                let cached = cached(why);
                let all = cached.counts.clone();
                let (input, output) = normalized.bytes;
                store.calls.put(CachedCall {
                    // Larger counts may need more memory than there is. For lists, the fast path checks that each time.
                    counts: *all.start()..=if listed { *all.end() } else { key.count },
                    cut: Cut::of(problem),
                    blocks: Blocks {
                        elements: each(problem.largest_block()),
                        buffers: Bytes {
                            input: each(input as u64) as usize,
                            output: each(output as u64) as usize,
                            before: communicator.group.rank.0 as usize * bytes as usize,
                        },
                        given: if listed && !problem.collective.reduces() { size(key.words[2]) } else { 0 },
                        ..cached.blocks
                    },
                    // This rank's own block may be empty in this call, but not in the next, so the field does not depend on it.
                    padded: combine.pair().is_some(),
                    ..cached
                });
            }
            _ => {}
        }
    }
}
