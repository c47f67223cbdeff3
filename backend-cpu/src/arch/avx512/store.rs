//! Fused store of AVX-512: scale, observe, round and write in one pass. Values are loaded while those before them are
//! counted.

use super::{Avx512, exponent_histogram, for_each_vector};
use crate::arch::{
    F16Lut, FusedStoreParams, StoreInput, Thresholds,
    loops::math::{FAST_LN_COEFFICIENTS, SQRT_HALF},
};
use core::{
    arch::x86_64::{
        __m512, __m512i, __mmask16, _CMP_GE_OQ, _MM_HINT_ET0, _MM_HINT_T0, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_ZERO,
        _mm_prefetch, _mm256_mask_storeu_epi16, _mm512_add_epi32, _mm512_add_ps, _mm512_and_si512, _mm512_castps_si512,
        _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_cmplt_epu32_mask, _mm512_getexp_ps, _mm512_getmant_ps,
        _mm512_mask_add_ps, _mm512_mask_cmplt_epu32_mask, _mm512_mask_mul_ps, _mm512_mask_sub_epi32,
        _mm512_mask_testn_epi32_mask, _mm512_maskz_loadu_ps, _mm512_max_epu32, _mm512_min_epu32, _mm512_mul_ps,
        _mm512_or_si512, _mm512_reduce_add_epi32, _mm512_reduce_max_epu32, _mm512_set1_epi32, _mm512_set1_ps,
        _mm512_setzero_ps, _mm512_setzero_si512, _mm512_slli_epi32, _mm512_srli_epi32, _mm512_storeu_ps,
        _mm512_storeu_si512, _mm512_sub_ps, _mm512_ternarylogic_epi32, _mm512_test_epi32_mask,
    },
    f32::consts::LN_2,
};
use gradscale_core::stats::{BINS, Detail};
use half::f16;

/// Prefetch distance of the store kernel in elements. Counting fills the reorder window, so the processor does not find
/// the next loads early enough by itself.
const PREFETCH_DISTANCE: usize = 512;

impl Avx512 {
    /// Scales values, writes them as halves and observes them as far as `detail` requires. Returns the counters of
    /// [`crate::Isa::count_values`]. Where a value overflows, all halves are written but nothing is added.
    pub fn store_fused(
        self, x: StoreInput<'_>, params: FusedStoreParams, y: &mut [f16], bins: &mut [u32; BINS], sums: &mut [f64; 4],
    ) -> [u32; 4] {
        assert!(x.len() == y.len() && x.len() <= FusedStoreParams::MAX_VALUES);
        // SAFETY: the token proves the features; there are as many values as halves, and not more than a block.
        unsafe {
            match x {
                StoreInput::F32(x) => dispatch_on_detail(x, params, y, bins, sums),
                StoreInput::Lut(lut, x) => dispatch_on_detail((lut, x), params, y, bins, sums),
            }
        }
    }
}

/// Trait of the sources of f32 values for the store kernel: a slice, or a lookup table with its halves.
trait ValueSource: Copy {
    /// Loads sixteen f32 values from index `i` on; 0 in masked lanes.
    ///
    /// # Safety
    /// The features of [`Avx512`], and values at the places of lanes that are not masked.
    unsafe fn load16(self, i: usize, mask: __mmask16) -> __m512;
}

impl ValueSource for &[f32] {
    #[inline(always)]
    unsafe fn load16(self, i: usize, mask: __mmask16) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(self.as_ptr().wrapping_add(i + PREFETCH_DISTANCE).cast());
            _mm512_maskz_loadu_ps(mask, self.as_ptr().add(i))
        }
    }
}

impl ValueSource for (&F16Lut, &[f16]) {
    #[inline(always)]
    unsafe fn load16(self, i: usize, mask: __mmask16) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { super::gather16(self.0, self.1, i, mask) }
    }
}

/// Runs the fused store kernel that is compiled for the required detail of statistics.
///
/// # Safety
/// The features, as many values as halves, and not more than [`FusedStoreParams::MAX_VALUES`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
unsafe fn dispatch_on_detail(
    x: impl ValueSource, params: FusedStoreParams, y: &mut [f16], bins: &mut [u32; BINS], sums: &mut [f64; 4],
) -> [u32; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        match params.detail {
            Detail::None => store::<0, _>(x, params, y, bins, sums),
            Detail::Counts => store::<1, _>(x, params, y, bins, sums),
            Detail::Full => store::<2, _>(x, params, y, bins, sums),
            Detail::Moments => store::<3, _>(x, params, y, bins, sums),
        }
    }
}

/// Number of values that one iteration of the store kernel handles: four vectors.
const STEP_VALUES: usize = 64;

