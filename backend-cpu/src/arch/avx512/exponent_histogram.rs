//! Exponent histogram of a block, for AVX-512: by bit planes and population counts, without a table.
//!
//! The keys are the upper bytes of magnitudes, one for each power of two. The task is:
//!
//! ```text
//! for each key of the block (at most 4096 values)
//!     if key != 0: bins[key] += 1
//! ```
//!
//! The plain loop needs a load, an addition and a store for each value, and equal keys in a row wait for each other. The rest of a store handles sixteen values at once. In pseudo-code, this file does:
//!
//! ```text
//! base = max_key − 63
//! for each vector of 64 keys
//!     keys ≤ base, except zeros: bins[key] += 1, one by one     rare
//!     d = key − base, or 0 where it would be negative            0 … 63, six bits
//!     for bit in 0..6: planes[bit][vector] = mask of lanes whose d has this bit
//! for upper in 7, 6, … 0                                         the three upper bits of d
//!     for lower in 0..8                                           the three lower bits
//!         mask = lanes where all six planes agree with (upper, lower)
//!         bins[base + 8·upper + lower] += popcount(mask)
//!     stop when all values that are not zero were counted
//! ```
//!
//! The real code has this shape for these reasons:
//!
//! 1. A block rarely spans more than a few dozen powers of two, because its values come from one tensor. So 64 keys
//!    from the maximum down contain nearly all of them, and six planes suffice. Keys further below are looked up one by
//!    one. At most the whole block takes that way, which is slow and still right.
//!
//! 2. A bit plane turns 64 keys into one mask of 64 bits, and eight such masks into one vector. A logical operation
//!    then handles 512 keys at once. Counting one key costs a mask and a population count for 512 values, where a
//!    comparison of bytes handles 64.
//!
//! 3. The eight keys that share their three upper bits are counted together. Their common mask, `in_octet`, is computed
//!    once: the upper planes are inverted where the octet has a zero bit, and ANDed.
//!
//! 4. The three lower planes select one of eight keys by a single instruction, `vpternlogq`. Its constant is a truth
//!    table of three inputs. The table with a single 1 at position i is the minterm i: it is true where the three bits
//!    have the value i. See `minterm`.
//!
//! 5. Octets are visited from the largest down. The values of most blocks lie within a dozen exponents of the maximum,
//!    so two or three octets find all of them, and the loop stops. The caller knows how many values are not zero, and
//!    compares.
//!
//! 6. Key `base` itself is skipped, because distance 0 also stands for zeros and for the keys that were looked up. That
//!    is why the lookup covers keys up to and including `base`.
//!
//! 7. The order of keys in a vector does not matter to a histogram. So the caller packs the bytes of four vectors by
//!    shifts and one blend each, without a permutation.
//!
//! 8. `vpopcntq` is an extension of its own (VPOPCNTDQ). Processors with AVX-512 but without it, such as Skylake-X,
//!    take the plain loop.

use core::arch::x86_64::{
    __m512i, _mm512_add_epi64, _mm512_and_si512, _mm512_cmple_epu8_mask, _mm512_loadu_si512,
    _mm512_mask_test_epi8_mask, _mm512_popcnt_epi64, _mm512_reduce_add_epi64, _mm512_set1_epi8, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_subs_epu8, _mm512_ternarylogic_epi64, _mm512_test_epi8_mask, _mm512_xor_si512,
};
use gradscale_core::stats::BINS;

/// Vector of sixty-four histogram keys, one in each byte, in any order.
pub type KeyVector = [u32; 16];

/// Largest distance from the maximum key that the six bit planes represent.
const MAX_BITPLANE_DISTANCE: u32 = 63;
/// Maximum number of vectors of 64 keys in a call, and of groups of eight of them, which share one vector in each
/// plane.
const MAX_KEY_VECTORS: usize = crate::arch::FusedStoreParams::MAX_VALUES / 64;
const MAX_PLANE_GROUPS: usize = MAX_KEY_VECTORS / 8;

