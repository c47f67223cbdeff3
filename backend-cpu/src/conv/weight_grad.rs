//! Weight pass of a convolution: the gradient of its weights, sums over all pixels of all images.
//!
//! A work item is some kernel rows of some output channels, over one slice of the rows of dy. The number of slices
//! depends on the shape alone, and their sums are added in order. Kernel rows and channels share no sum, so that their
//! items may depend on the number of threads.

#[cfg(target_arch = "x86_64")]
use super::amx::Operands;
use super::{
    ConvParams,
    padded_rows::{PaddedRows, RowCache},
    work_item::WorkItem,
};
use crate::{
    Cpu, Memory,
    arch::{Isa, KSegment, MicroKernelArgs, balanced_tile_height},
    epilogue::{Epilogue, output_slice, report_stats},
    threading::Cost,
};
use gradscale_core::backend::Store;

/// Number of work items for each of several threads, and with AMX. Few, because each item converts the rows that it
/// reads.
const ITEMS_PER_THREAD: usize = 2;
const ITEMS_PER_THREAD_AMX: usize = 4;
/// Maximum number of sums that one row of pixels updates: 256 KiB, a quarter of L2. With more, kernel rows become
/// separate items; with four times as many in one kernel row, blocks of channels do.
const MAX_SUMS_L2: usize = 65_536;
/// Number of pixels that all output channels use before the next ones: with 64 columns they take 32 KiB, about L1.
const PIXEL_BLOCK_L1: usize = 128;
/// Maximum number of elements of the rows of dy that are processed together: 128 KiB of L2.
const MAX_GRADIENTS_L2: usize = 32_768;
/// Number of output channels of an AMX register tile.
const AMX_TILE_ROWS: usize = 32;
/// Maximum number of slices of the rows of dy: each costs a copy of all sums.
const MAX_SLICES: usize = 16;

/// Division of a convolution's weight pass into work items.
struct WeightGradPlan {
    /// Number of slices into which the rows of dy are divided.
    slices: usize,
    /// Number of blocks of output channels of one group, and of channels of a block.
    blocks: usize,
    block: usize,
    /// Number of kernel rows of an item, and of items for all of them.
    kernel: usize,
    kernel_row_blocks: usize,
    /// Number of elements of one kernel row, and of sums of an item.
    run: usize,
    item_len: usize,
    /// True if lanes are output channels instead of elements of a kernel row.
    transposed: bool,
}

impl WeightGradPlan {
    /// Divides the pass. `unit`: for AMX, whose tiles are higher and whose rows take more memory.
    fn new(params: &ConvParams, isa: Isa, unit: bool, threads: usize) -> Self {
        let rows = params.y[0] * params.y[1];
        let bytes = 2 * (params.x.iter().product::<usize>() + params.y.iter().product::<usize>());
        let gradient = 4 * (params.y[3] * params.weights_per_output()).max(1);
        // Sums may take a sixteenth of the operands' memory (AMX: a 24th).
        let slices = (bytes / if unit { 24 } else { 16 } / gradient).clamp(1, MAX_SLICES.min(rows.max(1)));
        let run = params.kernel[1] * params.in_channels;
        // Kernel rows of one item convert each row once.
        let items = match threads {
            _ if unit => ITEMS_PER_THREAD_AMX * threads,
            1 => 1,
            _ => ITEMS_PER_THREAD * threads,
        };
        let wanted = items.div_ceil(slices * params.groups);
        let kernel_row_blocks =
            wanted.max((params.out_channels * run * params.kernel[0]).div_ceil(MAX_SUMS_L2)).min(params.kernel[0]);
        let kernel = balanced_tile_height(params.kernel[0], params.kernel[0].div_ceil(kernel_row_blocks));
        let kernel_row_blocks = params.kernel[0].div_ceil(kernel);
        let (wanted, height) = (
            wanted.div_ceil(kernel_row_blocks),
            if unit { AMX_TILE_ROWS } else { isa.tile_rows(run.min(isa.tile_columns())) },
        );
        let wanted =
            if unit { wanted } else { wanted.max((params.out_channels * run * kernel).div_ceil(4 * MAX_SUMS_L2)) };
        let block = balanced_tile_height(
            params.out_channels,
            params.out_channels.div_ceil(wanted).next_multiple_of(height).max(height),
        );
        // With three channels a kernel row fills few lanes.
        let idle = |columns: usize| columns.next_multiple_of(isa.lanes()) - columns;
        let transposed = !unit && idle(run) * block > idle(block) * run;
        let item_len = block * run * kernel;
        Self {
            slices,
            blocks: params.out_channels.div_ceil(block),
            block,
            kernel,
            kernel_row_blocks,
            run,
            item_len,
            transposed,
        }
    }

