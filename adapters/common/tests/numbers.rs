//! Random numbers for the tests of all adapters.

use std::cell::Cell;

/// Generator with the same numbers in every run.
pub struct Random(Cell<u64>);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    fn next(&self) -> u32 {
        // Knuth's MMIX; its high bits are the best.
        self.0.set(self.0.get().wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407));
        u32::try_from(self.0.get() >> 33).unwrap_or(0)
    }

    /// Returns an integer below `limit`.
    pub fn below(&self, limit: u16) -> u16 {
        u16::try_from(self.next() % u32::from(limit)).unwrap_or(0)
    }

    /// Returns a number between -1 and 1.
    pub fn uniform(&self) -> f32 {
        (self.next() >> 11) as f32 / (1 << 19) as f32 - 1.0
    }

    /// Returns an integer from -4 to 4: products and short sums of these are exact in FP16.
    pub fn integer(&self) -> f32 {
        f32::from(self.below(9)) - 4.0
    }
}

/// Returns the largest difference relative to the largest value.
pub fn error(of: &[f32], from: &[f32]) -> f32 {
    assert_eq!(of.len(), from.len());
    let largest = |values: &mut dyn Iterator<Item = f32>| {
        values.fold(0f32, |most, v| if v.is_nan() { v } else { most.max(v.abs()) })
    };
    largest(&mut of.iter().zip(from).map(|(a, b)| a - b)) / largest(&mut from.iter().copied())
}
