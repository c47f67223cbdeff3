//! Rows of a tensor as f32 lines.

use crate::{Cpu, Memory, arch::LANES, elementwise::load_f32, workspace::Workspace};

/// A tensor `[rows, pixels, channels]`, some channels of which become lines.
#[derive(Clone, Copy)]
pub struct PaddedRows<'a> {
    pub data: &'a Memory,
    pub pixels: usize,
    pub channels: usize,
    /// First channel, and how many.
    pub first_channel: usize,
    pub channel_count: usize,
    /// Elements from one pixel of a line to the next.
    pub pixel_stride: usize,
    /// Zeros before the pixels, and pixels of a line with all zeros.
    pub pad_left: usize,
    pub padded_width: usize,
}

impl PaddedRows<'_> {
    /// Elements from one line to the next: each begins with a cache line.
    pub const fn row_stride(&self) -> usize {
        (self.padded_width * self.pixel_stride).next_multiple_of(LANES)
    }

    /// With a gap between pixels where the same channel of many of them would meet in few sets of the first cache: for tiles
    /// that step from pixel to pixel.
    pub const fn avoid_set_conflicts(self) -> Self {
        Self {
            pixel_stride: if self.channel_count.is_multiple_of(4 * LANES) {
                self.channel_count + LANES
            } else {
                self.channel_count
            },
            ..self
        }
    }

    /// The channels of a group instead, with as many each.
    pub const fn for_group(self, group: usize) -> Self {
        Self { first_channel: self.first_channel + group * self.channel_count, ..self }
    }

    /// Converts a row; its last pixels are left out where the line is shorter.
    pub fn convert_row(&self, cpu: &Cpu, row: usize, line: &mut [f32]) {
        let pixels = self.pixels.min(self.padded_width.saturating_sub(self.pad_left));
        let (before, rest) = line.split_at_mut(self.pad_left.min(self.padded_width) * self.pixel_stride);
        let (line, after) = rest.split_at_mut(pixels * self.pixel_stride);
        before.fill(0.0);
        after.fill(0.0);
        let start = row * self.pixels * self.channels;
        if self.pixel_stride == self.channels {
            load_f32(cpu.isa(), self.data, start, line);
        } else if self.pixel_stride != 0 {
            for (pixel, out) in line.chunks_exact_mut(self.pixel_stride).enumerate() {
                load_f32(
                    cpu.isa(),
                    self.data,
                    start + pixel * self.channels + self.first_channel,
                    &mut out[..self.channel_count],
                );
            }
        }
    }
}

/// The lines that one thread has converted last: as many as a kernel has rows, each of all groups.
///
/// The next row of the result needs all but a few of the lines of the one before it, so that most are converted once.
pub struct RowCache<'a> {
    data: Workspace<'a>,
    /// Elements from one line to the next.
    row_stride: usize,
    groups: usize,
    dilation: usize,
    /// The row that each place holds, and whether all of it could be converted.
    rows: Vec<Option<(usize, bool)>>,
}

impl<'a> RowCache<'a> {
    /// Room for the lines of `kernel` rows, `dilation` apart.
    pub fn new(cpu: &'a Cpu, row_stride: usize, groups: usize, kernel: usize, dilation: usize) -> Self {
        Self {
            data: cpu.workspace(kernel * groups * row_stride),
            row_stride,
            groups,
            dilation,
            rows: vec![None; kernel],
        }
    }

    /// Where the line of a row is that kernel row `i` reads: its place in the lines of each group. `convert` is asked for
    /// the line of each group, where it is not there yet, and whether it could be converted.
    pub fn find_or_convert(
        &mut self, row: usize, i: usize, convert: impl Fn(usize, &mut [f32]) -> bool,
    ) -> (usize, bool) {
        // Neighbours never take each other's place. With rows between them the next row of the result needs others.
        let slot = if self.dilation == 1 { row % self.rows.len() } else { i };
        let start = slot * self.groups * self.row_stride;
        if let Some((cached, converted)) = self.rows[slot]
            && cached == row
        {
            return (start, converted);
        }
        let rows_of_groups = &mut self.data[start..][..self.groups * self.row_stride];
        let converted =
            (0..self.groups).all(|i| convert(i, &mut rows_of_groups[i * self.row_stride..(i + 1) * self.row_stride]));
        self.rows[slot] = Some((row, converted));
        (start, converted)
    }

    /// The lines of a group.
    pub fn group_rows(&self, group: usize) -> &[f32] {
        &self.data[group * self.row_stride..]
    }
}
