//! Rows of a tensor of halves as lines of bf16.

use crate::{
    Cpu, Memory,
    arch::amx::{Amx, K_BLOCK, as_bf16_mut},
    conv::padded_rows::Lines,
};
use half::f16;

/// Lines as a product's first operand reads them: upper parts, then lower ones, with zeros around both.
#[derive(Clone, Copy)]
pub struct Split<'a> {
    pub lines: Lines<'a>,
    pub unit: Amx,
}

impl Lines<'_> {
    /// A row as it is stored, if it is one of halves: its last pixels are left out where the line is shorter. `room` is
    /// used where channels lie between those of the line.
    fn halves<'b>(&'b self, row: usize, room: &'b mut Vec<f16>) -> &'b [f16] {
        let Memory::F16(data) = self.data else { return &[] };
        let pixels = self.pixels.min(self.line.saturating_sub(self.before));
        let data = &data[row * self.pixels * self.channels..][..pixels * self.channels];
        if self.depth == self.channels {
            return data;
        }
        room.clear();
        data.chunks_exact(self.channels.max(1))
            .for_each(|pixel| room.extend(&pixel[self.from..self.from + self.depth]));
        room
    }
}

impl Split<'_> {
    /// Elements of each part of a line: a tile may read a block from where the line ends.
    pub const fn part(&self) -> usize {
        (self.lines.line * self.lines.depth + K_BLOCK).next_multiple_of(K_BLOCK) + K_BLOCK
    }

    /// Converts a row: false if not all of it is finite.
    pub fn convert(&self, row: usize, line: &mut [f32]) -> bool {
        let (mut room, part, line) = (vec![], self.part(), as_bf16_mut(line));
        let (x, before) =
            (self.lines.halves(row, &mut room), self.lines.before.min(self.lines.line) * self.lines.depth);
        let finite = self.unit.split_to_bf16(x, K_BLOCK, part, &mut line[before..]);
        for part in line.chunks_exact_mut(part) {
            part[..before].fill(0);
            part[before + x.len()..].fill(0);
        }
        finite
    }
}

/// Lines as a product's second operand reads them: every element with that of the next result, upper parts, then lower
/// ones. Pixels behind the last result are zeros, as many as fill its last block.
#[derive(Clone, Copy)]
pub struct Paired<'a> {
    pub lines: Lines<'a>,
    pub unit: Amx,
    /// Elements from a result's to the next one's.
    pub pair_distance: usize,
    /// Pixels with those of the last block.
    pub pixels: usize,
}

impl Paired<'_> {
    /// Elements of each part of a line.
    pub const fn part(&self) -> usize {
        2 * self.pixels * self.lines.depth
    }

    /// Converts a row, which is finite.
    pub fn convert(&self, cpu: &Cpu, row: usize, line: &mut [f32]) {
        let (mut room, len) = (vec![], self.pixels * self.lines.depth);
        let x = self.lines.halves(row, &mut room);
        // With zeros around them; a half in the place of every second one.
        let mut padded = cpu.zeroed_workspace(len.div_ceil(2));
        let before = self.lines.before.min(self.lines.line) * self.lines.depth;
        let padded = as_bf16_mut(&mut padded);
        padded[before..before + x.len()].iter_mut().zip(x).for_each(|(to, x)| *to = x.to_bits());
        let (high, low) = as_bf16_mut(line).split_at_mut(self.part());
        self.unit.split_pairs(&padded[..len], self.pair_distance, high, low);
    }
}
