//! Convolutions as products over lines: no im2col.
//!
//! One row of the result needs a few rows of its operand. These are converted to f32 lines with zeros around them, in
//! which the pixels that a tile multiplies are evenly spaced, so that the tile kernel reads them where they are.
//!
//! ```text
//! forward   y[q, o]     = Σ line[q·s + j·d, c] · w[o, i, j, c]         columns o, steps (j, c)
//! data      dx[v, c]    = Σ line[(v + pad − j·d)/s, o] · w[o, i, j, c]   columns c, steps o, one phase of v mod s at a time
//! weight    dw[o, j, c] = Σ dy[q, o] · line[q·s + j·d, c]               columns (j, c), steps q
//! ```

use crate::{
    Cpu, Memory,
    arch::{TILE_COLUMNS, Tile, tile_rows},
    elementwise::load,
    epilogue::{Epilogue, destination, merge},
    gemm::{Matrix, Packed},
};
use gradscale_core::{
    backend::Store,
    descriptor::{Conv2d, Pass},
};

/// Steps between two visits to the accumulators: 64 columns of weights in 32 KiB, which stay in the first cache.
const DEPTH: usize = 128;

/// The numbers of a convolution, as usize.
#[derive(Clone, Copy)]
struct Shape {
    x: [usize; 4],
    y: [usize; 4],
    kernel: [usize; 2],
    stride: [usize; 2],
    pad: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
    /// Input and output channels of one group.
    depth: usize,
    outs: usize,
}

impl Shape {
    fn of(p: &Conv2d) -> Self {
        let (w, groups) = (p.w().map(|size| size as usize), p.group_count() as usize);
        Self {
            x: p.x().map(|size| size as usize),
            y: p.y().map(|size| size as usize),
            kernel: [w[1], w[2]],
            stride: p.strides().map(|size| size as usize),
            pad: p.padding().map(|size| size as usize),
            dilation: p.dilations().map(|size| size as usize),
            groups,
            depth: w[3],
            outs: w[0] / groups,
        }
    }

    /// Taps of one group's kernel.
    const fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// The row of x that output row `p` reads with kernel row `i`.
    fn row(&self, p: usize, i: usize) -> Option<usize> {
        (p * self.stride[0] + i * self.dilation[0]).checked_sub(self.pad[0]).filter(|&row| row < self.x[1])
    }

    /// Pixels of a line of x, padding included.
    const fn line(&self) -> usize {
        (self.y[2] - 1) * self.stride[1] + (self.kernel[1] - 1) * self.dilation[1] + 1
    }

    /// Runs of taps along a kernel row whose values lie side by side: (first tap, taps).
    fn runs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let together = if self.dilation[1] == 1 { self.kernel[1] } else { 1 };
        (0..self.kernel[1]).step_by(together).map(move |j| (j, together))
    }
}

/// A tensor `[rows, pixels, channels]`, of which lines are converted.
#[derive(Clone, Copy)]
struct Rows<'a> {
    data: &'a Memory,
    pixels: usize,
    channels: usize,
    /// Channels of the group.
    from: usize,
    depth: usize,
}

impl Rows<'_> {
    /// Converts a row into `line`, `before` pixels of which lie before it; what lies outside stays as it is.
    fn convert(&self, cpu: &Cpu, row: usize, before: usize, line: &mut [f32]) {
        if self.depth == 0 {
            return;
        }
        let pixels = self.pixels.min((line.len() / self.depth).saturating_sub(before));
        let line = &mut line[before * self.depth..(before + pixels) * self.depth];
        let start = row * self.pixels * self.channels;
        if self.depth == self.channels {
            load(cpu.isa(), self.data, start, line);
        } else {
            for (pixel, out) in line.chunks_exact_mut(self.depth).enumerate() {
                load(cpu.isa(), self.data, start + pixel * self.channels + self.from, out);
            }
        }
    }
}

/// A product of evenly spaced pixels with packed weights.
struct Product<'a> {
    pixels: &'a [f32],
    /// Elements from one pixel to the next.
    spacing: usize,
    weights: &'a Packed<'a>,
    /// First step of the weights.
    step: usize,
    depth: usize,
}

