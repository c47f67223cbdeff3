//! Rows of a tensor as f32 lines.

use crate::{Cpu, Memory, arch::LANES, elementwise::load};

/// A tensor `[rows, pixels, channels]`, some channels of which become lines.
#[derive(Clone, Copy)]
pub struct Lines<'a> {
    pub data: &'a Memory,
    pub pixels: usize,
    pub channels: usize,
    /// First channel, and how many.
    pub from: usize,
    pub depth: usize,
    /// Zeros before the pixels, and pixels of a line with all zeros.
    pub before: usize,
    pub line: usize,
}

impl Lines<'_> {
    /// Elements from one line to the next: each begins with a cache line.
    pub const fn step(&self) -> usize {
        (self.line * self.depth).next_multiple_of(LANES)
    }

    /// Converts a row; its last pixels are left out where the line is shorter.
    pub fn convert(&self, cpu: &Cpu, row: usize, line: &mut [f32]) {
        let pixels = self.pixels.min(self.line.saturating_sub(self.before));
        let (before, rest) = line.split_at_mut(self.before.min(self.line) * self.depth);
        let (line, after) = rest.split_at_mut(pixels * self.depth);
        before.fill(0.0);
        after.fill(0.0);
        let start = row * self.pixels * self.channels;
        if self.depth == self.channels {
            load(cpu.isa(), self.data, start, line);
        } else if self.depth != 0 {
            for (pixel, out) in line.chunks_exact_mut(self.depth).enumerate() {
                load(cpu.isa(), self.data, start + pixel * self.channels + self.from, out);
            }
        }
    }
}
