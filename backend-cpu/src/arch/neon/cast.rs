//! Halves to f32 and back, four at a time, by FCVTL and FCVTN. With the default flags of FPCR, which this library never
//! changes, they round to nearest even, keep subnormal numbers, quieten NaN and keep the upper part of its payload, as
//! core does.

use crate::arch::simd4::{self, LANES};
use core::arch::aarch64::{
    vcvt_f16_f32, vcvt_f32_f16, vld1_u16, vld1q_f32, vreinterpret_f16_u16, vreinterpret_u16_f16, vst1_u16, vst1q_f32,
};
use half::f16;

pub fn f16_to_f32(x: &[f16], y: &mut [f32]) {
    simd4::f16_to_f32(x, y, f16_to_f32_x4);
}

pub fn f32_to_f16(x: &[f32], y: &mut [f16]) {
    simd4::f32_to_f16(x, y, f32_to_f16_x4);
}

#[inline(always)]
fn f16_to_f32_x4(x: &[f16; LANES], y: &mut [f32; LANES]) {
    // SAFETY: the target has NEON; four elements each; `f16` is 16 bits without padding.
    unsafe {
        let bits = vreinterpret_f16_u16(vld1_u16(x.as_ptr().cast()));
        vst1q_f32(y.as_mut_ptr(), vcvt_f32_f16(bits));
    }
}

#[inline(always)]
fn f32_to_f16_x4(x: &[f32; LANES], y: &mut [f16; LANES]) {
    // SAFETY: the target has NEON; four elements each; `f16` is 16 bits without padding.
    unsafe {
        let bits = vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x.as_ptr())));
        vst1_u16(y.as_mut_ptr().cast(), bits);
    }
}
