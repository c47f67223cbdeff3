//! FP16 encoding of weight gradients: their exponents, their fixed-point values, and compact codes of sums.

use gradscale_core::{
    cast::{Round, f16_from_f64},
    scale::Factor,
};
use half::{f16, slice::HalfFloatSliceExt};

/// Exponent (floor of log2) of the largest scaled gradient. In the next step 32 times as much still fits in FP16, and
/// values 2^21 times smaller are still normal.
const TARGET_EXPONENT: i32 = 10;
/// Lower limit of the largest scaled gradient: below it, values 2^12 times smaller are already subnormal.
const UNDERFLOW_LIMIT: f32 = 0.25;
/// Smallest magnitude that the cast to FP16 rounds to ±∞.
const OVERFLOW_LIMIT: f32 = 65520.0;
/// Number of values that are scaled at a time: their f32 and f16 buffers (6 KiB) stay in L1.
const VALUES_PER_BLOCK: usize = 1024;

/// Returns the exponent for gradients whose largest magnitude is `amax`; `None` for zeros.
pub(crate) fn choose_exponent(amax: f32) -> Option<i32> {
    let log2 = if amax >= f32::MIN_POSITIVE {
        biased_exponent(amax) - 127
    } else {
        biased_exponent(amax * 2f32.powi(24)) - 151
    };
    (amax > 0.0).then_some(TARGET_EXPONENT - log2)
}

fn biased_exponent(x: f32) -> i32 {
    (x.to_bits() >> 23).cast_signed() & 0xFF
}

/// Returns `true` if gradients fit FP16 at this exponent: none overflows, and small ones do not underflow.
pub(crate) fn fits_f16(amax: f32, exponent: Option<i32>) -> bool {
    let is_in_range = |exponent| (UNDERFLOW_LIMIT..OVERFLOW_LIMIT).contains(&Factor::between(0, exponent).apply(amax));
    amax == 0.0 || exponent.is_some_and(is_in_range)
}

/// Rounds values to FP16 at an exponent; writes zeros if there is no exponent yet.
pub(super) fn encode_f16(values: &[f32], exponent: Option<i32>, encoded: &mut [u16]) {
    let Some(exponent) = exponent else { return encoded.fill(0) };
    let scale = Factor::between(0, exponent);
    let (mut scaled, mut rounded) = ([0f32; VALUES_PER_BLOCK], [f16::ZERO; VALUES_PER_BLOCK]);
    for (values, encoded) in values.chunks(VALUES_PER_BLOCK).zip(encoded.chunks_mut(VALUES_PER_BLOCK)) {
        let (scaled, rounded) = (&mut scaled[..values.len()], &mut rounded[..values.len()]);
        scaled.iter_mut().zip(values).for_each(|(scaled, &value)| *scaled = scale.apply(value));
        rounded.convert_from_f32_slice(scaled);
        encoded.iter_mut().zip(rounded).for_each(|(encoded, half)| *encoded = half.to_bits());
    }
}

/// Returns an f16 as a multiple of 2^-24. The result for ±∞ and NaN is arbitrary, because such a step is skipped.
pub(super) const fn to_fixed_point(half: u16) -> i64 {
    let (exponent, bits) = ((half >> 10) & 31, (half & 1023) as i64);
    let size = if exponent == 0 { bits } else { (1024 + bits) << (exponent - 1) };
    if half >> 15 == 0 { size } else { -size }
}

/// Escape code in place of the exponent: the sum does not fit the compact encoding.
pub(super) const ESCAPE_CODE: u32 = 63;

/// Encodes a fixed-point sum as sign, six bits of exponent and `bits` significand bits, if that is exact.
#[expect(clippy::cast_possible_truncation, reason = "at most 25 bits")]
pub(super) const fn encode_compact(sum: i64, bits: u32) -> Option<u32> {
    let size = sum.unsigned_abs();
    let exponent = (64 - size.leading_zeros()).saturating_sub(bits);
    if size.trailing_zeros() < exponent || exponent >= ESCAPE_CODE {
        return None;
    }
    let sign = if sum < 0 { 1 << (bits + 6) } else { 0 };
    Some(sign | exponent << bits | (size >> exponent) as u32)
}

/// Decodes a compact code of an exact sum; `None` for the escape code.
pub(super) const fn decode_compact(code: u32, bits: u32) -> Option<i64> {
    let exponent = (code >> bits) & 63;
    if exponent >= ESCAPE_CODE - bits {
        return None;
    }
    let size = ((code & ((1 << bits) - 1)) as i64) << exponent;
    Some(if code >> (bits + 6) == 0 { size } else { -size })
}

/// Returns the mean of `count` f16 values from their exact sum. It does not exceed the largest value, so it fits FP16.
#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53")]
pub(super) fn round_mean(sum: i64, count: u32) -> u16 {
    let mean = sum as f64 / f64::from(count);
    f16_from_f64(mean * (1.0 / 16_777_216.0), Round::NearestEven).to_bits()
}

/// Returns the true value of an f16 that was encoded at an exponent.
pub(crate) fn decode_f16(half: u16, exponent: i32) -> f32 {
    Factor::between(exponent, 0).apply(f16::from_bits(half).to_f32())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_fixed_point_numbers() {
        for bits in 0..=u16::MAX {
            let half = f16::from_bits(bits);
            if half.is_finite() {
                assert_eq!(to_fixed_point(bits) as f64, f64::from(half) * 2f64.powi(24), "{bits:#x}");
                let same = round_mean(7 * to_fixed_point(bits), 7);
                assert!(same == bits || half == f16::NEG_ZERO && same == 0, "{bits:#x}");
            }
        }
    }

    #[test]
    fn compact_sums_decode_to_the_same_sums() {
        for bits in [17, 25] {
            let most = (1i64 << bits) - 1;
            for shift in 0..=35 {
                for size in [0, 1, 1 << (bits - 1), most - 2, most] {
                    for whole in [size << shift, -(size << shift)] {
                        let code = encode_compact(whole, bits).expect("a compact code");
                        assert!(bits == 25 || code < 1 << 24);
                        assert_eq!(decode_compact(code, bits), Some(whole));
                    }
                }
                assert!(encode_compact(((most + 1) << shift) + 1, bits).is_none(), "{bits} {shift}");
            }
            assert_eq!(decode_compact(ESCAPE_CODE << bits, bits), None);
        }
    }

    #[test]
    fn the_chosen_exponent_fits() {
        for magnitude in -149..=127 {
            let amax =
                if magnitude < -126 { 2f32.powi(-126) * 2f32.powi(magnitude + 126) } else { 2f32.powi(magnitude) };
            let at = choose_exponent(amax);
            assert_eq!(Factor::between(0, at.expect("not zero")).apply(amax), 1024.0);
            assert!(
                fits_f16(amax, at) && !fits_f16(amax, at.map(|at| at + 6)) && !fits_f16(amax, at.map(|at| at - 13))
            );
        }
        assert!(choose_exponent(0.0).is_none() && fits_f16(0.0, None) && !fits_f16(1.0, None));
    }
}
