//! The weight pass: sums over all pixels of all images.
//!
//! A piece of the work is some kernel rows of some output channels over one slice of the result's rows. How many slices
//! there are depends on the shape alone, and their sums are added in order; kernel rows and channels share no sum, so that
//! their pieces may depend on the number of threads.

#[cfg(target_arch = "x86_64")]
use super::amx::Operands;
use super::{
    Shape,
    padded_rows::{Held, Lines},
};
use crate::{
    Cpu, Memory,
    arch::{Isa, KSegment, MicroKernelArgs, balanced_tile_height},
    epilogue::{Epilogue, output_slice, report_stats},
    threading::Cost,
};
use core::ops::Range;
use gradscale_core::backend::Store;

/// Pieces that the work should have for each of several threads, and on the matrix unit. Each converts what it reads.
const PIECES: usize = 2;
const PIECES_OF_UNIT: usize = 4;
/// Sums that all meet a row of pixels, a quarter of a second cache: with more of them kernel rows are worked on one by one,
/// and with four times as many in one kernel row, blocks of channels.
const SUMS: usize = 65_536;
/// Pixels that all output channels meet before the next do: 64 columns of them are about the first cache.
const PIXELS: usize = 128;
/// Most gradients of rows that are worked on together: a quarter of a second cache.
const GRADIENTS: usize = 32_768;
/// Output channels of the matrix unit's tiles.
const HEIGHT: usize = 32;
/// Most slices.
const SLICES: usize = 16;

/// The pieces of a weight pass.
struct Plan {
    /// Slices of the rows of dy.
    slices: usize,
    /// Blocks of output channels of one group, and the channels of one.
    blocks: usize,
    block: usize,
    /// Kernel rows of a piece, and the pieces that have all of them.
    kernel: usize,
    parts: usize,
    /// Elements of one kernel row, and of the sums of a piece.
    run: usize,
    piece: usize,
    /// Whether lanes are output channels, and not elements of a kernel row.
    turned: bool,
}

/// Rows of dy, output channels of one group, and kernel rows. From one kernel row to the next the sums are `block`
/// channels apart. Those of a kernel row are `[block, run]`, or turned.
#[derive(Clone)]
pub struct Piece {
    pub rows: Range<usize>,
    pub outs: Range<usize>,
    pub kernel: Range<usize>,
    pub block: usize,
    pub turned: bool,
}

impl Piece {
    /// The lines of x that it reads.
    pub const fn inputs<'a>(&self, shape: &Shape, x: &'a Memory) -> Lines<'a> {
        Lines {
            data: x,
            pixels: shape.x[2],
            channels: shape.x[3],
            from: self.outs.start / shape.outs * shape.depth,
            depth: shape.depth,
            pixel: shape.depth,
            before: shape.pad[1],
            line: shape.line(),
        }
    }
}

impl Plan {
    /// `unit`: for the matrix unit, whose tiles are taller, and whose lines take more memory.
    fn of(shape: &Shape, isa: Isa, unit: bool, threads: usize) -> Self {
        let rows = shape.y[0] * shape.y[1];
        let bytes = 2 * (shape.x.iter().product::<usize>() + shape.y.iter().product::<usize>());
        let gradient = 4 * (shape.y[3] * shape.weights()).max(1);
        // A small part of the operands' memory for sums.
        let slices = (bytes / if unit { 24 } else { 16 } / gradient).clamp(1, SLICES.min(rows.max(1)));
        let run = shape.kernel[1] * shape.depth;
        // Kernel rows that are worked on together convert each line once.
        let pieces = match threads {
            _ if unit => PIECES_OF_UNIT * threads,
            1 => 1,
            _ => PIECES * threads,
        };
        let wanted = pieces.div_ceil(slices * shape.groups);
        let parts = wanted.max((shape.outs * run * shape.kernel[0]).div_ceil(SUMS)).min(shape.kernel[0]);
        let kernel = balanced_tile_height(shape.kernel[0], shape.kernel[0].div_ceil(parts));
        let parts = shape.kernel[0].div_ceil(kernel);
        let (wanted, height) =
            (wanted.div_ceil(parts), if unit { HEIGHT } else { isa.tile_rows(run.min(isa.tile_columns())) });
        let wanted = if unit { wanted } else { wanted.max((shape.outs * run * kernel).div_ceil(4 * SUMS)) };
        let block = balanced_tile_height(shape.outs, shape.outs.div_ceil(wanted).next_multiple_of(height).max(height));
        // Images of three channels fill few lanes.
        let idle = |columns: usize| columns.next_multiple_of(isa.lanes()) - columns;
        let turned = !unit && idle(run) * block > idle(block) * run;
        let piece = block * run * kernel;
        Self { slices, blocks: shape.outs.div_ceil(block), block, kernel, parts, run, piece, turned }
    }

