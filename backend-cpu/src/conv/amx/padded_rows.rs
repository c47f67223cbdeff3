//! Rows of a tensor of halves as padded rows of bf16.

use crate::{
    Cpu, Memory,
    arch::amx::{Amx, K_BLOCK, as_bf16_mut},
    conv::padded_rows::PaddedRows,
};
use half::f16;

/// Padded rows as operand A: upper parts, then lower ones, with zeros around both.
#[derive(Clone, Copy)]
pub struct SplitRows<'a> {
    pub lines: PaddedRows<'a>,
    pub unit: Amx,
}

impl PaddedRows<'_> {
    /// Returns a row of halves as it is stored; empty for other types. Its last pixels are skipped if the padded row is
    /// shorter. If other channels are between its own, the row is copied to `gathered`.
    fn source_halves<'b>(&'b self, row: usize, gathered: &'b mut Vec<f16>) -> &'b [f16] {
        let Memory::F16(data) = self.data else { return &[] };
        let pixels = self.pixels.min(self.padded_width.saturating_sub(self.pad_left));
        let data = &data[row * self.pixels * self.channels..][..pixels * self.channels];
        if self.channel_count == self.channels {
            return data;
        }
        gathered.clear();
        data.chunks_exact(self.channels.max(1))
            .for_each(|pixel| gathered.extend(&pixel[self.first_channel..self.first_channel + self.channel_count]));
        gathered
    }
}

impl SplitRows<'_> {
    /// Returns the elements of each part of a row. A tile may read a block from where the row ends.
    pub const fn part_len(&self) -> usize {
        (self.lines.padded_width * self.lines.channel_count + K_BLOCK).next_multiple_of(K_BLOCK) + K_BLOCK
    }

    /// Converts a row of halves to a padded row of bf16 parts. Returns false if a value is not finite.
    pub fn convert_row(&self, row: usize, line: &mut [f32]) -> bool {
        let (mut gathered, part, line) = (vec![], self.part_len(), as_bf16_mut(line));
        let (x, pad_left) = (
            self.lines.source_halves(row, &mut gathered),
            self.lines.pad_left.min(self.lines.padded_width) * self.lines.channel_count,
        );
        let finite = self.unit.split_to_bf16(x, K_BLOCK, part, &mut line[pad_left..]);
        for part in line.chunks_exact_mut(part) {
            part[..pad_left].fill(0);
            part[pad_left + x.len()..].fill(0);
        }
        finite
    }
}

/// Padded rows as operand B: every element is paired with that of the next result, upper parts, then lower ones. Pixels
/// after the last result are zeros, as many as fill its last block.
#[derive(Clone, Copy)]
pub struct PairedRows<'a> {
    pub lines: PaddedRows<'a>,
    pub unit: Amx,
    /// Number of elements from the operand of a result to that of the next.
    pub pair_distance: usize,
    /// Number of pixels of a row, with those that fill the last block.
    pub pixels: usize,
}

impl PairedRows<'_> {
    /// Returns the number of elements of each part, upper and lower, of a row.
    pub const fn part_len(&self) -> usize {
        2 * self.pixels * self.lines.channel_count
    }

    /// Converts a row of halves, all finite, to a padded row of paired bf16 parts.
    pub fn convert_row(&self, cpu: &Cpu, row: usize, line: &mut [f32]) {
        let (mut gathered, len) = (vec![], self.pixels * self.lines.channel_count);
        let x = self.lines.source_halves(row, &mut gathered);
        // The padded row; each half takes the place of one 16-bit word.
        let mut padded = cpu.zeroed_workspace(len.div_ceil(2));
        let pad_left = self.lines.pad_left.min(self.lines.padded_width) * self.lines.channel_count;
        let padded = as_bf16_mut(&mut padded);
        padded[pad_left..pad_left + x.len()].iter_mut().zip(x).for_each(|(to, x)| *to = x.to_bits());
        let (high, low) = as_bf16_mut(line).split_at_mut(self.part_len());
        self.unit.split_pairs(&padded[..len], self.pair_distance, high, low);
    }
}