/// Counters in each lane: zeros, values below the thresholds, and the largest magnitude.
struct LaneCounters {
    zeros: __m512i,
    below_flush: __m512i,
    below_normal: __m512i,
    max_bits: __m512i,
}

impl LaneCounters {
    /// Adds the magnitudes in the lanes of a mask to the counters.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
    #[inline]
    fn add_lanes(&mut self, magnitude: __m512i, mask: __mmask16, thresholds: Thresholds) {
        let every = broadcast(u32::MAX);
        let below = |limit| _mm512_mask_cmplt_epu32_mask(mask, magnitude, broadcast(limit));
        let zero = _mm512_mask_testn_epi32_mask(mask, magnitude, magnitude);
        self.zeros = _mm512_mask_sub_epi32(self.zeros, zero, self.zeros, every);
        self.below_flush = _mm512_mask_sub_epi32(self.below_flush, below(thresholds.flush), self.below_flush, every);
        self.below_normal =
            _mm512_mask_sub_epi32(self.below_normal, below(thresholds.subnormal), self.below_normal, every);
    }
}

/// Fused store kernel of AVX-512 for one detail: scales, rounds, writes and observes values.
///
/// # Safety
/// The features, as many values as halves, and not more than [`FusedStoreParams::MAX_VALUES`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
unsafe fn store<const DETAIL: u8, S: ValueSource>(
    x: S, params: FusedStoreParams, y: &mut [f16], bins: &mut [u32; BINS], sums: &mut [f64; 4],
) -> [u32; 4] {
    let len = y.len();
    let (factor, size, key) = (_mm512_set1_ps(params.factor), broadcast(0x7FFF_FFFF), broadcast(params.key_constant));
    let subnormal = broadcast(params.thresholds.subnormal);
    let none = _mm512_setzero_si512();
    let mut counters = LaneCounters { zeros: none, below_flush: none, below_normal: none, max_bits: none };
    let y = y.as_mut_ptr();
    // Stores sixteen values. Returns them, scaled, and their magnitudes.
    let load16 = |i: usize, mask: __mmask16| -> (__m512, __m512i) {
        // SAFETY: masked lanes are not touched; `f16` is 16 bits without padding.
        let u = unsafe {
            _mm_prefetch::<_MM_HINT_ET0>(y.wrapping_add(i + PREFETCH_DISTANCE).cast());
            let u = _mm512_mul_ps(x.load16(i, mask), factor);
            let bits = super::to_f16(u);
            _mm256_mask_storeu_epi16(y.add(i).cast(), mask, bits);
            u
        };
        (u, _mm512_and_si512(_mm512_castps_si512(u), size))
    };
    let mut lanes = [_mm512_setzero_ps(); 4];
    // Keys of four vectors at a time, one in each byte of a lane. Lanes without a value have the key of zeros.
    let mut keys = [[0u32; 16]; FusedStoreParams::MAX_VALUES / STEP_VALUES];
    let byte_mask = [0x0000_FF00, 0x00FF_0000, 0xFF00_0000].map(|bits| broadcast(bits));
    let whole = len / STEP_VALUES;
    for (i, keys) in keys[..whole].iter_mut().enumerate() {
        let four = [0, 16, 32, 48].map(|j| load16(STEP_VALUES * i + j, !0));
        if DETAIL >= 1 {
            let [a, b, c, d] = four.map(|(_, magnitude)| magnitude);
            let max_bits = _mm512_max_epu32(_mm512_max_epu32(a, b), _mm512_max_epu32(c, d));
            counters.max_bits = _mm512_max_epu32(counters.max_bits, max_bits);
            // Most steps have nothing to count: no threshold is above that of subnormal results.
            let min_bits = _mm512_min_epu32(_mm512_min_epu32(a, b), _mm512_min_epu32(c, d));
            if _mm512_cmplt_epu32_mask(min_bits, subnormal) != 0 {
                for magnitude in [a, b, c, d] {
                    counters.add_lanes(magnitude, !0, params.thresholds);
                }
            }
        }
        if DETAIL >= 2 {
            let [first, second, third, fourth] = four.map(|(_, magnitude)| _mm512_add_epi32(magnitude, key));
            let shifted = [_mm512_srli_epi32(second, 15), _mm512_srli_epi32(third, 7), _mm512_slli_epi32(fourth, 1)];
            let all =
                byte_mask.into_iter().zip(shifted).fold(_mm512_srli_epi32(first, 23), |all, (byte_mask, more)| {
                    _mm512_ternarylogic_epi32(byte_mask, more, all, 0xCA)
                });
            // SAFETY: sixteen words.
            unsafe { _mm512_storeu_si512(keys.as_mut_ptr().cast(), all) };
        }
        if DETAIL >= 3 {
            add_moments(four, &mut lanes);
        }
    }
    let mut rest = none;
    for_each_vector(len - STEP_VALUES * whole, |i, mask| {
        let (u, magnitude) = load16(STEP_VALUES * whole + i, mask);
        if DETAIL >= 1 {
            counters.add_lanes(magnitude, mask, params.thresholds);
            counters.max_bits = _mm512_max_epu32(counters.max_bits, magnitude);
        }
        if DETAIL >= 2 {
            rest = _mm512_or_si512(_mm512_slli_epi32(rest, 8), _mm512_srli_epi32(_mm512_add_epi32(magnitude, key), 23));
        }
        if DETAIL >= 3 {
            add_moments([(u, magnitude)], &mut lanes);
        }
    });
    let (zeros, max_bits) = (sum(counters.zeros), _mm512_reduce_max_epu32(counters.max_bits));
    if max_bits < params.thresholds.overflow {
        if DETAIL >= 2 {
            if let Some(keys) = keys.get_mut(whole) {
                // SAFETY: sixteen words.
                unsafe { _mm512_storeu_si512(keys.as_mut_ptr().cast(), rest) };
            }
            let nonzero = u32::try_from(len).unwrap_or(u32::MAX) - zeros;
            exponent_histogram::add_keys(
                &keys[..len.div_ceil(STEP_VALUES)],
                (max_bits + params.key_constant) >> 23,
                nonzero,
                bins,
            );
        }
        if DETAIL >= 3 {
            for (sum, lane) in sums.iter_mut().zip(lanes) {
                let mut values = [0f32; 16];
                // SAFETY: sixteen numbers.
                unsafe { _mm512_storeu_ps(values.as_mut_ptr(), lane) };
                *sum += values.iter().fold(0.0, |total, &lane| total + f64::from(lane));
            }
        }
    }
    [zeros, sum(counters.below_flush), sum(counters.below_normal), max_bits]
}

