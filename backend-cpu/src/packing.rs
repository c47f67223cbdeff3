//! Values of formats of eight bits as bytes: exact conversions from halves and back.

use crate::{Cpu, Memory, epilogue::chunk_len, threading::Cost};
use gradscale_core::store_format::StoreFormat;
use half::f16;

/// Bits of the magnitude of a half, and bits of infinity.
const MAGNITUDE: u16 = 0x7FFF;
const INFINITY: u16 = 0x7C00;
/// Code of a positive NaN in both formats.
const NAN_CODE: u16 = 0x7F;

impl Cpu {
    pub(crate) fn run_pack(&self, format: StoreFormat, len: u32, x: &Memory, y: &mut Memory) {
        let (Memory::F16(x), Memory::U8(y)) = (x, y) else { panic!("halves are packed to bytes") };
        let (len, code) = (len as usize, code_of(format));
        let chunk = chunk_len(len);
        self.par_chunks_mut(Cost::elements(len), &mut y[..len], chunk, |i, y| {
            y.iter_mut().zip(&x[i * chunk..]).for_each(|(y, x)| *y = code(*x));
        });
    }

    pub(crate) fn run_unpack(&self, format: StoreFormat, len: u32, x: &Memory, y: &mut Memory) {
        let (Memory::U8(x), Memory::F16(y)) = (x, y) else { panic!("bytes are unpacked to halves") };
        let (len, chunk) = (len as usize, chunk_len(len as usize));
        let value_of = |code: u8| f16::from_f32(format.format().decode(code.into()));
        let values: Vec<f16> = (0..=u8::MAX).map(value_of).collect();
        self.par_chunks_mut(Cost::elements(len), &mut y[..len], chunk, |i, y| {
            y.iter_mut().zip(&x[i * chunk..]).for_each(|(y, x)| *y = values[usize::from(*x)]);
        });
    }
}

/// Returns the function from a half, which is a value of the format, to its code.
fn code_of(format: StoreFormat) -> fn(f16) -> u8 {
    match format {
        StoreFormat::Fp16 => panic!("codes of fp16 have 16 bits"),
        StoreFormat::E5m2 => code_of_e5m2,
        StoreFormat::E4m3 => code_of_e4m3,
    }
}

/// Returns the upper half of the bits, which is the code. A NaN whose upper half is that of infinity changes its payload.
const fn code_of_e5m2(value: f16) -> u8 {
    let (bits, magnitude) = (value.to_bits(), value.to_bits() & MAGNITUDE);
    with_sign(bits, if magnitude > INFINITY { NAN_CODE } else { magnitude >> 8 })
}

/// Returns the code of E4M3. Exponents of its normal numbers are 8 lower than those of halves, and its subnormal numbers are
/// multiples of 2^-9.
fn code_of_e4m3(value: f16) -> u8 {
    /// Bits of the least normal number, 2^-6, and of the difference of exponents.
    const LEAST_NORMAL: u16 = 0x2400;
    const EIGHT_EXPONENTS: u16 = 0x2000;
    let (bits, magnitude) = (value.to_bits(), value.to_bits() & MAGNITUDE);
    let subnormal = u32::from(0x400 | magnitude & 0x3FF) >> (16 - (magnitude >> 10).min(8));
    let normal = (magnitude.wrapping_sub(EIGHT_EXPONENTS) >> 7).min(NAN_CODE);
    #[expect(clippy::cast_possible_truncation, reason = "fewer than 8 multiples of 2^-9 are subnormal")]
    with_sign(bits, if magnitude < LEAST_NORMAL { subnormal as u16 } else { normal })
}

/// Returns a code of 7 bits with the sign of a half.
#[expect(clippy::cast_possible_truncation, reason = "sign and code have 8 bits")]
const fn with_sign(bits: u16, code: u16) -> u8 {
    (bits >> 8 & 0x80 | code) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives() {
        for format in [StoreFormat::E5m2, StoreFormat::E4m3] {
            for code in 0..=u8::MAX {
                let value = format.format().decode(code.into());
                let packed = code_of(format)(f16::from_f32(value));
                let is_same = packed == code || format.format().decode(packed.into()).is_nan() && value.is_nan();
                assert!(is_same, "{format}: {code:#x} became {packed:#x}");
            }
        }
    }
}
