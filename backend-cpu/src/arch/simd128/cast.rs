//! Halves to f32 and back, four at a time, in integers and one exact or once rounded sum: WebAssembly has no conversion of
//! halves. NaN become quiet and keep the upper part of their payload, as core has it.

use crate::arch::simd4::{self, LANES};
use core::arch::wasm32::{
    f32x4_add, f32x4_sub, i32x4_add, i32x4_ge, i32x4_gt, i32x4_lt, i32x4_shl, i32x4_splat, u16x8_narrow_i32x4,
    u32x4_load_extend_u16x4, u32x4_shr, v128, v128_and, v128_bitselect, v128_load, v128_or, v128_store,
    v128_store64_lane,
};
use half::f16;

pub fn f16_to_f32(x: &[f16], y: &mut [f32]) {
    simd4::f16_to_f32(x, y, f16_to_f32_x4);
}

pub fn f32_to_f16(x: &[f32], y: &mut [f16]) {
    simd4::f32_to_f16(x, y, f32_to_f16_x4);
}

/// Difference between the exponent biases of f32 and half, at the position of f32's exponent.
const REBIAS: i32 = (127 - 15) << 23;
/// Smallest normal half, 2^-14, as the bits of an f32.
const LEAST_NORMAL: i32 = (127 - 14) << 23;

#[inline(always)]
fn f16_to_f32_x4(x: &[f16; LANES], y: &mut [f32; LANES]) {
    // SAFETY: four halves of 16 bits without padding.
    let half = unsafe { u32x4_load_extend_u16x4(x.as_ptr().cast()) };
    let sign = i32x4_shl(v128_and(half, i32x4_splat(0x8000)), 16);
    // Mantissa and exponent where f32 has them.
    let magnitude = i32x4_shl(v128_and(half, i32x4_splat(0x7FFF)), 13);
    let normal = i32x4_add(magnitude, i32x4_splat(REBIAS));
    // Without an implicit one: 2^-14 + m · 2^-24, less 2^-14.
    let least = i32x4_splat(LEAST_NORMAL);
    let subnormal = f32x4_sub(i32x4_add(magnitude, least), least);
    let infinite = i32x4_splat(0x1F << 23);
    let quiet = v128_and(i32x4_gt(magnitude, infinite), i32x4_splat(1 << 22));
    let special = v128_or(v128_or(magnitude, i32x4_splat(0xFF << 23)), quiet);

    let result = v128_bitselect(subnormal, normal, i32x4_lt(magnitude, i32x4_splat(1 << 23)));
    let result = v128_bitselect(special, result, i32x4_ge(magnitude, infinite));
    // SAFETY: four f32.
    unsafe { v128_store(y.as_mut_ptr().cast(), v128_or(result, sign)) }
}

#[inline(always)]
fn f32_to_f16_x4(x: &[f32; LANES], y: &mut [f16; LANES]) {
    // SAFETY: four f32.
    let bits: v128 = unsafe { v128_load(x.as_ptr().cast()) };
    let sign = u32x4_shr(v128_and(bits, i32x4_splat(i32::MIN)), 16);
    let magnitude = v128_and(bits, i32x4_splat(i32::MAX));
    // To nearest even: half a unit less one, and one more if the last digit that stays is odd.
    let odd = v128_and(u32x4_shr(magnitude, 13), i32x4_splat(1));
    let rounded = i32x4_add(i32x4_add(magnitude, i32x4_splat(0xFFF - REBIAS)), odd);
    let normal = u32x4_shr(rounded, 13);
    // An f32 near 1/2 has a precision of 2^-24, the unit of subnormal halves: the sum rounds to it, and its last bits
    // are the half's.
    let one_half = i32x4_splat(126 << 23);
    let subnormal = i32x4_add(f32x4_add(magnitude, one_half), i32x4_splat(-(126 << 23)));
    let payload = v128_and(u32x4_shr(magnitude, 13), i32x4_splat(0x3FF));
    let nan = v128_or(payload, i32x4_splat(0x7E00));
    let large = v128_bitselect(nan, i32x4_splat(0x7C00), i32x4_gt(magnitude, i32x4_splat(0xFF << 23)));

    let result = v128_bitselect(subnormal, normal, i32x4_lt(magnitude, i32x4_splat(LEAST_NORMAL)));
    let result = v128_bitselect(large, result, i32x4_ge(magnitude, i32x4_splat((127 + 16) << 23)));
    let result = v128_or(result, sign);
    // SAFETY: four halves of 16 bits without padding.
    unsafe { v128_store64_lane::<0>(u16x8_narrow_i32x4(result, result), y.as_mut_ptr().cast()) }
}
