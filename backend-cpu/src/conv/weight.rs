//! The weight pass: sums over all pixels of all images.
//!
//! A piece of the work is some kernel rows of some output channels over one slice of the result's rows. How many slices
//! there are depends on the shape alone, and their sums are added in order; kernel rows and channels share no sum, so that
//! their pieces may depend on the number of threads.

#[cfg(target_arch = "x86_64")]
use super::amx::Operands;
use super::{
    Shape,
    lines::{Held, Lines},
};
use crate::{
    Cpu, Memory,
    arch::{Isa, Run, Tile, even},
    epilogue::{Epilogue, destination, merge},
    parallel::Cost,
};
use core::ops::Range;
use gradscale_core::backend::Store;

/// Pieces that the work should have at least for each thread.
const PIECES: usize = 4;
/// Most sums of a piece, all of which a row of pixels meets: a quarter of a second cache.
const SUMS: usize = 65_536;
/// Pixels that all output channels meet before the next do: 64 columns of them are about the first cache.
const PIXELS: usize = 128;
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
}

/// Rows of dy, output channels of one group, and kernel rows. From one kernel row to the next the sums are `block`
/// channels apart.
#[derive(Clone)]
pub struct Piece {
    pub rows: Range<usize>,
    pub outs: Range<usize>,
    pub kernel: Range<usize>,
    pub block: usize,
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
        let wanted = (PIECES * threads).div_ceil(slices * shape.groups);
        let parts = wanted.max((shape.outs * run * shape.kernel[0]).div_ceil(SUMS)).min(shape.kernel[0]);
        let kernel = even(shape.kernel[0], shape.kernel[0].div_ceil(parts));
        let parts = shape.kernel[0].div_ceil(kernel);
        let (wanted, height) =
            (wanted.div_ceil(parts), if unit { HEIGHT } else { isa.tile_rows(run.min(isa.tile_columns())) });
        let block = even(shape.outs, shape.outs.div_ceil(wanted).next_multiple_of(height).max(height));
        Self { slices, blocks: shape.outs.div_ceil(block), block, kernel, parts, run, piece: block * run * kernel }
    }

    /// Where the sums of kernel row `i` of output channel `o` begin in those of a slice.
    fn place(&self, shape: &Shape, slice: usize, o: usize, i: usize) -> usize {
        let (group, o) = (o / shape.outs, o % shape.outs);
        let block = (slice * shape.groups + group) * self.blocks + o / self.block;
        let piece = block * self.parts + i / self.kernel;
        piece * self.piece + (i % self.kernel * self.block + o % self.block) * self.run
    }
}

impl Cpu {
    pub(super) fn weight(&self, shape: &Shape, x: &Memory, dy: &Memory, y: Store<'_, Self>) {
        let epilogue = Epilogue::of(&y, self.isa());
        let Store { y, table, to, .. } = y;
        #[cfg(target_arch = "x86_64")]
        let operands = Operands::new(self, shape, x, dy);
        #[cfg(target_arch = "x86_64")]
        let unit = operands.is_some();
        #[cfg(not(target_arch = "x86_64"))]
        let unit = false;
        let (plan, len) = (Plan::of(shape, self.isa(), unit, self.threads()), shape.weights());
        let rows = shape.y[0] * shape.y[1];
        let pieces = plan.slices * shape.groups * plan.blocks * plan.parts;
        let mut sums = self.zeros(pieces * plan.piece);
        self.pieces_of(shape.cost(), &mut sums, plan.piece, |piece, sums| {
            let (i, rest) = (piece % plan.parts * plan.kernel, piece / plan.parts);
            let (block, rest) = (rest % plan.blocks, rest / plan.blocks);
            let (group, slice) = (rest % shape.groups, rest / shape.groups);
            let first = block * plan.block;
            let piece = Piece {
                rows: rows * slice / plan.slices..rows * (slice + 1) / plan.slices,
                outs: group * shape.outs + first..group * shape.outs + shape.outs.min(first + plan.block),
                kernel: i..shape.kernel[0].min(i + plan.kernel),
                block: plan.block,
            };
            let plain = |piece: &Piece, sums: &mut [f32]| self.kernel_rows(shape, x, dy, piece, sums);
            #[cfg(target_arch = "x86_64")]
            if let Some(operands) = &operands {
                return operands.add(self, shape, &piece, sums, plain);
            }
            plain(&piece, sums);
        });
        let (cost, sums) = (Cost::elements(sums.len()), &*sums);
        let seen = destination(y, shape.y[3] * len).each(self, cost, len, |o, part| {
            let (mut row, mut total) = (epilogue.row(), self.zeros(len));
            for (i, total) in total.chunks_exact_mut(plan.run.max(1)).enumerate() {
                for slice in 0..plan.slices {
                    let sums = &sums[plan.place(shape, slice, o, i)..][..plan.run];
                    total.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
                }
            }
            epilogue.finish(&mut total, part, &mut row);
            row
        });
        merge(&epilogue, &seen, |row| table.merge(to, row));
    }

