//! Binary floating-point formats as data.
//!
//! Everything that a cast, a threshold or a decision needs to know about a format follows from four numbers. No code in
//! this crate is written for one format alone.

use core::fmt;

/// Meaning that a format gives to the largest value of its exponent field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpecialEncoding {
    /// Infinities and NaNs at the largest exponent, as in IEEE 754-2019 §3.4.
    Ieee,
    /// Ordinary numbers at the largest exponent, except for one NaN with all bits set: the "FN" formats of the OCP
    /// 8-bit floating-point specification (OFP8), which have no ∞.
    FiniteWithNan,
}

/// Binary floating-point format of at most 32 bits: sign, exponent, trailing significand.
///
/// | constant | bits | largest finite | least subnormal | flushes to zero (nearest even) | overflows (nearest even) |
/// |---|---|---|---|---|---|
/// | [`Format::FP16`] | 1 + 5 + 10 | 65504 | 2^-24 | \|x\| ≤ 2^-25 | \|x\| ≥ 65520 |
/// | [`Format::BF16`] | 1 + 8 + 7 | (2 − 2^-7)·2^127 | 2^-133 | ≤ 2^-134 | ≥ (2 − 2^-8)·2^127 |
/// | [`Format::E5M2`] | 1 + 5 + 2 | 57344 | 2^-16 | ≤ 2^-17 | ≥ 61440 |
/// | [`Format::E4M3`] | 1 + 4 + 3 | 448 | 2^-9 | ≤ 2^-10 | > 464 |
/// | [`Format::TF32`] | 1 + 8 + 10 | (2 − 2^-10)·2^127 | 2^-136 | ≤ 2^-137 | ≥ (2 − 2^-11)·2^127 |
/// | [`Format::FP32`] | 1 + 8 + 23 | (2 − 2^-23)·2^127 | 2^-149 | ≤ 2^-150 | ≥ (2 − 2^-24)·2^127 |
///
/// Source: IEEE 754-2019 §3.6 (binary16, binary32); OFP8 §5 (E5M2, E4M3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format {
    exponent_bits: u8,
    mantissa_bits: u8,
    special_encoding: SpecialEncoding,
    saturating: bool,
}

impl Format {
    /// IEEE binary16 (FP16), the half of mixed-precision training.
    pub const FP16: Self = Self::new(5, 10, SpecialEncoding::Ieee);
    /// Format bfloat16: binary32 without its lower 16 bits.
    pub const BF16: Self = Self::new(8, 7, SpecialEncoding::Ieee);
    /// OCP 8-bit format E5M2, which has ∞.
    pub const E5M2: Self = Self::new(5, 2, SpecialEncoding::Ieee);
    /// OCP 8-bit format E4M3 ("E4M3FN"): no ∞, one NaN; too large becomes NaN.
    pub const E4M3: Self = Self::new(4, 3, SpecialEncoding::FiniteWithNan);
    /// IEEE binary32 (f32), for decomposing bit patterns and for casts from f64.
    pub const FP32: Self = Self::new(8, 23, SpecialEncoding::Ieee);
    /// Format TF32, the operand format of NVIDIA's tensor cores for f32: binary32 without its lower 13 bits.
    pub const TF32: Self = Self::new(8, 10, SpecialEncoding::Ieee);

