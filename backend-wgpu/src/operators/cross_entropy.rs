//! Softmax and cross-entropy: rows, then their sums. For the gradient, the common factor of each row is computed first.

use crate::{
    Error, Memory, Wgpu, kernel,
    launch::{KernelLaunch, WORKGROUP_SIZE, strided_workgroups},
};
use gradscale_core::{
    backend::{CrossEntropyArgs, Store},
    ops::{CrossEntropy, Divisor},
};

/// Bytes of a workgroup's partial sums, and of a row's log-sum-exp and factor.
const TOTALS_BYTES: u64 = 16;
const ROW_FACTORS_BYTES: u64 = 8;
/// Maximum number of rows whose gradients one launch computes, a multiple of 8.
const MAX_ROWS_PER_LAUNCH: u32 = 1 << 22;

/// Returns the members of `LabelParams` in labels.wgsl for a cross-entropy.
fn label_params(p: &CrossEntropy) -> [u32; 4] {
    let [rows, classes] = p.shape();
    [rows, classes, p.ignored().unwrap_or(0), p.ignored().is_some().into()]
}

/// Binds the weights of classes, or other memory if there are none.
fn bind_weights<'a>(x: &CrossEntropyArgs<&'a Memory>, call: KernelLaunch<'a>) -> KernelLaunch<'a> {
    match x.weights {
        Some(weights) => call.memory(7, weights),
        None => call.dummy_operand(7, x.logits),
    }
}

impl Wgpu {
    pub(crate) fn run_cross_entropy(
        &self, p: &CrossEntropy, x: CrossEntropyArgs<&Memory>, out: &Memory,
    ) -> Result<(), Error> {
        let [rows, classes] = p.shape();
        // Eight classes for each invocation before another one is added.
        let threads = classes.div_ceil(8).clamp(1, WORKGROUP_SIZE).next_power_of_two();
        let groups = rows.div_ceil(WORKGROUP_SIZE / threads);
        let partial_totals = self.partial_totals(TOTALS_BYTES * u64::from(groups.max(1)))?;
        if groups != 0 {
            let call = KernelLaunch::new(&kernel::CROSS_ENTROPY_ROWS).constant("WEIGHTED", x.weights.is_some().into());
            let call = call.params(label_params(p)).params([threads, groups]).operand(x.logits).operand(x.labels);
            self.launch(bind_weights(&x, call).memory(3, out).buffer(8, &partial_totals), groups)?;
        }
        let fixed = if let Divisor::Fixed(value) = p.divisor() { value } else { 0.0 };
        let call = KernelLaunch::new(&kernel::CROSS_ENTROPY_END).params([groups, p.divisor().code(), fixed.to_bits()]);
        self.launch(call.memory(3, out).buffer(8, &partial_totals), 1)
    }

    pub(crate) fn run_cross_entropy_vjp(
        &self, p: &CrossEntropy, x: CrossEntropyArgs<&Memory>, out: &Memory, g: &Memory, dx: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let [rows, classes] = p.shape();
        // The factors of a launch must fit one binding.
        let max_rows = u32::try_from(self.largest_binding() / ROW_FACTORS_BYTES)
            .unwrap_or(MAX_ROWS_PER_LAUNCH)
            .min(MAX_ROWS_PER_LAUNCH)
            / 8
            * 8;
        let mut start = 0;
        while start < rows {
            let count = max_rows.min(rows - start);
            let row_factors = self.intermediates(ROW_FACTORS_BYTES * u64::from(count))?;
            let call =
                KernelLaunch::new(&kernel::CROSS_ENTROPY_FACTORS).constant("WEIGHTED", x.weights.is_some().into());
            let call = call.params(label_params(p)).params([start, count]).operand(x.labels).memory(3, out);
            let call = bind_weights(&x, call).memory(6, g).buffer(8, &row_factors);
            self.launch(call, strided_workgroups(count))?;
            let len = count * classes;
            let call = KernelLaunch::new(&kernel::CROSS_ENTROPY_VJP)
                .constant("WEIGHTED", 0)
                .params(label_params(p))
                .params([start, len]);
            let call = call.operand(x.logits).operand(x.labels).buffer(8, &row_factors);
            self.launch(call.store(dx), strided_workgroups(len.div_ceil(8)))?;
            start += count;
        }
        Ok(())
    }
}
