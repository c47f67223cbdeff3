//! Convolutions as products over padded rows, without im2col.
//!
//! A row of the result depends on a few rows of its operand. These are converted to f32 rows with zeros around them, in
//! which the pixels of one tile are evenly spaced. So the microkernel reads them in place, and keeps its sums in
//! registers over as many taps as have their weights in L1.
//!
//! ```text
//! forward   y[q, o]     = Σ row[q·s + j·d, c] · w[o, i, j, c]          columns o, steps (i, j, c)
//! data      dx[v, c]    = Σ row[(v + pad − j·d)/s, o] · w[o, i, j, c]   columns c, steps (i, j, o), one stride phase v mod s at a time
//! weight    dw[o, j, c] = Σ dy[q, o] · row[q·s + j·d, c]               columns (j, c), steps q
//! ```
//!
//! `direct` has the first two, `batched_small` the same for batches of small images, and `weight_grad` the third. A 1 ×
//! 1 convolution without stride and padding is a matrix product.

#[cfg(target_arch = "x86_64")]
mod amx;
mod batched_small;
mod direct;
mod padded_rows;
mod weight_grad;
mod work_item;

use crate::{
    Cpu, Memory,
    gemm::{Matrix, Packed},
    threading::Cost,
};
use batched_small::BatchedConv;
use direct::ConvPlan;
use gradscale_core::{
    backend::Store,
    ops::{Conv2d, Gemm, Pass},
};

/// Sizes of a convolution as usize: shapes, kernel, stride, padding, dilation, groups.
#[derive(Clone, Copy)]
struct ConvParams {
    x: [usize; 4],
    y: [usize; 4],
    kernel: [usize; 2],
    stride: [usize; 2],
    pad: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
    /// Number of input channels, and of output channels, of one group.
    in_channels: usize,
    out_channels: usize,
}

impl ConvParams {
    /// Reads the sizes of a convolution from its descriptor.
    fn new(p: &Conv2d) -> Self {
        let (w, groups) = (p.w().map(|size| size as usize), p.group_count() as usize);
        Self {
            x: p.x().map(|size| size as usize),
            y: p.y().map(|size| size as usize),
            kernel: [w[1], w[2]],
            stride: p.strides().map(|size| size as usize),
            pad: p.padding().map(|size| size as usize),
            dilation: p.dilations().map(|size| size as usize),
            groups,
            in_channels: w[3],
            out_channels: w[0] / groups,
        }
    }

    /// Returns the number of taps of the kernel.
    const fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Returns the number of weights of one output channel.
    const fn weights_per_output(&self) -> usize {
        self.taps() * self.in_channels
    }

    /// Returns the cost of a pass, which is the same for all three.
    fn cost(&self) -> Cost {
        Cost::macs(self.y.iter().product::<usize>() * self.weights_per_output())
    }

    /// Returns the coordinate in x along axis 0 (rows) or 1 (pixels of a row) that output `p` reads with tap `i`;
    /// `None` in the padding.
    fn input_coord(&self, axis: usize, p: usize, i: usize) -> Option<usize> {
        let at = (p * self.stride[axis] + i * self.dilation[axis]).checked_sub(self.pad[axis])?;
        (at < self.x[1 + axis]).then_some(at)
    }

    /// Returns the row of x that row `row` of y reads with kernel row `i`, both counted over all images.
    fn input_row(&self, row: usize, i: usize) -> Option<usize> {
        Some(row / self.y[1] * self.x[1] + self.input_coord(0, row % self.y[1], i)?)
    }

    /// Returns the row of y that reads row `u` of x with kernel row `i`.
    fn output_row(&self, u: usize, i: usize) -> Option<usize> {
        let at = (u + self.pad[0]).checked_sub(i * self.dilation[0])?;
        (at.is_multiple_of(self.stride[0]) && at / self.stride[0] < self.y[1]).then_some(at / self.stride[0])
    }

    /// Returns the number of pixels of a row of x with its padding.
    const fn padded_width(&self) -> usize {
        (self.y[2] - 1) * self.stride[1] + (self.kernel[1] - 1) * self.dilation[1] + 1
    }
}

