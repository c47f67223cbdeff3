//! Rounding to a narrower format: round-to-nearest-even, or stochastic rounding. This is the definition against which the
//! casts of all devices are tested.
//!
//! One routine rounds a significand and an exponent to any [`Format`]. f32 and f64 inputs differ only in how they are
//! decomposed, so f64 → half rounds once.

mod slice;
mod typed;

pub use slice::{SliceError, Tally, encode_slice, encode_slice_stochastic};
pub use typed::{
    bf16_from_f32, bf16_from_f64, bf16_slice_from_f32, f16_from_f32, f16_from_f64, f16_slice_from_f32, f16_slice_to_f32,
};

use crate::format::{Format, SpecialEncoding};
use num_traits::{AsPrimitive, PrimInt, Unsigned};

/// Rounding mode: the choice between the two neighbours of a number that is not representable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Round {
    /// Rounding to the nearest number; of two equally near, to the one with an even last bit. IEEE 754-2019 §4.3.1.
    NearestEven,
    /// Rounding toward zero, to the smaller magnitude; too large becomes the largest finite number. IEEE 754-2019
    /// §4.3.2, §7.4.
    TowardZero,
    /// Stochastic rounding: up in magnitude with a probability equal to the discarded fraction. The discarded fraction,
    /// truncated to 32 bits, is compared with this uniform random number, and the value is rounded up if the fraction
    /// is greater. A number that rounds above the largest finite one overflows as under nearest even.
    Stochastic(u32),
}

/// Outcome of a cast: exact, rounded, or an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// The result of the cast equals the input (or is its quiet NaN).
    Exact,
    /// The result of the cast is a rounded, non-zero finite number.
    Inexact,
    /// The cast turned a non-zero number into ±0 ("flush").
    Underflow,
    /// The cast turned a finite number into ±∞ or NaN, or clipped it to the largest finite number (IEEE 754-2019 §7.4).
    Overflow,
    /// The input of the cast is a signalling NaN, or ±∞ in a format or mode without ∞ (IEEE 754-2019 §7.2).
    Invalid,
}

/// Result of a cast: bit pattern and status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cast {
    /// Bit pattern of the result, in the lower bits.
    pub bits: u32,
    /// Exception that the cast raised, if any.
    pub status: Status,
}

impl Format {
    /// Rounds an f32 to this format and returns the bit pattern and the status.
    ///
    /// | input | result | status |
    /// |---|---|---|
    /// | representable, ±0 | itself | exact |
    /// | rounds to ±0 (f32 subnormals are honoured) | ±0 | underflow |
    /// | rounds above the largest finite number | ±∞; NaN where there is no ∞; the largest finite number toward zero or saturating | overflow |
    /// | ±∞ | ±∞ | exact |
    /// | ±∞ without ∞, or saturating | NaN, or the largest finite number | invalid |
    /// | NaN | quiet NaN with sign and top payload bits; E4M3: its one NaN with the sign | exact if it was quiet, else invalid |
    ///
    /// Source: IEEE 754-2019 §4.3, §5.4.2, §6.2.3, §7. Tested on all 2^32 inputs by `tests/exhaustive.rs`.
    ///
    /// ```
    /// use gradscale_core::{cast::{Round, Status}, format::Format};
    /// let tiny = Format::FP16.encode(2f32.powi(-25), Round::NearestEven);
    /// assert_eq!((tiny.bits, tiny.status), (0, Status::Underflow));
    /// ```
    #[inline]
    #[must_use]
    pub fn encode(self, x: f32, round: Round) -> Cast {
        let bits = x.to_bits();
        let magnitude = bits & 0x7FFF_FFFF;
        let sign = (bits >> 31) << (self.width() - 1);
        if magnitude >= 0x7F80_0000 {
            let payload = (magnitude as u64 & 0x007F_FFFF) << 29;
            return self.special(sign, payload);
        }
        let field = magnitude >> 23;
        let (significand, exponent) =
            if field == 0 { (magnitude, -126) } else { (magnitude & 0x007F_FFFF | 0x0080_0000, field as i32 - 127) };
        self.round(sign, significand, exponent, 23, round)
    }

