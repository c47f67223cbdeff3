//! Decomposition of a bit pattern into sign, exponent and significand, for display.

use crate::format::{Format, SpecialEncoding};
use core::fmt;

/// Class of a floating-point datum. IEEE 754-2019 §3.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Zero, either sign: ±0.
    Zero,
    /// Subnormal number: smaller than the smallest normal number, with fewer significant bits.
    Subnormal,
    /// Normal number, with all significant bits of its format.
    Normal,
    /// Infinity, either sign: ±∞.
    Infinite,
    /// Not a number (NaN).
    Nan,
}

/// Sign, exponent and significand of a bit pattern. The value of a finite one is ±`significand` · 2^(`exponent` −
/// mantissa bits).
///
/// ```
/// use gradscale_core::{format::Format, decompose::FloatParts};
/// let parts = FloatParts::decompose(Format::FP32, 6.5f32.to_bits());
/// assert_eq!(parts.to_string(), "0 10000001 10100000000000000000000 in binary32 is 6.5");
/// assert_eq!((parts.exponent, parts.significand), (2, 13 << 20));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FloatParts {
    /// Number format to which the bit pattern belongs.
    pub format: Format,
    /// Decomposed bit pattern, without bits above the format's width.
    pub bits: u32,
    /// Class of the datum: zero, subnormal, normal, infinite or NaN.
    pub class: Class,
    /// True if the sign bit of the pattern is set.
    pub negative: bool,
    /// Bits of the pattern's exponent field, as an integer.
    pub exponent_field: u32,
    /// Power of two of the hidden bit: field − bias, and the smallest exponent for zeros and subnormals. For ±∞ and NaN
    /// it is one more than the largest.
    pub exponent: i32,
    /// Significand as an integer, with the hidden bit; the payload of a NaN.
    pub significand: u32,
}

impl FloatParts {
    /// Decomposes the bit pattern `bits` of a number format. Bits above the format's width are ignored.
    #[must_use]
    pub const fn decompose(format: Format, bits: u32) -> Self {
        let mantissa_bits = format.mantissa_bits();
        let magnitude = bits & (format.sign_mask() - 1);
        let exponent_field = magnitude >> mantissa_bits;
        let trailing = magnitude & ((1 << mantissa_bits) - 1);
        let class = if magnitude > format.max_bits() {
            if matches!(format.special_encoding(), SpecialEncoding::Ieee) && trailing == 0 {
                Class::Infinite
            } else {
                Class::Nan
            }
        } else if exponent_field != 0 {
            Class::Normal
        } else if trailing != 0 {
            Class::Subnormal
        } else {
            Class::Zero
        };
        let exponent = if exponent_field == 0 {
            format.min_exponent()
        } else {
            #[expect(clippy::cast_possible_wrap, reason = "at most 8 bits")]
            let field = exponent_field as i32;
            field - format.bias()
        };
        let hidden = if matches!(class, Class::Normal) { 1 << mantissa_bits } else { 0 };
        Self {
            format,
            bits: bits & (format.sign_mask() | (format.sign_mask() - 1)),
            class,
            negative: bits & format.sign_mask() != 0,
            exponent_field,
            exponent,
            significand: trailing | hidden,
        }
    }

    /// Returns the value of the bit pattern as f32, exactly.
    #[must_use]
    pub const fn value(&self) -> f32 {
        self.format.decode(self.bits)
    }
}

impl fmt::Display for FloatParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (exponent_bits, mantissa_bits) = (self.format.exponent_bits(), self.format.mantissa_bits());
        let trailing = self.bits & ((1 << mantissa_bits) - 1);
        write!(
            f,
            "{} {:0e$b} {trailing:0m$b} in {} is ",
            u8::from(self.negative),
            self.exponent_field,
            self.format,
            e = exponent_bits as usize,
            m = mantissa_bits as usize,
        )?;
        let value = self.value();
        match self.class {
            Class::Nan => f.write_str("not a number"),
            Class::Infinite => f.write_str(if self.negative { "−∞" } else { "+∞" }),
            _ if value == 0.0 || (1e-4..1e7).contains(&value.abs()) => write!(f, "{value}"),
            _ => write!(f, "{value:e}"),
        }
    }
}