    /// Where the sums of kernel row `i` of output channel `o` begin in those of a slice, and how far each is from the next.
    fn place(&self, shape: &Shape, slice: usize, o: usize, i: usize) -> [usize; 2] {
        let (group, o) = (o / shape.outs, o % shape.outs);
        let block = (slice * shape.groups + group) * self.blocks + o / self.block;
        let piece = block * self.parts + i / self.kernel;
        let (row, o) = (i % self.kernel * self.block * self.run, o % self.block);
        let (place, step) = if self.turned { (o, self.block) } else { (o * self.run, 1) };
        [piece * self.piece + row + place, step]
    }
}

impl Cpu {
    pub(super) fn weight(&self, shape: &Shape, x: &Memory, dy: &Memory, y: Store<'_, Self>) {
        let epilogue = Epilogue::from_store(&y, self.isa());
        let Store { y, table, to, .. } = y;
        #[cfg(target_arch = "x86_64")]
        let operands = Operands::new(self, shape, x, dy);
        #[cfg(target_arch = "x86_64")]
        let unit = operands.is_some();
        #[cfg(not(target_arch = "x86_64"))]
        let unit = false;
        let (plan, len) = (Plan::of(shape, self.isa(), unit, self.thread_pool().count()), shape.weights());
        let rows = shape.y[0] * shape.y[1];
        let pieces = plan.slices * shape.groups * plan.blocks * plan.parts;
        let mut sums = self.zeroed_workspace(pieces * plan.piece);
        self.par_chunks_mut(shape.cost(), &mut sums, plan.piece, |piece, sums| {
            let (i, rest) = (piece % plan.parts * plan.kernel, piece / plan.parts);
            let (block, rest) = (rest % plan.blocks, rest / plan.blocks);
            let (group, slice) = (rest % shape.groups, rest / shape.groups);
            let first = block * plan.block;
            let piece = Piece {
                rows: rows * slice / plan.slices..rows * (slice + 1) / plan.slices,
                outs: group * shape.outs + first..group * shape.outs + shape.outs.min(first + plan.block),
                kernel: i..shape.kernel[0].min(i + plan.kernel),
                block: plan.block,
                turned: plan.turned,
            };
            let plain = |piece: &Piece, sums: &mut [f32]| self.kernel_rows(shape, x, dy, piece, sums);
            #[cfg(target_arch = "x86_64")]
            if let Some(operands) = &operands {
                return operands.add(self, shape, &piece, sums, plain);
            }
            plain(&piece, sums);
        });
        let (cost, sums) = (Cost::elements(sums.len()), &*sums);
        let seen = output_slice(y, shape.y[3] * len).par_chunks(self, cost, len, |o, part| {
            let (mut row, mut total) = (epilogue.new_accumulator(), self.zeroed_workspace(len));
            for (i, total) in total.chunks_exact_mut(plan.run.max(1)).enumerate() {
                for slice in 0..plan.slices {
                    let [start, step] = plan.place(shape, slice, o, i);
                    let sums = sums[start..].iter().step_by(step);
                    total.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
                }
            }
            epilogue.finish_block(&mut total, part, &mut row);
            row
        });
        report_stats(&epilogue, &seen, |row| table.merge(to, row));
    }

