//! Convolutions of images of few channels: these are padded to eight, so that kernels for aligned operands take them.

use crate::{
    Cuda, Error, gemm::Operands, gemm_problem::GemmProblem, kernels::PAD, memory::Memory, workspace::WorkspaceKind,
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{Buffer, DType, Store},
    ops::{Conv2d, Pass},
};

/// Parameters of the kernel `pad`: `PadParams` of `pad.cu`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PadParams {
    x: u64,
    y: u64,
    rows: u32,
    channels: u32,
}

/// Number of channels that operands are padded to, so that they are aligned.
const PADDED_CHANNELS: u32 = 8;
/// Bytes of the halves of eight channels, to which a pixel is padded.
const PADDED_ROW_BYTES: usize = 2 * PADDED_CHANNELS as usize;
/// Pixels from which on a weight gradient is a sum in parts, whose last addition leaves the padding out.
const MIN_SPLIT_PIXELS: u32 = 128;

/// Returns the convolution with its channels padded to eight, if that is faster.
fn pad_channels(p: &Conv2d, pass: Pass) -> Option<Conv2d> {
    let ([n, h, w, c], [_, oh, ow, o], [_, kh, kw, _]) = (p.x(), p.y(), p.w());
    let fits = match pass {
        Pass::Forward => true,
        Pass::Weight => o.is_multiple_of(PADDED_CHANNELS) && n * oh * ow > MIN_SPLIT_PIXELS,
        // The gradient of a picture is not needed.
        Pass::Data => false,
    };
    if !fits || p.group_count() != 1 || c == 0 || c >= PADDED_CHANNELS {
        return None;
    }
    let [kernel, pad] = [[kh, kw], p.padding()];
    let shape = Conv2d::padded([n, h, w, PADDED_CHANNELS], o, kernel, pad).ok()?;
    shape.stride(p.strides()).ok()?.dilation(p.dilations()).ok()
}

impl Cuda {
    /// Runs a convolution of few channels; false: it is none. `a` is the operand that has the rows of the result.
    pub(crate) fn run_channel_padded(
        &self, p: &Conv2d, pass: Pass, [a, b]: [&Memory; 2], bias: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<bool, Error> {
        let halves = a.dtype() == DType::F16 && b.dtype() == DType::F16;
        let Some(padded) = pad_channels(p, pass).filter(|_| halves) else { return Ok(false) };
        let (original, problem) = (GemmProblem::conv(p, pass), GemmProblem::conv(&padded, pass));
        let mut operands = Operands::from_problem(&original, a, b);
        // Which of them have channels of x in their rows: dy has not.
        let has_channels = [pass == Pass::Forward, true];
        let rows = |i: usize| if has_channels[i] { original.lens[i] / p.x()[3] as usize } else { 0 };
        let mut to = self.workspace_address(WorkspaceKind::PaddedOperands, PADDED_ROW_BYTES * (rows(0) + rows(1)))?;
        for i in [0, 1].into_iter().filter(|&i| has_channels[i]) {
            let count = u32::try_from(rows(i)).expect("fewer than 2^32 elements, as descriptors say");
            let blocks = [self.fill_device(&PAD, count.div_ceil(256))?, 1, 1];
            let params = PadParams { x: operands.at[i], y: to, rows: count, channels: p.x()[3] };
            // SAFETY: x has rows of `channels` values, and the scratch memory has space for rows of eight.
            unsafe { self.launch(&PAD, blocks, &params)? };
            operands.at[i] = to;
            to += (PADDED_ROW_BYTES * rows(i)) as u64;
        }
        let problem =
            GemmProblem { ldy: original.ldy, y_stride: original.y_stride, stored_columns: original.shape.n, ..problem };
        let lens = [problem.lens[0], problem.lens[1], original.lens[2], original.lens[3]];
        self.launch_problem(&GemmProblem { lens, ..problem }, &operands, bias, y, None)?;
        Ok(true)
    }
}
