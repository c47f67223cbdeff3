//! Scale, observe, round and write in one pass: values are read once, and counted while the next ones are on their way.

use super::{Avx2, LANES, exponent_histogram};
use crate::arch::{
    Pass,
    loops::math::{SHORT_LN, SQRT_HALF},
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

/// Values that are worked on side by side.
const STEP: usize = 64;

impl Avx2 {
    /// Writes values times a factor as halves, and adds what it sees to a histogram and to sums, as far as `detail` goes.
    /// Returns what [`crate::Isa::count`] does. Where a value overflows it stores all, and adds nothing.
    pub fn store(self, x: &[f32], pass: Pass, y: &mut [f16], bins: &mut [u32; BINS], sums: &mut [f64; 4]) -> [u32; 4] {
        assert!(x.len() == y.len() && x.len() <= Pass::MOST);
        // SAFETY: the token proves the features.
        unsafe {
            match pass.detail {
                Detail::None => store::<0>(x, pass, y, bins, sums),
                Detail::Counts => store::<1>(x, pass, y, bins, sums),
                Detail::Full => store::<2>(x, pass, y, bins, sums),
                Detail::Moments => store::<3>(x, pass, y, bins, sums),
            }
        }
    }
}

/// Zeros, values below the limits, and the largest magnitude, lane by lane.
struct Seen {
    zeros: __m256i,
    small: __m256i,
    low: __m256i,
    most: __m256i,
}

#[target_feature(enable = "avx2,fma,f16c")]
fn store<const DETAIL: u8>(
    x: &[f32], pass: Pass, y: &mut [f16], bins: &mut [u32; BINS], sums: &mut [f64; 4],
) -> [u32; 4] {
    let none = _mm256_setzero_si256();
    let mut seen = Seen { zeros: none, small: none, low: none, most: none };
    let (mut keys, mut lanes) = ([[0u8; STEP]; Pass::MOST / STEP], [[_mm256_setzero_ps(); 2]; 4]);
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks(), y.as_chunks_mut());
    let mut used = x.len();
    for ((x, y), keys) in x.iter().zip(y).zip(&mut keys) {
        step::<DETAIL>(x, pass, y, &mut seen, keys, &mut lanes);
    }
    // The rest with zeros behind it, which are counted and taken off again.
    let padding = if x_rest.is_empty() { 0 } else { STEP - x_rest.len() };
    if padding != 0 {
        let (mut from, mut to) = ([0f32; STEP], [f16::ZERO; STEP]);
        from[..x_rest.len()].copy_from_slice(x_rest);
        step::<DETAIL>(&from, pass, &mut to, &mut seen, &mut keys[used], &mut lanes);
        y_rest.copy_from_slice(&to[..y_rest.len()]);
        used += 1;
    }
    if DETAIL == 0 {
        return [0; 4];
    }
    let padding = u32::try_from(padding).unwrap_or(0);
    let [zeros, small, low] =
        [seen.zeros, seen.small, seen.low].map(|count| words(count).iter().sum::<u32>() - padding);
    let most = words(seen.most).into_iter().max().unwrap_or(0);
    if most < pass.limits.overflow {
        if DETAIL >= 2 {
            let all = u32::try_from(STEP * used).unwrap_or(u32::MAX);
            let [largest, ..] = ((most + pass.key) >> 23).to_le_bytes();
            exponent_histogram::add(keys[..used].as_flattened(), largest, all - padding - zeros, bins);
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
    [zeros, small, low, most]
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn step<const DETAIL: u8>(
    x: &[f32; STEP], pass: Pass, y: &mut [f16; STEP], seen: &mut Seen, keys: &mut [u8; STEP],
    lanes: &mut [[__m256; 2]; 4],
) {
    let (factor, size) = (_mm256_set1_ps(pass.factor), broadcast(0x7FFF_FFFF));
    let [flush, subnormal, key] = [pass.limits.flush, pass.limits.subnormal, pass.key].map(|bits| broadcast(bits));
    let (none, mut least) = (_mm256_setzero_si256(), size);
    let (mut values, mut magnitudes) = ([_mm256_setzero_ps(); STEP / LANES], [none; STEP / LANES]);
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
            seen.most = _mm256_max_epi32(seen.most, *magnitude);
            least = _mm256_min_epi32(least, *magnitude);
        }
    }
    // Most steps have nothing to count: no limit is above that of subnormal results.
    if DETAIL >= 1 && any(_mm256_cmpgt_epi32(subnormal, least)) {
        for magnitude in magnitudes {
            // A mask is −1.
            seen.zeros = _mm256_sub_epi32(seen.zeros, _mm256_cmpeq_epi32(magnitude, none));
            seen.small = _mm256_sub_epi32(seen.small, _mm256_cmpgt_epi32(flush, magnitude));
            seen.low = _mm256_sub_epi32(seen.low, _mm256_cmpgt_epi32(subnormal, magnitude));
        }
    }
    if DETAIL >= 2 {
        // In the order in which halves of vectors are packed, which does not matter. What overflows may leave a byte; it
        // does not count.
        for (four, keys) in magnitudes.as_chunks().0.iter().zip(keys.as_chunks_mut::<32>().0) {
            let [a, b, c, d] = four.map(|magnitude| _mm256_srli_epi32::<23>(_mm256_add_epi32(magnitude, key)));
            let all = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
            // SAFETY: thirty-two bytes.
            unsafe { _mm256_storeu_si256(keys.as_mut_ptr().cast(), all) };
        }
    }
    if DETAIL >= 3 {
        if any(_mm256_cmpgt_epi32(broadcast(f32::MIN_POSITIVE.to_bits()), least)) {
            moments::<_, false>(values, magnitudes, lanes);
        } else {
            moments::<_, true>(values, magnitudes, lanes);
        }
    }
}

/// Whether a lane of a mask is set.
#[target_feature(enable = "avx2")]
#[inline]
fn any(mask: __m256i) -> bool {
    _mm256_testz_si256(mask, mask) == 0
}

/// Adds numbers and their logarithms to sums, vectors in turn to both halves of the lanes. Several are worked on side by
/// side: a polynomial is a chain of which each link waits for the one before. Zeros add 0, and ln 1.
#[target_feature(enable = "avx2")]
#[inline]
fn moments<const N: usize, const NORMAL: bool>(
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

/// `math::short_ln` of finite positive numbers, to the same bits.
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
    let [first, rest @ ..] = SHORT_LN;
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
