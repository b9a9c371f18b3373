//! Staging: copies of buffers in the library's memory, where a plan cannot use the user's buffers directly.

use bruckner_runtime::sized::Blocks;
use bruckner_runtime::{Buffers, Executable, Scratch, sized};

use crate::Error;
use crate::backend::Backend;
use crate::call::Call;
use crate::normalize::{BufferLayout, NormalizedCall, alltoallv_layout};

/// Memory for copies of buffers, where a plan cannot use the user's buffers directly.
pub(crate) struct Staging<'a, B: Backend> {
    pub(crate) backend: &'static B,
    pub(crate) input: &'a mut Scratch,
    pub(crate) output: &'a mut Scratch,
    /// Whether this process may have buffers in device memory, so that all buffers are staged.
    pub(crate) device: bool,
}

/// Whether a plan's output is in the user's buffer, or staged and to be unpacked.
#[derive(Clone, Copy)]
pub(crate) enum StagedOutput {
    Direct,
    Staged(*const u8),
}

/// The output of an alltoallv, which is unpacked if it was staged.
pub(crate) struct StagedBlocks {
    side: BufferLayout,
    from: *const u8,
    bytes: usize,
    staged: bool,
}

impl StagedBlocks {
    pub(crate) fn take(&self, backend: &impl Backend) -> Result<(), Error> {
        if self.staged { self.side.unpack(backend, self.from, self.bytes) } else { Ok(()) }
    }
}

impl<B: Backend> Staging<'_, B> {
    /// Returns the buffers of an execution, and packs the input if necessary.
    pub(crate) fn pack_input(
        &self,
        normalized: &NormalizedCall,
        plan: &Executable<B::Wire>,
        temporary: &Scratch,
    ) -> Result<(Buffers, StagedOutput), Error> {
        let put_aside = normalized.overlaps && !plan.compiled().in_place;
        let input = match &normalized.input {
            BufferLayout::None | BufferLayout::AlreadyInPlace => std::ptr::null(),
            BufferLayout::Direct(data) if !put_aside && !self.device => data.cast_const().cast(),
            side => {
                side.pack(self.backend, self.input.start(), normalized.bytes.0)?;
                self.input.start().cast_const()
            }
        };
        let (output, staged) = match &normalized.output {
            BufferLayout::None => (std::ptr::null_mut(), StagedOutput::Direct),
            BufferLayout::Direct(data) if !self.device => (data.cast(), StagedOutput::Direct),
            BufferLayout::AlreadyInPlace if plan.compiled().only_reads => (input.cast_mut(), StagedOutput::Direct),
            BufferLayout::AlreadyInPlace => (self.output.start(), StagedOutput::Direct),
            _ => (self.output.start(), StagedOutput::Staged(self.output.start())),
        };
        Ok((Buffers { input, output, temporary: temporary.start() }, staged))
    }

    /// Enlarges the staging memory for a call. Its addresses stay the same until it must grow again.
    pub(crate) fn grow(&mut self, normalized: &NormalizedCall, plan: &Executable<B::Wire>) {
        if normalized.overlaps || normalized.input.is_staged(self.device) {
            self.input.grow(normalized.staged_input());
        }
        let kept = matches!(normalized.output, BufferLayout::AlreadyInPlace) && !plan.compiled().only_reads;
        if kept || normalized.output.is_staged(self.device) {
            self.output.grow(normalized.bytes.1);
        }
    }

    /// Unpacks a staged output into the user's buffer; returns an error if this rank sent more data than the others receive from it.
    pub(crate) fn take(&self, normalized: &NormalizedCall, staged: StagedOutput) -> Result<(), Error> {
        if let StagedOutput::Staged(from) = staged {
            normalized.output.unpack(self.backend, from, normalized.bytes.1)?;
        }
        normalized.truncation_error(self.backend)
    }

    /// Returns the buffers of an alltoallv, packs its input if necessary, and sets the block sizes of its plan.
    pub(crate) fn pack_alltoallv_input(
        &mut self,
        call: &Call,
        size: u32,
        plan: &mut sized::SizedExecutable<B::Wire>,
    ) -> Result<(sized::Buffers, StagedBlocks), Error> {
        let mut layout = alltoallv_layout(self.backend, call, size)?;
        layout.input.determine_order(self.backend);
        layout.output.determine_order(self.backend);
        // Blocks of a dense datatype are used in place; others are packed contiguously.
        let place = |side: &BufferLayout, lengths: &[usize], packed: bool| -> (Vec<usize>, usize) {
            let total: usize = lengths.iter().sum();
            let ends = lengths.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + n)));
            match side {
                BufferLayout::Blocks { shape, blocks, .. } if !packed => {
                    // Negative displacements are allowed: offsets wrap around with the addresses.
                    (blocks.iter().map(|(at, _)| (at * shape.extent) as usize).collect(), total)
                }
                _ => (ends.collect(), total),
            }
        };
        let device = self.device;
        let is_dense =
            |side: &BufferLayout| !device && matches!(side, BufferLayout::Blocks { shape, .. } if shape.is_dense());
        let start = |side: &BufferLayout| match side {
            BufferLayout::Blocks { data, .. } | BufferLayout::Direct(data) => data.cast::<u8>(),
            _ => std::ptr::null_mut(),
        };
        let packed_input = layout.overlaps || !is_dense(&layout.input);
        let (input_offsets, input_bytes) = place(&layout.input, &layout.sent, packed_input);
        let input = if packed_input {
            self.input.grow(input_bytes);
            layout.input.pack(self.backend, self.input.start(), input_bytes)?;
            self.input.start()
        } else {
            start(&layout.input)
        };
        let packed_output = !is_dense(&layout.output);
        let (output_offsets, output_bytes) = place(&layout.output, &layout.received, packed_output);
        let output = if packed_output {
            self.output.grow(output_bytes);
            self.output.start()
        } else {
            start(&layout.output)
        };
        plan.set_blocks(
            Blocks { offsets: input_offsets, lengths: layout.sent },
            Blocks { offsets: output_offsets, lengths: layout.received },
        );
        let received =
            StagedBlocks { side: layout.output, from: output.cast_const(), bytes: output_bytes, staged: packed_output };
        Ok((sized::Buffers { input: input.cast_const(), output }, received))
    }
}
