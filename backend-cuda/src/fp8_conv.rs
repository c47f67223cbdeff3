//! Convolutions of operands of eight bits, in the forward and the data pass: both operands are packed from halves to bytes
//! (`fp8_operands.rs`), and multiplied by tensor cores that read bytes.
//!
//! 1. **One sum for both passes.** The gradient of a pixel of x is a convolution of dy with the taps in reverse order. So
//!    the data pass packs the weights in that order, transposed, because tensor cores take bytes along the sum only. Then
//!    both passes gather pixels of an image: x or dy.
//! 2. **Phases.** A strided convolution has a data pass of stride² convolutions, as in `conv_copies.rs`.
//! 3. **Channels** of a group that are summed are a multiple of 16, those of one load. [`Conv2d::has_eight_bit_operands`]
//!    decides this. Other convolutions, and weight gradients, multiply halves.
//! 4. **Bands.** Images of which packed copies would take more than [`Cuda::max_copy_bytes`] are packed in bands.
//!
//! Errors of sums are those of `fp8_gemm.rs`.

use crate::{
    Cuda, Error,
    fp8_operands::{HalfOperand, PackedShape, Taps},
    gemm::Operands,
    gemm_problem::{ConvParams, DataPhase, GemmKind, GemmProblem, OperandStrides, ResultPlacement},
    memory::Memory,
};
use gradscale_core::{
    backend::Store,
    ops::{Conv2d, GemmShape, Pass},
};

/// Convolution of a packed image: the forward pass, or a phase of the data pass.
pub(crate) struct Gather {
    /// Product for all images, whose parameters are named as in a data pass: `GemmParams` of `mma_fp8.cu`.
    problem: GemmProblem,
    /// First of the packed weights, in halves, their strides, and their sizes.
    weights_start: u32,
    weights_strides: [u32; 3],
    weights: PackedShape,
}

/// Returns the number of values of a tensor of a convolution, which fits by its construction.
fn value_count(shape: [u32; 4]) -> u32 {
    shape.into_iter().product()
}

impl Gather {
    /// Describes the forward pass.
    fn forward(p: &Conv2d) -> Self {
        let problem = GemmProblem::conv(p, Pass::Forward);
        let ConvParams { x: [h, w, c], y, inputs, outputs, .. } = problem.conv;
        let conv = ConvParams { x: y, y: [h, w, c / 2], inputs: outputs, outputs: inputs / 2, ..problem.conv };
        Self {
            problem: of_pairs(&problem, conv),
            weights_start: 0,
            weights_strides: [0, 1, 0],
            // The sum is contiguous, so all weights are one row.
            weights: PackedShape::matrices(1, 1, value_count(p.w())),
        }
    }

    /// Describes a phase of the data pass; `None` if a number does not fit.
    fn data(p: &Conv2d, phase: &DataPhase) -> Option<Self> {
        let problem = GemmProblem::data_phase(p, phase);
        let [_, _, kernel_w, inputs] = p.w();
        let ConvParams { y: [rows, columns, channels], outputs, .. } = problem.conv;
        // Distance from the first to the last tap, which is the first in reverse order.
        let reach = |axis: usize| i64::from(phase.kernel[axis].saturating_sub(1)) * i64::from(phase.dilation[axis]);
        let pad = |axis: usize| i32::try_from(reach(axis) - i64::from(phase.pad[axis])).ok();
        let conv = ConvParams {
            y: [rows, columns, channels / 2],
            pad: [pad(0)?, pad(1)?].map(i32::cast_unsigned),
            outputs: outputs / 2,
            ..problem.conv
        };
        // Without a stride, the results are whole rows.
        let placement = if p.strides() == [1, 1] { ResultPlacement::default() } else { problem.placement };
        let filter = value_count(p.w()) / channels;
        Some(Self {
            problem: GemmProblem { placement, ..of_pairs(&problem, conv) },
            weights_start: (phase.first_tap[0] * kernel_w + phase.first_tap[1]) * inputs,
            weights_strides: [1, filter, outputs * filter],
            weights: PackedShape {
                matrices: p.group_count(),
                rows: inputs,
                k: outputs,
                taps: Taps {
                    rows: phase.kernel[0],
                    columns: phase.kernel[1],
                    strides: [phase.tap_step[0] * kernel_w * inputs, phase.tap_step[1] * inputs],
                },
            },
        })
    }
}

