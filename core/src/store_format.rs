//! Formats to which a site may round its values.

use crate::{
    cast::{Round, f16_from_f32},
    format::{Format, SpecialEncoding},
    stats::{Convention, FlushRule},
};
use core::fmt;
use half::f16;

/// Format of the values that a site stores. Every value of each is a half, so memory holds halves under all of them: the
/// 8-bit formats are simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StoreFormat {
    /// Format binary16: 11 significant bits, from 2^-24 to 65504.
    #[default]
    Fp16,
    /// 8-bit format with 3 significant bits, from 2^-16 to 57344, which has infinities.
    E5m2,
    /// 8-bit format with 4 significant bits, from 2^-9 to 448. Larger values become NaN, so that none is clipped unseen.
    E4m3,
}

impl StoreFormat {
    /// All formats of stores. The order defines their numbers in memory, so new ones are appended.
    pub const ALL: [Self; 3] = [Self::Fp16, Self::E5m2, Self::E4m3];

    /// Returns the number format: widths, bounds and special values.
    #[must_use]
    pub const fn format(self) -> Format {
        match self {
            Self::Fp16 => Format::FP16,
            Self::E5m2 => Format::E5M2,
            Self::E4m3 => Format::E4M3,
        }
    }

    /// Returns the convention of rows that count stores in this format, by casts to nearest even with subnormals.
    #[must_use]
    pub const fn convention(self) -> Convention {
        match Convention::new(self.format(), FlushRule::Nearest) {
            Ok(convention) => convention,
            Err(_) => Convention::FP16,
        }
    }

    /// Returns the largest spread of ceilings that one exponent serves, in exponents: all of the format except 16, which
    /// the values of one tensor need. 24 for FP16, 16 for E5M2, 2 for E4M3.
    #[must_use]
    pub const fn max_ceiling_spread(self) -> i64 {
        self.format().exponents() as i64 - TENSOR_EXPONENTS
    }

    /// Rounds an f32 once to the format, to nearest even, and returns the result as a half, which holds it exactly. A
    /// cast to half first would round twice: 1 + 2^-3 + 2^-13 is a tie of E5M2 then.
    ///
    /// ```
    /// use gradscale_core::{stats::{Detail, Stats}, store_format::StoreFormat};
    /// assert_eq!(StoreFormat::E5m2.round(1.125 + 2f32.powi(-13)).to_f32(), 1.25);
    /// assert!(StoreFormat::E5m2.round(61440.0).is_infinite() && StoreFormat::E4m3.round(-465.0).is_nan());
    /// // A row of the format's convention counts what becomes of the values.
    /// let values = [0.1, 2f32.powi(-10), 500.0];
    /// let mut row = Stats::new(StoreFormat::E4m3.convention(), 0, Detail::Counts);
    /// row.observe(&values);
    /// let stored = values.map(|value| StoreFormat::E4m3.round(value).to_f32());
    /// assert_eq!((stored[0], row.counts().flushed, row.counts().overflowed), (0.1015625, 1, 1));
    /// ```
    #[must_use]
    pub fn round(self, u: f32) -> f16 {
        match self {
            Self::Fp16 => f16_from_f32(u, Round::NearestEven),
            Self::E5m2 | Self::E4m3 => {
                let format = self.format();
                f16_from_f32(format.decode(format.encode(u, Round::NearestEven).bits), Round::NearestEven)
            }
        }
    }

    /// Returns the f32 bits of the smallest normal number, for kernels that round by integers: 2^-14, or 2^-6 for E4M3.
    ///
    /// ```
    /// use gradscale_core::store_format::StoreFormat;
    /// let numbers = StoreFormat::ALL.map(|format| f32::from_bits(format.min_normal_bits()));
    /// assert_eq!(numbers, [2f32.powi(-14), 2f32.powi(-14), 2f32.powi(-6)]);
    /// assert!(f32::from_bits(StoreFormat::E4m3.overflow_bits()).is_nan());
    /// ```
    #[must_use]
    #[expect(clippy::cast_sign_loss, reason = "the field of a normal number is positive")]
    pub const fn min_normal_bits(self) -> u32 {
        (self.format().min_exponent().wrapping_add(127) as u32) << (f32::MANTISSA_DIGITS - 1)
    }

    /// Returns the f32 bits of what a positive value becomes that is too large for the format: ∞, or NaN for E4M3.
    #[must_use]
    pub const fn overflow_bits(self) -> u32 {
        match self.format().special_encoding() {
            SpecialEncoding::Ieee => f32::INFINITY.to_bits(),
            SpecialEncoding::FiniteWithNan => f32::NAN.to_bits(),
        }
    }

    /// Returns the f32 bits of the largest finite number: 65504, 57344 or 448.
    ///
    /// ```
    /// use gradscale_core::store_format::StoreFormat;
    /// let numbers = StoreFormat::ALL.map(|format| f32::from_bits(format.largest_bits()));
    /// assert_eq!(numbers, [65504.0, 57344.0, 448.0]);
    /// ```
    #[must_use]
    #[expect(clippy::cast_sign_loss, reason = "the field of a large number is positive")]
    pub const fn largest_bits(self) -> u32 {
        let (format, f32_digits) = (self.format(), f32::MANTISSA_DIGITS - 1);
        let to_f32_bias = 127_i32.wrapping_sub(format.bias()) as u32;
        (format.max_bits() << (f32_digits - format.mantissa_bits())).wrapping_add(to_f32_bias << f32_digits)
    }

    /// Returns the name of the format in the text of a method.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp16 => "fp16",
            Self::E5m2 => "e5m2",
            Self::E4m3 => "e4m3",
        }
    }
}

impl fmt::Display for StoreFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Number of exponents that the values of one tensor need.
const TENSOR_EXPONENTS: i64 = 16;
