//! Connectionist temporal classification: logarithms of frames, sums over alignments, gradients.

use crate::{Cuda, Error, kernels, memory::Memory, workspace::WorkspaceKind};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{CtcArgs, DType},
    ops::Ctc,
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct CtcParams {
    logits: u64,
    targets: u64,
    input_lengths: u64,
    target_lengths: u64,
    losses: u64,
    gradient: u64,
    log_sums: u64,
    path_sums: u64,
    kind: u32,
    shape: [u32; 3],
    letters: u32,
    states: u32,
    blank: u32,
    zero_infinity: u32,
}

impl Cuda {
    pub(crate) fn run_ctc(
        &self, p: &Ctc, x: CtcArgs<&Memory>, losses: &Memory, gradient: Option<&Memory>,
    ) -> Result<(), Error> {
        let shape @ [batch, frames, classes] = p.logits();
        let (rows, states) = (batch * frames, Ctc::states(p.letters()));
        // Numbers of frames and sequences, then both tables of sums.
        let log_sums = rows as usize + batch as usize;
        let at =
            self.workspace_address(WorkspaceKind::Intermediates, 4 * (log_sums + 2 * rows as usize * states as usize))?;
        let len = (rows * classes) as usize;
        let words = |memory: &Memory, len: u32| memory.expect_len(len as usize).typed_address(DType::U32);
        let params = CtcParams {
            logits: x.logits.expect_len(len).at(),
            targets: words(x.targets, batch * p.letters()),
            input_lengths: words(x.input_lengths, batch),
            target_lengths: words(x.target_lengths, batch),
            losses: losses.expect_len(batch as usize).typed_address(DType::F32),
            gradient: gradient.map_or(0, |gradient| gradient.expect_len(len).typed_address(DType::F32)),
            log_sums: at,
            path_sums: at + 4 * log_sums as u64,
            kind: x.logits.kind(),
            shape,
            letters: p.letters(),
            states,
            blank: p.blank(),
            zero_infinity: u32::from(p.zero_infinity()),
        };
        // SAFETY: all operands have the descriptor's sizes, and the scratch memory has both parts; kernels check
        // letters and lengths before they use them as indices.
        unsafe {
            self.launch(&kernels::CTC_ROWS, [rows, 1, 1], &params)?;
            self.launch(&kernels::CTC_SUMS, [2 * batch, 1, 1], &params)?;
            if gradient.is_some() {
                self.launch(&kernels::CTC_GRADIENT, [rows, 1, 1], &params)?;
            }
        }
        Ok(())
    }
}
