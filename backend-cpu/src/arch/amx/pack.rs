//! Packing of halves as pairs of bf16, in the order that tiles require.
//!
//! A tile of A has rows of 32 steps of k. A tile of B has, for every two steps, 16 columns with both steps adjacent.

use super::{Amx, K_BLOCK, TILE_DIM};
use core::arch::x86_64::{
    __m256i, __m512i, __mmask16, __mmask32, _mm256_maskz_loadu_epi16, _mm512_and_si512, _mm512_castps_si512,
    _mm512_castsi512_ps, _mm512_castsi512_si256, _mm512_cmpge_epu16_mask, _mm512_cvtepu16_epi32, _mm512_cvtph_ps,
    _mm512_extracti64x4_epi64, _mm512_mask_storeu_epi16, _mm512_maskz_loadu_epi16, _mm512_max_epu16, _mm512_or_si512,
    _mm512_permutex2var_epi16, _mm512_set1_epi16, _mm512_set1_epi32, _mm512_setzero_si512, _mm512_shuffle_i32x4,
    _mm512_slli_epi32, _mm512_storeu_si512, _mm512_sub_ps, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64,
    _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};
use half::f16;

/// Views f32 memory as 16-bit words, two for each f32.
pub fn as_bf16(data: &[f32]) -> &[u16] {
    // SAFETY: every pattern of bits is a number of both types, and f32 is aligned for u16, so nothing is left over.
    unsafe { data.align_to().1 }
}

/// Views f32 memory as 16-bit words, two for each f32, mutably.
pub fn as_bf16_mut(data: &mut [f32]) -> &mut [u16] {
    // SAFETY: as above.
    unsafe { data.align_to_mut().1 }
}

/// Source lines of a tile: at most 16, or 32 if each has one step of k.
#[derive(Clone, Copy, Debug)]
pub struct SourceLines<'a> {
    /// Halves from the first element of the first line on.
    pub data: &'a [f16],
    /// Number of elements from one source line to the next.
    pub step: usize,
    /// Numbers of lines, and of elements of each. The rest of the tile becomes zeros.
    pub count: usize,
    pub len: usize,
    /// True if a line is a step of k (at most 16 elements), and not a row or column of the matrix (32).
    pub is_k_major: bool,
}

impl Amx {
    /// Splits halves into bf16 parts, in blocks of 32 that begin `step` apart. The last block is padded with zeros, and
    /// lower parts are `low` elements after the upper ones. Returns whether all were finite.
    pub fn split_to_bf16(self, x: &[f16], step: usize, low: usize, out: &mut [u16]) -> bool {
        let Some(before) = x.len().div_ceil(K_BLOCK).checked_sub(1) else { return true };
        assert!(before * step + low + K_BLOCK <= out.len());
        // SAFETY: the token proves the features; the last block is inside the slice.
        unsafe { split(x, step, low, out) }
    }

    /// Returns true if all halves of a slice are finite.
    pub fn all_finite(self, x: &[f16]) -> bool {
        // SAFETY: the token proves the features.
        unsafe { all_finite(x) }
    }

    /// Splits every half (given by its bits) together with the one `pair_distance` elements after it, which is zero
    /// past the end.
    pub fn split_pairs(self, x: &[u16], pair_distance: usize, high: &mut [u16], low: &mut [u16]) {
        assert!(2 * x.len() == high.len() && 2 * x.len() == low.len());
        // SAFETY: the token proves the features; both parts have room for two elements for each of x.
        unsafe { pairs(x, pair_distance, high, low) };
    }

    /// Packs the tile of A whose rows are these lines: 16 rows of 32 elements, `row` apart, with lower parts `low`
    /// elements after the upper ones.
    pub fn pack_a_tile(self, lines: &SourceLines<'_>, row: usize, low: usize, out: &mut [u16]) -> bool {
        self.pack_tile(lines, lines.is_k_major, row, low, out)
    }

    /// Packs the tile of B whose columns are these lines: 16 pairs of steps, `row` elements apart.
    pub fn pack_b_tile(self, lines: &SourceLines<'_>, row: usize, low: usize, out: &mut [u16]) -> bool {
        self.pack_tile(lines, !lines.is_k_major, row, low, out)
    }