    /// Returns the offset of kernel row `i` of output channel `o` in the sums of a slice, and the distance of its
    /// elements.
    fn sums_offset(&self, params: &ConvParams, slice: usize, o: usize, i: usize) -> [usize; 2] {
        let (group, o) = (o / params.out_channels, o % params.out_channels);
        let block = (slice * params.groups + group) * self.blocks + o / self.block;
        let item = block * self.kernel_row_blocks + i / self.kernel;
        let (row, o) = (i % self.kernel * self.block * self.run, o % self.block);
        let (place, step) = if self.transposed { (o, self.block) } else { (o * self.run, 1) };
        [item * self.item_len + row + place, step]
    }
}

impl Cpu {
    /// Computes and stores the weight gradient of a convolution.
    pub(super) fn conv_weight_grad(&self, params: &ConvParams, x: &Memory, dy: &Memory, y: Store<'_, Self>) {
        let epilogue = Epilogue::from_store(&y, self.isa());
        let Store { y, table, to, .. } = y;
        #[cfg(target_arch = "x86_64")]
        let operands = Operands::new(self, params, x, dy);
        #[cfg(target_arch = "x86_64")]
        let unit = operands.is_some();
        #[cfg(not(target_arch = "x86_64"))]
        let unit = false;
        let (plan, len) =
            (WeightGradPlan::new(params, self.isa(), unit, self.thread_pool().count()), params.weights_per_output());
        let rows = params.y[0] * params.y[1];
        let items = plan.slices * params.groups * plan.blocks * plan.kernel_row_blocks;
        let mut sums = self.zeroed_workspace(items * plan.item_len);
        self.par_chunks_mut(params.cost(), &mut sums, plan.item_len, |item, sums| {
            let (i, rest) = (item % plan.kernel_row_blocks * plan.kernel, item / plan.kernel_row_blocks);
            let (block, rest) = (rest % plan.blocks, rest / plan.blocks);
            let (group, slice) = (rest % params.groups, rest / params.groups);
            let first = block * plan.block;
            let item = WorkItem {
                rows: rows * slice / plan.slices..rows * (slice + 1) / plan.slices,
                out_channels: group * params.out_channels + first
                    ..group * params.out_channels + params.out_channels.min(first + plan.block),
                kernel: i..params.kernel[0].min(i + plan.kernel),
                block: plan.block,
                transposed: plan.transposed,
            };
            let f32_kernel = |item: &WorkItem, sums: &mut [f32]| self.accumulate_kernel_rows(params, x, dy, item, sums);
            #[cfg(target_arch = "x86_64")]
            if let Some(operands) = &operands {
                return operands.add(self, params, &item, sums, f32_kernel);
            }
            f32_kernel(&item, sums);
        });
        let (cost, sums) = (Cost::elements(sums.len()), &*sums);
        let seen = output_slice(y, params.y[3] * len).par_chunks(self, cost, len, |o, part| {
            let (mut row, mut total) = (epilogue.new_accumulator(), self.zeroed_workspace(len));
            for (i, total) in total.chunks_exact_mut(plan.run.max(1)).enumerate() {
                for slice in 0..plan.slices {
                    let [start, step] = plan.sums_offset(params, slice, o, i);
                    let sums = sums[start..].iter().step_by(step);
                    total.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
                }
            }
            epilogue.finish_block(&mut total, part, &mut row);
            row
        });
        report_stats(&epilogue, &seen, |row| table.merge(to, row));
    }

