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
const TOGETHER: u8 = 6;
/// Looks after which the rest is counted by a table.
const LOOKS: u8 = 8;
/// Most keys: counters are bytes.
const MOST: usize = 255 * 32;

/// Adds keys to a histogram, whole vectors of them, but for those of zeros, which are 0. None is above `most`, and so many
/// are not 0.
#[target_feature(enable = "avx2")]
pub fn add(keys: &[u8], most: u8, nonzero: u32, bins: &mut [u32; BINS]) {
    let (vectors, rest) = keys.as_chunks();
    assert!(rest.is_empty() && keys.len() <= MOST);
    // Keys up to `left` are still to be counted.
    let (mut found, mut left) = (0, most);
    for _ in 0..LOOKS {
        if found == nonzero || left < TOGETHER {
            break;
        }
        let first = left - TOGETHER + 1;
        for (key, count) in (first..=left).zip(count::<{ TOGETHER as usize }>(vectors, first)) {
            bins[usize::from(key)] += count;
            found += count;
        }
        left = first - 1;
    }
    if found != nonzero {
        for &key in keys.iter().filter(|&&key| key != 0 && key <= left) {
            bins[usize::from(key)] += 1;
        }
    }
}

/// How often a key and those after it occur.
#[target_feature(enable = "avx2")]
#[inline]
fn count<const N: usize>(keys: &[[u8; 32]], first: u8) -> [u32; N] {
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
        *sum = total(count);
    }
    sums
}

/// The sum of bytes.
#[target_feature(enable = "avx2")]
#[inline]
fn total(bytes: __m256i) -> u32 {
    let sums = _mm256_sad_epu8(bytes, _mm256_setzero_si256());
    let mut words = [0u64; 4];
    // SAFETY: four words of 64 bits.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), sums) };
    u32::try_from(words.iter().sum::<u64>()).unwrap_or(u32::MAX)
}
