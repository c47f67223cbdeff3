//! Copies of a convolution's operands in scratch memory, so that kernels for aligned operands take any channels and any
//! stride.
//!
//! 1. **Channels** are padded to a multiple of eight. For example, an image of three channels is padded to eight, and dy
//!    of a classifier of 11 classes to 16.
//! 2. **Phases.** The gradient with respect to the input is a sum over all taps, of which only one in stride² reads a
//!    pixel of dy. So a strided convolution is computed as stride² convolutions of stride 1, one for each distance of a
//!    pixel from a multiple of the stride. The taps of each phase are copied to weights of their own. For example, 3 × 3
//!    taps of stride 2 are 4 + 2 + 2 + 1 taps for a quarter of the pixels each: 9 instead of 36.
//!
//! Images of which copies would take more than [`Cuda::max_copy_bytes`] are copied in bands, as `operand_copies.rs` explains.
//! A weight gradient is a sum over all images, so its bands are splits of that sum, and one reduction adds them in order.

use crate::{
    Cuda, Error,
    gemm::Operands,
    gemm_problem::{DataPhase, GemmProblem, MIN_SPLIT_PIXELS},
    memory::Memory,
    operand_copies::{RowCopy, VEC8},
    split_sums::SplitSums,
};
use gradscale_core::{
    backend::{DType, Store},
    ops::{Conv2d, Pass},
};

/// Copies that a pass of a convolution needs.
#[derive(Debug)]
pub(crate) struct ConvCopies {
    /// The convolution with padded channels, or as it is.
    padded: Conv2d,
    /// Phases of the gradient of a strided convolution with respect to its input; otherwise one `None`.
    phases: Vec<Option<DataPhase>>,
}

/// Images of an operand, and what their channels are padded to.
#[derive(Clone, Copy)]
struct ImageRows {
    /// Pixels of an image.
    pixels: u32,
    channels: u32,
    padded_channels: u32,
}

impl ImageRows {
    fn new([_, h, w, channels]: [u32; 4], padded: [u32; 4]) -> Self {
        Self { pixels: h * w, channels, padded_channels: padded[3] }
    }

    const fn is_copied(&self) -> bool {
        self.channels != self.padded_channels
    }

    /// Returns the bytes of an image's copy, 0 if it needs none.
    fn copy_bytes(&self) -> u64 {
        if self.is_copied() { 2 * u64::from(self.pixels) * u64::from(self.padded_channels) } else { 0 }
    }
}

/// Returns the images of both operands of a pass. A weight is none.
fn image_operands(p: &Conv2d, padded: &Conv2d, pass: Pass) -> [Option<ImageRows>; 2] {
    let (x, y) = (ImageRows::new(p.x(), padded.x()), ImageRows::new(p.y(), padded.y()));
    match pass {
        Pass::Forward => [Some(x), None],
        Pass::Data => [Some(y), None],
        // The operand with the rows of the result is first.
        Pass::Weight => [Some(y), Some(x)],
    }
}

/// Returns the convolution of other sizes with the same window.
pub(crate) fn resized(p: &Conv2d, images: u32, channels: u32, outputs: u32) -> Option<Conv2d> {
    let ([_, h, w, _], [_, kh, kw, _]) = (p.x(), p.w());
    let shape = Conv2d::padded([images, h, w, channels], outputs, [kh, kw], p.padding()).ok()?;
    shape.stride(p.strides()).ok()?.dilation(p.dilations()).ok()?.groups(p.group_count()).ok()
}

/// Returns the convolution with its channels padded to multiples of eight, if that is possible.
fn pad_channels(p: &Conv2d, pass: Pass) -> Option<Conv2d> {
    let ([images, _, _, c], [_, oh, ow, o]) = (p.x(), p.y());
    // The reduction of splits drops the results of padded inputs.
    let has_splits = pass != Pass::Weight || c.is_multiple_of(VEC8) || images * oh * ow > MIN_SPLIT_PIXELS;
    if p.group_count() != 1 || !has_splits {
        return None;
    }
    // Forward, outputs are columns of results, which are stored in any number.
    let outputs = if pass == Pass::Forward { o } else { o.next_multiple_of(VEC8) };
    resized(p, images, c.next_multiple_of(VEC8), outputs)
}

