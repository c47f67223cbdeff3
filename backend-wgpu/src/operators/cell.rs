//! Sizes of a step of a recurrent cell, as kernels receive them.

use gradscale_core::ops::CellStep;

/// Returns the members of `CellShape` in `cell.wgsl`.
pub(super) fn shape_words<const GATES: u32>(p: &CellStep<GATES>) -> [u32; 4] {
    let [step, steps] = p.step();
    [p.state_len(), p.shape()[1], step, steps]
}
