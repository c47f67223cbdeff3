//! Rounding to formats of eight bits in blocks that have an exponent each.

use crate::{
    Error, Memory, Wgpu,
    kernel::{self, function::FunctionText},
    launch::{KernelLaunch, strided_workgroups},
};
use gradscale_core::{
    backend::Store,
    block_format::{BlockFormat, ScaleRounding},
};

impl Wgpu {
    pub(crate) fn run_round_blocks(
        &self, format: BlockFormat, [rows, columns]: [u32; 2], x: &Memory, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        if rows * columns == 0 {
            return Ok(());
        }
        let blocks = columns.div_ceil(format.size());
        let call = KernelLaunch::new(&kernel::ROUND_BLOCKS).function(FunctionText::for_format(format.format()));
        let rounds_up = u32::from(format.scale_rounding() == ScaleRounding::Up);
        let call = call.params([rows, columns, format.size(), blocks, rounds_up]);
        self.launch(call.operand(x).store(y), strided_workgroups(rows * blocks))
    }
}