    /// Creates a custom format with ∞ and NaNs as in IEEE 754: 2 to 8 exponent bits and 1 to 23 mantissa bits, whose
    /// values are all f32 values. `None` for other widths.
    ///
    /// ```
    /// use gradscale_core::format::Format;
    /// // Accumulator format of Wang et al., Training Deep Neural Networks with 8-bit Floating Point Numbers (2018).
    /// let format = Format::custom(6, 9).expect("within f32");
    /// assert_eq!((format.width(), format.to_string().as_str()), (16, "1 + 6 + 9 bits"));
    /// assert_eq!(Format::custom(8, 7), Some(Format::BF16));
    /// assert_eq!(Format::custom(11, 52), None);
    /// ```
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "at most 23")]
    pub const fn custom(exponent_bits: u32, mantissa_bits: u32) -> Option<Self> {
        if exponent_bits >= 2 && exponent_bits <= 8 && mantissa_bits >= 1 && mantissa_bits <= 23 {
            Some(Self::new(exponent_bits as u8, mantissa_bits as u8, SpecialEncoding::Ieee))
        } else {
            None
        }
    }

    const fn new(exponent_bits: u8, mantissa_bits: u8, special_encoding: SpecialEncoding) -> Self {
        Self { exponent_bits, mantissa_bits, special_encoding, saturating: false }
    }

    /// Returns the same format with saturating casts: anything too large, ±∞ included, becomes the largest finite
    /// number (OFP8 §5.2.1).
    #[must_use]
    pub const fn saturating(self) -> Self {
        Self { saturating: true, ..self }
    }

    /// Returns the same number format without saturation.
    pub(crate) const fn plain(self) -> Self {
        Self { saturating: false, ..self }
    }

    /// Returns true if casts to this format saturate.
    #[must_use]
    pub const fn is_saturating(self) -> bool {
        self.saturating
    }

    /// Returns the number of bits of the format's exponent field.
    #[must_use]
    pub const fn exponent_bits(self) -> u32 {
        self.exponent_bits as u32
    }

    /// Returns the number of bits of the format's trailing significand.
    #[must_use]
    pub const fn mantissa_bits(self) -> u32 {
        self.mantissa_bits as u32
    }

    /// Returns the total number of bits of the format.
    #[must_use]
    pub const fn width(self) -> u32 {
        1 + self.exponent_bits() + self.mantissa_bits()
    }

    /// Returns the meaning that the format gives to the largest value of its exponent field.
    #[must_use]
    pub const fn special_encoding(self) -> SpecialEncoding {
        self.special_encoding
    }

    /// Returns the exponent bias, which is subtracted from the exponent field of a normal number.
    #[must_use]
    pub const fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// Returns the exponent of the smallest normal number, −14 for [`Format::FP16`].
    #[must_use]
    pub const fn min_exponent(self) -> i32 {
        1 - self.bias()
    }

    /// Returns the exponent of the smallest subnormal number, −24 for [`Format::FP16`].
    #[must_use]
    #[expect(clippy::cast_possible_wrap, reason = "at most 23 mantissa bits")]
    pub const fn min_subnormal_exponent(self) -> i32 {
        self.min_exponent() - self.mantissa_bits() as i32
    }

    /// Returns the bit pattern of −0 in the format: the sign bit alone.
    #[must_use]
    pub const fn sign_mask(self) -> u32 {
        1 << (self.width() - 1)
    }

    /// Returns the bit pattern of the format's largest finite number.
    #[must_use]
    pub const fn max_bits(self) -> u32 {
        match self.special_encoding {
            SpecialEncoding::Ieee => (((1 << self.exponent_bits) - 1) << self.mantissa_bits) - 1,
            SpecialEncoding::FiniteWithNan => self.sign_mask() - 2,
        }
    }

    /// Returns the bit pattern of +∞; `None` if the format has none.
    #[must_use]
    pub const fn infinity_bits(self) -> Option<u32> {
        match self.special_encoding {
            SpecialEncoding::Ieee => Some(self.max_bits() + 1),
            SpecialEncoding::FiniteWithNan => None,
        }
    }

    /// Returns the bit pattern of the format's positive quiet NaN without payload.
    #[must_use]
    pub const fn nan_bits(self) -> u32 {
        match self.special_encoding {
            SpecialEncoding::Ieee => (self.max_bits() + 1) | (1 << (self.mantissa_bits - 1)),
            SpecialEncoding::FiniteWithNan => self.sign_mask() - 1,
        }
    }

    /// Returns the largest finite number of the format.
    #[must_use]
    pub const fn max(self) -> f32 {
        self.decode(self.max_bits())
    }

    /// Returns the value of a bit pattern, exactly. Bits above [`Format::width`] are ignored. A NaN becomes a quiet NaN
    /// that keeps sign and payload.
    #[must_use]
    pub const fn decode(self, bits: u32) -> f32 {
        let mantissa_bits = self.mantissa_bits();
        let magnitude = bits & (self.sign_mask() - 1);
        let sign = ((bits & self.sign_mask()) >> (self.width() - 1)) << 31;
        let up = 23 - mantissa_bits;
        let value = if magnitude > self.max_bits() {
            if matches!(self.special_encoding, SpecialEncoding::Ieee) && magnitude == self.max_bits() + 1 {
                f32::INFINITY.to_bits()
            } else {
                let payload = (magnitude & ((1 << mantissa_bits) - 1)) << up;
                0x7FC0_0000 | payload
            }
        } else if self.min_exponent() == -126 {
            // The exponent field is as wide as that of f32, so the pattern is the upper part of the f32, for subnormals
            // too.
            magnitude << up
        } else if magnitude >> mantissa_bits != 0 {
            // Normal number: convert the exponent from this bias to that of f32.
            (magnitude << up) + ((127 - self.bias()).unsigned_abs() << 23)
        } else if magnitude == 0 {
            0
        } else {
            // Subnormal here, normal in f32: its leading bit becomes the hidden one.
            let lead = 31 - magnitude.leading_zeros();
            let exponent = self.min_subnormal_exponent() + lead as i32;
            ((magnitude << (23 - lead)) & 0x007F_FFFF) | ((exponent + 127).unsigned_abs() << 23)
        };
        f32::from_bits(sign | value)
    }

    /// Returns the number of exponents of the format, from its smallest subnormal number to its largest finite one: 40
    /// for [`Format::FP16`], 32 for [`Format::E5M2`], 18 for [`Format::E4M3`].
    #[must_use]
    #[expect(clippy::cast_possible_wrap, reason = "at most 23 mantissa bits")]
    pub const fn exponents(self) -> i32 {
        self.binades() + self.mantissa_bits() as i32
    }

    /// Returns the number of exponents of the format's normal numbers.
    #[must_use]
    #[expect(clippy::cast_possible_wrap, reason = "an exponent field has at most 8 bits")]
    pub const fn binades(self) -> i32 {
        (self.max_bits() >> self.mantissa_bits) as i32
    }

    /// Returns the standard's name of the format; "custom" if it has none.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match (self.exponent_bits, self.mantissa_bits, self.special_encoding, self.saturating) {
            (5, 10, SpecialEncoding::Ieee, false) => "binary16",
            (5, 10, SpecialEncoding::Ieee, true) => "binary16, saturating",
            (8, 7, SpecialEncoding::Ieee, false) => "bfloat16",
            (8, 7, SpecialEncoding::Ieee, true) => "bfloat16, saturating",
            (8, 10, SpecialEncoding::Ieee, false) => "TF32",
            (8, 10, SpecialEncoding::Ieee, true) => "TF32, saturating",
            (5, 2, SpecialEncoding::Ieee, false) => "E5M2",
            (5, 2, SpecialEncoding::Ieee, true) => "E5M2, saturating",
            (4, 3, SpecialEncoding::FiniteWithNan, false) => "E4M3",
            (4, 3, SpecialEncoding::FiniteWithNan, true) => "E4M3, saturating",
            (8, 23, SpecialEncoding::Ieee, false) => "binary32",
            (8, 23, SpecialEncoding::Ieee, true) => "binary32, saturating",
            (_, _, _, false) => "custom",
            (_, _, _, true) => "custom, saturating",
        }
    }
}

impl fmt::Display for Format {
    /// Writes the name of the format, or for a custom format its widths.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name().starts_with("custom") {
            return f.write_str(self.name());
        }
        write!(f, "1 + {} + {} bits", self.exponent_bits, self.mantissa_bits)?;
        if self.saturating { f.write_str(", saturating") } else { Ok(()) }
    }
}
