//! Forward and data pass, row by row, over padded rows.
//!
//! In pseudo-code, for the forward pass:
//!
//! ```text
//! for each row p of the result                          in parallel
//!     for each kernel row i, if input_coord(p, i) exists
//!         row[i] = zeros, x[input_coord(p, i)] as f32, zeros     found in the cache, or converted
//!     for each column block of the weights              as wide as a register tile
//!         for each pixel q and column o
//!             y[q, o] = Σ over i, j, c of row[i][(q·s + j·d)·C + c] · w[i, j, c][o]
//!     add the bias, then scale, observe, round and store the row
//! ```
//!
//! The real code differs, for these reasons:
//!
//! 1. There is no im2col. That matrix would hold each pixel once for each tap, 49 times for a 7 × 7 kernel. Here the
//!    microkernel reads A in place: pixel q begins q · stride · channels elements after the first. So a row stride is
//!    all it needs.
//!
//! 2. The sum over (j, c) is one run of memory where taps are adjacent. Such a run is a K segment. Without dilation a
//!    kernel row is a single segment of kernel width × channels; with dilation there is one for each tap. The
//!    microkernel takes a list of segments, and keeps its sums in registers over all of them.
//!
//! 3. Zeros are stored around a row, so that no tap needs a test. Kernel rows above or below the image are not in the
//!    list, because skipping a whole row costs nothing.
//!
//! 4. Neighbouring rows of the result share all but a few rows of the operand. Each worker keeps its converted rows in
//!    a [`RowCache`], so that most rows are converted from halves once.
//!
//! 5. The weights that a tile reads should stay in L1 while all pixels of the row pass by. So segments are cut into
//!    blocks of [`WEIGHT_BLOCK_L1`] elements of weights, and the sums are loaded and stored once for each block. For
//!    example, 64 columns allow 128 steps.
//!
//! 6. The data pass with a stride is not one convolution. Pixel v of dx is reached by those taps for which v + pad −
//!    j·d is a multiple of the stride, and these differ with v mod stride. Each remainder is a stride [`Phase`] with
//!    its own segments; its results are `stride` pixels apart. So dy is not dilated with zeros, which would multiply
//!    the work by the square of the stride.
//!
//! 7. Segments have at most [`MAX_SEGMENT_LEN`] steps, because they are the unit of point 5: a longer one could not be
//!    divided.
//!
//! 8. A sum takes its terms in the order (i, j, c), whatever the blocks. So bits depend neither on the block size nor
//!    on the number of threads.
//!
//! `amx::direct` has the same loops with pairs of bf16.

use super::{
    ConvParams,
    padded_rows::{PaddedRows, RowCache},
};
use crate::{
    Cpu, Memory,
    arch::{KSegment, LANES, MicroKernelArgs},
    gemm::Packed,
};

/// Number of weights that all pixels of a row read before the next block: 32 KiB, half or all of L1.
pub const WEIGHT_BLOCK_L1: usize = 8192;
/// Maximum number of steps of a segment: with 64 columns such a segment is exactly one block of weights.
const MAX_SEGMENT_LEN: usize = 128;

/// Plan of a convolution pass: how a row of the result depends on rows of the operand. For the data pass the operand is
/// dy, and input and output channels are exchanged.
pub struct ConvPlan {
    /// Numbers of rows of an image, and of pixels and channels of the operand.
    pub rows: usize,
    pixels: usize,
    channels: usize,
    /// Channels of one group of the operand and of the result, and elements from one pixel of the result to the next.
    pub in_channels: usize,
    pub out_channels: usize,
    pub out_pixel_stride: usize,
    /// Numbers of zero pixels before a row, and of pixels of a row with all padding.
    pad_left: usize,
    padded_width: usize,
    /// Numbers of kernel rows, of steps of k of one, and of rows of the operand from one to the next.
    pub kernel: usize,
    k_per_kernel_row: usize,
    pub dilation: usize,
    pub phases: Vec<Phase>,
}

/// State of one worker of a convolution: its converted rows and the segments of the current row.
pub struct RowWorker<'a> {
    cpu: &'a Cpu,
    plan: &'a ConvPlan,
    weights: &'a [Packed<'a>],
    input_rows: PaddedRows<'a>,
    row_cache: RowCache<'a>,
    /// Kernel rows of the current row of the result, each with the offset of its converted row.
    tap_rows: Vec<(usize, usize)>,
    k_segments: Vec<KSegment>,
}

