//! Forward and data pass for batches of small images with many channels.
//!
//! In pseudo-code:
//!
//! ```text
//! for each work item: some images, or some rows of one image              in parallel
//!     convert the operand of the item to f32     [row, position, image, channel]
//!     for each column block of the weights       as wide as a register tile
//!         for each tap (i, j)
//!             for each block of channels          its weights fit L1
//!                 for each row of the result that tap i reaches
//!                     sums[row, positions of j, all images] += operand[…] · weights
//!     add the bias, then scale, observe, round and store
//! ```
//!
//! The row-by-row code of `direct` has the loops in another order, for these reasons:
//!
//! 1. Row by row, each row of the result reads all weights. That is fine as long as they stay in L2. With 512 input and
//!    512 output channels a 3 × 3 kernel has 2.4 million weights, 9 MiB of f32. A row of 7 pixels is done with them
//!    after 7 multiply-accumulates each, so the processor waits for memory. Here all pixels of the item use a block of
//!    weights before the next block is loaded.
//!
//! 2. A tile should be as high as registers allow, 6 to 24 rows, and a row of the image has fewer pixels. So the same
//!    position of several images is contiguous: the rows of a tile are first the images, then the pixels of a row. For
//!    example, 4 images of 7 pixels are 28 rows.
//!
//! 3. A tap outside of the image contributes nothing, and there is no padding to read it from. So each kernel column
//!    has its own first position and count. Weights that are not finite show the difference: ∞ · 0 of a padded row is
//!    NaN, and a skipped tap adds nothing. The choice between both paths therefore depends on the shape alone, never on
//!    the number of threads.
//!
//! 4. With a stride, the pixels that one tap reads are `stride` apart, so they would not be evenly spaced together with
//!    images. The pixels of a row of x are permuted by stride phase: first all with remainder 0, then all with
//!    remainder 1. Then the pixels of a tap are neighbours.
//!
//! 5. Two pixels are channels + 16 elements apart. Without the gap, the same channel of many pixels would share few
//!    sets of L1, because channels are often a power of two.
//!
//! 6. The sums of an item are f32 in a workspace and are added to in every innermost loop. Operand and sums of an item
//!    together are at most [`MAX_TILE_ELEMENTS`], a MiB of f32.
//!
//! 7. Work items are small enough for all threads to have some, but each loads all weights once. [`rows_per_item`]
//!    minimises the time of the slowest thread, with the load counted as [`WEIGHT_LOAD_COST_PIXELS`] pixels.
//!
//! 8. Each row of a result has its own row of statistics, merged in order, so that rounded sums do not depend on the
//!    items.

use super::{ConvParams, direct::WEIGHT_BLOCK_L1};
use crate::{
    Cpu, Memory,
    arch::{KSegment, LANES, MicroKernelArgs},
    elementwise::load_f32,
    epilogue::{Epilogue, OutputSlice, output_slice, report_stats},
    gemm::Packed,
    stats_accumulator::StatsAccumulator,
    workspace::Workspace,
};
use core::ops::Range;
use gradscale_core::{backend::Store, ops::Pass};

/// Minimum number of weights for the path of batched small images: 512 KiB of f32, half an L2 of a MiB. Fewer stay in
/// L2 from row to row.
const MIN_WEIGHTS: usize = 131_072;
/// Minimum number of input channels for this path, because the steps of a tile are the channels of one tap.
const MIN_IN_CHANNELS: usize = 4 * LANES;
/// Maximum number of elements of operand and sums of a work item: a MiB of f32.
const MAX_TILE_ELEMENTS: usize = 262_144;
/// Cost of loading all weights, which each work item does, in pixels of results.
const WEIGHT_LOAD_COST_PIXELS: usize = 16;

/// Plan of a convolution pass over a batch of small images.
pub struct BatchedConv<'a> {
    cpu: &'a Cpu,
    operand: FeatureMapLayout,
    result: FeatureMapLayout,
    /// Rows that each kernel row connects; pixels that each kernel column connects, in the order of the packed weights.
    rows: Vec<Vec<KernelTap>>,
    columns: Vec<KernelTap>,
    /// Number of rows of results of a work item: all rows of some images, or an equal part of the rows of one.
    rows_per_item: usize,
}

/// Layout of a batch of feature maps, [row, position, image, channel]. Positions are pixels permuted by stride phase.
struct FeatureMapLayout {
    rows: usize,
    pixels: usize,
    channels: usize,
    /// Number of elements from one pixel to the next.
    pixel_stride: usize,
    /// Position in the layout of each pixel of a row.
    positions: Vec<usize>,
}