impl Product<'_> {
    /// Adds the product for `count` pixels to sums whose pixels are `sum_row` apart, `columns` of each.
    fn add(&self, cpu: &Cpu, count: usize, columns: usize, sums: &mut [f32], sum_row: usize) {
        for start in (0..self.depth).step_by(DEPTH) {
            for from in (0..columns).step_by(TILE_COLUMNS) {
                let width = TILE_COLUMNS.min(columns - from);
                let height = tile_rows(width);
                for pixel in (0..count).step_by(height) {
                    let tile = Tile {
                        a: &self.pixels[pixel * self.spacing + start..],
                        a_row: self.spacing,
                        a_step: 1,
                        b: self.weights.panel(self.step + start, from),
                        b_step: self.weights.step(),
                        depth: DEPTH.min(self.depth - start),
                        rows: height.min(count - pixel),
                        columns: width,
                    };
                    cpu.isa().tile(&tile, &mut sums[pixel * sum_row + from..], sum_row);
                }
            }
        }
    }
}

impl Cpu {
    pub(crate) fn run_conv(
        &self, p: &Conv2d, pass: Pass, a: &Memory, b: &Memory, bias: Option<&Memory>, y: Store<'_, Self>,
    ) {
        let shape = Shape::of(p);
        let bias = |channels: usize| bias.map(|bias| (0..channels).map(|c| bias.get(c)).collect::<Vec<f32>>());
        match pass {
            Pass::Forward => {
                let weights: Vec<Packed<'_>> = (0..shape.groups)
                    .map(|group| {
                        let depth = shape.taps() * shape.depth;
                        let matrix = Matrix { data: b, start: group * shape.outs * depth, steps: [1, depth] };
                        Packed::new(self, matrix, depth, shape.outs)
                    })
                    .collect();
                let result = [shape.y[0] * shape.y[1], shape.y[2], shape.y[3]];
                self.rows_of(result, bias(result[2]), y, |row, sums| self.forward(&shape, a, &weights, row, sums));
            }
            Pass::Data => {
                let weights: Vec<Packed<'_>> = (0..shape.groups * shape.taps())
                    .map(|i| {
                        let (group, tap) = (i / shape.taps(), i % shape.taps());
                        let depth = shape.taps() * shape.depth;
                        let start = group * shape.outs * depth + tap * shape.depth;
                        Packed::new(self, Matrix { data: b, start, steps: [depth, 1] }, shape.outs, shape.depth)
                    })
                    .collect();
                let result = [shape.x[0] * shape.x[1], shape.x[2], shape.x[3]];
                self.rows_of(result, bias(result[2]), y, |row, sums| self.data(&shape, a, &weights, row, sums));
            }
            Pass::Weight => self.weight(&shape, a, b, y),
        }
    }

    /// Stores a result row by row; `sums` adds a row's products to zeros.
    pub(crate) fn rows_of(
        &self, [rows, pixels, channels]: [usize; 3], bias: Option<Vec<f32>>, y: Store<'_, Self>,
        sums: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        let epilogue = Epilogue::of(&y, self.isa());
        let Store { y, table, to, .. } = y;
        let len = pixels * channels;
        let seen = self.run(|| {
            destination(y, rows * len).each(len, |i, part| {
                let (mut row, mut line) = (epilogue.row(), self.scratch(len));
                sums(i, &mut line);
                if let Some(bias) = &bias {
                    for pixel in line.chunks_exact_mut(channels) {
                        pixel.iter_mut().zip(bias).for_each(|(sum, bias)| *sum += bias);
                    }
                }
                epilogue.finish(&mut line, part, &mut row);
                row
            })
        });
        merge(&epilogue, &seen, |row| table.merge(to, row));
    }

