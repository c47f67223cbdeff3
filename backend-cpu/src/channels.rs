//! Numbers of channels, laid over pixels.

/// Least elements of a pattern: loops over it are long enough for wide vectors.
const LEAST: usize = 256;

/// One value for each channel, repeated over several pixels, once more than fits so that it may begin anywhere.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    values: Vec<f32>,
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
        self.values.clear();
        self.values.reserve(pixels * self.channels);
        values.iter().for_each(|&value| self.values.resize(self.values.len() + width, value));
        for _ in 1..pixels {
            self.values.extend_from_within(..self.channels);
        }
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
