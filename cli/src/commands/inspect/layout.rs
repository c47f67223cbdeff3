//! Layouts of formats of up to 128 bits: those of `core`'s formats up to 32 bits, and the two wide ones of IEEE 754.

use gradscale::gradscale_core::{
    decompose::Class,
    format::{Format, SpecialEncoding},
};
use std::fmt;

/// Layout of a binary floating-point format whose bit patterns have at most 128 bits.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    name: &'static str,
    pub exponent_bits: u32,
    pub mantissa_bits: u32,
    top: SpecialEncoding,
}

impl Layout {
    /// Layout of IEEE 754 double precision (IEEE 754-2019 §3.6, Table 3.5).
    pub const BINARY64: Self =
        Self { name: "binary64", exponent_bits: 11, mantissa_bits: 52, top: SpecialEncoding::Ieee };
    /// Layout of IEEE 754 quadruple precision.
    pub const BINARY128: Self =
        Self { name: "binary128", exponent_bits: 15, mantissa_bits: 112, top: SpecialEncoding::Ieee };

    pub const fn from_format(format: Format) -> Self {
        let (exponent_bits, mantissa_bits) = (format.exponent_bits(), format.mantissa_bits());
        Self { name: format.name(), exponent_bits, mantissa_bits, top: format.special_encoding() }
    }

    pub const fn width(self) -> u32 {
        1 + self.exponent_bits + self.mantissa_bits
    }

    /// Returns the exponent of the format's least normal number.
    pub const fn min_exponent(self) -> i32 {
        2 - (1 << (self.exponent_bits - 1))
    }

    pub const fn sign_mask(self) -> u128 {
        1 << (self.width() - 1)
    }

    /// Returns the bit pattern of the format's largest finite number.
    pub const fn max_bits(self) -> u128 {
        match self.top {
            SpecialEncoding::Ieee => (((1 << self.exponent_bits) - 1) << self.mantissa_bits) - 1,
            SpecialEncoding::FiniteWithNan => self.sign_mask() - 2,
        }
    }

    /// Returns the bit pattern of +∞, if the format has one.
    pub const fn infinity_bits(self) -> Option<u128> {
        match self.top {
            SpecialEncoding::Ieee => Some(self.max_bits() + 1),
            SpecialEncoding::FiniteWithNan => None,
        }
    }

    /// Returns the bit pattern of the positive quiet NaN without payload.
    pub const fn nan_bits(self) -> u128 {
        match self.top {
            SpecialEncoding::Ieee => (self.max_bits() + 1) | (1 << (self.mantissa_bits - 1)),
            SpecialEncoding::FiniteWithNan => self.sign_mask() - 1,
        }
    }

    /// Splits a bit pattern into sign, exponent field and digits.
    pub fn parts(self, bits: u128) -> BitFields {
        let magnitude = bits & (self.sign_mask() - 1);
        let field = magnitude >> self.mantissa_bits;
        let trailing = magnitude & ((1 << self.mantissa_bits) - 1);
        let class = if magnitude > self.max_bits() {
            if Some(magnitude) == self.infinity_bits() { Class::Infinite } else { Class::Nan }
        } else if field != 0 {
            Class::Normal
        } else if trailing != 0 {
            Class::Subnormal
        } else {
            Class::Zero
        };
        let hidden = if class == Class::Normal { 1 << self.mantissa_bits } else { 0 };
        // At most 15 bits.
        let above = i32::try_from(field.max(1) - 1).unwrap_or(i32::MAX);
        let digits = i32::try_from(self.mantissa_bits).unwrap_or(i32::MAX);
        BitFields {
            class,
            negative: bits & self.sign_mask() != 0,
            field,
            trailing,
            significand: trailing | hidden,
            power: self.min_exponent() + above - digits,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Parts of a bit pattern; a finite value is ±`significand` · 2^`power`.
#[derive(Clone, Copy, Debug)]
pub struct BitFields {
    pub class: Class,
    pub negative: bool,
    /// Bits of the exponent field, as an integer.
    pub field: u128,
    /// Digits of the significand as stored, without the hidden one.
    pub trailing: u128,
    /// Digits of the significand, with the hidden one.
    pub significand: u128,
    pub power: i32,
}
