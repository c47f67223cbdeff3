//! Scale, observe, round and write in one pass: values come from memory while those before them are counted.

use super::{Avx512, exponent_histogram, vectors};
use crate::arch::{
    Limits, Pass, Results, Values,
    loops::math::{SHORT_LN, SQRT_HALF},
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

/// How far ahead of a value the caches are asked for another one: counting fills the window in which the processor would
/// find that out by itself.
const AHEAD: usize = 512;

impl Avx512 {
    /// Writes values times a factor as halves, and adds what it sees to a histogram and to sums, as far as `detail` goes.
    /// Returns what [`crate::Isa::count`] does. Where a value overflows it stores all, and adds nothing.
    pub fn store(
        self, x: Values<'_>, pass: Pass, y: &mut [f16], bins: &mut [u32; BINS], sums: &mut [f64; 4],
    ) -> [u32; 4] {
        assert!(x.len() == y.len() && x.len() <= Pass::MOST);
        // SAFETY: the token proves the features; there are as many values as halves, and not more than a block.
        unsafe {
            match x {
                Values::F32(x) => by_detail(x, pass, y, bins, sums),
                Values::Results(results, x) => by_detail((results, x), pass, y, bins, sums),
            }
        }
    }
}

/// What values are loaded from.
trait Source: Copy {
    /// Sixteen values from one on; 0 in masked lanes.
    ///
    /// # Safety
    /// The features of [`Avx512`], and values at the places of lanes that are not masked.
    unsafe fn sixteen(self, i: usize, mask: __mmask16) -> __m512;
}

impl Source for &[f32] {
    #[inline(always)]
    unsafe fn sixteen(self, i: usize, mask: __mmask16) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(self.as_ptr().wrapping_add(i + AHEAD).cast());
            _mm512_maskz_loadu_ps(mask, self.as_ptr().add(i))
        }
    }
}

impl Source for (&Results, &[f16]) {
    #[inline(always)]
    unsafe fn sixteen(self, i: usize, mask: __mmask16) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { super::sixteen_results(self.0, self.1, i, mask) }
    }
}

/// Stores, by the pass that does as much as is asked for.
///
/// # Safety
/// The features, as many values as halves, and not more than [`Pass::MOST`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
unsafe fn by_detail(
    x: impl Source, pass: Pass, y: &mut [f16], bins: &mut [u32; BINS], sums: &mut [f64; 4],
) -> [u32; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        match pass.detail {
            Detail::None => store::<0, _>(x, pass, y, bins, sums),
            Detail::Counts => store::<1, _>(x, pass, y, bins, sums),
            Detail::Full => store::<2, _>(x, pass, y, bins, sums),
            Detail::Moments => store::<3, _>(x, pass, y, bins, sums),
        }
    }
}

/// Values of four vectors, which are counted together.
const STEP: usize = 64;

/// Zeros, values below the limits, and the largest magnitude, lane by lane.
struct Seen {
    zeros: __m512i,
    small: __m512i,
    low: __m512i,
    most: __m512i,
}

impl Seen {
    /// Counts the lanes of a mask.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
    #[inline]
    fn add(&mut self, magnitude: __m512i, mask: __mmask16, limits: Limits) {
        let every = broadcast(u32::MAX);
        let below = |limit| _mm512_mask_cmplt_epu32_mask(mask, magnitude, broadcast(limit));
        let zero = _mm512_mask_testn_epi32_mask(mask, magnitude, magnitude);
        self.zeros = _mm512_mask_sub_epi32(self.zeros, zero, self.zeros, every);
        self.small = _mm512_mask_sub_epi32(self.small, below(limits.flush), self.small, every);
        self.low = _mm512_mask_sub_epi32(self.low, below(limits.subnormal), self.low, every);
    }
}