/// First row or position of operand and result that a tap connects, and their count.
struct KernelTap {
    operand: usize,
    result: usize,
    count: usize,
}

/// Work item of a batched convolution: images, and the rows of their results that one task computes.
struct WorkItem {
    images: Range<usize>,
    rows: Range<usize>,
}

impl FeatureMapLayout {
    fn new([_, rows, pixels, channels]: [usize; 4], stride: usize) -> Self {
        let mut order: Vec<usize> = (0..pixels).collect();
        order.sort_by_key(|pixel| pixel % stride);
        let mut positions = vec![0; pixels];
        order.iter().enumerate().for_each(|(position, &pixel)| positions[pixel] = position);
        Self { rows, pixels, channels, pixel_stride: channels, positions }
    }

    /// Returns the offset in the layout of a row and position of the first of `images` images.
    const fn offset_of(&self, row: usize, position: usize, images: usize) -> usize {
        (row * self.pixels + position) * images * self.pixel_stride
    }

    /// Returns the offsets in the layout of the pixels of a row of one image.
    fn pixel_offsets(&self, row: usize, images: usize, image: usize) -> impl Iterator<Item = usize> {
        self.positions.iter().map(move |&position| self.offset_of(row, position, images) + image * self.pixel_stride)
    }
}

impl<'a> BatchedConv<'a> {
    /// Plans the pass; `None` if this path is not worthwhile. That depends on the shape alone, because weights that are
    /// not finite make a difference (reason 3 above).
    pub fn new(cpu: &'a Cpu, params: &ConvParams, pass: Pass) -> Option<Self> {
        let depth = match pass {
            Pass::Forward => params.in_channels,
            Pass::Data => params.out_channels,
            Pass::Weight => return None,
        };
        let [from, to] = [params.x, params.y].map(|side| side[1..].iter().product::<usize>());
        let (image, is_non_empty) = (from + to, from != 0 && to != 0);
        if !is_non_empty
            || image > MAX_TILE_ELEMENTS
            || params.groups != 1
            || depth < MIN_IN_CHANNELS
            || params.y[3] * params.weights_per_output() < MIN_WEIGHTS
        {
            return None;
        }
        let (x, y) = (FeatureMapLayout::new(params.x, params.stride[1]), FeatureMapLayout::new(params.y, 1));
        let forward = pass == Pass::Forward;
        let tap = |x: usize, y: usize, count: usize| {
            let [operand, result] = if forward { [x, y] } else { [y, x] };
            KernelTap { operand, result, count }
        };
        let rows = |i: usize| (0..y.rows).filter_map(|p| Some(tap(params.input_coord(0, p, i)?, p, 1))).collect();
        let column = |j: usize| {
            let mut used = (0..y.pixels).filter_map(|q| Some((x.positions[params.input_coord(1, q, j)?], q)));
            used.next().map_or(tap(0, 0, 0), |(x, y)| tap(x, y, 1 + used.count()))
        };
        let rows = (0..params.kernel[0]).map(rows).collect();
        let mut columns: Vec<KernelTap> = (0..params.kernel[1]).map(column).collect();
        if !forward {
            columns.reverse();
        }
        let [mut operand, result] = if forward { [x, y] } else { [y, x] };
        // Reason 5 above.
        operand.pixel_stride += LANES;
        let rows_per_item = rows_per_item(
            params.x[0],
            result.rows,
            result.pixels,
            MAX_TILE_ELEMENTS / image,
            cpu.thread_pool().count(),
        );
        Some(Self { cpu, operand, result, rows, columns, rows_per_item })
    }

    /// Computes and stores the batched convolution pass.
    pub fn compute(
        &self, params: &ConvParams, a: &Memory, weights: &Packed<'_>, bias: Option<&[f32]>, y: Store<'_, Cpu>,
    ) {
        let epilogue = Epilogue::from_store(&y, self.cpu.isa());
        let Store { y, table, to, .. } = y;
        let FeatureMapLayout { rows, pixels, channels, .. } = self.result;
        let row = pixels * channels;
        let y = output_slice(y, params.x[0] * rows * row);
        let seen = y.par_chunks(self.cpu, params.cost(), self.rows_per_item * row, |i, y| {
            let (first, count) = (i * self.rows_per_item, y.len() / row);
            let start = first % rows;
            let item = WorkItem {
                images: first / rows..(first + count).div_ceil(rows),
                rows: start..if self.rows_per_item < rows { start + count } else { rows },
            };
            let data = self.convert_input(a, &item);
            let sums = self.multiply(&data, weights, &item);
            self.store_results(&sums, bias, &epilogue, y, &item)
        });
        report_stats(&epilogue, seen.iter().flatten(), |row| table.merge(to, row));
    }