/// Stride phase of a convolution: pixels of the result that read the operand alike, those with the same remainder
/// modulo the stride.
pub struct Phase {
    /// First pixel, pixels of the result from one to the next, and their number.
    pub first: usize,
    pub output_stride: usize,
    pub count: usize,
    /// Number of pixels of the padded row from one result to the next.
    pub input_stride: usize,
    /// Segments of k of one kernel row.
    pub k_segments: Vec<KSegment>,
}

impl ConvPlan {
    /// Plans the forward pass of a convolution.
    pub fn forward(params: &ConvParams) -> Self {
        let (kernel, depth) = (params.kernel[1], params.in_channels);
        let mut k_segments = Vec::new();
        (0..kernel).for_each(|j| push_segment(&mut k_segments, j * params.dilation[1] * depth, j * depth, depth));
        let phase =
            Phase { first: 0, output_stride: 1, count: params.y[2], input_stride: params.stride[1], k_segments };
        Self {
            rows: params.x[1],
            pixels: params.x[2],
            channels: params.x[3],
            in_channels: depth,
            out_channels: params.out_channels,
            out_pixel_stride: params.y[3],
            pad_left: params.pad[1],
            padded_width: params.padded_width(),
            kernel: params.kernel[0],
            k_per_kernel_row: kernel * depth,
            dilation: params.dilation[0],
            phases: vec![phase],
        }
    }

    /// Plans the data pass of a convolution, the gradient of x.
    pub fn backward_data(params: &ConvParams) -> Self {
        let (stride, width, kernel, depth) = (params.stride[1], params.x[2], params.kernel[1], params.out_channels);
        // Zeros before and after a row of dy, for taps that point outside.
        let pad_left = ((kernel - 1) * params.dilation[1]).div_ceil(stride);
        let phase = |phase: usize| {
            let mut k_segments = Vec::new();
            for j in (0..kernel).rev() {
                // v + pad − j·d = s·q for the first v of this phase, counted from `pad_left`.
                let place = phase + params.pad[1] + pad_left * stride - j * params.dilation[1];
                if place.is_multiple_of(stride) {
                    push_segment(&mut k_segments, place / stride * depth, (kernel - 1 - j) * depth, depth);
                }
            }
            Phase {
                first: phase,
                output_stride: stride,
                count: (width - phase).div_ceil(stride),
                input_stride: 1,
                k_segments,
            }
        };
        Self {
            rows: params.y[1],
            pixels: params.y[2],
            channels: params.y[3],
            in_channels: depth,
            out_channels: params.in_channels,
            out_pixel_stride: params.x[3],
            pad_left,
            padded_width: pad_left + ((width + params.pad[1]).saturating_sub(1) / stride + 1).max(params.y[2]),
            kernel: params.kernel[0],
            k_per_kernel_row: kernel * depth,
            dilation: params.dilation[0],
            phases: (0..stride.min(width)).map(phase).collect(),
        }
    }

    /// Returns the layout of the operand's rows as padded rows, for the first group.
    pub fn input_rows<'a>(&self, operand: &'a Memory) -> PaddedRows<'a> {
        PaddedRows {
            data: operand,
            pixels: self.pixels,
            channels: self.channels,
            first_channel: 0,
            channel_count: self.in_channels,
            pixel_stride: self.in_channels,
            pad_left: self.pad_left,
            padded_width: self.padded_width,
        }
    }

    /// Creates the state of one worker of the convolution.
    pub fn new_worker<'a>(&'a self, cpu: &'a Cpu, operand: &'a Memory, weights: &'a [Packed<'a>]) -> RowWorker<'a> {
        let input_rows = self.input_rows(operand);
        RowWorker {
            cpu,
            plan: self,
            weights,
            input_rows,
            row_cache: RowCache::new(cpu, input_rows.row_stride(), weights.len(), self.kernel, self.dilation),
            tap_rows: Vec::with_capacity(self.kernel),
            k_segments: Vec::new(),
        }
    }
}

