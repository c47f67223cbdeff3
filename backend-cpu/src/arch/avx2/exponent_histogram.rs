//! A histogram without a table look-up for each value: thirty-two keys are compared with a key at a time.
//!
//! Most of a block lies in a dozen exponents below its largest, so that a few keys at a time are asked for from there
//! down until all values are found. Those far below, which are rare, are looked up.

use core::arch::x86_64::{
    __m256i, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_sad_epu8, _mm256_set1_epi8, _mm256_setzero_si256,
    _mm256_storeu_si256, _mm256_sub_epi8,
};
use gradscale_core::stats::BINS;

/// Keys that are counted in one look at all values: with their counters they fit the registers.
const KEYS_PER_SCAN: u8 = 6;
/// Looks after which the rest is counted by a table.
const MAX_SCANS: u8 = 8;
/// Most keys: counters are bytes.
const MAX_KEYS: usize = 255 * 32;

/// Adds keys to a histogram, whole vectors of them, but for those of zeros, which are 0. None is above `max_key`, and so many
/// are not 0.
#[target_feature(enable = "avx2")]
pub fn add_keys(keys: &[u8], max_key: u8, nonzero: u32, bins: &mut [u32; BINS]) {
    let (vectors, rest) = keys.as_chunks();
    assert!(rest.is_empty() && keys.len() <= MAX_KEYS);
    // Keys up to `top` are still to be counted.
    let (mut found, mut top) = (0, max_key);
    for _ in 0..MAX_SCANS {
        if found == nonzero || top < KEYS_PER_SCAN {
            break;
        }
        let first = top - KEYS_PER_SCAN + 1;
        for (key, count) in (first..=top).zip(count_keys::<{ KEYS_PER_SCAN as usize }>(vectors, first)) {
            bins[usize::from(key)] += count;
            found += count;
        }
        top = first - 1;
    }
    if found != nonzero {
        for &key in keys.iter().filter(|&&key| key != 0 && key <= top) {
            bins[usize::from(key)] += 1;
        }
    }
}

/// How often a key and those after it occur.
#[target_feature(enable = "avx2")]
#[inline]
fn count_keys<const N: usize>(keys: &[[u8; 32]], first: u8) -> [u32; N] {
    let mut wanted = [_mm256_set1_epi8(0); N];
    for (wanted, key) in wanted.iter_mut().zip(first..=u8::MAX) {
        *wanted = _mm256_set1_epi8(key.cast_signed());
    }
    let mut counts = [_mm256_setzero_si256(); N];
    for keys in keys {
        // SAFETY: thirty-two bytes.
        let keys = unsafe { _mm256_loadu_si256(keys.as_ptr().cast()) };
        for (count, &wanted) in counts.iter_mut().zip(&wanted) {
            *count = _mm256_sub_epi8(*count, _mm256_cmpeq_epi8(keys, wanted));
        }
    }
    let mut sums = [0; N];
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum = sum_bytes(count);
    }
    sums
}

/// The sum of bytes.
#[target_feature(enable = "avx2")]
#[inline]
fn sum_bytes(bytes: __m256i) -> u32 {
    let sums = _mm256_sad_epu8(bytes, _mm256_setzero_si256());
    let mut words = [0u64; 4];
    // SAFETY: four words of 64 bits.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), sums) };
    u32::try_from(words.iter().sum::<u64>()).unwrap_or(u32::MAX)
}
