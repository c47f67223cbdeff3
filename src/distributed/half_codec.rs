//! Weight gradients as halves, and halves as integers.

use gradscale_core::{
    cast::{Round, f16_from_f64},
    scale::Factor,
};
use half::{f16, slice::HalfFloatSliceExt};

/// Where the largest gradient of a step comes to lie in the next one: its floor of log2. 32 times as much still fits, and
/// what is 2^21 times less is still a normal half.
const PLACE: i32 = 10;
/// Below that, too much of what is small is lost.
const LEAST: f32 = 0.25;
/// What rounds to ±∞.
const OVER: f32 = 65520.0;
/// Values that are scaled at a time.
const BLOCK: usize = 1024;

/// At which exponent values travel whose largest magnitude is this; none for zeros.
pub(crate) fn exponent(amax: f32) -> Option<i32> {
    let log2 = if amax >= f32::MIN_POSITIVE { biased(amax) - 127 } else { biased(amax * 2f32.powi(24)) - 151 };
    (amax > 0.0).then_some(PLACE - log2)
}

fn biased(x: f32) -> i32 {
    (x.to_bits() >> 23).cast_signed() & 0xFF
}

/// Whether they can travel at this one: none becomes ±∞, and what is small is not lost.
pub(crate) fn fits(amax: f32, exponent: Option<i32>) -> bool {
    let there = |exponent| (LEAST..OVER).contains(&Factor::between(0, exponent).apply(amax));
    amax == 0.0 || exponent.is_some_and(there)
}

/// Rounds to halves at an exponent. Without one there is nothing yet that could travel.
pub(super) fn halves(values: &[f32], exponent: Option<i32>, into: &mut [u16]) {
    let Some(exponent) = exponent else { return into.fill(0) };
    let (scale, mut scaled, mut rounded) = (Factor::between(0, exponent), [0f32; BLOCK], [f16::ZERO; BLOCK]);
    for (values, into) in values.chunks(BLOCK).zip(into.chunks_mut(BLOCK)) {
        let (scaled, rounded) = (&mut scaled[..values.len()], &mut rounded[..values.len()]);
        scaled.iter_mut().zip(values).for_each(|(scaled, &value)| *scaled = scale.apply(value));
        rounded.convert_from_f32_slice(scaled);
        into.iter_mut().zip(rounded).for_each(|(into, half)| *into = half.to_bits());
    }
}

/// A half as a multiple of 2^-24. ±∞ and NaN, which no step is taken with, give any number.
pub(super) const fn units(half: u16) -> i64 {
    let (exponent, digits) = ((half >> 10) & 31, (half & 1023) as i64);
    let size = if exponent == 0 { digits } else { (1024 + digits) << (exponent - 1) };
    if half >> 15 == 0 { size } else { -size }
}

/// What stands in place of the exponent of a sum that is not short.
pub(super) const LONG: u32 = 63;

/// A sum of units as sign, six bits of exponent and so many digits, if that is all of it.
#[expect(clippy::cast_possible_truncation, reason = "at most 25 digits")]
pub(super) const fn short(sum: i64, digits: u32) -> Option<u32> {
    let size = sum.unsigned_abs();
    let exponent = (64 - size.leading_zeros()).saturating_sub(digits);
    if size.trailing_zeros() < exponent || exponent >= LONG {
        return None;
    }
    let sign = if sum < 0 { 1 << (digits + 6) } else { 0 };
    Some(sign | exponent << digits | (size >> exponent) as u32)
}

/// The sum that is meant; none if it is not short.
pub(super) const fn sum(code: u32, digits: u32) -> Option<i64> {
    let exponent = (code >> digits) & 63;
    if exponent >= LONG - digits {
        return None;
    }
    let size = ((code & ((1 << digits) - 1)) as i64) << exponent;
    Some(if code >> (digits + 6) == 0 { size } else { -size })
}

/// The mean of so many halves whose sum is known exactly. It is no larger than the largest, so it fits.
#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53")]
pub(super) fn rounded_mean(sum: i64, of: u32) -> u16 {
    let units = sum as f64 / f64::from(of);
    f16_from_f64(units * (1.0 / 16_777_216.0), Round::NearestEven).to_bits()
}

/// What a half is that travelled at an exponent.
pub(crate) fn value(half: u16, exponent: i32) -> f32 {
    Factor::between(exponent, 0).apply(f16::from_bits(half).to_f32())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_integers() {
        for bits in 0..=u16::MAX {
            let half = f16::from_bits(bits);
            if half.is_finite() {
                assert_eq!(units(bits) as f64, f64::from(half) * 2f64.powi(24), "{bits:#x}");
                let same = rounded_mean(7 * units(bits), 7);
                assert!(same == bits || half == f16::NEG_ZERO && same == 0, "{bits:#x}");
            }
        }
    }

    #[test]
    fn short_sums_are_sums() {
        for digits in [17, 25] {
            let most = (1i64 << digits) - 1;
            for shift in 0..=35 {
                for size in [0, 1, 1 << (digits - 1), most - 2, most] {
                    for whole in [size << shift, -(size << shift)] {
                        let code = short(whole, digits).expect("short");
                        assert!(digits == 25 || code < 1 << 24);
                        assert_eq!(sum(code, digits), Some(whole));
                    }
                }
                assert!(short(((most + 1) << shift) + 1, digits).is_none(), "{digits} {shift}");
            }
            assert_eq!(sum(LONG << digits, digits), None);
        }
    }

    #[test]
    fn what_is_placed_fits() {
        for magnitude in -149..=127 {
            let amax =
                if magnitude < -126 { 2f32.powi(-126) * 2f32.powi(magnitude + 126) } else { 2f32.powi(magnitude) };
            let at = exponent(amax);
            assert_eq!(Factor::between(0, at.expect("not zero")).apply(amax), 1024.0);
            assert!(fits(amax, at) && !fits(amax, at.map(|at| at + 6)) && !fits(amax, at.map(|at| at - 13)));
        }
        assert!(exponent(0.0).is_none() && fits(0.0, None) && !fits(1.0, None));
    }
}
