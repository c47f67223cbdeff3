//! Treatment of small numbers by a device's cast, and the thresholds of statistics that follow.

use crate::format::{Format, SpecialEncoding};
use core::fmt;

/// Flush rule: result of a device's cast from f32 below the smallest normal number.
///
/// A start-up probe determines the rule with 2^-24, 2^-25, 2^-14, 2^-14 − 2^-25 and 2^-14 − 2^-26 (FP16), for stores
/// and for loads. The thresholds below are those of FP16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushRule {
    /// Rounding to nearest even with subnormals kept: |u| ≤ 2^-25 flushes. All casts implemented with integers follow
    /// it.
    Nearest,
    /// Rounding toward zero with subnormals kept: |u| < 2^-24 flushes.
    TowardZero,
    /// Flush before rounding: |u| < 2^-14 flushes.
    FlushThenRound,
    /// Flush after rounding to the half grid, or on load: |u| < 2^-14 − 2^-25 flushes.
    RoundThenFlush,
    /// Flush after rounding as if the exponent were unbounded: |u| < 2^-14 − 2^-26 flushes.
    UnboundedThenFlush,
}

impl FlushRule {
    /// All five flush rules of devices.
    pub const ALL: [Self; 5] =
        [Self::Nearest, Self::TowardZero, Self::FlushThenRound, Self::RoundThenFlush, Self::UnboundedThenFlush];

    /// Returns true if results under this flush rule can be subnormal.
    #[must_use]
    pub const fn keeps_subnormals(self) -> bool {
        matches!(self, Self::Nearest | Self::TowardZero)
    }
}

/// Convention of a statistics row: format and flush rule, which determine the histogram key of an f32, and the keys
/// that flush.
///
/// Only formats that flush within f32's normal range have a convention. For others a histogram of f32 exponents shows
/// nothing. BF16, which has f32's range, does not need one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Convention {
    format: Format,
    rule: FlushRule,
}

impl Convention {
    /// FP16, nearest even, subnormals kept: the convention of every backend of this project.
    pub const FP16: Self = Self { format: Format::FP16, rule: FlushRule::Nearest };

    /// Creates the convention of a format and a flush rule. Saturation makes no difference, because the same values
    /// overflow.
    ///
    /// # Errors
    /// [`FormatTooWide`] for BF16 and binary32.
    pub const fn new(format: Format, rule: FlushRule) -> Result<Self, FormatTooWide> {
        if format.exponent_bits() < 8 { Ok(Self { format: format.plain(), rule }) } else { Err(FormatTooWide(format)) }
    }

    /// Returns the format of the stored values that the row describes.
    #[must_use]
    pub const fn format(self) -> Format {
        self.format
    }

    /// Returns the flush rule of the device that stores the values.
    #[must_use]
    pub const fn rule(self) -> FlushRule {
        self.rule
    }

    /// Returns the constant that is added to the magnitude bits before they are shifted to a key, so that a key ends
    /// where the rule rounds: `key = (bits(|u|) + constant) >> 23`.
    #[inline]
    #[must_use]
    pub const fn key_constant(self) -> u32 {
        match self.rule {
            FlushRule::Nearest => 0x007F_FFFF,
            FlushRule::TowardZero | FlushRule::FlushThenRound => 0,
            FlushRule::RoundThenFlush => 1 << (23 - self.format.mantissa_bits()),
            FlushRule::UnboundedThenFlush => 1 << (22 - self.format.mantissa_bits()),
        }
    }

    /// Returns T of the rule "flush if and only if c ≤ T − k", with c = `key − 127`: −25 for FP16 with subnormals, −15
    /// without.
    #[inline]
    #[must_use]
    pub const fn last_flushed(self) -> i32 {
        if self.rule.keeps_subnormals() {
            self.format.min_subnormal_exponent() - 1
        } else {
            self.format.min_exponent() - 1
        }
    }

    /// Returns the smallest magnitude, as f32 bits, that does not flush.
    #[inline]
    #[must_use]
    pub const fn flush_end(self) -> u32 {
        bits_of_power(self.last_flushed() + 1) - self.key_constant()
    }

    /// Returns the smallest magnitude, as f32 bits, whose result is not subnormal.
    #[inline]
    #[must_use]
    pub const fn subnormal_end(self) -> u32 {
        let normal = bits_of_power(self.format.min_exponent());
        match self.rule {
            // Half a last place below the smallest normal number is a tie and rounds up to it, because its last bit is
            // even.
            FlushRule::Nearest => normal - (1 << (23 - self.format.mantissa_bits())),
            FlushRule::TowardZero => normal,
            _ => self.flush_end(),
        }
    }

    /// Returns the smallest magnitude, as f32 bits, that overflows (or is clipped).
    #[inline]
    #[must_use]
    pub const fn overflow_start(self) -> u32 {
        match self.rule {
            FlushRule::TowardZero => self.format.max().to_bits() + (1 << (23 - self.format.mantissa_bits())),
            _ => self.nearest_overflow(),
        }
    }

    /// Returns the smallest magnitude, as f32 bits, that overflows under nearest even. It is 65520 for FP16, and just
    /// above 464 for E4M3, because E4M3's largest number is even and a tie rounds to it.
    #[inline]
    #[must_use]
    pub const fn nearest_overflow(self) -> u32 {
        let tie = self.format.max().to_bits() + (1 << (22 - self.format.mantissa_bits()));
        match self.format.special_encoding() {
            SpecialEncoding::Ieee => tie,
            SpecialEncoding::FiniteWithNan => tie + 1,
        }
    }

    /// Returns the largest k with amax · 2^k below the overflow threshold of nearest even; `None` for zero and values
    /// that are not finite.
    #[must_use]
    pub const fn headroom_above(self, amax: f32) -> Option<i32> {
        let bits = amax.to_bits();
        if bits == 0 || bits >= 0x7F80_0000 {
            return None;
        }
        let (exponent, digits) = normalised(bits);
        let (limit_exponent, limit_digits) = normalised(self.nearest_overflow());
        Some(limit_exponent - exponent - if digits < limit_digits { 0 } else { 1 })
    }
}

/// Returns exponent and 24-bit significand of finite positive bits, with subnormals normalised.
const fn normalised(bits: u32) -> (i32, u32) {
    let field = bits >> 23;
    if field == 0 {
        let shift = bits.leading_zeros() - 8;
        (-126 - shift as i32, bits << shift)
    } else {
        (field as i32 - 127, bits & 0x007F_FFFF | 0x0080_0000)
    }
}

/// Returns the bits of the f32 2^k, −126 ≤ k ≤ 127.
#[expect(clippy::cast_sign_loss, reason = "the field of a normal number is positive")]
const fn bits_of_power(k: i32) -> u32 {
    ((k + 127) as u32) << 23
}

/// Error: a format as wide as f32, for whose small numbers a histogram of f32 exponents shows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatTooWide(
    /// Error: a number format that is too wide for statistics.
    pub Format,
);

impl fmt::Display for FormatTooWide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has the exponents of f32: there is nothing to scale", self.0)
    }
}

impl core::error::Error for FormatTooWide {}
