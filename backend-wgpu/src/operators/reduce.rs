//! Reductions along one axis: parts, then results.

use super::parallel_reduce::ParallelReduce;
use crate::{Error, Memory, Wgpu, kernel, launch::KernelLaunch};
use gradscale_core::{backend::Store, ops::Reduce};

/// Maximum number of results of one launch of a reduction, which limits its scratch memory.
const RESULTS: u32 = 1 << 22;
/// Bytes of the structure `Total` of the reduction kernels.
const TOTAL: u64 = 8;

impl Wgpu {
    pub(crate) fn run_reduce(&self, p: &Reduce, x: &Memory, y: &Store<'_, Self>) -> Result<(), Error> {
        let [_, len, inner] = p.shape();
        let mut start = 0;
        while start < p.y_len() {
            let split = ParallelReduce::new(RESULTS.min(p.y_len() - start), len, inner);
            let end = split.final_pass();
            let parts = self.partial_totals(split.bytes(TOTAL))?;
            let (name, contiguous_terms) = split.contiguity_constant();
            let call =
                KernelLaunch::new(&kernel::REDUCE).constant("OP", p.op().code()).constant(name, contiguous_terms);
            let call = call.params(split.params()).params([inner, start]).operand(x).buffer(8, &parts);
            self.launch(call, split.workgroups())?;
            let (name, contiguous_terms) = end.contiguity_constant();
            let call =
                KernelLaunch::new(&kernel::REDUCE_END).constant("OP", p.op().code()).constant(name, contiguous_terms);
            let call = call.params(end.params()).params([len, start]).buffer(8, &parts);
            self.launch(call.store(y), end.workgroups())?;
            start += RESULTS.min(p.y_len() - start);
        }
        Ok(())
    }
}
