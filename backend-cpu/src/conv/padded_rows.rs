//! Rows of a tensor as f32 lines.

use crate::{Cpu, Memory, arch::LANES, elementwise::load, workspace::Workspace};

/// A tensor `[rows, pixels, channels]`, some channels of which become lines.
#[derive(Clone, Copy)]
pub struct Lines<'a> {
    pub data: &'a Memory,
    pub pixels: usize,
    pub channels: usize,
    /// First channel, and how many.
    pub from: usize,
    pub depth: usize,
    /// Elements from one pixel of a line to the next.
    pub pixel: usize,
    /// Zeros before the pixels, and pixels of a line with all zeros.
    pub before: usize,
    pub line: usize,
}

impl Lines<'_> {
    /// Elements from one line to the next: each begins with a cache line.
    pub const fn step(&self) -> usize {
        (self.line * self.pixel).next_multiple_of(LANES)
    }

    /// With a gap between pixels where the same channel of many of them would meet in few sets of the first cache: for tiles
    /// that step from pixel to pixel.
    pub const fn spread(self) -> Self {
        Self { pixel: if self.depth.is_multiple_of(4 * LANES) { self.depth + LANES } else { self.depth }, ..self }
    }

    /// The channels of a group instead, with as many each.
    pub const fn of_group(self, group: usize) -> Self {
        Self { from: self.from + group * self.depth, ..self }
    }

    /// Converts a row; its last pixels are left out where the line is shorter.
    pub fn convert(&self, cpu: &Cpu, row: usize, line: &mut [f32]) {
        let pixels = self.pixels.min(self.line.saturating_sub(self.before));
        let (before, rest) = line.split_at_mut(self.before.min(self.line) * self.pixel);
        let (line, after) = rest.split_at_mut(pixels * self.pixel);
        before.fill(0.0);
        after.fill(0.0);
        let start = row * self.pixels * self.channels;
        if self.pixel == self.channels {
            load(cpu.isa(), self.data, start, line);
        } else if self.pixel != 0 {
            for (pixel, out) in line.chunks_exact_mut(self.pixel).enumerate() {
                load(cpu.isa(), self.data, start + pixel * self.channels + self.from, &mut out[..self.depth]);
            }
        }
    }
}

/// The lines that one thread has converted last: as many as a kernel has rows, each of all groups.
///
/// The next row of the result needs all but a few of the lines of the one before it, so that most are converted once.
pub struct Held<'a> {
    data: Workspace<'a>,
    /// Elements from one line to the next.
    step: usize,
    groups: usize,
    dilation: usize,
    /// The row that each place holds, and whether all of it could be converted.
    rows: Vec<Option<(usize, bool)>>,
}

impl<'a> Held<'a> {
    /// Room for the lines of `kernel` rows, `dilation` apart.
    pub fn new(cpu: &'a Cpu, step: usize, groups: usize, kernel: usize, dilation: usize) -> Self {
        Self { data: cpu.workspace(kernel * groups * step), step, groups, dilation, rows: vec![None; kernel] }
    }

    /// Where the line of a row is that kernel row `i` reads: its place in the lines of each group. `convert` is asked for
    /// the line of each group, where it is not there yet, and whether it could be converted.
    pub fn find(&mut self, row: usize, i: usize, convert: impl Fn(usize, &mut [f32]) -> bool) -> (usize, bool) {
        // Neighbours never take each other's place. With rows between them the next row of the result needs others.
        let place = if self.dilation == 1 { row % self.rows.len() } else { i };
        let start = place * self.groups * self.step;
        if let Some((held, converted)) = self.rows[place]
            && held == row
        {
            return (start, converted);
        }
        let lines = &mut self.data[start..][..self.groups * self.step];
        let converted = (0..self.groups).all(|i| convert(i, &mut lines[i * self.step..(i + 1) * self.step]));
        self.rows[place] = Some((row, converted));
        (start, converted)
    }

    /// The lines of a group.
    pub fn of_group(&self, group: usize) -> &[f32] {
        &self.data[group * self.step..]
    }
}
