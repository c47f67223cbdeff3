//! Exponent histogram of a block, for AVX2: by comparisons of bytes, without a table.
//!
//! Most values of a block are within a dozen exponents of its maximum. So a few keys at a time are counted by
//! comparisons, from the maximum down, until all values are found. Values far below, which are rare, are looked up.

use core::arch::x86_64::{
    __m256i, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_sad_epu8, _mm256_set1_epi8, _mm256_setzero_si256,
    _mm256_storeu_si256, _mm256_sub_epi8,
};
use gradscale_core::stats::BINS;

/// Number of keys that are counted in one pass over all values: six keys and six counters fit the sixteen registers.
const KEYS_PER_SCAN: u8 = 6;
/// Maximum number of passes; the rest is counted by a table, because each pass reads all keys.
const MAX_SCANS: u8 = 8;
/// Maximum number of keys of a call: a byte counter of one lane overflows after 255 vectors.
const MAX_KEYS: usize = 255 * 32;

/// Adds whole vectors of keys to a histogram, except those of zeros, which are 0. No key is above `max_key`, and
/// `nonzero` of them are not 0.
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

/// Counts how often the key `first` and each of the N − 1 keys after it occur.
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

/// Returns the sum of the 32 bytes of a vector.
#[target_feature(enable = "avx2")]
#[inline]
fn sum_bytes(bytes: __m256i) -> u32 {
    let sums = _mm256_sad_epu8(bytes, _mm256_setzero_si256());
    let mut words = [0u64; 4];
    // SAFETY: four words of 64 bits.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), sums) };
    u32::try_from(words.iter().sum::<u64>()).unwrap_or(u32::MAX)
}
