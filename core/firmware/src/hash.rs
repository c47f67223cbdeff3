//! Checksum of words in their order.

/// Running 64-bit checksum of a sequence of numbers; equal sequences have equal checksums on every machine.
#[derive(Clone, Copy, Debug)]
pub struct Hash(u64);

impl Hash {
    /// Creates the checksum of an empty sequence.
    #[must_use]
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a word to the checksum. The multiplication propagates changes to higher bits only, so a shift propagates
    /// them to lower ones.
    pub const fn add(&mut self, word: u64) {
        let product = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 29);
    }

    /// Returns the checksum of all numbers that were added so far.
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