    /// Adds the gradient of a piece to its sums.
    fn kernel_rows(&self, shape: &Shape, x: &Memory, dy: &Memory, piece: &Piece, sums: &mut [f32]) {
        let Piece { rows, outs, kernel, block, turned } = piece.clone();
        // All channels of a row are converted fastest.
        let all = shape.groups == 1;
        let (from, depth) = if all { (0, shape.y[3]) } else { (outs.start, outs.len()) };
        let [_, _, pixels, channels] = shape.y;
        let gradients =
            Lines { data: dy, pixels, channels, from, depth, pixel: depth, before: 0, line: pixels }.spread();
        let inputs = piece.inputs(shape, x).spread();
        let (together, pixel) = (together(shape), shape.stride[1] * inputs.pixel);
        // Whole pixels from line to line, so that a tile steps from one to the next.
        let line = (inputs.line * inputs.pixel).next_multiple_of(pixel.max(1));
        let mut lines = if together == 1 {
            Held::new(self, line, 1, shape.kernel[0], shape.dilation[0])
        } else {
            Held::new(self, line, 1, span(shape, piece, together), 1)
        };
        let gradient_line = gradients.step().next_multiple_of(gradients.pixel.max(1));
        let mut gradient = self.workspace(together * gradient_line);
        let (mut met, mut k_segments) = (Vec::with_capacity(together), Vec::with_capacity(together));
        let (run, most) = (shape.kernel[1] * shape.depth, self.isa().tile_columns());
        // Taps whose values lie side by side are one run of columns.
        let side_by_side = shape.dilation[1] == 1 && inputs.pixel == inputs.depth;
        let taps = if side_by_side { shape.kernel[1] } else { 1 };
        for first in rows.clone().step_by(together) {
            let batch = first..rows.end.min(first + together);
            for (row, gradient) in batch.clone().zip(gradient.chunks_exact_mut(gradient_line.max(1))) {
                gradients.convert(self, row, &mut gradient[..gradients.step()]);
            }
            for (i, sums) in kernel.clone().zip(sums.chunks_mut((block * run).max(1))) {
                met.clear();
                for (r, row) in batch.clone().enumerate() {
                    let Some(row) = shape.met(row, i) else { continue };
                    let convert = |_: usize, line: &mut [f32]| {
                        inputs.convert(self, row, line);
                        true
                    };
                    met.push((r * gradient_line, lines.find(row, i, convert).0));
                }
                for j in (0..shape.kernel[1]).step_by(taps) {
                    let width = taps * shape.depth;
                    let [tall, wide] = if turned { [width, outs.len()] } else { [outs.len(), width] };
                    for (from, q) in tiles(wide, most, shape.y[2]) {
                        let gradient = &gradient[q * gradients.pixel + outs.start - gradients.from..];
                        let line = &lines.of_group(0)[(j * shape.dilation[1] + q * shape.stride[1]) * inputs.pixel..];
                        let depth = PIXELS.min(shape.y[2] - q);
                        let ([a, b], [a_k_stride, b_k_stride]) = if turned {
                            ([line, gradient], [pixel, gradients.pixel])
                        } else {
                            ([gradient, line], [gradients.pixel, pixel])
                        };
                        k_segments.clear();
                        k_segments.extend(met.iter().map(|&(gradient, line)| {
                            let [a, b] = if turned { [line, gradient] } else { [gradient, line] };
                            KSegment { a, b: b / b_k_stride, depth }
                        }));
                        let (columns, b) = (most.min(wide - from), &b[from..]);
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
                        // The sums of one tap after the other.
                        let (start, row) =
                            if turned { (j * shape.depth * block, block) } else { (j * shape.depth, run) };
                        self.isa().accumulate_tile(&tile, &mut sums[start + from..], row);
                    }
                }
            }
        }
    }
}

/// Rows of dy that are worked on together: short ones, so that a tile keeps its sums over as many pixels as of a long row.
fn together(shape: &Shape) -> usize {
    let row = shape.y[2].max(1);
    (PIXELS / row).min(GRADIENTS / (row * shape.y[3].max(1))).max(1)
}

/// Most rows of x from the first to the last that so many rows of dy meet.
fn span(shape: &Shape, piece: &Piece, together: usize) -> usize {
    let of_batch = |first: usize| {
        let batch = first..piece.rows.end.min(first + together);
        let met = || batch.clone().flat_map(|row| piece.kernel.clone().filter_map(move |i| shape.met(row, i)));
        met().max().map_or(0, |last| last + 1 - met().min().unwrap_or(last))
    };
    piece.rows.clone().step_by(together).map(of_batch).max().unwrap_or(0).max(1)
}

/// First column and first pixel of all tiles of a row, with `most` columns at most.
fn tiles(columns: usize, most: usize, pixels: usize) -> impl Iterator<Item = (usize, usize)> {
    let pixels = move |from| (0..pixels).step_by(PIXELS).map(move |q| (from, q));
    (0..columns).step_by(most).flat_map(pixels)
}
