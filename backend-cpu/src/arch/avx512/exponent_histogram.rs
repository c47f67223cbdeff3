//! A histogram without a table look-up for each value: keys are turned into planes of bits, of which a logical function
//! says where a key stands, and counting ones says how often.

use core::arch::x86_64::{
    __m512i, _mm512_add_epi64, _mm512_and_si512, _mm512_cmple_epu8_mask, _mm512_loadu_si512,
    _mm512_mask_test_epi8_mask, _mm512_popcnt_epi64, _mm512_reduce_add_epi64, _mm512_set1_epi8, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_subs_epu8, _mm512_ternarylogic_epi64, _mm512_test_epi8_mask, _mm512_xor_si512,
};
use gradscale_core::stats::BINS;

/// Sixty-four keys, in any order.
pub type KeyVector = [u32; 16];

/// Keys below the largest that have planes.
const MAX_BITPLANE_DISTANCE: u32 = 63;
/// Most keys of one call, in sets of 64 and of 512.
const MAX_KEY_VECTORS: usize = crate::arch::FusedStoreParams::MAX_VALUES / 64;
const MAX_PLANE_GROUPS: usize = MAX_KEY_VECTORS / 8;

/// Adds keys to a histogram, but for those of zeros, which are 0. None is above `max_key`, and so many are not 0.
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

/// From the largest down until all are found; keys far below it, which are rare, one by one.
#[target_feature(enable = "avx512f,avx512bw,avx512vpopcntdq")]
fn add_by_bit_planes(keys: &[KeyVector], max_key: u32, nonzero: u32, bins: &mut [u32; BINS]) {
    let base = max_key.saturating_sub(MAX_BITPLANE_DISTANCE);
    let base_vector = _mm512_set1_epi8(base.to_le_bytes()[0].cast_signed());
    let mut found = 0;
    // Of the distances from `base`; what lies below has distance 0, as zeros have.
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
                // Fewer than a block has.
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

/// Where three bits have one of their eight values.
#[target_feature(enable = "avx512f")]
fn minterm<const WHICH: i32>([a, b, c]: [__m512i; 3]) -> __m512i {
    _mm512_ternarylogic_epi64::<WHICH>(a, b, c)
}
