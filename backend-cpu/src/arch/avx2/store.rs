//! Fused store of AVX2: scale, observe, round and write in one pass. Values are read once, and counted while the next
//! ones are loaded.

use super::{Avx2, LANES, exponent_histogram};
use crate::arch::{
    FusedStoreParams,
    loops::math::{FAST_LN_COEFFICIENTS, SQRT_HALF},
};
use core::{
    arch::x86_64::{
        __m256, __m256i, _CMP_LT_OQ, _MM_FROUND_TO_NEAREST_INT, _mm_storeu_si128, _mm256_add_epi32, _mm256_add_ps,
        _mm256_and_ps, _mm256_and_si256, _mm256_blendv_ps, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cmp_ps,
        _mm256_cmpeq_epi32, _mm256_cmpgt_epi32, _mm256_cvtepi32_ps, _mm256_cvtps_ph, _mm256_loadu_ps, _mm256_max_epi32,
        _mm256_min_epi32, _mm256_mul_ps, _mm256_packus_epi16, _mm256_packus_epi32, _mm256_set1_epi32, _mm256_set1_ps,
        _mm256_setzero_ps, _mm256_setzero_si256, _mm256_srai_epi32, _mm256_srli_epi32, _mm256_storeu_ps,
        _mm256_storeu_si256, _mm256_sub_epi32, _mm256_sub_ps, _mm256_testz_si256,
    },
    f32::consts::LN_2,
};
use gradscale_core::stats::{BINS, Detail};
use half::f16;

/// Number of values that one iteration of the store kernel handles: eight vectors.
const STEP_VALUES: usize = 64;

impl Avx2 {
    /// Scales values, writes them as halves and observes them as far as `detail` requires. Returns the counters of
    /// [`crate::Isa::count_values`]. Where a value overflows, all halves are written but nothing is added.
    pub fn store_fused(
        self, x: &[f32], params: FusedStoreParams, y: &mut [f16], bins: &mut [u32; BINS], sums: &mut [f64; 4],
    ) -> [u32; 4] {
        assert!(x.len() == y.len() && x.len() <= FusedStoreParams::MAX_VALUES);
        // SAFETY: the token proves the features.
        unsafe {
            match params.detail {
                Detail::None => store::<0>(x, params, y, bins, sums),
                Detail::Counts => store::<1>(x, params, y, bins, sums),
                Detail::Full => store::<2>(x, params, y, bins, sums),
                Detail::Moments => store::<3>(x, params, y, bins, sums),
            }
        }
    }
}

/// Counters in each lane: zeros, values below the thresholds, and the largest magnitude.
struct LaneCounters {
    zeros: __m256i,
    below_flush: __m256i,
    below_normal: __m256i,
    max_bits: __m256i,
}

