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

use super::{Shape, direct::WEIGHTS};
use crate::{
    Cpu, Memory,
    arch::{KSegment, LANES, MicroKernelArgs},
    elementwise::load,
    epilogue::{Epilogue, OutputSlice, output_slice, report_stats},
    gemm::Packed,
    stats_accumulator::StatsAccumulator,
    workspace::Workspace,
};
use core::ops::Range;
use gradscale_core::{backend::Store, ops::Pass};

/// Fewest weights: as many as half of a second cache of a megabyte. Fewer stay near from row to row.
const MANY: usize = 131_072;
/// Fewest channels of the operand, which are the steps of a tile.
const DEEP: usize = 4 * LANES;
/// Most elements of operand and sums that are worked on together.
const TOGETHER: usize = 262_144;
/// Pixels of results that take as long as it takes to bring all weights near, which each piece does.
const NEAR: usize = 16;

/// How results follow from an operand where images are small.
pub struct Images<'a> {
    cpu: &'a Cpu,
    operand: Side,
    result: Side,
    /// What each kernel row joins; what each kernel column does, in the order of the weights.
    rows: Vec<Vec<Tap>>,
    columns: Vec<Tap>,
    /// Rows of results in a piece: those of some images, or an even part of one image's.
    piece: usize,
}

/// The images of an operand or of a result.
struct Side {
    rows: usize,
    pixels: usize,
    channels: usize,
    /// Elements from one pixel to the next.
    pixel: usize,
    /// Where each pixel of a row lies.
    places: Vec<usize>,
}

/// Rows, or so many places from the first on, that a tap joins.
struct Tap {
    operand: usize,
    result: usize,
    count: usize,
}

/// Images, and the rows of their results, that are worked on together.
struct Piece {
    images: Range<usize>,
    rows: Range<usize>,
}

impl Side {
    fn new([_, rows, pixels, channels]: [usize; 4], stride: usize) -> Self {
        let mut order: Vec<usize> = (0..pixels).collect();
        order.sort_by_key(|pixel| pixel % stride);
        let mut places = vec![0; pixels];
        order.iter().enumerate().for_each(|(place, &pixel)| places[pixel] = place);
        Self { rows, pixels, channels, pixel: channels, places }
    }

    /// Where the first of so many images has its pixel of this row and place.
    const fn start(&self, row: usize, place: usize, images: usize) -> usize {
        (row * self.pixels + place) * images * self.pixel
    }

    /// Where the pixels of a row lie of one of so many images.
    fn row(&self, row: usize, images: usize, image: usize) -> impl Iterator<Item = usize> {
        self.places.iter().map(move |&place| self.start(row, place, images) + image * self.pixel)
    }
}

impl<'a> Images<'a> {
    /// Where it is worth it, which is a matter of the shape alone: weights that are not finite show what is left out.
    pub fn new(cpu: &'a Cpu, shape: &Shape, pass: Pass) -> Option<Self> {
        let depth = match pass {
            Pass::Forward => shape.depth,
            Pass::Data => shape.outs,
            Pass::Weight => return None,
        };
        let [from, to] = [shape.x, shape.y].map(|side| side[1..].iter().product::<usize>());
        let (image, some) = (from + to, from != 0 && to != 0);
        if !some || image > TOGETHER || shape.groups != 1 || depth < DEEP || shape.y[3] * shape.weights() < MANY {
            return None;
        }
        let (x, y) = (Side::new(shape.x, shape.stride[1]), Side::new(shape.y, 1));
        let forward = pass == Pass::Forward;
        let tap = |x: usize, y: usize, count: usize| {
            let [operand, result] = if forward { [x, y] } else { [y, x] };
            Tap { operand, result, count }
        };
        let rows = |i: usize| (0..y.rows).filter_map(|p| Some(tap(shape.place(0, p, i)?, p, 1))).collect();
        let column = |j: usize| {
            let mut met = (0..y.pixels).filter_map(|q| Some((x.places[shape.place(1, q, j)?], q)));
            met.next().map_or(tap(0, 0, 0), |(x, y)| tap(x, y, 1 + met.count()))
        };
        let rows = (0..shape.kernel[0]).map(rows).collect();
        let mut columns: Vec<Tap> = (0..shape.kernel[1]).map(column).collect();
        if !forward {
            columns.reverse();
        }
        let [mut operand, result] = if forward { [x, y] } else { [y, x] };
        // Else the same channel of many pixels would meet in few sets of the first cache.
        operand.pixel += LANES;
        let piece = piece(shape.x[0], result.rows, result.pixels, TOGETHER / image, cpu.thread_pool().count());
        Some(Self { cpu, operand, result, rows, columns, piece })
    }

