//! Numbers of channels, laid over pixels.

use crate::workspace::CACHE_LINE_BYTES;

/// Least elements of a pattern: loops over it are long enough for wide vectors.
const LEAST: usize = 256;

/// One value for each channel, repeated over several pixels, once more than fits so that it may begin anywhere. The first
/// lies at the start of a cache line.
#[derive(Debug, Default)]
pub struct Pattern {
    values: Vec<f32>,
    at: usize,
    len: usize,
    channels: usize,
}

impl Pattern {
    /// The values of all channels.
    pub fn new(values: &[f32]) -> Self {
        let mut pattern = Self::default();
        pattern.lay_out(values, 1, LEAST);
        pattern
    }

    /// Makes it that of values which `width` channels share each, not longer than so many elements need.
    pub fn lay_out(&mut self, values: &[f32], width: usize, elements: usize) {
        // Without channels there are no elements, and any pattern will do.
        let (values, width) = if values.is_empty() || width == 0 { (&[0.0][..], 1) } else { (values, width) };
        self.channels = values.len() * width;
        let pixels = LEAST.min(elements).div_ceil(self.channels) + 1;
        self.len = pixels * self.channels;
        let room = CACHE_LINE_BYTES / size_of::<f32>();
        self.values.resize(self.len + room, 0.0);
        self.at = self.values.as_ptr().align_offset(CACHE_LINE_BYTES).min(room);
        let laid = &mut self.values[self.at..self.at + self.len];
        laid.chunks_exact_mut(width).zip(values).for_each(|(laid, &value)| laid.fill(value));
        for start in (self.channels..laid.len()).step_by(self.channels) {
            laid.copy_within(..self.channels, start);
        }
    }

    /// Elements before the pattern repeats: whole pixels.
    pub const fn len(&self) -> usize {
        self.len - self.channels
    }

    /// The pattern as elements from `start` on meet it.
    pub fn from(&self, start: usize) -> &[f32] {
        let channel = start % self.channels;
        &self.values[self.at + channel..][..self.len()]
    }

    /// Lays the pattern over elements from `start` on.
    pub fn lay(&self, start: usize, out: &mut [f32]) {
        let pattern = self.from(start);
        for out in out.chunks_mut(pattern.len()) {
            out.copy_from_slice(&pattern[..out.len()]);
        }
    }
}
