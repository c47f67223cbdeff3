//! Rows of a tensor as padded f32 rows, and their cache.

use crate::{Cpu, Memory, arch::LANES, elementwise::load_f32, workspace::Workspace};

/// Tensor `[rows, pixels, channels]` of which some channels become padded f32 rows.
#[derive(Clone, Copy)]
pub struct PaddedRows<'a> {
    pub data: &'a Memory,
    pub pixels: usize,
    pub channels: usize,
    /// First channel that becomes padded rows, and the number of channels.
    pub first_channel: usize,
    pub channel_count: usize,
    /// Number of elements from one pixel of a padded row to the next.
    pub pixel_stride: usize,
    /// Numbers of zero pixels before a row, and of pixels of a row with all padding.
    pub pad_left: usize,
    pub padded_width: usize,
}

impl PaddedRows<'_> {
    /// Returns the elements from one padded row to the next: each begins with a cache line.
    pub const fn row_stride(&self) -> usize {
        (self.padded_width * self.pixel_stride).next_multiple_of(LANES)
    }

    /// Returns the layout with a gap between pixels if their distance is a multiple of 64 elements. Otherwise the same
    /// channel of many pixels would share few sets of L1. For tiles whose K steps are pixels.
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

    /// Returns the same layout for the channels of another group.
    pub const fn for_group(self, group: usize) -> Self {
        Self { first_channel: self.first_channel + group * self.channel_count, ..self }
    }

    /// Converts a row. Its last pixels are skipped if the padded row is shorter.
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

/// Cache of the rows that a worker has converted last: as many as a kernel has rows, each with all groups.
///
/// The next row of the result needs all but a few of them again, so that most rows are converted once.
pub struct RowCache<'a> {
    data: Workspace<'a>,
    /// Number of elements from one padded row to the next.
    row_stride: usize,
    groups: usize,
    dilation: usize,
    /// Row that each slot of the cache holds, and true if all of it was converted.
    rows: Vec<Option<(usize, bool)>>,
}

impl<'a> RowCache<'a> {
    /// Creates a cache with `kernel` slots for rows that are `dilation` apart.
    pub fn new(cpu: &'a Cpu, row_stride: usize, groups: usize, kernel: usize, dilation: usize) -> Self {
        Self {
            data: cpu.workspace(kernel * groups * row_stride),
            row_stride,
            groups,
            dilation,
            rows: vec![None; kernel],
        }
    }

    /// Finds or converts the padded row that kernel row `i` reads. Returns its offset, and true if it was converted.
    /// `convert` is called for each group if the row is not cached.
    pub fn find_or_convert(
        &mut self, row: usize, i: usize, convert: impl Fn(usize, &mut [f32]) -> bool,
    ) -> (usize, bool) {
        // Neighbouring rows have different slots. With dilation the next row of the result needs other rows, so kernel
        // row `i` keeps slot `i`.
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

    /// Returns the cached padded rows of a group.
    pub fn group_rows(&self, group: usize) -> &[f32] {
        &self.data[group * self.row_stride..]
    }
}
