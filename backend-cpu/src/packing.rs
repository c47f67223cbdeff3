//! Values of formats of eight bits as bytes: exact conversions from halves and back.

use crate::{Cpu, Error, Memory, epilogue::chunk_len, threading::Cost};
use gradscale_core::{backend, store_format::StoreFormat};
use half::f16;

/// Bits of the magnitude of a half, and bits of infinity.
const MAGNITUDE: u16 = 0x7FFF;
const INFINITY: u16 = 0x7C00;
/// Code of a positive NaN in both formats, and its half.
const NAN_CODE: u16 = 0x7F;
const NAN_HALF: u16 = 0x7E00;
/// Sign of a code, and number of bits from there to the sign of a half.
const SIGN: u16 = 0x80;
const SIGN_SHIFT: u32 = 8;

impl Cpu {
    pub(crate) fn run_pack(&self, format: StoreFormat, len: u32, x: &Memory, y: &mut Memory) -> Result<(), Error> {
        let (Memory::F16(x), Memory::U8(y)) = (x, y) else { panic!("halves are packed to bytes") };
        let (x, y) = (&x[..len as usize], &mut y[..len as usize]);
        match format {
            StoreFormat::Fp16 => return Err(backend::Error::unsupported("pack of fp16")),
            StoreFormat::E5m2 => self.convert_each(x, y, code_of_e5m2),
            StoreFormat::E4m3 => self.convert_each(x, y, code_of_e4m3),
        }
        Ok(())
    }

    pub(crate) fn run_unpack(&self, format: StoreFormat, len: u32, x: &Memory, y: &mut Memory) -> Result<(), Error> {
        let (Memory::U8(x), Memory::F16(y)) = (x, y) else { panic!("bytes are unpacked to halves") };
        let (x, y) = (&x[..len as usize], &mut y[..len as usize]);
        match format {
            StoreFormat::Fp16 => return Err(backend::Error::unsupported("pack of fp16")),
            StoreFormat::E5m2 => self.convert_each(x, y, |code| f16::from_bits(u16::from(code) << SIGN_SHIFT)),
            StoreFormat::E4m3 => self.convert_each(x, y, half_of_e4m3),
        }
        Ok(())
    }

    /// Converts values one by one. The conversion has no branches, so that the compiler vectorises the loop.
    fn convert_each<X: Copy + Sync, Y: Send>(&self, x: &[X], y: &mut [Y], convert: impl Fn(X) -> Y + Sync) {
        let chunk = chunk_len(y.len());
        self.par_chunks_mut(Cost::elements(y.len()), y, chunk, |i, y| {
            let x = &x[i * chunk..][..y.len()];
            y.iter_mut().zip(x).for_each(|(y, &x)| *y = convert(x));
        });
    }
}

/// Returns the upper half of the bits, which is the code. A NaN whose upper half is that of infinity changes its payload.
#[inline]
fn code_of_e5m2(value: f16) -> u8 {
    let magnitude = value.to_bits() & MAGNITUDE;
    with_sign(value, if magnitude > INFINITY { NAN_CODE } else { magnitude >> SIGN_SHIFT })
}

/// Returns the code of E4M3. Exponents of its normal numbers, from 2^-6 on, are 8 lower than those of halves. Its subnormal
/// numbers are the multiples 1 to 7 of 2^-9, which halves have in three binades.
#[inline]
fn code_of_e4m3(value: f16) -> u8 {
    let m = value.to_bits() & MAGNITUDE;
    let code = match m {
        0x2400.. => ((m.wrapping_sub(0x2000)) >> 7).min(NAN_CODE),
        0x2000.. => m.wrapping_sub(0x1C00) >> 8,
        0x1C00.. => m.wrapping_sub(0x1800) >> 9,
        0x1800.. => 1,
        _ => 0,
    };
    with_sign(value, code)
}

/// Returns the half of a code of E4M3: [`code_of_e4m3`], backwards.
#[inline]
fn half_of_e4m3(code: u8) -> f16 {
    let (m, sign) = (u16::from(code) & NAN_CODE, (u16::from(code) & SIGN) << SIGN_SHIFT);
    let half = match m {
        NAN_CODE.. => NAN_HALF,
        8.. => (m << 7) + 0x2000,
        4.. => (m << 8) + 0x1C00,
        2.. => (m << 9) + 0x1800,
        1 => 0x1800,
        0 => 0,
    };
    f16::from_bits(sign | half)
}

/// Returns a code of 7 bits with the sign of a half.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "sign and code have 8 bits")]
const fn with_sign(value: f16, code: u16) -> u8 {
    (value.to_bits() >> SIGN_SHIFT & SIGN | code) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives() {
        for format in [StoreFormat::E5m2, StoreFormat::E4m3] {
            let cpu = Cpu::new(1).expect("a CPU");
            let codes: Vec<u8> = (0..=u8::MAX).collect();
            let values: Vec<f32> = codes.iter().map(|&code| format.format().decode(code.into())).collect();
            let mut unpacked = Memory::F16(vec![f16::ZERO; 256]);
            cpu.run_unpack(format, 256, &Memory::U8(codes.clone()), &mut unpacked).expect("a format of 8 bits");
            let mut packed = Memory::U8(vec![0; 256]);
            cpu.run_pack(format, 256, &unpacked, &mut packed).expect("a format of 8 bits");
            for (i, (code, value)) in codes.into_iter().zip(values).enumerate() {
                assert!(unpacked.get(i) == value || unpacked.get(i).is_nan() && value.is_nan(), "{format}: {code:#x}");
                assert!(packed.integer(i) == code.into() || value.is_nan(), "{format}: {code:#x}");
            }
        }
    }
}
