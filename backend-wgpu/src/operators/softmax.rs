//! Softmax of rows, and its gradient: one launch each. Threads of a workgroup share a row, or several short ones.

use crate::{
    Error, Memory, Wgpu, kernel,
    launch::{KernelLaunch, MAX_STRIDED_WORKGROUPS, WORKGROUP_SIZE},
};
use gradscale_core::{
    backend::Store,
    ops::{Softmax, SoftmaxColumns},
};

/// Returns the members of `RowShape` in `softmax_rows.wgsl`, and the number of workgroups.
fn row_shape(p: &Softmax) -> ([u32; 5], u32) {
    let [_, matrix_rows, columns] = p.shape();
    // Eight columns for each invocation before another one is added.
    let threads = columns.div_ceil(8).clamp(1, WORKGROUP_SIZE).next_power_of_two();
    let tiles = p.rows().div_ceil(WORKGROUP_SIZE / threads);
    ([p.rows(), matrix_rows, columns, threads, tiles], tiles.min(MAX_STRIDED_WORKGROUPS))
}

impl Wgpu {
    pub(crate) fn run_softmax(
        &self, p: &Softmax, x: &Memory, selection: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let (shape, groups) = row_shape(p);
        if groups == 0 {
            return Ok(());
        }
        let call = KernelLaunch::new(&kernel::SOFTMAX)
            .constant("READS", p.read().code())
            .constant("LOGARITHM", p.is_logarithm().into())
            .params(shape)
            .operand(x);
        self.launch(call.optional_operand(selection, x).store(y), groups)
    }

    pub(crate) fn run_softmax_vjp(
        &self, p: &Softmax, y: &Memory, dy: &Memory, dx: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let (shape, groups) = row_shape(p);
        if groups == 0 {
            return Ok(());
        }
        let call = KernelLaunch::new(&kernel::SOFTMAX_VJP)
            .constant("CAUSAL", (p.read() == SoftmaxColumns::Causal).into())
            .constant("LOGARITHM", p.is_logarithm().into())
            .params(shape);
        self.launch(call.operand(y).operand(dy).store(dx), groups)
    }
}
