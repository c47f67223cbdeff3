//! Rows of a result from rows of an operand: the forward and the data pass.

use super::{
    Shape,
    padded_rows::{Held, Lines},
};
use crate::{
    Cpu, Memory,
    arch::{KSegment, LANES, MicroKernelArgs},
    gemm::Packed,
};

/// Elements of the weights that a tile meets before the next tile does: half or all of the first cache.
pub const WEIGHTS: usize = 8192;
/// Steps of the longest run: where longer ones are cut.
const STEPS: usize = 128;

/// How a row of the result follows from rows of the operand.
pub struct Correlation {
    /// Rows of an image, pixels and channels of the operand.
    pub rows: usize,
    pixels: usize,
    channels: usize,
    /// Channels of one group of the operand and of the result, and of all of the result.
    pub depth: usize,
    pub columns: usize,
    pub results: usize,
    /// Zeros before the pixels of a line, and its pixels with all zeros.
    before: usize,
    line: usize,
    /// Kernel rows, steps of one, and rows of the operand from one to the next.
    pub kernel: usize,
    steps: usize,
    pub dilation: usize,
    pub phases: Vec<Phase>,
}

/// What one thread adds to rows of the result.
pub struct Window<'a> {
    cpu: &'a Cpu,
    correlation: &'a Correlation,
    weights: &'a [Packed<'a>],
    source: Lines<'a>,
    lines: Held<'a>,
    /// Kernel rows and lines of this row of the result.
    from: Vec<(usize, usize)>,
    k_segments: Vec<KSegment>,
}

/// Results that read their operands alike.
pub struct Phase {
    /// First pixel, pixels from one to the next, and how many.
    pub first: usize,
    pub step: usize,
    pub count: usize,
    /// Pixels of the line from one result to the next.
    pub spacing: usize,
    /// Runs of one kernel row.
    pub k_segments: Vec<KSegment>,
}

impl Correlation {
    pub fn forward(shape: &Shape) -> Self {
        let (kernel, depth) = (shape.kernel[1], shape.depth);
        let mut k_segments = Vec::new();
        (0..kernel).for_each(|j| push(&mut k_segments, j * shape.dilation[1] * depth, j * depth, depth));
        let phase = Phase { first: 0, step: 1, count: shape.y[2], spacing: shape.stride[1], k_segments };
        Self {
            rows: shape.x[1],
            pixels: shape.x[2],
            channels: shape.x[3],
            depth,
            columns: shape.outs,
            results: shape.y[3],
            before: shape.pad[1],
            line: shape.line(),
            kernel: shape.kernel[0],
            steps: kernel * depth,
            dilation: shape.dilation[0],
            phases: vec![phase],
        }
    }

    pub fn data(shape: &Shape) -> Self {
        let (stride, width, kernel, depth) = (shape.stride[1], shape.x[2], shape.kernel[1], shape.outs);
        // Zeros before and behind a row of dy, for taps that point outside.
        let before = ((kernel - 1) * shape.dilation[1]).div_ceil(stride);
        let phase = |phase: usize| {
            let mut k_segments = Vec::new();
            for j in (0..kernel).rev() {
                // v + pad − j·d = s·q for the first v of this phase, counted from `before`.
                let place = phase + shape.pad[1] + before * stride - j * shape.dilation[1];
                if place.is_multiple_of(stride) {
                    push(&mut k_segments, place / stride * depth, (kernel - 1 - j) * depth, depth);
                }
            }
            Phase { first: phase, step: stride, count: (width - phase).div_ceil(stride), spacing: 1, k_segments }
        };
        Self {
            rows: shape.y[1],
            pixels: shape.y[2],
            channels: shape.y[3],
            depth,
            columns: shape.depth,
            results: shape.x[3],
            before,
            line: before + ((width + shape.pad[1]).saturating_sub(1) / stride + 1).max(shape.y[2]),
            kernel: shape.kernel[0],
            steps: kernel * depth,
            dilation: shape.dilation[0],
            phases: (0..stride.min(width)).map(phase).collect(),
        }
    }