    pub fn run(&self, shape: &Shape, a: &Memory, weights: &Packed<'_>, bias: Option<&[f32]>, y: Store<'_, Cpu>) {
        let epilogue = Epilogue::from_store(&y, self.cpu.isa());
        let Store { y, table, to, .. } = y;
        let Side { rows, pixels, channels, .. } = self.result;
        let row = pixels * channels;
        let y = output_slice(y, shape.x[0] * rows * row);
        let seen = y.par_chunks(self.cpu, shape.cost(), self.piece * row, |i, y| {
            let (first, count) = (i * self.piece, y.len() / row);
            let start = first % rows;
            let piece = Piece {
                images: first / rows..(first + count).div_ceil(rows),
                rows: start..if self.piece < rows { start + count } else { rows },
            };
            let data = self.convert(a, &piece);
            let sums = self.multiply(&data, weights, &piece);
            self.store(&sums, bias, &epilogue, y, &piece)
        });
        report_stats(&epilogue, seen.iter().flatten(), |row| table.merge(to, row));
    }

    /// The operand of a piece as f32; rows that nothing meets are left as they are.
    fn convert(&self, a: &Memory, piece: &Piece) -> Workspace<'a> {
        let Side { rows, pixels, channels, .. } = self.operand;
        let count = piece.images.len();
        let mut out = self.cpu.workspace(self.operand.start(rows, 0, count));
        for row in (0..rows).filter(|row| self.meets(*row, piece)) {
            for (i, image) in piece.images.clone().enumerate() {
                let from = (image * rows + row) * pixels * channels;
                for (q, to) in self.operand.row(row, count, i).enumerate() {
                    load(self.cpu.isa(), a, from + q * channels, &mut out[to..to + channels]);
                }
            }
        }
        out
    }

    /// Whether results of a piece need this row of the operand.
    fn meets(&self, row: usize, piece: &Piece) -> bool {
        self.rows.iter().flatten().any(|tap| tap.operand == row && piece.rows.contains(&tap.result))
    }

    /// The sums of a piece.
    fn multiply(&self, data: &[f32], weights: &Packed<'_>, piece: &Piece) -> Workspace<'a> {
        let (count, channels, results) = (piece.images.len(), self.operand.channels, self.result.channels);
        let mut sums = self.cpu.zeroed_workspace(self.result.start(piece.rows.len(), 0, count));
        let most = self.cpu.isa().tile_columns();
        for from in (0..results).step_by(most) {
            let width = most.min(results - from);
            let steps = WEIGHTS / width.next_multiple_of(LANES);
            let taps = self.rows.iter().flat_map(|rows| self.columns.iter().map(move |column| (rows, column)));
            for (t, (rows, column)) in taps.enumerate() {
                for k in (0..channels).step_by(steps) {
                    let run = KSegment { a: k, b: t * channels + k, depth: steps.min(channels - k) };
                    for row in rows.iter().filter(|row| piece.rows.contains(&row.result)) {
                        let tile = MicroKernelArgs {
                            a: &data[self.operand.start(row.operand, column.operand, count)..],
                            a_row_stride: self.operand.pixel,
                            a_k_stride: 1,
                            b: weights.panel(0, from),
                            b_k_stride: weights.row_stride(),
                            k_segments: &[run],
                            rows: column.count * count,
                            columns: width,
                            overwrite: false,
                            prefetch: &[],
                        };
                        let to = self.result.start(row.result - piece.rows.start, column.result, count);
                        self.cpu.isa().accumulate_tile(&tile, &mut sums[to + from..], results);
                    }
                }
            }
        }
        sums
    }

    /// Stores the results of a piece, and tells what was seen of each row.
    fn store(
        &self, sums: &[f32], bias: Option<&[f32]>, epilogue: &Epilogue, mut y: OutputSlice<'_>, piece: &Piece,
    ) -> Vec<StatsAccumulator> {
        let Side { pixels, channels, .. } = self.result;
        let (count, len) = (piece.images.len(), pixels * channels);
        let mut block = self.cpu.workspace(len);
        let rows = (0..count).flat_map(|image| (0..piece.rows.len()).map(move |row| (image, row)));
        let store = |(i, (image, row)): (usize, (usize, usize))| {
            for (pixel, from) in block.chunks_exact_mut(channels).zip(self.result.row(row, count, image)) {
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

/// Rows of a piece where all pieces take the least time: those of some images, at most `most`, or an even part of one's.
fn piece(images: usize, rows: usize, pixels: usize, most: usize, threads: usize) -> usize {
    let whole = (1..=most.min(images)).rev().map(|count| count * rows);
    let parts = (1..rows).rev().filter(|&part| rows.is_multiple_of(part));
    let time = |&piece: &usize| (images * rows).div_ceil(piece).div_ceil(threads) * (piece * pixels + NEAR);
    whole.chain(parts).min_by_key(time).unwrap_or(1)
}