    fn pack_tile(self, lines: &SourceLines<'_>, transposed: bool, row: usize, low: usize, out: &mut [u16]) -> bool {
        let (count, len) = if lines.is_k_major { (K_BLOCK, TILE_DIM) } else { (TILE_DIM, K_BLOCK) };
        assert!(lines.count <= count && lines.len <= len && (TILE_DIM - 1) * row + low + K_BLOCK <= out.len());
        assert!(lines.count == 0 || lines.data.len() >= (lines.count - 1) * lines.step + lines.len);
        // SAFETY: the token proves the features; lines and tile are inside their slices.
        unsafe { pack_tile(lines, transposed, row, low, out) }
    }
}

/// Returns a lane mask of which the lowest `len` bits are set.
const fn low_bits(len: usize) -> __mmask32 {
    if len >= 32 { __mmask32::MAX } else { (1 << len) - 1 }
}

/// Splits 32 halves: the upper 16 bits of each as f32, and those of the remainder, which has at most three bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn split_halves(x: __m512i) -> [__m512i; 2] {
    let upper = _mm512_set1_epi32(0xFFFF_0000u32.cast_signed());
    let wide = [_mm512_cvtph_ps(_mm512_castsi512_si256(x)), _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(x))];
    let rest = wide.map(|wide| {
        let high = _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(wide), upper));
        _mm512_castps_si512(_mm512_sub_ps(wide, high))
    });
    [high_words(wide.map(|wide| _mm512_castps_si512(wide))), high_words(rest)]
}

/// Returns the upper 16 bits of each of 32 numbers of 32 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn high_words([x, y]: [__m512i; 2]) -> __m512i {
    const ODD_INDICES: [u16; 32] = {
        let (mut odd, mut i) = ([0; 32], 0);
        while i < 32 {
            odd[i as usize] = 2 * i + 1;
            i += 1;
        }
        odd
    };
    // SAFETY: as many bits.
    _mm512_permutex2var_epi16(x, unsafe { core::mem::transmute::<[u16; 32], __m512i>(ODD_INDICES) }, y)
}

/// Returns true if all values that contributed to a maximum magnitude are finite.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn is_finite(max_bits: __m512i) -> bool {
    _mm512_cmpge_epu16_mask(max_bits, _mm512_set1_epi16(0x7C00)) == 0
}

/// Returns the lane-wise maximum of magnitudes and of the magnitudes of halves.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn max_magnitude(max_bits: __m512i, x: __m512i) -> __m512i {
    _mm512_max_epu16(max_bits, _mm512_and_si512(x, _mm512_set1_epi16(0x7FFF)))
}

/// Returns true if all halves of a slice are finite.
///
/// # Safety
/// The features.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn all_finite(x: &[f16]) -> bool {
    x.iter().fold(0, |max_bits, x| max_bits.max(x.to_bits() & 0x7FFF)) < 0x7C00
}

/// Splits halves into upper and lower bf16 parts, in blocks of 32. Returns true if all were finite.
///
/// # Safety
/// The features, and room for the last block of lower parts.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn split(x: &[f16], step: usize, low: usize, out: &mut [u16]) -> bool {
    let mut max_bits = _mm512_setzero_si512();
    let mut out = out.as_mut_ptr();
    for block in x.chunks(K_BLOCK) {
        // Full ones have a constant mask, which costs nothing.
        let mask = if block.len() == K_BLOCK { __mmask32::MAX } else { low_bits(block.len()) };
        // SAFETY: masked lanes are not touched; `f16` is 16 bits without padding.
        unsafe {
            let halves = _mm512_maskz_loadu_epi16(mask, block.as_ptr().cast());
            let [h, l] = split_halves(halves);
            max_bits = max_magnitude(max_bits, halves);
            _mm512_storeu_si512(out.cast(), h);
            _mm512_storeu_si512(out.add(low).cast(), l);
        }
        out = out.wrapping_add(step);
    }
    is_finite(max_bits)
}

/// Splits each half together with the one `pair_distance` elements after it into upper and lower bf16 parts.
///
/// # Safety
/// The features, and room for two elements in both parts for each of x.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn pairs(x: &[u16], pair_distance: usize, high: &mut [u16], low: &mut [u16]) {
    for i in (0..x.len()).step_by(16) {
        let len = (x.len() - i).min(16);
        let second = x.len().saturating_sub(i.saturating_add(pair_distance)).min(16);
        // SAFETY: masked lanes are not touched; `f16` is 16 bits without padding.
        unsafe {
            let halves = interleave_lines(x.as_ptr().add(i), len, x.as_ptr().wrapping_add(i + pair_distance), second);
            let [h, l] = split_halves(halves);
            _mm512_mask_storeu_epi16(high.as_mut_ptr().add(2 * i).cast(), low_bits(2 * len), h);
            _mm512_mask_storeu_epi16(low.as_mut_ptr().add(2 * i).cast(), low_bits(2 * len), l);
        }
    }
}