    /// Converts the operand of a work item to f32. Rows that it does not use stay unspecified.
    fn convert_input(&self, a: &Memory, item: &WorkItem) -> Workspace<'a> {
        let FeatureMapLayout { rows, pixels, channels, .. } = self.operand;
        let count = item.images.len();
        let mut out = self.cpu.workspace(self.operand.offset_of(rows, 0, count));
        for row in (0..rows).filter(|row| self.is_used(*row, item)) {
            for (i, image) in item.images.clone().enumerate() {
                let from = (image * rows + row) * pixels * channels;
                for (q, to) in self.operand.pixel_offsets(row, count, i).enumerate() {
                    load_f32(self.cpu.isa(), a, from + q * channels, &mut out[to..to + channels]);
                }
            }
        }
        out
    }

    /// Returns true if a work item uses this row of the operand.
    fn is_used(&self, row: usize, item: &WorkItem) -> bool {
        self.rows.iter().flatten().any(|tap| tap.operand == row && item.rows.contains(&tap.result))
    }

    /// Computes the f32 sums of the results of a work item.
    fn multiply(&self, data: &[f32], weights: &Packed<'_>, item: &WorkItem) -> Workspace<'a> {
        let (count, channels, results) = (item.images.len(), self.operand.channels, self.result.channels);
        let mut sums = self.cpu.zeroed_workspace(self.result.offset_of(item.rows.len(), 0, count));
        let max_columns = self.cpu.isa().tile_columns();
        for from in (0..results).step_by(max_columns) {
            let width = max_columns.min(results - from);
            let steps = WEIGHT_BLOCK_L1 / width.next_multiple_of(LANES);
            let taps = self.rows.iter().flat_map(|rows| self.columns.iter().map(move |column| (rows, column)));
            for (t, (rows, column)) in taps.enumerate() {
                for k in (0..channels).step_by(steps) {
                    let run = KSegment { a: k, b: t * channels + k, depth: steps.min(channels - k) };
                    for row in rows.iter().filter(|row| item.rows.contains(&row.result)) {
                        let tile = MicroKernelArgs {
                            a: &data[self.operand.offset_of(row.operand, column.operand, count)..],
                            a_row_stride: self.operand.pixel_stride,
                            a_k_stride: 1,
                            b: weights.panel(0, from),
                            b_k_stride: weights.row_stride(),
                            k_segments: &[run],
                            rows: column.count * count,
                            columns: width,
                            overwrite: false,
                            prefetch: &[],
                        };
                        let to = self.result.offset_of(row.result - item.rows.start, column.result, count);
                        self.cpu.isa().accumulate_tile(&tile, &mut sums[to + from..], results);
                    }
                }
            }
        }
        sums
    }

    /// Stores the results of a work item and returns the statistics of each row.
    fn store_results(
        &self, sums: &[f32], bias: Option<&[f32]>, epilogue: &Epilogue, mut y: OutputSlice<'_>, item: &WorkItem,
    ) -> Vec<StatsAccumulator> {
        let FeatureMapLayout { pixels, channels, .. } = self.result;
        let (count, len) = (item.images.len(), pixels * channels);
        let mut block = self.cpu.workspace(len);
        let rows = (0..count).flat_map(|image| (0..item.rows.len()).map(move |row| (image, row)));
        let store = |(i, (image, row)): (usize, (usize, usize))| {
            for (pixel, from) in block.chunks_exact_mut(channels).zip(self.result.pixel_offsets(row, count, image)) {
                pixel.copy_from_slice(&sums[from..from + channels]);
                if let Some(bias) = bias {
                    pixel.iter_mut().zip(bias).for_each(|(sum, bias)| *sum += bias);
                }
            }
            let mut seen = epilogue.new_accumulator();
            epilogue.finish_block(&mut block, y.range(i * len..(i + 1) * len), &mut seen);
            seen
        };
        rows.enumerate().map(store).collect()
    }
}

/// Returns the rows of a work item for which the slowest thread finishes first: the rows of at most `max_images`
/// images, or an equal part of the rows of one.
fn rows_per_item(images: usize, rows: usize, pixels: usize, max_images: usize, threads: usize) -> usize {
    let whole = (1..=max_images.min(images)).rev().map(|count| count * rows);
    let parts = (1..rows).rev().filter(|&part| rows.is_multiple_of(part));
    let time =
        |&item: &usize| (images * rows).div_ceil(item).div_ceil(threads) * (item * pixels + WEIGHT_LOAD_COST_PIXELS);
    whole.chain(parts).min_by_key(time).unwrap_or(1)
}
