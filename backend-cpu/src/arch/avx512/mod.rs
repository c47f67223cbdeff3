//! AVX-512 (F, BW, DQ, VL): token of the instruction set, and its kernels.

mod exponent_histogram;
mod microkernel;
mod simd16;
mod store;

use super::{F16Lut, F16Rows, LANES, MicroKernelArgs, TileShape};
use core::arch::x86_64::{
    __m256i, __m512, __mmask16, _MM_FROUND_CUR_DIRECTION, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0, _mm_prefetch,
    _mm256_mask_storeu_epi16, _mm256_maskz_loadu_epi16, _mm512_cvt_roundph_ps, _mm512_cvtepu16_epi32, _mm512_cvtps_ph,
    _mm512_mask_i32gather_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_setzero_ps,
};
use half::f16;
pub use simd16::Avx512F32x16;

/// Proof that this machine has AVX-512 F, BW, DQ, VL, FMA and F16C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx512(());

impl Avx512 {
    /// Tile shape for 32 registers: 24 accumulators, up to four vectors of b, a broadcast scalar of a.
    pub const SHAPE: TileShape = TileShape { lanes: LANES, vectors: 4, accumulators: 24 };

    /// Returns the proof that AVX-512 can be used, if the machine has the features.
    pub fn new() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        has.then_some(Self(()))
    }

    pub fn accumulate_tile(self, tile: &MicroKernelArgs<'_>, acc: &mut [f32], acc_row: usize) {
        microkernel::accumulate_tile(self, tile, acc, acc_row);
    }

    pub fn multiply_f16_rows(self, rows: &F16Rows<'_>, acc: &mut [f32], converted: &mut [f32]) {
        microkernel::multiply_f16_rows(self, rows, acc, converted);
    }

    pub fn f16_to_f32(self, x: &[f16], y: &mut [f32]) {
        // SAFETY: the token proves the features; the slices are of one length.
        unsafe { f16_to_f32(x, y) }
    }

    /// Looks up the results of halves in a table with AVX-512; the slices have one length.
    pub fn apply_lut(self, lut: &F16Lut, x: &[f16], y: &mut [f32]) {
        // SAFETY: the token proves the features; the slices are of one length.
        unsafe { apply_lut(lut, x, y) }
    }

    pub fn f32_to_f16(self, x: &[f32], y: &mut [f16]) {
        // SAFETY: the token proves the features; the slices are of one length.
        unsafe { f32_to_f16(x, y) }
    }
}

/// Prefetch distance of lookups in elements: 1 KiB of halves before the loads.
const PREFETCH_DISTANCE: usize = 512;

/// Converts sixteen halves. This form does not suppress exceptions, which are never read. The form that does takes a
/// register operand, which needs a separate load, and uses a port of multiply-adds twice.
#[target_feature(enable = "avx512f")]
#[inline]
fn to_f32(bits: __m256i) -> __m512 {
    _mm512_cvt_roundph_ps::<_MM_FROUND_CUR_DIRECTION>(bits)
}

/// Rounds sixteen numbers to halves, with the form that can write to memory, for the same reason.
#[target_feature(enable = "avx512f")]
#[inline]
fn to_f16(values: __m512) -> __m256i {
    _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values)
}

/// Returns the mask of the lanes of vector `v` in a row of `columns`.
fn lane_mask(columns: usize, v: usize) -> __mmask16 {
    let left = columns.saturating_sub(v * LANES).min(LANES);
    if left == LANES { __mmask16::MAX } else { (1 << left) - 1 }
}

/// Calls `work` with offset and mask of all vectors of `len` elements. Full vectors have a constant mask, which costs
/// nothing.
#[inline(always)]
fn for_each_vector(len: usize, mut work: impl FnMut(usize, __mmask16)) {
    let whole = len / LANES * LANES;
    for i in (0..whole).step_by(LANES) {
        work(i, __mmask16::MAX);
    }
    if whole != len {
        work(whole, lane_mask(len - whole, 0));
    }
}

/// Converts halves to f32 with AVX-512.
///
/// # Safety
/// The features, and slices of one length.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
#[inline]
unsafe fn f16_to_f32(x: &[f16], y: &mut [f32]) {
    for_each_vector(x.len(), |i, mask| {
        // SAFETY: masked lanes are not touched; `f16` is 16 bits without padding.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(x.as_ptr().wrapping_add(i + PREFETCH_DISTANCE).cast());
            let bits: __m256i = _mm256_maskz_loadu_epi16(mask, x.as_ptr().add(i).cast());
            _mm512_mask_storeu_ps(y.as_mut_ptr().add(i), mask, to_f32(bits));
        }
    });
}

/// Rounds f32 to halves, to nearest even, with AVX-512.
///
/// # Safety
/// The features, and slices of one length.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
unsafe fn f32_to_f16(x: &[f32], y: &mut [f16]) {
    for_each_vector(x.len(), |i, mask| {
        // SAFETY: masked lanes are not touched; `f16` is 16 bits without padding.
        unsafe {
            let values = _mm512_maskz_loadu_ps(mask, x.as_ptr().add(i));
            let bits = to_f16(values);
            _mm256_mask_storeu_epi16(y.as_mut_ptr().add(i).cast(), mask, bits);
        }
    });
}

/// Looks up the results of halves in a table with AVX-512 gathers.
///
/// # Safety
/// The features, and slices of one length.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
unsafe fn apply_lut(lut: &F16Lut, x: &[f16], y: &mut [f32]) {
    for_each_vector(x.len(), |i, mask| {
        // SAFETY: masked lanes are not touched.
        unsafe { _mm512_mask_storeu_ps(y.as_mut_ptr().add(i), mask, gather16(lut, x, i, mask)) }
    });
}

/// Looks up sixteen halves from index `i` on in a table and returns the results; 0 in masked lanes.
///
/// # Safety
/// The features, and halves at the places of lanes that are not masked.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
#[inline]
unsafe fn gather16(lut: &F16Lut, x: &[f16], i: usize, mask: __mmask16) -> __m512 {
    // SAFETY: masked lanes are not touched; `f16` is 16 bits without padding, each of which is a place of a result.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(x.as_ptr().wrapping_add(i + PREFETCH_DISTANCE).cast());
        let bits: __m256i = _mm256_maskz_loadu_epi16(mask, x.as_ptr().add(i).cast());
        let places = _mm512_cvtepu16_epi32(bits);
        _mm512_mask_i32gather_ps::<4>(_mm512_setzero_ps(), mask, places, lut.as_ptr())
    }
}