/// Loads two lines and interleaves their elements in one vector.
///
/// # Safety
/// The features, and `x_len` and `y_len` readable elements at the two addresses, 16 at most.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "16 lanes")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn interleave_lines(x: *const u16, x_len: usize, y: *const u16, y_len: usize) -> __m512i {
    // SAFETY: masked lanes are not touched.
    let [x, y]: [__m256i; 2] = unsafe {
        [
            _mm256_maskz_loadu_epi16(low_bits(x_len) as __mmask16, x.cast()),
            _mm256_maskz_loadu_epi16(low_bits(y_len) as __mmask16, y.cast()),
        ]
    };
    _mm512_or_si512(_mm512_cvtepu16_epi32(x), _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(y)))
}

/// Packs source lines as a tile of upper and lower bf16 parts. Returns true if all values were finite.
///
/// # Safety
/// The features; lines inside their data, 16 rows of 32 elements of both parts inside the slice.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn pack_tile(lines: &SourceLines<'_>, transposed: bool, row: usize, low: usize, out: &mut [u16]) -> bool {
    let mut halves = [_mm512_setzero_si512(); TILE_DIM];
    let (data, step) = (lines.data.as_ptr(), lines.step);
    let lines_of = if lines.is_k_major { lines.count.div_ceil(2) } else { lines.count };
    for (i, halves) in halves.iter_mut().take(lines_of).enumerate() {
        // SAFETY: elements that are not masked are inside a line.
        *halves = unsafe {
            if lines.is_k_major {
                let second = if 2 * i + 1 < lines.count { lines.len } else { 0 };
                interleave_lines(
                    data.add(2 * i * step).cast(),
                    lines.len,
                    data.wrapping_add((2 * i + 1) * step).cast(),
                    second,
                )
            } else {
                _mm512_maskz_loadu_epi16(low_bits(lines.len), data.add(i * step).cast())
            }
        };
    }
    let max_bits = halves.iter().fold(_mm512_setzero_si512(), |max_bits, &x| max_magnitude(max_bits, x));
    if transposed {
        halves = transpose(halves);
    }
    for (i, halves) in halves.into_iter().enumerate() {
        let [h, l] = split_halves(halves);
        // SAFETY: row i of both parts is inside the slice.
        unsafe {
            _mm512_storeu_si512(out.as_mut_ptr().add(i * row).cast(), h);
            _mm512_storeu_si512(out.as_mut_ptr().add(i * row + low).cast(), l);
        }
    }
    is_finite(max_bits)
}

/// Transposes a tile of 16 rows of 16 words of 32 bits.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(x: [__m512i; TILE_DIM]) -> [__m512i; TILE_DIM] {
    // Within lanes of four words: pairs of rows, then fours.
    let mut two = x;
    for i in (0..TILE_DIM).step_by(2) {
        two[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        two[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    let mut four = two;
    for i in (0..TILE_DIM).step_by(4) {
        four[i] = _mm512_unpacklo_epi64(two[i], two[i + 2]);
        four[i + 1] = _mm512_unpackhi_epi64(two[i], two[i + 2]);
        four[i + 2] = _mm512_unpacklo_epi64(two[i + 1], two[i + 3]);
        four[i + 3] = _mm512_unpackhi_epi64(two[i + 1], two[i + 3]);
    }
    // four[4 g + c] has, in lane l, column 4 l + c of rows 4 g to 4 g + 3.
    let mut out = four;
    for c in 0..4 {
        let [a, b, d, e] = [four[c], four[4 + c], four[8 + c], four[12 + c]];
        let (ab_even, ab_odd) =
            (_mm512_shuffle_i32x4::<0b10_00_10_00>(a, b), _mm512_shuffle_i32x4::<0b11_01_11_01>(a, b));
        let (de_even, de_odd) =
            (_mm512_shuffle_i32x4::<0b10_00_10_00>(d, e), _mm512_shuffle_i32x4::<0b11_01_11_01>(d, e));
        out[c] = _mm512_shuffle_i32x4::<0b10_00_10_00>(ab_even, de_even);
        out[4 + c] = _mm512_shuffle_i32x4::<0b10_00_10_00>(ab_odd, de_odd);
        out[8 + c] = _mm512_shuffle_i32x4::<0b11_01_11_01>(ab_even, de_even);
        out[12 + c] = _mm512_shuffle_i32x4::<0b11_01_11_01>(ab_odd, de_odd);
    }
    out
}
