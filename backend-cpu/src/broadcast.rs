//! Per-channel values, repeated over the pixels of a block.

use crate::workspace::CACHE_LINE_BYTES;

/// Minimum number of elements of a buffer, so that loops over it are long enough for wide vectors.
const MIN_BUFFER_ELEMENTS: usize = 256;

/// Buffer with one value for each channel, repeated over several pixels, and once more so that it can start at any
/// channel. The first value is aligned to a cache line.
#[derive(Debug, Default)]
pub struct BroadcastBuffer {
    values: Vec<f32>,
    offset: usize,
    len: usize,
    channels: usize,
}

impl BroadcastBuffer {
    /// Creates a buffer that repeats one value for each channel.
    pub fn new(values: &[f32]) -> Self {
        let mut buffer = Self::default();
        buffer.fill(values, 1, MIN_BUFFER_ELEMENTS);
        buffer
    }

    /// Replaces the content by values that `width` channels share each. The buffer is not longer than `elements`
    /// elements need.
    pub fn fill(&mut self, values: &[f32], width: usize, elements: usize) {
        // Without channels there are no elements, and any content will do.
        let (values, width) = if values.is_empty() || width == 0 { (&[0.0][..], 1) } else { (values, width) };
        self.channels = values.len() * width;
        let pixels = MIN_BUFFER_ELEMENTS.min(elements).div_ceil(self.channels) + 1;
        self.len = pixels * self.channels;
        let alignment_slack = CACHE_LINE_BYTES / size_of::<f32>();
        self.values.resize(self.len + alignment_slack, 0.0);
        self.offset = self.values.as_ptr().align_offset(CACHE_LINE_BYTES).min(alignment_slack);
        let filled = &mut self.values[self.offset..self.offset + self.len];
        filled.chunks_exact_mut(width).zip(values).for_each(|(filled, &value)| filled.fill(value));
        for start in (self.channels..filled.len()).step_by(self.channels) {
            filled.copy_within(..self.channels, start);
        }
    }

    /// Returns the number of values after which the buffer repeats: those of some whole pixels.
    pub const fn len(&self) -> usize {
        self.len - self.channels
    }

    /// Returns the buffer's values for the elements from `start` on.
    pub fn starting_at(&self, start: usize) -> &[f32] {
        let channel = start % self.channels;
        &self.values[self.offset + channel..][..self.len()]
    }

    /// Writes the buffer's values for the elements from `start` on to `out`.
    pub fn copy_to(&self, start: usize, out: &mut [f32]) {
        let buffer = self.starting_at(start);
        for out in out.chunks_mut(buffer.len()) {
            out.copy_from_slice(&buffer[..out.len()]);
        }
    }
}
