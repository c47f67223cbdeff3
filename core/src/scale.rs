//! Scales are exponents: 2^α with an i32 α that has no upper limit.
//!
//! Multiplying scales adds integers. Therefore a scale of 2^32, which SegNet's softmax cast needs and which no half can
//! represent, costs nothing. Only the *difference* of two exponents is applied to an f32, as a [`Factor`].

use core::fmt;

/// Maximum difference of exponents that has an effect: 2^±378 takes every f32 to ±∞ or ±0.
pub const MAX_STEP: i32 = 378;

/// Returns the exponent that a store adds: `to − from`, saturating, clamped to ±[`MAX_STEP`].
#[inline]
#[must_use]
pub const fn step(from: i32, to: i32) -> i32 {
    let k = to.saturating_sub(from);
    if k > MAX_STEP {
        MAX_STEP
    } else if k < -MAX_STEP {
        -MAX_STEP
    } else {
        k
    }
}

/// Factor 2^k as a product of up to three nearly equal *normal* f32 values: one for |k| ≤ 126, and two up to 252.
/// Devices that flush f32 subnormals therefore compute the same factors.
///
/// Applying them in turn rounds once, because a product that leaves the normal range before the last factor becomes ±0
/// or ±∞ anyway. ±0, ±∞ and NaN are unchanged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factor([f32; 3]);

impl Factor {
    /// Returns the factor between two accumulated exponents, 2^(`to` − `from`).
    ///
    /// ```
    /// use gradscale_core::scale::Factor;
    /// assert_eq!(Factor::between(140, 0).apply(2f32.powi(100)), 2f32.powi(-40));
    /// assert_eq!(Factor::between(i32::MIN, i32::MAX).apply(-1.0), f32::NEG_INFINITY);
    /// ```
    #[inline]
    #[must_use]
    pub const fn between(from: i32, to: i32) -> Self {
        let k = step(from, to);
        let n = if k.abs() <= 126 {
            1
        } else if k.abs() <= 252 {
            2
        } else {
            3
        };
        let first = k / n;
        let second = if n > 1 { (k - first) / (n - 1) } else { 0 };
        Self([normal(first), normal(second), normal(k - first - second)])
    }

    /// Returns the factors in the order in which they are applied; unused ones are 1.
    #[inline]
    #[must_use]
    pub const fn parts(self) -> [f32; 3] {
        self.0
    }

    /// Multiplies `v` by the factor. Too large becomes ±∞; a result below 2^-126 is rounded to nearest even.
    #[inline]
    #[must_use]
    pub const fn apply(self, v: f32) -> f32 {
        v * self.0[0] * self.0[1] * self.0[2]
    }
}

/// Returns the f32 2^k for −126 ≤ k ≤ 127.
#[expect(clippy::cast_sign_loss, reason = "the field of a normal number is positive")]
const fn normal(k: i32) -> f32 {
    f32::from_bits(((k + 127) as u32) << 23)
}

/// Returns the exponent of a scale that is given as a number.
///
/// # Errors
/// [`NotPowerOfTwo`] unless `scale` is 2^k with −1022 ≤ k ≤ 1023.
///
/// ```
/// use gradscale_core::scale::exponent_of;
/// assert_eq!(exponent_of(65536.0), Ok(16));
/// assert!(exponent_of(1000.0).is_err() && exponent_of(0.0).is_err() && exponent_of(f64::NAN).is_err());
/// ```
pub const fn exponent_of(scale: f64) -> Result<i32, NotPowerOfTwo> {
    let bits = scale.to_bits();
    // The number is positive, has no significand bits except the hidden one, and is neither zero nor subnormal nor ∞.
    let field = (bits >> 52) as i32;
    if bits & 0x000F_FFFF_FFFF_FFFF != 0 || field == 0 || field >= 0x7FF {
        return Err(NotPowerOfTwo(scale));
    }
    Ok(field - 1023)
}

/// Error: a scale that must be a power of two and is not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NotPowerOfTwo(
    /// Error value: the given scale, which is not a power of two.
    pub f64,
);

impl fmt::Display for NotPowerOfTwo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a scale must be a power of two, not {}", self.0)
    }
}

impl core::error::Error for NotPowerOfTwo {}
