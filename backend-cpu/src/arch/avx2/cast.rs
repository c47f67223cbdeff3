//! Halves to f32 and back, eight at a time. Subnormal halves are converted as they are: F16C knows no flush mode for
//! them, and the conversions quieten NaN and keep the upper part of its payload, as core does.

use super::LANES;
use core::arch::x86_64::{
    __m128i, _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps, _mm256_cvtps_ph,
    _mm256_loadu_ps, _mm256_storeu_ps,
};
use half::f16;

/// Converts halves to f32 with AVX2 and F16C.
///
/// # Safety
/// The features, and slices of one length.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub unsafe fn f16_to_f32(x: &[f16], y: &mut [f32]) {
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks_mut::<LANES>());
    for (x, y) in x.iter().zip(y) {
        f16_to_f32_x8(x, y);
    }
    if !x_rest.is_empty() {
        let (mut from, mut to) = ([f16::ZERO; LANES], [0f32; LANES]);
        from[..x_rest.len()].copy_from_slice(x_rest);
        f16_to_f32_x8(&from, &mut to);
        y_rest.copy_from_slice(&to[..y_rest.len()]);
    }
}

/// Rounds f32 to halves, to nearest even, with AVX2 and F16C.
///
/// # Safety
/// The features, and slices of one length.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn f32_to_f16(x: &[f32], y: &mut [f16]) {
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks_mut::<LANES>());
    for (x, y) in x.iter().zip(y) {
        f32_to_f16_x8(x, y);
    }
    if !x_rest.is_empty() {
        let (mut from, mut to) = ([0f32; LANES], [f16::ZERO; LANES]);
        from[..x_rest.len()].copy_from_slice(x_rest);
        f32_to_f16_x8(&from, &mut to);
        y_rest.copy_from_slice(&to[..y_rest.len()]);
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn f16_to_f32_x8(x: &[f16; LANES], y: &mut [f32; LANES]) {
    // SAFETY: eight elements each; `f16` is 16 bits without padding.
    unsafe {
        let bits: __m128i = _mm_loadu_si128(x.as_ptr().cast());
        _mm256_storeu_ps(y.as_mut_ptr(), _mm256_cvtph_ps(bits));
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn f32_to_f16_x8(x: &[f32; LANES], y: &mut [f16; LANES]) {
    // SAFETY: eight elements each; `f16` is 16 bits without padding.
    unsafe {
        let bits = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(x.as_ptr()));
        _mm_storeu_si128(y.as_mut_ptr().cast(), bits);
    }
}