    /// The lines of the first group of an operand.
    pub fn source<'a>(&self, operand: &'a Memory) -> Lines<'a> {
        Lines {
            data: operand,
            pixels: self.pixels,
            channels: self.channels,
            from: 0,
            depth: self.depth,
            pixel: self.depth,
            before: self.before,
            line: self.line,
        }
    }

    /// One thread's part of the work.
    pub fn window<'a>(&'a self, cpu: &'a Cpu, operand: &'a Memory, weights: &'a [Packed<'a>]) -> Window<'a> {
        let source = self.source(operand);
        Window {
            cpu,
            correlation: self,
            weights,
            source,
            lines: Held::new(cpu, source.step(), weights.len(), self.kernel, self.dilation),
            from: Vec::with_capacity(self.kernel),
            k_segments: Vec::new(),
        }
    }
}

impl Window<'_> {
    /// Makes a row of results, whatever was in `sums`; `from` are the rows of the operand that each kernel row reads.
    pub fn make(&mut self, from: impl Iterator<Item = Option<usize>>, sums: &mut [f32]) {
        let (shape, cpu, source) = (self.correlation, self.cpu, self.source);
        self.from.clear();
        for (i, row) in from.enumerate().filter_map(|(i, row)| Some((i, row?))) {
            let convert = |group: usize, line: &mut [f32]| {
                source.of_group(group).convert(cpu, row, line);
                true
            };
            self.from.push((i, self.lines.find(row, i, convert).0));
        }
        // As many kernel rows at a time as their weights fit.
        let width = shape.columns.next_multiple_of(LANES).min(self.cpu.isa().tile_columns());
        let together = (WEIGHTS / width.max(1) / shape.steps.max(1)).max(1);
        // Where a kernel row reads nothing but zeros, or none reads anything, there is nothing to begin with.
        let overwrite = !self.from.is_empty() && shape.phases.iter().all(|phase| !phase.k_segments.is_empty());
        if !overwrite {
            sums.fill(0.0);
        }
        for (group, weights) in self.weights.iter().enumerate() {
            for (i, rows) in self.from.chunks(together).enumerate() {
                let overwrite = overwrite && i == 0;
                for phase in &shape.phases {
                    self.k_segments.clear();
                    for &(i, line) in rows {
                        let there = |run: &KSegment| KSegment { a: run.a + line, b: run.b + i * shape.steps, ..*run };
                        self.k_segments.extend(phase.k_segments.iter().map(there));
                    }
                    let sums = &mut sums[phase.first * shape.results + group * shape.columns..];
                    shape.multiply(
                        self.cpu,
                        phase,
                        &self.k_segments,
                        self.lines.of_group(group),
                        weights,
                        sums,
                        overwrite,
                    );
                }
            }
        }
    }
}

impl Correlation {
    /// Adds the products along `k_segments` to the sums of a phase, or begins with them.
    #[expect(clippy::too_many_arguments, reason = "what a product depends on")]
    fn multiply(
        &self, cpu: &Cpu, phase: &Phase, k_segments: &[KSegment], data: &[f32], weights: &Packed<'_>, sums: &mut [f32],
        overwrite: bool,
    ) {
        let most = cpu.isa().tile_columns();
        for from in (0..self.columns).step_by(most) {
            let columns = most.min(self.columns - from);
            for (i, k_segments) in blocks(k_segments, WEIGHTS / columns.next_multiple_of(LANES)).enumerate() {
                let tile = MicroKernelArgs {
                    a: data,
                    a_row_stride: phase.spacing * self.depth,
                    a_k_stride: 1,
                    b: weights.panel(0, from),
                    b_k_stride: weights.row_stride(),
                    k_segments,
                    rows: phase.count,
                    columns,
                    overwrite: overwrite && i == 0,
                    prefetch: &[],
                };
                cpu.isa().accumulate_tile(&tile, &mut sums[from..], phase.step * self.results);
            }
        }
    }
}

/// Adds steps to a list of runs: they lengthen the last one, where they go on with it.
fn push(k_segments: &mut Vec<KSegment>, mut a: usize, mut b: usize, mut depth: usize) {
    while depth != 0 {
        let room = match k_segments.last_mut() {
            Some(run) if run.a + run.depth == a && run.b + run.depth == b && run.depth < STEPS => {
                let more = depth.min(STEPS - run.depth);
                run.depth += more;
                more
            }
            _ => {
                k_segments.push(KSegment { a, b, depth: 0 });
                0
            }
        };
        (a, b, depth) = (a + room, b + room, depth - room);
    }
}

/// Cuts runs into blocks of so many steps at most.
fn blocks(mut k_segments: &[KSegment], steps: usize) -> impl Iterator<Item = &[KSegment]> {
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
