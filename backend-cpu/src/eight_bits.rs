//! Rounding to the formats of eight bits, which are stored as halves.

use crate::Isa;
use gradscale_core::store_format::StoreFormat;

/// Number of mantissa bits of f32.
const F32_MANTISSA_BITS: u32 = 23;
const F32_MAGNITUDE: u32 = 0x7FFF_FFFF;
const F32_EXPONENT: u32 = 0x7F80_0000;

/// Rounds values to a format, as [`StoreFormat::round`] does. Nothing happens for FP16, to which the conversion to half
/// rounds.
pub fn round_values(isa: Isa, format: StoreFormat, values: &mut [f32]) {
    match format {
        StoreFormat::Fp16 => {}
        StoreFormat::E5m2 | StoreFormat::E4m3 => {
            let rounding = Rounding::new(format);
            isa.map(values, |u| rounding.round(u));
        }
    }
}

/// Constants of a rounding, so that each value takes a few instructions without a branch.
#[derive(Clone, Copy, Debug)]
struct Rounding {
    /// Bits of the least normal number. The format's numbers below lie as close as those from there to its double.
    least_normal: u32,
    /// Distance from the exponent of a number to that of an f32 whose last place is the format's, as f32 bits.
    to_last_place: u32,
    /// Bits of the first magnitude that overflows, and of what becomes of it.
    overflow: u32,
    overflowed: u32,
}

impl Rounding {
    const fn new(format: StoreFormat) -> Self {
        Self {
            least_normal: format.min_normal_bits(),
            to_last_place: (F32_MANTISSA_BITS - format.format().mantissa_bits()) << F32_MANTISSA_BITS,
            overflow: format.convention().overflow_start(),
            overflowed: format.overflow_bits(),
        }
    }

    #[inline]
    fn round(self, u: f32) -> f32 {
        let (magnitude, sign) = (u.to_bits() & F32_MAGNITUDE, u.to_bits() & !F32_MAGNITUDE);
        // A sum whose last place is the format's rounds to it, to nearest even. It is exact to subtract again.
        let exponent = (magnitude & F32_EXPONENT).max(self.least_normal);
        let anchor = f32::from_bits(exponent.wrapping_add(self.to_last_place));
        let rounded = ((f32::from_bits(magnitude) + anchor) - anchor).to_bits();
        let special = if magnitude > F32_EXPONENT { magnitude } else { self.overflowed };
        f32::from_bits(sign | if magnitude >= self.overflow { special } else { rounded })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_like_core_next_to_every_change() {
        for format in [StoreFormat::E5m2, StoreFormat::E4m3] {
            // Changes lie at f32 numbers with the format's mantissa and one bit more.
            let step = 1 << (F32_MANTISSA_BITS - 1 - format.format().mantissa_bits());
            let near = (0..=0x7F80_0000_u32).step_by(step).flat_map(|bits| [bits.saturating_sub(1), bits, bits + 1]);
            let mut values: Vec<f32> = near.flat_map(|bits| [bits, bits | 1 << 31]).map(f32::from_bits).collect();
            let right: Vec<f32> = values.iter().map(|&u| format.round(u).to_f32()).collect();
            let inputs = values.clone();
            round_values(Isa::best(), format, &mut values);
            for ((u, got), right) in inputs.iter().zip(values).zip(right) {
                assert!(got.to_bits() == right.to_bits() || got.is_nan() && right.is_nan(), "{format}: {u:e} {got:e}");
            }
        }
    }
}
