//! Convolutions of images of few channels: these are padded to eight, so that kernels for aligned operands take them.

use crate::{Cuda, Error, gemm::Operands, gemm_problem::Plan, kernels::PAD, memory::Memory, workspace::Use};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{Buffer, DType, Store},
    ops::{Conv2d, Pass},
};

/// `PadParams` of `pad.cu`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PadParams {
    x: u64,
    y: u64,
    rows: u32,
    channels: u32,
}

/// Channels that aligned operands have at least.
const CHANNELS: u32 = 8;
/// Halves of eight channels.
const ROW: usize = 2 * CHANNELS as usize;
/// Pixels from which on a weight gradient is a sum in parts, whose last addition leaves the padding out.
const LONG: u32 = 128;

/// The same convolution of images of eight channels, if that is worth it.
fn padded(p: &Conv2d, pass: Pass) -> Option<Conv2d> {
    let ([n, h, w, c], [_, oh, ow, o], [_, kh, kw, _]) = (p.x(), p.y(), p.w());
    let fits = match pass {
        Pass::Forward => true,
        Pass::Weight => o.is_multiple_of(CHANNELS) && n * oh * ow > LONG,
        // Nobody wants the gradient of a picture.
        Pass::Data => false,
    };
    if !fits || p.group_count() != 1 || c == 0 || c >= CHANNELS {
        return None;
    }
    let [kernel, pad] = [[kh, kw], p.padding()];
    let shape = Conv2d::padded([n, h, w, CHANNELS], o, kernel, pad).ok()?;
    shape.stride(p.strides()).ok()?.dilation(p.dilations()).ok()
}

impl Cuda {
    /// Runs a convolution of few channels; false: it is none. `a` is what gives the rows of the result.
    pub(crate) fn run_padded(
        &self, p: &Conv2d, pass: Pass, [a, b]: [&Memory; 2], bias: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<bool, Error> {
        let halves = a.dtype() == DType::F16 && b.dtype() == DType::F16;
        let Some(wide) = padded(p, pass).filter(|_| halves) else { return Ok(false) };
        let (narrow, plan) = (Plan::conv(p, pass), Plan::conv(&wide, pass));
        let mut operands = Operands::of(&narrow, a, b);
        // Which of them have channels of x in their rows: dy has not.
        let has_channels = [pass == Pass::Forward, true];
        let rows = |i: usize| if has_channels[i] { narrow.lens[i] / p.x()[3] as usize } else { 0 };
        let mut to = self.scratch(Use::Padded, ROW * (rows(0) + rows(1)))?;
        for i in [0, 1].into_iter().filter(|&i| has_channels[i]) {
            let count = u32::try_from(rows(i)).expect("fewer than 2^32 elements, as descriptors say");
            let blocks = [self.filling(&PAD, count.div_ceil(256))?, 1, 1];
            let params = PadParams { x: operands.at[i], y: to, rows: count, channels: p.x()[3] };
            // SAFETY: rows of so many channels are there, and of eight in the scratch memory.
            unsafe { self.launch(&PAD, blocks, &params)? };
            operands.at[i] = to;
            to += (ROW * rows(i)) as u64;
        }
        let plan = Plan { y_lead: narrow.y_lead, y_stride: narrow.y_stride, kept: narrow.mnk[1], ..plan };
        let lens = [plan.lens[0], plan.lens[1], narrow.lens[2], narrow.lens[3]];
        self.run_product(&Plan { lens, ..plan }, &operands, bias, y, None)?;
        Ok(true)
    }
}