impl RowWorker<'_> {
    /// Computes a row of the convolution's result and overwrites `sums`. `from` has the row of the operand that each
    /// kernel row reads.
    pub fn compute_row(&mut self, from: impl Iterator<Item = Option<usize>>, sums: &mut [f32]) {
        let (plan, cpu, input_rows) = (self.plan, self.cpu, self.input_rows);
        self.tap_rows.clear();
        for (i, row) in from.enumerate().filter_map(|(i, row)| Some((i, row?))) {
            let convert = |group: usize, line: &mut [f32]| {
                input_rows.for_group(group).convert_row(cpu, row, line);
                true
            };
            self.tap_rows.push((i, self.row_cache.find_or_convert(row, i, convert).0));
        }
        // As many kernel rows at a time as have their weights in L1.
        let width = plan.out_channels.next_multiple_of(LANES).min(self.cpu.isa().tile_columns());
        let kernel_rows_per_block = (WEIGHT_BLOCK_L1 / width.max(1) / plan.k_per_kernel_row.max(1)).max(1);
        // If a phase has no taps, or no kernel row is inside the image, nothing overwrites the sums.
        let overwrite = !self.tap_rows.is_empty() && plan.phases.iter().all(|phase| !phase.k_segments.is_empty());
        if !overwrite {
            sums.fill(0.0);
        }
        for (group, weights) in self.weights.iter().enumerate() {
            for (i, rows) in self.tap_rows.chunks(kernel_rows_per_block).enumerate() {
                let overwrite = overwrite && i == 0;
                for phase in &plan.phases {
                    self.k_segments.clear();
                    for &(i, line) in rows {
                        let placed =
                            |run: &KSegment| KSegment { a: run.a + line, b: run.b + i * plan.k_per_kernel_row, ..*run };
                        self.k_segments.extend(phase.k_segments.iter().map(placed));
                    }
                    let sums = &mut sums[phase.first * plan.out_pixel_stride + group * plan.out_channels..];
                    plan.accumulate_phase(
                        self.cpu,
                        phase,
                        &self.k_segments,
                        self.row_cache.group_rows(group),
                        weights,
                        sums,
                        overwrite,
                    );
                }
            }
        }
    }
}

impl ConvPlan {
    /// Accumulates the products along `k_segments` to the sums of a phase, or overwrites them.
    #[expect(clippy::too_many_arguments, reason = "what a product depends on")]
    fn accumulate_phase(
        &self, cpu: &Cpu, phase: &Phase, k_segments: &[KSegment], data: &[f32], weights: &Packed<'_>, sums: &mut [f32],
        overwrite: bool,
    ) {
        let max_columns = cpu.isa().tile_columns();
        for from in (0..self.out_channels).step_by(max_columns) {
            let columns = max_columns.min(self.out_channels - from);
            for (i, k_segments) in
                split_into_blocks(k_segments, WEIGHT_BLOCK_L1 / columns.next_multiple_of(LANES)).enumerate()
            {
                let tile = MicroKernelArgs {
                    a: data,
                    a_row_stride: phase.input_stride * self.in_channels,
                    a_k_stride: 1,
                    b: weights.panel(0, from),
                    b_k_stride: weights.row_stride(),
                    k_segments,
                    rows: phase.count,
                    columns,
                    overwrite: overwrite && i == 0,
                    prefetch: &[],
                };
                cpu.isa().accumulate_tile(&tile, &mut sums[from..], phase.output_stride * self.out_pixel_stride);
            }
        }
    }
}

/// Appends steps to a list of segments. They extend the last one where they continue it.
fn push_segment(k_segments: &mut Vec<KSegment>, mut a: usize, mut b: usize, mut depth: usize) {
    while depth != 0 {
        let added = match k_segments.last_mut() {
            Some(run) if run.a + run.depth == a && run.b + run.depth == b && run.depth < MAX_SEGMENT_LEN => {
                let more = depth.min(MAX_SEGMENT_LEN - run.depth);
                run.depth += more;
                more
            }
            _ => {
                k_segments.push(KSegment { a, b, depth: 0 });
                0
            }
        };
        (a, b, depth) = (a + added, b + added, depth - added);
    }
}

/// Splits segments of k into blocks of at most `steps` steps.
fn split_into_blocks(mut k_segments: &[KSegment], steps: usize) -> impl Iterator<Item = &[KSegment]> {
    core::iter::from_fn(move || {
        let mut total = 0;
        let fits = |run: &&KSegment| {
            total += run.depth;
            total <= steps
        };
        let count = k_segments.iter().take_while(fits).count().max(1).min(k_segments.len());
        let (block, rest) = k_segments.split_at(count);
        k_segments = rest;
        (count != 0).then_some(block)
    })
}