#[target_feature(enable = "avx512f")]
fn broadcast(bits: u32) -> __m512i {
    _mm512_set1_epi32(bits.cast_signed())
}

#[target_feature(enable = "avx512f")]
fn sum(counts: __m512i) -> u32 {
    _mm512_reduce_add_epi32(counts).cast_unsigned()
}

/// Adds numbers and their logarithms to sums. Several vectors are evaluated together, because a polynomial is a chain
/// of dependent operations. Zeros have no logarithm.
#[target_feature(enable = "avx512f")]
fn add_moments<const N: usize>(vectors: [(__m512, __m512i); N], lanes: &mut [__m512; 4]) {
    let logs = ln(vectors.map(|(_, magnitude)| _mm512_castsi512_ps(magnitude)));
    let [sum, squares, sum_ln, squares_ln] = lanes;
    for ((u, magnitude), log) in vectors.into_iter().zip(logs) {
        let live = _mm512_test_epi32_mask(magnitude, magnitude);
        *sum = _mm512_add_ps(*sum, u);
        *squares = _mm512_add_ps(*squares, _mm512_mul_ps(u, u));
        *sum_ln = _mm512_mask_add_ps(*sum_ln, live, *sum_ln, log);
        *squares_ln = _mm512_mask_add_ps(*squares_ln, live, *squares_ln, _mm512_mul_ps(log, log));
    }
}

/// Computes `math::fast_ln` of finite positive numbers with AVX-512, to the same bits. Exponent and significand have
/// their own instructions.
#[target_feature(enable = "avx512f")]
fn ln<const N: usize>(x: [__m512; N]) -> [__m512; N] {
    let parts = x.map(|x| {
        let digits = _mm512_getmant_ps::<_MM_MANT_NORM_1_2, _MM_MANT_SIGN_ZERO>(x);
        let exponent = _mm512_getexp_ps(x);
        // Between √½ and √2.
        let large = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(digits, _mm512_set1_ps(2.0 * f32::from_bits(SQRT_HALF)));
        let digits = _mm512_mask_mul_ps(digits, large, digits, _mm512_set1_ps(0.5));
        let e = _mm512_mask_add_ps(exponent, large, exponent, _mm512_set1_ps(1.0));
        (_mm512_sub_ps(digits, _mm512_set1_ps(1.0)), e)
    });
    let [first, rest @ ..] = FAST_LN_COEFFICIENTS;
    let mut p = [_mm512_set1_ps(first); N];
    for c in rest {
        for (p, (f, _)) in p.iter_mut().zip(parts) {
            *p = _mm512_add_ps(_mm512_mul_ps(*p, f), _mm512_set1_ps(c));
        }
    }
    for (log, (f, e)) in p.iter_mut().zip(parts) {
        *log = _mm512_add_ps(_mm512_mul_ps(*log, f), _mm512_mul_ps(e, _mm512_set1_ps(LN_2)));
    }
    p
}