    /// Adds the gradient of a piece to its sums.
    fn kernel_rows(&self, shape: &Shape, x: &Memory, dy: &Memory, piece: &Piece, sums: &mut [f32]) {
        let Piece { rows, outs, kernel, block } = piece.clone();
        // All channels of a row are converted fastest.
        let all = shape.groups == 1;
        let (from, depth) = if all { (0, shape.y[3]) } else { (outs.start, outs.len()) };
        let gradients =
            Lines { data: dy, pixels: shape.y[2], channels: shape.y[3], from, depth, before: 0, line: shape.y[2] };
        let inputs = piece.inputs(shape, x);
        let (mut gradient, mut lines) =
            (self.scratch(gradients.step()), Held::new(self, inputs.step(), 1, shape.kernel[0], shape.dilation[0]));
        let (run, most) = (shape.kernel[1] * shape.depth, self.isa().tile_columns());
        // Taps whose values lie side by side are one run of columns.
        let together = if shape.dilation[1] == 1 { shape.kernel[1] } else { 1 };
        for row in rows {
            let (image, p) = (row / shape.y[1], row % shape.y[1]);
            gradients.convert(self, row, &mut gradient);
            for (i, sums) in kernel.clone().zip(sums.chunks_mut((block * run).max(1))) {
                let Some(u) = shape.row(p, i) else { continue };
                let row = image * shape.x[1] + u;
                let convert = |_: usize, line: &mut [f32]| {
                    inputs.convert(self, row, line);
                    true
                };
                let (line, _) = lines.find(row, i, convert);
                let line = &lines.of_group(0)[line..];
                for j in (0..shape.kernel[1]).step_by(together) {
                    let columns = together * shape.depth;
                    for (from, q) in tiles(columns, most, shape.y[2]) {
                        let width = most.min(columns - from);
                        let height = even(outs.len(), self.isa().tile_rows(width));
                        let pixels = PIXELS.min(shape.y[2] - q);
                        let start = (j * shape.dilation[1] + q * shape.stride[1]) * shape.depth + from;
                        for o in (0..outs.len()).step_by(height) {
                            let tile = Tile {
                                a: &gradient[q * depth + outs.start - gradients.from + o..],
                                a_row: 1,
                                a_step: depth,
                                b: &line[start..],
                                b_step: shape.stride[1] * shape.depth,
                                runs: &[Run { a: 0, b: 0, depth: pixels }],
                                rows: height.min(outs.len() - o),
                                columns: width,
                            };
                            self.isa().tile(&tile, &mut sums[o * run + j * shape.depth + from..], run);
                        }
                    }
                }
            }
        }
    }
}

/// First column and first pixel of all tiles of a row, with `most` columns at most.
fn tiles(columns: usize, most: usize, pixels: usize) -> impl Iterator<Item = (usize, usize)> {
    let pixels = move |from| (0..pixels).step_by(PIXELS).map(move |q| (from, q));
    (0..columns).step_by(most).flat_map(pixels)
}
