//! Numbers of channels, laid over pixels.

use crate::workspace::CACHE_LINE_BYTES;

/// Least elements of a pattern: loops over it are long enough for wide vectors.
const MIN_BUFFER_ELEMENTS: usize = 256;

/// One value for each channel, repeated over several pixels, once more than fits so that it may begin anywhere. The first
/// lies at the start of a cache line.
#[derive(Debug, Default)]
pub struct BroadcastBuffer {
    values: Vec<f32>,
    offset: usize,
    len: usize,
    channels: usize,
}

impl BroadcastBuffer {
    /// The values of all channels.
    pub fn new(values: &[f32]) -> Self {
        let mut buffer = Self::default();
        buffer.fill(values, 1, MIN_BUFFER_ELEMENTS);
        buffer
    }

    /// Makes it that of values which `width` channels share each, not longer than so many elements need.
    pub fn fill(&mut self, values: &[f32], width: usize, elements: usize) {
        // Without channels there are no elements, and any pattern will do.
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

    /// Elements before the pattern repeats: whole pixels.
    pub const fn len(&self) -> usize {
        self.len - self.channels
    }

    /// The pattern as elements from `start` on meet it.
    pub fn starting_at(&self, start: usize) -> &[f32] {
        let channel = start % self.channels;
        &self.values[self.offset + channel..][..self.len()]
    }

    /// Lays the pattern over elements from `start` on.
    pub fn copy_to(&self, start: usize, out: &mut [f32]) {
        let buffer = self.starting_at(start);
        for out in out.chunks_mut(buffer.len()) {
            out.copy_from_slice(&buffer[..out.len()]);
        }
    }
}
