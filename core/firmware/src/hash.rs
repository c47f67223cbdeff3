//! A checksum of words, in their order.

/// Running checksum; equal sequences give equal sums on every machine.
#[derive(Clone, Copy, Debug)]
pub struct Hash(u64);

impl Hash {
    /// Of nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a word. The multiplication carries upwards only; the shift brings it back down.
    pub const fn add(&mut self, word: u64) {
        let product = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 29);
    }

    /// The sum so far.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Default for Hash {
    fn default() -> Self {
        Self::new()
    }
}
