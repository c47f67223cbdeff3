//! How a device's cast treats small numbers, and what follows for statistics.

use crate::format::{Format, Top};
use core::fmt;

/// What a device's cast from f32 does with results below the least normal number.
///
/// A start-up probe finds out which rule holds, with 2^-24, 2^-25, 2^-14, 2^-14 − 2^-25 and 2^-14 − 2^-26 (FP16),
/// for stores and for loads. Thresholds below are those of FP16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushRule {
    /// Nearest even, subnormals kept: |u| ≤ 2^-25 flushes. Every cast made of integers.
    Nearest,
    /// Toward zero, subnormals kept: |u| < 2^-24 flushes.
    TowardZero,
    /// Flushed before it is rounded: |u| < 2^-14.
    FlushThenRound,
    /// Rounded onto the half grid, then flushed, or flushed by whoever reads it: |u| < 2^-14 − 2^-25.
    RoundThenFlush,
    /// Rounded as if the exponent had no bounds, then flushed: |u| < 2^-14 − 2^-26.
    UnboundedThenFlush,
}

impl FlushRule {
    /// All five.
    pub const ALL: [Self; 5] =
        [Self::Nearest, Self::TowardZero, Self::FlushThenRound, Self::RoundThenFlush, Self::UnboundedThenFlush];

    /// Whether subnormal results exist.
    #[must_use]
    pub const fn keeps_subnormals(self) -> bool {
        matches!(self, Self::Nearest | Self::TowardZero)
    }
}

/// A format and a rule: what turns an f32 into a key of the histogram, and a key into "flushes".
///
/// Only formats that flush within f32's normal range have one; a histogram of f32 exponents can say nothing
/// about the others, and BF16, which has f32's range, does not need it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Convention {
    format: Format,
    rule: FlushRule,
}

impl Convention {
    /// FP16, nearest even, subnormals kept: every backend of this project.
    pub const FP16: Self = Self { format: Format::FP16, rule: FlushRule::Nearest };

    /// Saturating or not makes no difference: the same values overflow.
    ///
    /// # Errors
    /// [`FormatTooWide`] for BF16 and binary32.
    pub const fn new(format: Format, rule: FlushRule) -> Result<Self, FormatTooWide> {
        if format.exponent_bits() < 8 { Ok(Self { format: format.plain(), rule }) } else { Err(FormatTooWide(format)) }
    }

    /// The format stored.
    #[must_use]
    pub const fn format(self) -> Format {
        self.format
    }

    /// The device's rule.
    #[must_use]
    pub const fn rule(self) -> FlushRule {
        self.rule
    }

    /// What is added to the magnitude bits before they are shifted to a key, so that a key ends where the rule
    /// rounds: `key = (bits(|u|) + constant) >> 23`.
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

    /// T of the rule "flush iff c ≤ T − k", c being `key − 127`: −25 for FP16 with subnormals, −15 without.
    #[inline]
    #[must_use]
    pub const fn last_flushed(self) -> i32 {
        if self.rule.keeps_subnormals() {
            self.format.min_subnormal_exponent() - 1
        } else {
            self.format.min_exponent() - 1
        }
    }

    /// The least magnitude, as f32 bits, that does not flush.
    #[inline]
    #[must_use]
    pub const fn flush_end(self) -> u32 {
        bits_of_power(self.last_flushed() + 1) - self.key_constant()
    }

    /// The least magnitude, as f32 bits, whose result is not subnormal.
    #[inline]
    #[must_use]
    pub const fn subnormal_end(self) -> u32 {
        let normal = bits_of_power(self.format.min_exponent());
        match self.rule {
            // Half a last place below the least normal number ties to it: its last digit is even.
            FlushRule::Nearest => normal - (1 << (23 - self.format.mantissa_bits())),
            FlushRule::TowardZero => normal,
            _ => self.flush_end(),
        }
    }

    /// The least magnitude, as f32 bits, that overflows (or is clipped).
    #[inline]
    #[must_use]
    pub const fn overflow_start(self) -> u32 {
        match self.rule {
            FlushRule::TowardZero => self.format.max().to_bits() + (1 << (23 - self.format.mantissa_bits())),
            _ => self.nearest_overflow(),
        }
    }

    /// The least magnitude, as f32 bits, that overflows under nearest even: 65520 for FP16, just above 464 for
    /// E4M3, whose largest number is even and so keeps the tie.
    #[inline]
    #[must_use]
    pub const fn nearest_overflow(self) -> u32 {
        let tie = self.format.max().to_bits() + (1 << (22 - self.format.mantissa_bits()));
        match self.format.top() {
            Top::Infinity => tie,
            Top::OneNan => tie + 1,
        }
    }

    /// The largest k with amax · 2^k below the overflow threshold of nearest even; `None` for zeros and what is
    /// not finite.
    #[must_use]
    pub const fn room_above(self, amax: f32) -> Option<i32> {
        let bits = amax.to_bits();
        if bits == 0 || bits >= 0x7F80_0000 {
            return None;
        }
        let (exponent, digits) = normalised(bits);
        let (limit_exponent, limit_digits) = normalised(self.nearest_overflow());
        Some(limit_exponent - exponent - if digits < limit_digits { 0 } else { 1 })
    }
}

/// Exponent and 24-bit significand of finite positive bits, subnormals shifted up.
const fn normalised(bits: u32) -> (i32, u32) {
    let field = bits >> 23;
    if field == 0 {
        let shift = bits.leading_zeros() - 8;
        (-126 - shift as i32, bits << shift)
    } else {
        (field as i32 - 127, bits & 0x007F_FFFF | 0x0080_0000)
    }
}

/// The bits of 2^k, −126 ≤ k ≤ 127.
#[expect(clippy::cast_sign_loss, reason = "the field of a normal number is positive")]
const fn bits_of_power(k: i32) -> u32 {
    ((k + 127) as u32) << 23
}

/// A format as wide as f32, about whose small numbers a histogram of f32 exponents says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatTooWide(
    /// The format.
    pub Format,
);

impl fmt::Display for FormatTooWide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has the exponents of f32: there is nothing to scale", self.0)
    }
}

impl core::error::Error for FormatTooWide {}
