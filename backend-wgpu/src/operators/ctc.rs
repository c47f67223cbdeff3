//! Connectionist temporal classification: logarithms of frames, sums over alignments, gradients.

use crate::{Error, Memory, Wgpu, kernel, kernel::Kernel, launch::KernelLaunch, memory::Bytes};
use gradscale_core::{backend::CtcArgs, ops::Ctc};

impl Wgpu {
    pub(crate) fn run_ctc(
        &self, p: &Ctc, x: CtcArgs<&Memory>, losses: &Memory, gradient: Option<&Memory>,
    ) -> Result<(), Error> {
        let [batch, frames, classes] = p.logits();
        let states = Ctc::states(p.letters());
        let zero_infinity = u32::from(p.zero_infinity());
        // As many sequences per launch as fit one binding with both tables of sums, but at least one.
        let each = 8 * u64::from(frames.max(1)) * u64::from(states);
        let most = u32::try_from(self.largest_binding() / each).unwrap_or(u32::MAX).max(1);
        let mut first = 0;
        while first < batch {
            let count = most.min(batch - first);
            let (rows, bytes) = (count * frames, each * u64::from(count));
            let table = self.tables(bytes)?;
            let numbers = self.intermediates(4 * (u64::from(rows) + u64::from(count)))?;
            let call = |kernel: &'static Kernel| {
                let call = KernelLaunch::new(kernel).params([
                    first,
                    count,
                    frames,
                    classes,
                    p.letters(),
                    states,
                    p.blank(),
                    zero_infinity,
                ]);
                call.operand(x.logits).buffer(8, &numbers)
            };
            if rows != 0 {
                self.launch(call(&kernel::CTC_ROWS), rows)?;
            }
            let sums = Bytes { size: bytes, ..Bytes::whole(&table) };
            let with_targets = |kernel: &'static Kernel, out| {
                let call = call(kernel).memory(6, x.targets).memory(7, x.input_lengths);
                call.memory(9, x.target_lengths).part(10, sums).memory(3, out)
            };
            self.launch(with_targets(&kernel::CTC_SUMS, losses), 2 * count)?;
            if let Some(gradient) = gradient.filter(|_| rows != 0) {
                self.launch(with_targets(&kernel::CTC_GRADIENT, gradient), rows)?;
            }
            first += count;
        }
        Ok(())
    }
}