    /// Rounds an f64 to this format in one step, otherwise like [`Format::encode`].
    #[inline]
    #[must_use]
    pub fn encode_f64(self, x: f64, round: Round) -> Cast {
        let bits = x.to_bits();
        let magnitude = bits & 0x7FFF_FFFF_FFFF_FFFF;
        let sign = ((bits >> 63) as u32) << (self.width() - 1);
        if magnitude >= 0x7FF0_0000_0000_0000 {
            return self.special(sign, magnitude & 0x000F_FFFF_FFFF_FFFF);
        }
        let field = magnitude >> 52;
        let (significand, exponent) = if field == 0 {
            (magnitude, -1022)
        } else {
            (magnitude & 0x000F_FFFF_FFFF_FFFF | 0x0010_0000_0000_0000, field as i32 - 1023)
        };
        self.round(sign, significand, exponent, 52, round)
    }

    /// Returns the pattern of ±∞ (`payload` 0), or of a NaN with the given 52-bit payload.
    #[expect(clippy::cast_possible_truncation, reason = "the payload's top bits, at most 23")]
    const fn special(self, sign: u32, payload: u64) -> Cast {
        if payload != 0 {
            let kept = match self.special_encoding() {
                SpecialEncoding::Ieee => (payload >> (52 - self.mantissa_bits())) as u32,
                SpecialEncoding::FiniteWithNan => 0,
            };
            let quiet = payload >> 51 != 0;
            return Cast {
                bits: sign | self.nan_bits() | kept,
                status: if quiet { Status::Exact } else { Status::Invalid },
            };
        }
        match (self.infinity_bits(), self.is_saturating()) {
            (Some(infinity), false) => Cast { bits: sign | infinity, status: Status::Exact },
            (_, true) => Cast { bits: sign | self.max_bits(), status: Status::Invalid },
            (None, false) => Cast { bits: sign | self.nan_bits(), status: Status::Invalid },
        }
    }

    /// Rounds ±`significand` · 2^(`exponent` − `digits`), where the hidden bit of a normal source is bit `digits`. `W`
    /// is as wide as the source, with at least 6 bits above the significand.
    #[inline(always)]
    fn round<W>(self, sign: u32, significand: W, exponent: i32, digits: u32, round: Round) -> Cast
    where
        W: PrimInt + Unsigned + AsPrimitive<u32> + AsPrimitive<u64>,
    {
        // Bits to drop: those that the source has more, and one more for each binade below the smallest normal
        // exponent.
        let below = (self.min_exponent() - exponent).max(0).unsigned_abs();
        let above = (exponent - self.min_exponent()).max(0).unsigned_abs();
        let drop = digits - self.mantissa_bits() + below;
        let shift = drop.min(W::zero().count_zeros() - 2);
        let kept = significand.unsigned_shr(shift);
        let unit = W::one().unsigned_shl(shift);
        let rest = significand & (unit - W::one());
        let up = match round {
            // Compares twice the remainder with one unit in the last place. A tie counts as more if the kept bit is
            // odd.
            Round::NearestEven => rest.unsigned_shl(1) + (kept & W::one()) > unit,
            Round::TowardZero => false,
            Round::Stochastic(random) => {
                let rest: u64 = rest.as_();
                let fraction = if drop <= 32 { rest << (32 - drop) } else { rest >> (drop - 32).min(63) };
                fraction > u64::from(random)
            }
        };
        // A carry out of the significand increments the exponent field, as it must. Exponents far above the largest
        // only need to stay there.
        let field = above.min(1 << self.exponent_bits());
        let kept: u32 = kept.as_();
        let magnitude = (field << self.mantissa_bits()) + kept + u32::from(up);
        if magnitude > self.max_bits() {
            let bits = if self.is_saturating() || matches!(round, Round::TowardZero) {
                self.max_bits()
            } else {
                self.infinity_bits().unwrap_or(self.nan_bits())
            };
            return Cast { bits: sign | bits, status: Status::Overflow };
        }
        let status = if rest.is_zero() {
            Status::Exact
        } else if magnitude == 0 {
            Status::Underflow
        } else {
            Status::Inexact
        };
        Cast { bits: sign | magnitude, status }
    }
}