/// Adds keys to a histogram, except those of zeros, which are 0. No key is above `max_key`, and `nonzero` of them are
/// not 0.
pub fn add_keys(keys: &[KeyVector], max_key: u32, nonzero: u32, bins: &mut [u32; BINS]) {
    assert!(keys.len() <= MAX_KEY_VECTORS && max_key < 256);
    if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vpopcntdq") {
        // SAFETY: this machine has the features.
        unsafe { add_by_bit_planes(keys, max_key, nonzero, bins) }
    } else {
        for key in keys.iter().flatten().flat_map(|word| word.to_le_bytes()).filter(|&key| key != 0) {
            bins[usize::from(key)] += 1;
        }
    }
}

/// Adds keys by bit planes, from the largest down until all are found. Keys at or below `base` are looked up one by
/// one.
#[target_feature(enable = "avx512f,avx512bw,avx512vpopcntdq")]
fn add_by_bit_planes(keys: &[KeyVector], max_key: u32, nonzero: u32, bins: &mut [u32; BINS]) {
    let base = max_key.saturating_sub(MAX_BITPLANE_DISTANCE);
    let base_vector = _mm512_set1_epi8(base.to_le_bytes()[0].cast_signed());
    let mut found = 0;
    // Bit planes of the distances from `base`. Keys below it have distance 0, like zeros.
    let mut planes = [[[0u64; 8]; 6]; MAX_PLANE_GROUPS];
    for (i, keys) in keys.iter().enumerate() {
        // SAFETY: sixteen words.
        let vector = unsafe { _mm512_loadu_si512(keys.as_ptr().cast()) };
        let mut far_lanes = _mm512_mask_test_epi8_mask(_mm512_cmple_epu8_mask(vector, base_vector), vector, vector);
        while far_lanes != 0 {
            let at = far_lanes.trailing_zeros() as usize;
            bins[usize::from(keys[at / 4].to_le_bytes()[at % 4])] += 1;
            found += 1;
            far_lanes &= far_lanes - 1;
        }
        let distances = _mm512_subs_epu8(vector, base_vector);
        for (bit, plane) in planes[i / 8].iter_mut().enumerate() {
            plane[i % 8] = _mm512_test_epi8_mask(distances, _mm512_set1_epi8(1 << bit));
        }
    }
    for octet in (0..=(max_key - base) / 8).rev() {
        let flips = [0, 1, 2].map(|bit| _mm512_set1_epi64(i64::from(octet >> bit & 1) - 1));
        let mut ones = [_mm512_setzero_si512(); 8];
        for planes in &planes[..keys.len().div_ceil(8)] {
            // SAFETY: eight words of 64 bits each.
            let bits = planes.each_ref().map(|plane| unsafe { _mm512_loadu_si512(plane.as_ptr().cast()) });
            let [a, b, c] = [3, 4, 5].map(|i| _mm512_xor_si512(bits[i], flips[i - 3]));
            let in_octet = _mm512_and_si512(_mm512_and_si512(a, b), c);
            let lower = [bits[2], bits[1], bits[0]];
            let keys = [
                minterm::<0x01>(lower),
                minterm::<0x02>(lower),
                minterm::<0x04>(lower),
                minterm::<0x08>(lower),
                minterm::<0x10>(lower),
                minterm::<0x20>(lower),
                minterm::<0x40>(lower),
                minterm::<0x80>(lower),
            ];
            for (ones, key) in ones.iter_mut().zip(keys) {
                *ones = _mm512_add_epi64(*ones, _mm512_popcnt_epi64(_mm512_and_si512(key, in_octet)));
            }
        }
        for (key, ones) in (base + 8 * octet..).zip(ones) {
            if key != base {
                // At most the values of a block, so it fits.
                let ones = u32::try_from(_mm512_reduce_add_epi64(ones)).unwrap_or(0);
                bins[key as usize] += ones;
                found += ones;
            }
        }
        if found == nonzero {
            break;
        }
    }
}

/// Returns a mask of the lanes where three bits have one of their eight values: `WHICH` has a single bit set.
#[target_feature(enable = "avx512f")]
fn minterm<const WHICH: i32>([a, b, c]: [__m512i; 3]) -> __m512i {
    _mm512_ternarylogic_epi64::<WHICH>(a, b, c)
}
