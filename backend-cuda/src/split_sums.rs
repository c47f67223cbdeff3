//! Partial sums of a product whose terms are multiplied in bands: the bands are splits of one sum, which one reduction adds
//! in order.

use crate::{Cuda, Error, gemm::Operands, gemm_problem::GemmProblem, kernel_selection::KernelConfig};
use gradscale_core::backend::Store;

/// Partial sums of all bands.
#[derive(Clone, Copy)]
pub(crate) struct SplitSums {
    /// One kernel for all bands, so that partial sums have one layout.
    config: KernelConfig,
    /// Address of the partial sums of all bands.
    partials: u64,
    /// Splits of all bands, and of those that are computed.
    splits: u32,
    done: u32,
}

impl Cuda {
    /// Reserves the partial sums of all bands. `problem` is that of the first.
    pub(crate) fn reserve_split_sums(
        &self, problem: &GemmProblem, config: KernelConfig, splits: u32,
    ) -> Result<SplitSums, Error> {
        Ok(SplitSums { config, partials: self.partials_workspace(problem, config, splits)?, splits, done: 0 })
    }

    /// Computes the partial sums of one band, and after the last one the results.
    pub(crate) fn launch_band(
        &self, problem: &GemmProblem, sums: SplitSums, x: &Operands, y: &Store<'_, Self>, is_last: bool,
    ) -> Result<SplitSums, Error> {
        let SplitSums { config, partials, splits, done } = sums;
        let problem_of_kernel = config.problem(problem);
        let split_bytes = 4 * problem_of_kernel.result_count() as u64;
        let mut params = self.launch_splits(problem, config, partials + u64::from(done) * split_bytes, x, None, y)?;
        let done = done + params.splits;
        if is_last {
            (params.partials, params.splits) = (partials, splits);
            self.reduce_splits(&problem_of_kernel, params, y)?;
        }
        Ok(SplitSums { done, ..sums })
    }
}