/// Returns the product of packed operands, whose k is counted in pairs.
fn of_pairs(problem: &GemmProblem, conv: ConvParams) -> GemmProblem {
    let k = conv.kernel[0] * conv.kernel[1] * conv.outputs;
    let shape = GemmShape { k, ..problem.shape };
    GemmProblem {
        kind: GemmKind::Conv(Pass::Data),
        shape,
        strides: OperandStrides { b: [1, k, shape.n * k], ..OperandStrides::default() },
        conv,
        is_vectorizable: true,
        im2col: None,
        ..*problem
    }
}

impl Cuda {
    /// Returns the convolutions of packed images that compute a pass; `None` if a number does not fit, or if there is
    /// nothing to be summed.
    pub(crate) fn fp8_gathers(p: &Conv2d, pass: Pass) -> Option<Vec<Gather>> {
        if [p.x(), p.w(), p.y()].map(value_count).contains(&0) {
            return None;
        }
        match pass {
            Pass::Forward => Some(vec![Gather::forward(p)]),
            Pass::Data => DataPhase::of_conv(p)?.iter().map(|phase| Gather::data(p, phase)).collect(),
            Pass::Weight => None,
        }
    }

    /// Computes a pass of a convolution whose halves are all values of formats of eight bits.
    ///
    /// # Errors
    /// [`Error::NoEightBitProducts`] on a device without such products, [`Error::OutOfMemory`], and the driver's.
    pub(crate) fn run_fp8_conv(
        &self, p: &Conv2d, gathers: &[Gather], x: &Operands, bias: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        self.require_eight_bit_products()?;
        let images = p.x()[0];
        let [image, weights] = [0, 1].map(|i| HalfOperand { at: x.at[i], format: p.formats()[i], strides: [0, 1, 0] });
        let image_values = gathers.first().map_or(0, |gather| gather.problem.conv.y.into_iter().product::<u32>() * 2);
        let fitting = u32::try_from(self.max_copy_bytes() / u64::from(image_values.max(1))).unwrap_or(images);
        let band_images = fitting.clamp(1, images);
        let band_pairs = PackedShape::matrices(1, 1, band_images * image_values).pairs()?;
        let weight_pairs = gathers.iter().map(|gather| gather.weights.pairs()).collect::<Result<Vec<_>, _>>()?;
        let weight_bytes: u64 = weight_pairs.iter().map(|&pairs| 2 * u64::from(pairs)).sum();
        let image_packed = self.copies_workspace(2 * u64::from(band_pairs) + weight_bytes)?;
        let mut free = image_packed + 2 * u64::from(band_pairs);
        let mut weights_packed = vec![];
        for (gather, pairs) in gathers.iter().zip(weight_pairs) {
            weights_packed.push(free);
            if pairs != 0 {
                let at = weights.at + 2 * u64::from(gather.weights_start);
                self.pack_operand(
                    &HalfOperand { at, strides: gather.weights_strides, ..weights },
                    free,
                    gather.weights,
                )?;
            }
            free += 2 * u64::from(pairs);
        }
        for first in (0..images).step_by(band_images as usize) {
            let count = band_images.min(images - first);
            let at = image.at + 2 * u64::from(first) * u64::from(image_values);
            let shape = PackedShape::matrices(1, 1, count * image_values);
            self.pack_operand(&HalfOperand { at, ..image }, image_packed, shape)?;
            for (gather, &packed) in gathers.iter().zip(&weights_packed) {
                let problem = &gather.problem;
                let m = problem.shape.m / images * count;
                let start = problem.placement.start + first * (y_len(problem) / images);
                let band = GemmProblem {
                    shape: GemmShape { m, ..problem.shape },
                    placement: ResultPlacement { start, ..problem.placement },
                    ..*problem
                };
                let config = self.select_fp8_kernel(&band, p.formats())?;
                let operands = Operands { at: [image_packed, packed], types: x.types, parts: None };
                self.launch_problem(&band, &operands, bias, y, Some(config))?;
            }
        }
        Ok(())
    }
}

/// Returns the number of results of all phases.
fn y_len(problem: &GemmProblem) -> u32 {
    u32::try_from(problem.lens[3]).unwrap_or(u32::MAX)
}