/// Describes a pass of `p` by the convolution with padded channels: the results are those of `p`.
fn padded_problem(p: &Conv2d, padded: &Conv2d, pass: Pass, phase: Option<&DataPhase>) -> GemmProblem {
    let problem =
        |p: &Conv2d| phase.map_or_else(|| GemmProblem::conv(p, pass), |phase| GemmProblem::data_phase(p, phase));
    let (original, problem) = (problem(p), problem(padded));
    let mut shape = problem.shape;
    match pass {
        Pass::Forward => {}
        // Kernels store the rows and columns of the shape, so those of padding are not computed.
        Pass::Data => shape.n = original.shape.n,
        Pass::Weight => shape.m = original.shape.m,
    }
    GemmProblem {
        shape,
        stored_columns: original.shape.n,
        ldy: original.ldy,
        y_stride: original.y_stride,
        bias_stride: original.bias_stride,
        placement: original.placement,
        lens: [problem.lens[0], problem.lens[1], original.lens[2], original.lens[3]],
        ..problem
    }
}

/// Returns the copy of the weight's taps that a phase reads, or of all taps; `None` if the weight is used as it is.
fn weight_copy(p: &Conv2d, padded: &Conv2d, phase: Option<&DataPhase>, at: u64, dtype: DType) -> Option<RowCopy> {
    let ([o, kh, kw, inputs], [padded_o, _, _, padded_inputs]) = (p.w(), padded.w());
    let is_padded = [o, inputs] != [padded_o, padded_inputs];
    // A kernel of one tap is that of its phase.
    if !is_padded && (phase.is_none() || kh * kw == 1) {
        return None;
    }
    let (first, step, counts) =
        phase.map_or(([0; 2], [1; 2], [kh, kw]), |phase| (phase.first_tap, phase.tap_step, phase.kernel));
    let tap_halves = inputs * halves(dtype);
    let from = at + 2 * u64::from((first[0] * kw + first[1]) * tap_halves);
    let strides = [kh * kw, step[0] * kw, step[1]].map(|taps| taps * tap_halves);
    let mut copy = RowCopy::new(from, 0, [padded_o, counts[0], counts[1]], strides, tap_halves);
    copy.outer_rows = o;
    Some(copy)
}

/// Returns the halves that an f16 or f32 element takes.
const fn halves(dtype: DType) -> u32 {
    match dtype {
        DType::F32 | DType::U32 => 2,
        DType::F16 | DType::U8 => 1,
    }
}

fn element_count(shape: [u32; 4]) -> u64 {
    shape.into_iter().map(u64::from).product()
}

impl Cuda {
    /// Returns the copies that a pass of a convolution needs, or `None` if it needs none or is faster without.
    pub(crate) fn conv_copies(&self, p: &Conv2d, pass: Pass, types: [DType; 2]) -> Option<ConvCopies> {
        let problem = GemmProblem::conv(p, pass);
        if problem.shape.m == 0 || problem.shape.n == 0 || problem.shape.k == 0 {
            return None;
        }
        let is_half = types == [DType::F16; 2];
        let is_faster = |padded: &Conv2d| {
            let [x, w, y] = [padded.x(), padded.w(), padded.y()].map(element_count);
            let elements = match pass {
                Pass::Forward => x + w,
                Pass::Data => y + w,
                Pass::Weight => x + y,
            };
            self.is_copy_faster([&problem, &padded_problem(p, padded, pass, None)], 2 * elements)
        };
        let padded = (is_half && !problem.is_vectorizable).then(|| pad_channels(p, pass)).flatten().filter(is_faster);
        // Taps are copied as whole vectors.
        let has_whole_vectors = (p.w()[3] * halves(types[1])).is_multiple_of(VEC8);
        let is_numeric = types.iter().all(|dtype| matches!(dtype, DType::F16 | DType::F32));
        let has_phases = pass == Pass::Data
            && p.strides() != [1, 1]
            && is_numeric
            && (padded.is_some() || has_whole_vectors && (problem.is_vectorizable || !is_half));
        let phases = has_phases.then(|| DataPhase::of_conv(p)).flatten();
        if padded.is_none() && phases.is_none() {
            return None;
        }
        let phases = phases.map_or_else(|| vec![None], |phases| phases.into_iter().map(Some).collect());
        Some(ConvCopies { padded: padded.unwrap_or(*p), phases })
    }