#[target_feature(enable = "avx2,fma,f16c")]
fn store<const DETAIL: u8>(
    x: &[f32], params: FusedStoreParams, y: &mut [f16], bins: &mut [u32; BINS], sums: &mut [f64; 4],
) -> [u32; 4] {
    let none = _mm256_setzero_si256();
    let mut counters = LaneCounters { zeros: none, below_flush: none, below_normal: none, max_bits: none };
    let (mut keys, mut lanes) =
        ([[0u8; STEP_VALUES]; FusedStoreParams::MAX_VALUES / STEP_VALUES], [[_mm256_setzero_ps(); 2]; 4]);
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks(), y.as_chunks_mut());
    let mut used = x.len();
    for ((x, y), keys) in x.iter().zip(y).zip(&mut keys) {
        step::<DETAIL>(x, params, y, &mut counters, keys, &mut lanes);
    }
    // The remainder is padded with zeros, whose counts are subtracted.
    let padding = if x_rest.is_empty() { 0 } else { STEP_VALUES - x_rest.len() };
    if padding != 0 {
        let (mut from, mut to) = ([0f32; STEP_VALUES], [f16::ZERO; STEP_VALUES]);
        from[..x_rest.len()].copy_from_slice(x_rest);
        step::<DETAIL>(&from, params, &mut to, &mut counters, &mut keys[used], &mut lanes);
        y_rest.copy_from_slice(&to[..y_rest.len()]);
        used += 1;
    }
    if DETAIL == 0 {
        return [0; 4];
    }
    let padding = u32::try_from(padding).unwrap_or(0);
    let [zeros, below_flush, below_normal] = [counters.zeros, counters.below_flush, counters.below_normal]
        .map(|count| words(count).iter().sum::<u32>() - padding);
    let max_bits = words(counters.max_bits).into_iter().max().unwrap_or(0);
    if max_bits < params.thresholds.overflow {
        if DETAIL >= 2 {
            let all = u32::try_from(STEP_VALUES * used).unwrap_or(u32::MAX);
            let [largest, ..] = ((max_bits + params.key_constant) >> 23).to_le_bytes();
            exponent_histogram::add_keys(keys[..used].as_flattened(), largest, all - padding - zeros, bins);
        }
        if DETAIL >= 3 {
            for (sum, lanes) in sums.iter_mut().zip(&lanes) {
                let mut values = [0f32; 2 * LANES];
                for (values, &lanes) in values.chunks_exact_mut(LANES).zip(lanes) {
                    // SAFETY: eight numbers.
                    unsafe { _mm256_storeu_ps(values.as_mut_ptr(), lanes) };
                }
                *sum += values.iter().fold(0.0, |total, &lane| total + f64::from(lane));
            }
        }
    }
    [zeros, below_flush, below_normal, max_bits]
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn step<const DETAIL: u8>(
    x: &[f32; STEP_VALUES], params: FusedStoreParams, y: &mut [f16; STEP_VALUES], counters: &mut LaneCounters,
    keys: &mut [u8; STEP_VALUES], lanes: &mut [[__m256; 2]; 4],
) {
    let (factor, size) = (_mm256_set1_ps(params.factor), broadcast(0x7FFF_FFFF));
    let [flush, subnormal, key] =
        [params.thresholds.flush, params.thresholds.subnormal, params.key_constant].map(|bits| broadcast(bits));
    let (none, mut min_bits) = (_mm256_setzero_si256(), size);
    let (mut values, mut magnitudes) = ([_mm256_setzero_ps(); STEP_VALUES / LANES], [none; STEP_VALUES / LANES]);
    for (i, (u, magnitude)) in values.iter_mut().zip(&mut magnitudes).enumerate() {
        // SAFETY: eight times eight elements are sixty-four; `f16` is 16 bits without padding.
        unsafe {
            *u = _mm256_mul_ps(_mm256_loadu_ps(x.as_ptr().add(i * LANES)), factor);
            let bits = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(*u);
            _mm_storeu_si128(y.as_mut_ptr().add(i * LANES).cast(), bits);
        }
        if DETAIL >= 1 {
            // Magnitudes have no sign, so that a signed comparison serves.
            *magnitude = _mm256_and_si256(_mm256_castps_si256(*u), size);
            counters.max_bits = _mm256_max_epi32(counters.max_bits, *magnitude);
            min_bits = _mm256_min_epi32(min_bits, *magnitude);
        }
    }
    // Most steps have nothing to count: no threshold is above that of subnormal results.
    if DETAIL >= 1 && any(_mm256_cmpgt_epi32(subnormal, min_bits)) {
        for magnitude in magnitudes {
            // A mask is −1.
            counters.zeros = _mm256_sub_epi32(counters.zeros, _mm256_cmpeq_epi32(magnitude, none));
            counters.below_flush = _mm256_sub_epi32(counters.below_flush, _mm256_cmpgt_epi32(flush, magnitude));
            counters.below_normal = _mm256_sub_epi32(counters.below_normal, _mm256_cmpgt_epi32(subnormal, magnitude));
        }
    }
    if DETAIL >= 2 {
        // Keys in the order of the pack instructions, which does not matter to a histogram. Values that overflow may
        // exceed a byte; then the histogram is not used.
        for (four, keys) in magnitudes.as_chunks().0.iter().zip(keys.as_chunks_mut::<32>().0) {
            let [a, b, c, d] = four.map(|magnitude| _mm256_srli_epi32::<23>(_mm256_add_epi32(magnitude, key)));
            let all = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
            // SAFETY: thirty-two bytes.
            unsafe { _mm256_storeu_si256(keys.as_mut_ptr().cast(), all) };
        }
    }
    if DETAIL >= 3 {
        if any(_mm256_cmpgt_epi32(broadcast(f32::MIN_POSITIVE.to_bits()), min_bits)) {
            add_moments::<_, false>(values, magnitudes, lanes);
        } else {
            add_moments::<_, true>(values, magnitudes, lanes);
        }
    }
}

