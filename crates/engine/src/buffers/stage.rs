//! Buffers put together, where the user's are not as a plan wants them.

use bruckner_runtime::sized::Blocks;
use bruckner_runtime::{Buffers, Plan, Scratch, sized};

use super::personal::personal;
use super::{Normal, Side};
use crate::Error;
use crate::call::Call;
use crate::world::World;

/// Memory in which buffers are put together, where the user's are not as a plan wants them.
pub(crate) struct Stage<'a, W: World> {
    pub(crate) world: &'static W,
    pub(crate) input: &'a mut Scratch,
    pub(crate) output: &'a mut Scratch,
    /// Whether this process may have buffers in device memory: everything is staged then.
    pub(crate) device: bool,
}

/// Whether the output is to be unpacked.
#[derive(Clone, Copy)]
pub(crate) enum Output {
    Direct,
    Staged(*const u8),
}

/// The output of an alltoallv, if it is to be unpacked.
pub(crate) struct Received {
    side: Side,
    from: *const u8,
    bytes: usize,
    staged: bool,
}

impl Received {
    pub(crate) fn take(&self, world: &impl World) -> Result<(), Error> {
        if self.staged { self.side.unpack(world, self.from, self.bytes) } else { Ok(()) }
    }
}

impl<W: World> Stage<'_, W> {
    /// The buffers of an execution, the input brought into shape.
    pub(crate) fn bring(
        &self,
        normal: &Normal,
        plan: &Plan<W::Wire>,
        temporary: &Scratch,
    ) -> Result<(Buffers, Output), Error> {
        let put_aside = normal.overlaps && !plan.compiled().in_place;
        let input = match &normal.input {
            Side::None | Side::Kept => std::ptr::null(),
            Side::Direct(data) if !put_aside && !self.device => data.cast_const().cast(),
            side => {
                side.pack(self.world, self.input.start(), normal.bytes.0)?;
                self.input.start().cast_const()
            }
        };
        let (output, staged) = match &normal.output {
            Side::None => (std::ptr::null_mut(), Output::Direct),
            Side::Direct(data) if !self.device => (data.cast(), Output::Direct),
            Side::Kept if plan.compiled().only_reads => (input.cast_mut(), Output::Direct),
            Side::Kept => (self.output.start(), Output::Direct),
            _ => (self.output.start(), Output::Staged(self.output.start())),
        };
        Ok((Buffers { input, output, temporary: temporary.start() }, staged))
    }

    /// Makes the memory large enough; its addresses stay until it must grow again.
    pub(crate) fn grow(&mut self, normal: &Normal, plan: &Plan<W::Wire>) {
        if normal.overlaps || normal.input.is_staged(self.device) {
            self.input.grow(normal.staged_input());
        }
        let kept = matches!(normal.output, Side::Kept) && !plan.compiled().only_reads;
        if kept || normal.output.is_staged(self.device) {
            self.output.grow(normal.bytes.1);
        }
    }

    /// Brings the output to the user.
    pub(crate) fn take(&self, normal: &Normal, staged: Output) -> Result<(), Error> {
        if let Output::Staged(from) = staged {
            normal.output.unpack(self.world, from, normal.bytes.1)?;
        }
        normal.verdict(self.world)
    }

    /// The buffers of an alltoallv, and its sizes.
    pub(crate) fn bring_sized(
        &mut self,
        call: &Call,
        size: u32,
        plan: &mut sized::Plan<W::Wire>,
    ) -> Result<(sized::Buffers, Received), Error> {
        let mut personal = personal(self.world, call, size)?;
        personal.input.look_closer(self.world);
        personal.output.look_closer(self.world);
        // A dense type's blocks lie where they are; others are packed one behind the other.
        let place = |side: &Side, lengths: &[usize], packed: bool| -> (Vec<usize>, usize) {
            let total: usize = lengths.iter().sum();
            let ends = lengths.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + n)));
            match side {
                Side::Blocks { shape, blocks, .. } if !packed => {
                    // Negative displacements are fine: offsets wrap around with the addresses.
                    (blocks.iter().map(|(at, _)| (at * shape.extent) as usize).collect(), total)
                }
                _ => (ends.collect(), total),
            }
        };
        let device = self.device;
        let is_dense =
            |side: &Side| !device && matches!(side, Side::Blocks { shape, .. } if shape.is_dense());
        let start = |side: &Side| match side {
            Side::Blocks { data, .. } | Side::Direct(data) => data.cast::<u8>(),
            _ => std::ptr::null_mut(),
        };
        let packed_input = personal.overlaps || !is_dense(&personal.input);
        let (input_offsets, input_bytes) = place(&personal.input, &personal.sent, packed_input);
        let input = if packed_input {
            self.input.grow(input_bytes);
            personal.input.pack(self.world, self.input.start(), input_bytes)?;
            self.input.start()
        } else {
            start(&personal.input)
        };
        let packed_output = !is_dense(&personal.output);
        let (output_offsets, output_bytes) = place(&personal.output, &personal.received, packed_output);
        let output = if packed_output {
            self.output.grow(output_bytes);
            self.output.start()
        } else {
            start(&personal.output)
        };
        plan.set_blocks(
            Blocks { offsets: input_offsets, lengths: personal.sent },
            Blocks { offsets: output_offsets, lengths: personal.received },
        );
        let received = Received {
            side: personal.output,
            from: output.cast_const(),
            bytes: output_bytes,
            staged: packed_output,
        };
        Ok((sized::Buffers { input: input.cast_const(), output }, received))
    }
}
