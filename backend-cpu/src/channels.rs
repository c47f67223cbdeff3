//! Numbers of channels, laid over pixels.

/// Least elements of a pattern: loops over it are long enough for wide vectors.
const LEAST: usize = 256;

/// One value for each channel, repeated over several pixels, once more than fits so that it may begin anywhere.
#[derive(Clone, Debug)]
pub struct Pattern {
    values: Vec<f32>,
    channels: usize,
}

impl Pattern {
    /// The values of all channels.
    pub fn new(values: &[f32]) -> Self {
        Self::short(values, LEAST)
    }

    /// As [`Pattern::new`], but not longer than so many elements need.
    pub fn short(values: &[f32], elements: usize) -> Self {
        // Without channels there are no elements, and any pattern will do.
        let values = if values.is_empty() { &[0.0] } else { values };
        let pixels = LEAST.min(elements).div_ceil(values.len()) + 1;
        Self { values: values.repeat(pixels), channels: values.len() }
    }

    /// Elements before the pattern repeats: whole pixels.
    pub const fn len(&self) -> usize {
        self.values.len() - self.channels
    }

    /// The pattern as elements from `start` on meet it.
    pub fn from(&self, start: usize) -> &[f32] {
        let channel = start % self.channels;
        &self.values[channel..channel + self.len()]
    }

    /// Lays the pattern over elements from `start` on.
    pub fn lay(&self, start: usize, out: &mut [f32]) {
        let pattern = self.from(start);
        for out in out.chunks_mut(pattern.len()) {
            out.copy_from_slice(&pattern[..out.len()]);
        }
    }
}