    /// Accumulates the weight gradient of a work item to its sums.
    fn accumulate_kernel_rows(&self, params: &ConvParams, x: &Memory, dy: &Memory, item: &WorkItem, sums: &mut [f32]) {
        let WorkItem { rows, out_channels, kernel, block, transposed } = item.clone();
        // Converting all channels of a row is fastest.
        let all = params.groups == 1;
        let (from, depth) = if all { (0, params.y[3]) } else { (out_channels.start, out_channels.len()) };
        let [_, _, pixels, channels] = params.y;
        let gradients = PaddedRows {
            data: dy,
            pixels,
            channels,
            first_channel: from,
            channel_count: depth,
            pixel_stride: depth,
            pad_left: 0,
            padded_width: pixels,
        }
        .avoid_set_conflicts();
        let inputs = item.input_rows(params, x).avoid_set_conflicts();
        let (rows_per_batch, pixel) = (rows_per_batch(params), params.stride[1] * inputs.pixel_stride);
        // Padded rows are whole pixels apart, so that a tile steps from one to the next.
        let line = (inputs.padded_width * inputs.pixel_stride).next_multiple_of(pixel.max(1));
        let mut row_cache = if rows_per_batch == 1 {
            RowCache::new(self, line, 1, params.kernel[0], params.dilation[0])
        } else {
            RowCache::new(self, line, 1, input_row_span(params, item, rows_per_batch), 1)
        };
        let gradient_line = gradients.row_stride().next_multiple_of(gradients.pixel_stride.max(1));
        let mut gradient = self.workspace(rows_per_batch * gradient_line);
        let (mut used_rows, mut k_segments) = (Vec::with_capacity(rows_per_batch), Vec::with_capacity(rows_per_batch));
        let (run, max_columns) = (params.kernel[1] * params.in_channels, self.isa().tile_columns());
        // Taps whose values are contiguous are one run of columns.
        let taps_contiguous = params.dilation[1] == 1 && inputs.pixel_stride == inputs.channel_count;
        let taps = if taps_contiguous { params.kernel[1] } else { 1 };
        for first in rows.clone().step_by(rows_per_batch) {
            let batch = first..rows.end.min(first + rows_per_batch);
            for (row, gradient) in batch.clone().zip(gradient.chunks_exact_mut(gradient_line.max(1))) {
                gradients.convert_row(self, row, &mut gradient[..gradients.row_stride()]);
            }
            for (i, sums) in kernel.clone().zip(sums.chunks_mut((block * run).max(1))) {
                used_rows.clear();
                for (r, row) in batch.clone().enumerate() {
                    let Some(row) = params.input_row(row, i) else { continue };
                    let convert = |_: usize, line: &mut [f32]| {
                        inputs.convert_row(self, row, line);
                        true
                    };
                    used_rows.push((r * gradient_line, row_cache.find_or_convert(row, i, convert).0));
                }
                for j in (0..params.kernel[1]).step_by(taps) {
                    let width = taps * params.in_channels;
                    let [tall, wide] =
                        if transposed { [width, out_channels.len()] } else { [out_channels.len(), width] };
                    for (from, q) in tile_origins(wide, max_columns, params.y[2]) {
                        let gradient =
                            &gradient[q * gradients.pixel_stride + out_channels.start - gradients.first_channel..];
                        let line = &row_cache.group_rows(0)
                            [(j * params.dilation[1] + q * params.stride[1]) * inputs.pixel_stride..];
                        let depth = PIXEL_BLOCK_L1.min(params.y[2] - q);
                        let ([a, b], [a_k_stride, b_k_stride]) = if transposed {
                            ([line, gradient], [pixel, gradients.pixel_stride])
                        } else {
                            ([gradient, line], [gradients.pixel_stride, pixel])
                        };
                        k_segments.clear();
                        k_segments.extend(used_rows.iter().map(|&(gradient, line)| {
                            let [a, b] = if transposed { [line, gradient] } else { [gradient, line] };
                            KSegment { a, b: b / b_k_stride, depth }
                        }));
                        let (columns, b) = (max_columns.min(wide - from), &b[from..]);
                        let tile = MicroKernelArgs {
                            a,
                            a_row_stride: 1,
                            a_k_stride,
                            b,
                            b_k_stride,
                            k_segments: &k_segments,
                            rows: tall,
                            columns,
                            overwrite: false,
                            prefetch: &[],
                        };
                        // The sums of one tap after those of the other.
                        let (start, row) = if transposed {
                            (j * params.in_channels * block, block)
                        } else {
                            (j * params.in_channels, run)
                        };
                        self.isa().accumulate_tile(&tile, &mut sums[start + from..], row);
                    }
                }
            }
        }
    }
}

/// Returns the rows of dy of a batch: several short ones, so that a tile keeps its sums over as many pixels as in a
/// long row.
fn rows_per_batch(params: &ConvParams) -> usize {
    let row = params.y[2].max(1);
    (PIXEL_BLOCK_L1 / row).min(MAX_GRADIENTS_L2 / (row * params.y[3].max(1))).max(1)
}

/// Returns the maximum span of the rows of x that a batch of rows of dy reads.
fn input_row_span(params: &ConvParams, item: &WorkItem, rows_per_batch: usize) -> usize {
    let span_of_batch = |first: usize| {
        let batch = first..item.rows.end.min(first + rows_per_batch);
        let used_rows =
            || batch.clone().flat_map(|row| item.kernel.clone().filter_map(move |i| params.input_row(row, i)));
        used_rows().max().map_or(0, |last| last + 1 - used_rows().min().unwrap_or(last))
    };
    item.rows.clone().step_by(rows_per_batch).map(span_of_batch).max().unwrap_or(0).max(1)
}

/// Returns first column and first pixel of all tiles of a row, with at most `max_columns` columns.
fn tile_origins(columns: usize, max_columns: usize, pixels: usize) -> impl Iterator<Item = (usize, usize)> {
    let pixels = move |from| (0..pixels).step_by(PIXEL_BLOCK_L1).map(move |q| (from, q));
    (0..columns).step_by(max_columns).flat_map(pixels)
}
