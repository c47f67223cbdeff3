//! Global norm of all gradients.

use crate::{
    Error, Memory, Wgpu, kernel,
    launch::{KernelLaunch, WORKGROUP_SIZE},
    operators::multi_tensor::Entry,
};
use gradscale_core::backend::Buffer;

/// Number of gradient elements that a workgroup sums, as in squares.wgsl.
const ELEMENTS_PER_WORKGROUP: u32 = 64 * WORKGROUP_SIZE;
/// Bytes of the partial sums that a workgroup of the global norm writes.
const TOTALS_BYTES: u64 = 16;

impl Wgpu {
    pub(crate) fn run_global_norm(&self, grads: &[&Memory], norm: &Memory) -> Result<(), Error> {
        // A gradient that is cut is cut into whole workgroups, so that sums are the same.
        let entries = grads.iter().map(|&grad| Entry { len: grad.len(), roles: [Some(grad)] });
        let lists = self.batch_tensors(ELEMENTS_PER_WORKGROUP, entries);
        let groups: u32 = lists.iter().map(|list| list.groups).sum();
        let partial_totals = self.partial_totals(TOTALS_BYTES * u64::from(groups.max(1)))?;
        for list in &lists {
            let words = self.words(&list.words)?;
            let call = KernelLaunch::new(&kernel::SQUARES).params([list.count, list.groups]).buffer(9, &words);
            let call = list.bound.iter().flatten().fold(call, |call, &shown| call.part(5, shown));
            self.launch(call.buffer(11, &partial_totals), list.groups)?;
        }
        let call = KernelLaunch::new(&kernel::GLOBAL_NORM).params([groups]);
        self.launch(call.memory(3, norm).buffer(11, &partial_totals), 1)
    }
}