    fn forward(&self, shape: &Shape, x: &Memory, weights: &[Packed<'_>], row: usize, sums: &mut [f32]) {
        let (image, p) = (row / shape.y[1], row % shape.y[1]);
        let mut line = self.scratch(shape.line() * shape.depth);
        for (group, weights) in weights.iter().enumerate() {
            let rows = Rows {
                data: x,
                pixels: shape.x[2],
                channels: shape.x[3],
                from: group * shape.depth,
                depth: shape.depth,
            };
            for i in 0..shape.kernel[0] {
                let Some(u) = shape.row(p, i) else { continue };
                rows.convert(self, image * shape.x[1] + u, shape.pad[1], &mut line);
                for (j, taps) in shape.runs() {
                    let product = Product {
                        pixels: &line[j * shape.dilation[1] * shape.depth..],
                        spacing: shape.stride[1] * shape.depth,
                        weights,
                        step: (i * shape.kernel[1] + j) * shape.depth,
                        depth: taps * shape.depth,
                    };
                    product.add(self, shape.y[2], shape.outs, &mut sums[group * shape.outs..], shape.y[3]);
                }
            }
        }
    }

    fn data(&self, shape: &Shape, dy: &Memory, weights: &[Packed<'_>], row: usize, sums: &mut [f32]) {
        let (image, u) = (row / shape.x[1], row % shape.x[1]);
        let [sh, sw] = shape.stride;
        let (width, reach) = (shape.x[2], (shape.kernel[1] - 1) * shape.dilation[1]);
        // Zeros before and behind a row of dy, for taps that point outside.
        let before = reach.div_ceil(sw);
        let pixels = before + ((width - 1 + shape.pad[1]) / sw + 1).max(shape.y[2]);
        let mut line = self.scratch(pixels * shape.outs);
        for group in 0..shape.groups {
            let rows = Rows {
                data: dy,
                pixels: shape.y[2],
                channels: shape.y[3],
                from: group * shape.outs,
                depth: shape.outs,
            };
            for i in 0..shape.kernel[0] {
                let Some(at) = (u + shape.pad[0]).checked_sub(i * shape.dilation[0]) else { continue };
                if !at.is_multiple_of(sh) || at / sh >= shape.y[1] {
                    continue;
                }
                rows.convert(self, image * shape.y[1] + at / sh, before, &mut line);
                for j in 0..shape.kernel[1] {
                    let tap = i * shape.kernel[1] + j;
                    // v + pad − j·d = s·q for the first v of this phase, counted from `before`.
                    let offset = shape.pad[1] + before * sw - j * shape.dilation[1];
                    let phase = (sw - offset % sw) % sw;
                    if phase >= width {
                        continue;
                    }
                    let product = Product {
                        pixels: &line[(phase + offset) / sw * shape.outs..],
                        spacing: shape.outs,
                        weights: &weights[group * shape.taps() + tap],
                        step: 0,
                        depth: shape.outs,
                    };
                    let count = (width - phase).div_ceil(sw);
                    let sums = &mut sums[phase * shape.x[3] + group * shape.depth..];
                    product.add(self, count, shape.depth, sums, sw * shape.x[3]);
                }
            }
        }
    }

    fn weight(&self, shape: &Shape, x: &Memory, dy: &Memory, y: Store<'_, Self>) {
        let epilogue = Epilogue::of(&y, self.isa());
        let Store { y, table, to, .. } = y;
        let len = shape.taps() * shape.depth;
        // Blocks of output channels, as high as a tile, inside one group.
        let block = (1..=6).rev().find(|&block| shape.outs.is_multiple_of(block) || shape.groups == 1).unwrap_or(1);
        let seen = self.run(|| {
            destination(y, shape.y[3] * len).each(block * len, |i, part| {
                let outs = part.len() / len;
                let (mut row, mut sums) = (epilogue.row(), self.scratch(outs * len));
                self.weights_of(shape, x, dy, i * block, outs, &mut sums);
                epilogue.finish(&mut sums, part, &mut row);
                row
            })
        });
        merge(&epilogue, &seen, |row| table.merge(to, row));
    }

    /// Adds the weight gradient of output channels `first..first + outs`, all of one group.
    fn weights_of(&self, shape: &Shape, x: &Memory, dy: &Memory, first: usize, outs: usize, sums: &mut [f32]) {
        let len = shape.taps() * shape.depth;
        let rows_x = Rows {
            data: x,
            pixels: shape.x[2],
            channels: shape.x[3],
            from: first / shape.outs * shape.depth,
            depth: shape.depth,
        };
        let rows_dy = Rows { data: dy, pixels: shape.y[2], channels: shape.y[3], from: first, depth: outs };
        let mut gradient = self.scratch(shape.y[2] * outs);
        let mut line = self.scratch(shape.line() * shape.depth);
        for image in 0..shape.x[0] {
            for p in 0..shape.y[1] {
                rows_dy.convert(self, image * shape.y[1] + p, 0, &mut gradient);
                for i in 0..shape.kernel[0] {
                    let Some(u) = shape.row(p, i) else { continue };
                    rows_x.convert(self, image * shape.x[1] + u, shape.pad[1], &mut line);
                    for (j, taps) in shape.runs() {
                        let run = taps * shape.depth;
                        for from in (0..run).step_by(TILE_COLUMNS) {
                            let tile = Tile {
                                a: &gradient,
                                a_row: 1,
                                a_step: outs,
                                b: &line[j * shape.dilation[1] * shape.depth + from..],
                                b_step: shape.stride[1] * shape.depth,
                                depth: shape.y[2],
                                rows: outs,
                                columns: TILE_COLUMNS.min(run - from),
                            };
                            let at = (i * shape.kernel[1] + j) * shape.depth + from;
                            self.isa().tile(&tile, &mut sums[at..], len);
                        }
                    }
                }
            }
        }
    }
}
