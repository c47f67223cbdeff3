//! Row without histogram: seven counters, the largest magnitude and the exponent in force, 64 bytes.

use super::Convention;

/// Counters of one statistics row. They are exact and independent of the order of values. They saturate.
///
/// | value `u` | counted as |
/// |---|---|
/// | ±0 (−0 is a zero) | `zeros` |
/// | non-zero, stored as ±0 | `flushed` |
/// | stored as a subnormal | `subnormal` |
/// | finite, stored as ±∞ or NaN, or clipped | `overflowed` |
/// | ±∞, also where a finite v times its factor is ±∞ | `infinite` |
/// | NaN | `nan` |
/// | every value | `count` |
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Counts {
    /// Number of all values in the row.
    pub count: u64,
    /// Number of values that were ±0 before the store.
    pub zeros: u64,
    /// Number of values that were ±∞ before the store.
    pub infinite: u64,
    /// Number of values that were NaN before the store.
    pub nan: u64,
    /// Number of non-zero values that the store rounded to ±0.
    pub flushed: u64,
    /// Number of finite values that were too large for the store.
    pub overflowed: u64,
    /// Number of values that were stored as subnormals.
    pub subnormal: u64,
    /// Largest finite magnitude (amax); 0 if there is none.
    pub amax: f32,
    /// Accumulated exponent α at which the values were observed: true magnitude = |u| · 2^-α.
    pub exponent: i32,
}

impl Counts {
    /// Creates the counters of an empty row at `exponent`.
    #[must_use]
    pub const fn new(exponent: i32) -> Self {
        Self { count: 0, zeros: 0, infinite: 0, nan: 0, flushed: 0, overflowed: 0, subnormal: 0, amax: 0.0, exponent }
    }

    /// Returns the number of finite non-zero values in the row.
    #[must_use]
    pub const fn nonzero(&self) -> u64 {
        self.count.saturating_sub(self.zeros).saturating_sub(self.non_finite())
    }

    /// Returns the number of ±∞ and NaN in the row.
    #[must_use]
    pub const fn non_finite(&self) -> u64 {
        self.infinite.saturating_add(self.nan)
    }

    /// Adds the values of `u` to the counters, with the thresholds of `convention`.
    #[inline]
    pub fn observe(&mut self, convention: Convention, u: &[f32]) {
        let (flush, subnormal, overflow) =
            (convention.flush_end(), convention.subnormal_end(), convention.overflow_start());
        // Short blocks, so that the counters of the inner loop can be as narrow as its values and vectorise.
        for block in u.chunks(1 << 16) {
            let (mut zeros, mut small, mut low, mut large, mut infinite, mut nan) =
                (0u32, 0u32, 0u32, 0u32, 0u32, 0u32);
            let mut amax = 0u32;
            for &u in block {
                let magnitude = u.to_bits() & 0x7FFF_FFFF;
                zeros += u32::from(magnitude == 0);
                small += u32::from(magnitude < flush);
                low += u32::from(magnitude < subnormal);
                large += u32::from(magnitude >= overflow);
                infinite += u32::from(magnitude == 0x7F80_0000);
                nan += u32::from(magnitude > 0x7F80_0000);
                amax = amax.max(if magnitude < 0x7F80_0000 { magnitude } else { 0 });
            }
            self.count = self.count.saturating_add(block.len() as u64);
            self.zeros = self.zeros.saturating_add(u64::from(zeros));
            self.infinite = self.infinite.saturating_add(u64::from(infinite));
            self.nan = self.nan.saturating_add(u64::from(nan));
            // The thresholds are nested: each comparison also counts the values beyond the next.
            self.flushed = self.flushed.saturating_add(u64::from(small - zeros));
            self.subnormal = self.subnormal.saturating_add(u64::from(low - small));
            self.overflowed = self.overflowed.saturating_add(u64::from(large - infinite - nan));
            self.amax = f32::from_bits(self.amax.to_bits().max(amax));
        }
    }

    /// Returns the sum of the counters of two rows at the same exponent.
    #[must_use]
    pub(super) const fn merged(&self, other: &Self) -> Self {
        let larger = if self.amax.to_bits() > other.amax.to_bits() { self.amax } else { other.amax };
        Self {
            count: self.count.saturating_add(other.count),
            zeros: self.zeros.saturating_add(other.zeros),
            infinite: self.infinite.saturating_add(other.infinite),
            nan: self.nan.saturating_add(other.nan),
            flushed: self.flushed.saturating_add(other.flushed),
            overflowed: self.overflowed.saturating_add(other.overflowed),
            subnormal: self.subnormal.saturating_add(other.subnormal),
            amax: larger,
            exponent: self.exponent,
        }
    }
}
