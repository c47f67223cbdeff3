//! Pooling and unpooling.

use crate::{
    Error, Memory, Wgpu, kernel,
    launch::{KernelLaunch, strided_workgroups},
    memory::Bytes,
};
use gradscale_core::{
    backend::Store,
    ops::{GatherScatter, Pool, PoolOp},
};

/// Returns the members of `Params` in windows.wgsl for a pooling with `len` results.
fn params(p: &Pool, len: u32) -> [u32; 12] {
    let ([_, height, width, channels], [_, out_height, out_width, _]) = (p.x(), p.y());
    let ([r, s], [down, right], [above, left]) = (p.window(), p.strides(), p.padding());
    [height, width, out_height, out_width, r, s, down, right, above, left, channels, len]
}

/// Returns true if channels come in eights, which share their windows.
fn has_eights(p: &Pool) -> bool {
    p.x()[3].is_multiple_of(8)
}

fn len(shape: [u32; 4]) -> u32 {
    shape.iter().product()
}

impl Wgpu {
    pub(crate) fn run_pool(&self, p: &Pool, x: &Memory, at: Option<&Memory>, y: &Store<'_, Self>) -> Result<(), Error> {
        let len = len(p.y());
        if len == 0 {
            return Ok(());
        }
        let nothing = self.split_k_partials(16)?;
        let offsets = at.map_or(Bytes::whole(&nothing), Memory::bytes);
        let call = KernelLaunch::new(&kernel::POOL)
            .constant("AVERAGE", u32::from(p.op() == PoolOp::Average))
            .constant("OFFSETS", u32::from(at.is_some() && p.op() == PoolOp::Max))
            .constant("EIGHTS", has_eights(p).into())
            .constant("TWO_BY_TWO", u32::from(has_eights(p) && p.window() == [2, 2]))
            .params(params(p, len))
            .operand(x)
            .part(6, offsets);
        self.launch(call.store(y), strided_workgroups(len.div_ceil(8)))
    }

    pub(crate) fn run_unpool(
        &self, p: &Pool, way: GatherScatter, x: &Memory, at: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let average = p.op() == PoolOp::Average;
        if average && way == GatherScatter::Gather {
            return self.run_pool(p, x, None, y);
        }
        assert!(average || at.is_some(), "unpooling needs offsets");
        let len = len(if way == GatherScatter::Scatter { p.x() } else { p.y() });
        if len == 0 {
            return Ok(());
        }
        let call = KernelLaunch::new(&kernel::UNPOOL)
            .constant("AVERAGE", average.into())
            .constant("EIGHTS", (has_eights(p) && !average).into())
            .constant("SCATTER", u32::from(way == GatherScatter::Scatter))
            .params(params(p, len))
            .operand(x)
            .optional_operand(at, x);
        self.launch(call.store(y), strided_workgroups(len.div_ceil(8)))
    }
}
