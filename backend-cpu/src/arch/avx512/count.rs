//! Counters of a light row.

use super::vectors;
use crate::arch::Limits;
use core::arch::x86_64::{
    _mm512_and_si512, _mm512_mask_cmpeq_epi32_mask, _mm512_mask_cmplt_epu32_mask, _mm512_mask_sub_epi32,
    _mm512_maskz_loadu_epi32, _mm512_max_epu32, _mm512_reduce_add_epi32, _mm512_reduce_max_epu32, _mm512_set1_epi32,
    _mm512_setzero_si512,
};

/// Zeros, values below `flush`, values below `subnormal`, and the bits of the largest magnitude, of fewer than 2^32
/// values. Comparisons become masks, and masks subtract −1 from lanes: nothing is counted bit by bit.
///
/// # Safety
/// The features.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
pub unsafe fn count(values: &[f32], limits: Limits) -> [u32; 4] {
    let set = |bits: u32| _mm512_set1_epi32(bits.cast_signed());
    let (all, zero, one) = (set(0x7FFF_FFFF), _mm512_setzero_si512(), set(u32::MAX));
    let (flush, subnormal) = (set(limits.flush), set(limits.subnormal));
    let mut counters = [zero; 3];
    let mut most = zero;
    vectors(values.len(), |i, live| {
        // SAFETY: masked lanes are not read.
        let bits = unsafe { _mm512_maskz_loadu_epi32(live, values.as_ptr().add(i).cast()) };
        let magnitude = _mm512_and_si512(bits, all);
        most = _mm512_max_epu32(most, magnitude);
        let masks = [
            _mm512_mask_cmpeq_epi32_mask(live, magnitude, zero),
            _mm512_mask_cmplt_epu32_mask(live, magnitude, flush),
            _mm512_mask_cmplt_epu32_mask(live, magnitude, subnormal),
        ];
        for (counter, mask) in counters.iter_mut().zip(masks) {
            *counter = _mm512_mask_sub_epi32(*counter, mask, *counter, one);
        }
    });
    let [zeros, small, low] = counters.map(|counter| _mm512_reduce_add_epi32(counter).cast_unsigned());
    [zeros, small, low, _mm512_reduce_max_epu32(most)]
}