/// Returns true if some lane of a mask is set.
#[target_feature(enable = "avx2")]
#[inline]
fn any(mask: __m256i) -> bool {
    _mm256_testz_si256(mask, mask) == 0
}

/// Adds numbers and their logarithms to sums, alternating between both halves of the lanes. Several vectors are
/// evaluated together, because a polynomial is a chain of dependent operations. Zeros add 0, and ln 1.
#[target_feature(enable = "avx2")]
#[inline]
fn add_moments<const N: usize, const NORMAL: bool>(
    values: [__m256; N], magnitudes: [__m256i; N], lanes: &mut [[__m256; 2]; 4],
) {
    let logs = ln::<N, NORMAL>(magnitudes.map(|magnitude| {
        if NORMAL {
            return _mm256_castsi256_ps(magnitude);
        }
        let zero = _mm256_castsi256_ps(_mm256_cmpeq_epi32(magnitude, _mm256_setzero_si256()));
        _mm256_blendv_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(1.0), zero)
    }));
    for (i, (u, log)) in values.into_iter().zip(logs).enumerate() {
        let terms = [u, _mm256_mul_ps(u, u), log, _mm256_mul_ps(log, log)];
        for (lanes, term) in lanes.iter_mut().zip(terms) {
            lanes[i % 2] = _mm256_add_ps(lanes[i % 2], term);
        }
    }
}

/// Computes `math::fast_ln` of finite positive numbers with AVX2, to the same bits.
#[target_feature(enable = "avx2")]
#[inline]
fn ln<const N: usize, const NORMAL: bool>(x: [__m256; N]) -> [__m256; N] {
    let parts = x.map(|x| {
        // Subnormal numbers are made normal first.
        let small = if NORMAL {
            _mm256_setzero_ps()
        } else {
            _mm256_cmp_ps::<_CMP_LT_OQ>(x, _mm256_set1_ps(f32::MIN_POSITIVE))
        };
        let x = if NORMAL { x } else { _mm256_blendv_ps(x, _mm256_mul_ps(x, _mm256_set1_ps(8_388_608.0)), small) };
        let offset = _mm256_sub_epi32(_mm256_castps_si256(x), broadcast(SQRT_HALF));
        let digits = _mm256_add_epi32(_mm256_and_si256(offset, broadcast(0x007F_FFFF)), broadcast(SQRT_HALF));
        let exponent = _mm256_cvtepi32_ps(_mm256_srai_epi32::<23>(offset));
        let e = if NORMAL { exponent } else { _mm256_add_ps(exponent, _mm256_and_ps(small, _mm256_set1_ps(-23.0))) };
        (_mm256_sub_ps(_mm256_castsi256_ps(digits), _mm256_set1_ps(1.0)), e)
    });
    let [first, rest @ ..] = FAST_LN_COEFFICIENTS;
    let mut p = [_mm256_set1_ps(first); N];
    for c in rest {
        for (p, (f, _)) in p.iter_mut().zip(parts) {
            *p = _mm256_add_ps(_mm256_mul_ps(*p, f), _mm256_set1_ps(c));
        }
    }
    for (log, (f, e)) in p.iter_mut().zip(parts) {
        *log = _mm256_add_ps(_mm256_mul_ps(*log, f), _mm256_mul_ps(e, _mm256_set1_ps(LN_2)));
    }
    p
}

#[target_feature(enable = "avx2")]
#[inline]
fn broadcast(bits: u32) -> __m256i {
    _mm256_set1_epi32(bits.cast_signed())
}

#[target_feature(enable = "avx2")]
#[inline]
fn words(vector: __m256i) -> [u32; LANES] {
    let mut words = [0; LANES];
    // SAFETY: eight words.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), vector) };
    words
}