/// Returns the matrix product that equals a forward or data pass, if each pixel is read by one tap and there is no
/// padding.
fn as_gemm(p: &Conv2d, pass: Pass) -> Option<Gemm> {
    let ([outs, height, width, depth], [images, rows, pixels, _]) = (p.w(), p.x());
    if [height, width] != [1; 2] || p.strides() != [1; 2] || p.padding() != [0; 2] || p.group_count() != 1 {
        return None;
    }
    let m = images * rows * pixels;
    match pass {
        Pass::Forward => Gemm::new(m, outs, depth).and_then(Gemm::transpose_b).ok(),
        Pass::Data => Gemm::new(m, depth, outs).ok(),
        Pass::Weight => None,
    }
}

impl Cpu {
    /// Runs one pass of a convolution: forward, data or weight.
    pub(crate) fn run_conv(
        &self, p: &Conv2d, pass: Pass, a: &Memory, b: &Memory, bias: Option<&Memory>, y: Store<'_, Self>,
    ) {
        if let Some(p) = as_gemm(p, pass) {
            return self.run_gemm(&p, a, b, bias, y);
        }
        let params = ConvParams::new(p);
        let plan = match pass {
            Pass::Forward => ConvPlan::forward(&params),
            Pass::Data => ConvPlan::backward_data(&params),
            Pass::Weight => return self.conv_weight_grad(&params, a, b, y),
        };
        let [images, rows, pixels, channels] = if pass == Pass::Forward { params.y } else { params.x };
        let bias = bias.map(|bias| (0..channels).map(|c| bias.get(c)).collect::<Vec<f32>>());
        let operand_rows = |row: usize| {
            let plan = &plan;
            (0..params.kernel[0]).map(move |i| {
                let at = if pass == Pass::Forward {
                    params.input_coord(0, row % rows, i)
                } else {
                    params.output_row(row % rows, i)
                };
                at.map(|at| row / rows * plan.rows + at)
            })
        };
        let (size, cost) = ([images * rows, pixels, channels], params.cost());
        #[cfg(target_arch = "x86_64")]
        if let Some(weights) = amx::PackedWeights::new(self, &params, pass, &plan, [a, b]) {
            return self.store_rows(size, bias, cost, y, || {
                let plain = || self.pack_weights(&params, pass, b, Packed::new_on_this_thread);
                let mut worker = weights.new_worker(self, &plan, a, plain);
                move |row, sums: &mut [f32]| worker.compute_row(operand_rows(row), sums)
            });
        }
        let weights = self.pack_weights(&params, pass, b, Packed::new);
        if let Some(batched) = BatchedConv::new(self, &params, pass) {
            return batched.compute(&params, a, &weights[0], bias.as_deref(), y);
        }
        self.store_rows(size, bias, cost, y, || {
            let mut worker = plan.new_worker(self, a, &weights);
            move |row, sums: &mut [f32]| worker.compute_row(operand_rows(row), sums)
        });
    }

    /// Packs the convolution's weights of every group with `pack`.
    fn pack_weights<'a>(
        &'a self, params: &ConvParams, pass: Pass, b: &Memory,
        pack: impl Fn(&'a Self, &[Matrix<'_>], usize, usize) -> Packed<'a>,
    ) -> Vec<Packed<'a>> {
        let matrix = |start: usize, strides: [usize; 2]| Matrix { data: b, start, strides };
        let pack_group = |group: usize| {
            let first = group * params.out_channels * params.weights_per_output();
            if pass == Pass::Forward {
                return pack(
                    self,
                    &[matrix(first, [1, params.weights_per_output()])],
                    params.weights_per_output(),
                    params.out_channels,
                );
            }
            // The taps of a kernel row in reverse, because the data pass reads dy backwards.
            let taps = (0..params.taps()).map(|tap| tap + params.kernel[1] - 1 - 2 * (tap % params.kernel[1]));
            let taps: Vec<Matrix<'_>> =
                taps.map(|tap| matrix(first + tap * params.in_channels, [params.weights_per_output(), 1])).collect();
            pack(self, &taps, params.out_channels, params.in_channels)
        };
        (0..params.groups).map(pack_group).collect()
    }
}