/// # Safety
/// The features, as many values as halves, and not more than [`Pass::MOST`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
unsafe fn store<const DETAIL: u8, S: Source>(
    x: S, pass: Pass, y: &mut [f16], bins: &mut [u32; BINS], sums: &mut [f64; 4],
) -> [u32; 4] {
    let len = y.len();
    let (factor, size, key) = (_mm512_set1_ps(pass.factor), broadcast(0x7FFF_FFFF), broadcast(pass.key));
    let subnormal = broadcast(pass.limits.subnormal);
    let none = _mm512_setzero_si512();
    let mut seen = Seen { zeros: none, small: none, low: none, most: none };
    let y = y.as_mut_ptr();
    // Stores sixteen values; returns them, times the factor, and their magnitudes.
    let sixteen = |i: usize, mask: __mmask16| -> (__m512, __m512i) {
        // SAFETY: masked lanes are not touched; `f16` is 16 bits without padding.
        let u = unsafe {
            _mm_prefetch::<_MM_HINT_ET0>(y.wrapping_add(i + AHEAD).cast());
            let u = _mm512_mul_ps(x.sixteen(i, mask), factor);
            let bits = super::to_f16(u);
            _mm256_mask_storeu_epi16(y.add(i).cast(), mask, bits);
            u
        };
        (u, _mm512_and_si512(_mm512_castps_si512(u), size))
    };
    let mut lanes = [_mm512_setzero_ps(); 4];
    // Keys of four vectors at a time, one in each byte of a lane; lanes without a value have the key of zeros.
    let mut keys = [[0u32; 16]; Pass::MOST / STEP];
    let place = [0x0000_FF00, 0x00FF_0000, 0xFF00_0000].map(|bits| broadcast(bits));
    let whole = len / STEP;
    for (i, keys) in keys[..whole].iter_mut().enumerate() {
        let four = [0, 16, 32, 48].map(|j| sixteen(STEP * i + j, !0));
        if DETAIL >= 1 {
            let [a, b, c, d] = four.map(|(_, magnitude)| magnitude);
            let most = _mm512_max_epu32(_mm512_max_epu32(a, b), _mm512_max_epu32(c, d));
            seen.most = _mm512_max_epu32(seen.most, most);
            // Most steps have nothing to count: no limit is above that of subnormal results.
            let least = _mm512_min_epu32(_mm512_min_epu32(a, b), _mm512_min_epu32(c, d));
            if _mm512_cmplt_epu32_mask(least, subnormal) != 0 {
                for magnitude in [a, b, c, d] {
                    seen.add(magnitude, !0, pass.limits);
                }
            }
        }
        if DETAIL >= 2 {
            let [first, second, third, fourth] = four.map(|(_, magnitude)| _mm512_add_epi32(magnitude, key));
            let shifted = [_mm512_srli_epi32(second, 15), _mm512_srli_epi32(third, 7), _mm512_slli_epi32(fourth, 1)];
            let all = place.into_iter().zip(shifted).fold(_mm512_srli_epi32(first, 23), |all, (place, more)| {
                _mm512_ternarylogic_epi32(place, more, all, 0xCA)
            });
            // SAFETY: sixteen words.
            unsafe { _mm512_storeu_si512(keys.as_mut_ptr().cast(), all) };
        }
        if DETAIL >= 3 {
            moments(four, &mut lanes);
        }
    }
    let mut rest = none;
    vectors(len - STEP * whole, |i, mask| {
        let (u, magnitude) = sixteen(STEP * whole + i, mask);
        if DETAIL >= 1 {
            seen.add(magnitude, mask, pass.limits);
            seen.most = _mm512_max_epu32(seen.most, magnitude);
        }
        if DETAIL >= 2 {
            rest = _mm512_or_si512(_mm512_slli_epi32(rest, 8), _mm512_srli_epi32(_mm512_add_epi32(magnitude, key), 23));
        }
        if DETAIL >= 3 {
            moments([(u, magnitude)], &mut lanes);
        }
    });
    let (zeros, most) = (sum(seen.zeros), _mm512_reduce_max_epu32(seen.most));
    if most < pass.limits.overflow {
        if DETAIL >= 2 {
            if let Some(keys) = keys.get_mut(whole) {
                // SAFETY: sixteen words.
                unsafe { _mm512_storeu_si512(keys.as_mut_ptr().cast(), rest) };
            }
            let nonzero = u32::try_from(len).unwrap_or(u32::MAX) - zeros;
            exponent_histogram::add(&keys[..len.div_ceil(STEP)], (most + pass.key) >> 23, nonzero, bins);
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
    [zeros, sum(seen.small), sum(seen.low), most]
}

#[target_feature(enable = "avx512f")]
fn broadcast(bits: u32) -> __m512i {
    _mm512_set1_epi32(bits.cast_signed())
}

#[target_feature(enable = "avx512f")]
fn sum(counts: __m512i) -> u32 {
    _mm512_reduce_add_epi32(counts).cast_unsigned()
}

/// Adds numbers and their logarithms to sums, one vector after the other. Several are worked on side by side: a polynomial
/// is a chain of which each link waits for the one before. Zeros have no logarithm.
#[target_feature(enable = "avx512f")]
fn moments<const N: usize>(vectors: [(__m512, __m512i); N], lanes: &mut [__m512; 4]) {
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

/// `math::short_ln` of finite positive numbers, to the same bits: exponent and digits have instructions of their own.
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
    let [first, rest @ ..] = SHORT_LN;
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