    /// Computes a pass of a convolution from copies of its operands.
    pub(crate) fn run_copied_conv(
        &self, p: &Conv2d, pass: Pass, copies: &ConvCopies, x: &Operands, bias: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let ConvCopies { padded, phases } = copies;
        let ([images, h, w, c], [.., o]) = (p.x(), p.y());
        let operands = image_operands(p, padded, pass);
        let image_bytes = operands.map(|rows| rows.map_or(0, |rows| rows.copy_bytes()));
        // The last band of a weight gradient must have two splits, too.
        let is_divisible = pass != Pass::Weight || p.y()[1] * p.y()[2] > MIN_SPLIT_PIXELS;
        let copied_bytes = image_bytes[0] + image_bytes[1];
        let band = if copied_bytes == 0 || !is_divisible {
            images
        } else {
            u32::try_from(self.max_copy_bytes() / copied_bytes).unwrap_or(images).clamp(1, images)
        };
        let mut weights: Vec<Option<RowCopy>> = if pass == Pass::Weight {
            vec![None; phases.len()]
        } else {
            phases.iter().map(|phase| weight_copy(p, padded, phase.as_ref(), x.at[1], x.types[1])).collect()
        };
        let weight_bytes: u64 = weights.iter().flatten().map(RowCopy::bytes).sum();
        let band_bytes = image_bytes.map(|bytes| bytes * u64::from(band));
        let mut free = self.copies_workspace(weight_bytes + band_bytes[0] + band_bytes[1])?;
        for copy in weights.iter_mut().flatten() {
            copy.to = free;
            free += copy.bytes();
            self.copy_rows(copy)?;
        }
        let image_copies = [free, free + band_bytes[0]];
        // Results of an image. A weight gradient has one band.
        let result_len = if pass == Pass::Forward { p.y()[1] * p.y()[2] * o } else { h * w * c };
        let y_len = GemmProblem::conv(p, pass).lens[3];
        let mut split_sums = None;
        for first in (0..images).step_by(band.max(1) as usize) {
            let count = band.min(images - first);
            let mut at = x.at;
            for (i, rows) in operands.iter().enumerate() {
                let Some(rows) = rows else { continue };
                // More than one band has halves.
                at[i] += 2 * u64::from(first) * u64::from(rows.pixels) * u64::from(rows.channels);
                if rows.is_copied() {
                    let (counts, strides) = ([1, 1, count * rows.pixels], [0, 0, rows.channels]);
                    self.copy_rows(&RowCopy::new(at[i], image_copies[i], counts, strides, rows.channels))?;
                    at[i] = image_copies[i];
                }
            }
            let of_band = |p: &Conv2d| resized(p, count, p.x()[3], p.y()[3]).unwrap_or(*p);
            let (original, padded) = (of_band(p), of_band(padded));
            for (phase, weight) in phases.iter().zip(&weights) {
                at[1] = weight.map_or(at[1], |copy| copy.to);
                let mut problem = padded_problem(&original, &padded, pass, phase.as_ref());
                problem.lens[3] = y_len;
                let operands = Operands { at, types: x.types, parts: None };
                if pass != Pass::Weight || band == images {
                    problem.placement.start += first * result_len;
                    self.launch_problem(&problem, &operands, bias, y, None)?;
                    continue;
                }
                problem.min_splits = 2;
                let sums = match split_sums {
                    Some(sums) => sums,
                    None => self.split_sums(&problem, images, band, x.types)?,
                };
                split_sums = Some(self.launch_band(&problem, sums, &operands, y, first + band >= images)?);
            }
        }
        Ok(())
    }

    /// Reserves the partial sums of a weight gradient of several bands. `problem` is that of the first.
    fn split_sums(&self, problem: &GemmProblem, images: u32, band: u32, types: [DType; 2]) -> Result<SplitSums, Error> {
        let config = self.select_config(problem, types)?;
        let rest = images % band;
        let mut last = *problem;
        last.shape.k = problem.shape.k / band * rest;
        let last_splits = if rest == 0 { 0 } else { self.split_count(&last, config) };
        let splits = images / band * self.split_count(problem, config) + last_splits;
        self.reserve_split_sums(problem, config, splits)
    }
}
