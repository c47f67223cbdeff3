//! Small images of many channels: several side by side, all of which meet some weights before any meets the next.
//!
//! Weights of many channels fit no cache that is near, and a row of a few pixels is soon done with them: row by row, a
//! processor waits for weights. Here all pixels of a piece of the work meet a block of weights, and those at one place of
//! several images are neighbours in memory, so that tiles are high. What a tap finds outside of an image is left out.
//!
//! ```text
//! operand   [row, place, image, channel]
//! sums      [row, place, image, channel of the result]
//! ```
//!
//! With a stride a tap meets every so many-th pixel of x. Pixels of x with one remainder have places side by side, so that
//! a tap's are evenly spaced in memory.

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

/// Fewest weights: as many as half of a second cache of a megabyte. Fewer stay near from row to row.
const MIN_WEIGHTS: usize = 131_072;
/// Fewest channels of the operand, which are the steps of a tile.
const MIN_IN_CHANNELS: usize = 4 * LANES;
/// Most elements of operand and sums that are worked on together.
const MAX_TILE_ELEMENTS: usize = 262_144;
/// Pixels of results that take as long as it takes to bring all weights near, which each piece does.
const WEIGHT_LOAD_COST_PIXELS: usize = 16;

/// How results follow from an operand where images are small.
pub struct BatchedConv<'a> {
    cpu: &'a Cpu,
    operand: FeatureMapLayout,
    result: FeatureMapLayout,
    /// What each kernel row joins; what each kernel column does, in the order of the weights.
    rows: Vec<Vec<KernelTap>>,
    columns: Vec<KernelTap>,
    /// Rows of results in a piece: those of some images, or an even part of one image's.
    rows_per_item: usize,
}

/// The images of an operand or of a result.
struct FeatureMapLayout {
    rows: usize,
    pixels: usize,
    channels: usize,
    /// Elements from one pixel to the next.
    pixel_stride: usize,
    /// Where each pixel of a row lies.
    positions: Vec<usize>,
}

/// Rows, or so many places from the first on, that a tap joins.
struct KernelTap {
    operand: usize,
    result: usize,
    count: usize,
}

/// Images, and the rows of their results, that are worked on together.
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

    /// Where the first of so many images has its pixel of this row and place.
    const fn offset_of(&self, row: usize, position: usize, images: usize) -> usize {
        (row * self.pixels + position) * images * self.pixel_stride
    }

    /// Where the pixels of a row lie of one of so many images.
    fn pixel_offsets(&self, row: usize, images: usize, image: usize) -> impl Iterator<Item = usize> {
        self.positions.iter().map(move |&position| self.offset_of(row, position, images) + image * self.pixel_stride)
    }
}

impl<'a> BatchedConv<'a> {
    /// Where it is worth it, which is a matter of the shape alone: weights that are not finite show what is left out.
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
        // Else the same channel of many pixels would meet in few sets of the first cache.
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

    /// The operand of a piece as f32; rows that nothing meets are left as they are.
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

    /// Whether results of a piece need this row of the operand.
    fn is_used(&self, row: usize, item: &WorkItem) -> bool {
        self.rows.iter().flatten().any(|tap| tap.operand == row && item.rows.contains(&tap.result))
    }

    /// The sums of a piece.
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

    /// Stores the results of a piece, and tells what was seen of each row.
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

/// Rows of a piece where all pieces take the least time: those of some images, at most `max_columns`, or an even part of one's.
fn rows_per_item(images: usize, rows: usize, pixels: usize, max_images: usize, threads: usize) -> usize {
    let whole = (1..=max_images.min(images)).rev().map(|count| count * rows);
    let parts = (1..rows).rev().filter(|&part| rows.is_multiple_of(part));
    let time =
        |&item: &usize| (images * rows).div_ceil(item).div_ceil(threads) * (item * pixels + WEIGHT_LOAD_COST_PIXELS);
    whole.chain(parts).min_by_key(time).unwrap_or(1)
}
