//! GEMM microkernel of AVX2: tiles of accumulators that stay in registers over all segments.
//!
//! 6 × 16 or 12 × 8: twelve accumulators of eight lanes. Two fused multiply-adds a cycle with a latency of four or five
//! cycles need ten. With one or two vectors of B and one broadcast scalar of A they fit 16 registers.

use super::{Avx2, LANES, cast::f16_to_f32};
use crate::arch::{F16Rows, LoadMode, MicroKernelArgs};
use core::arch::x86_64::{
    __m256, __m256i, _MM_HINT_T0, _mm_prefetch, _mm256_broadcast_ss, _mm256_cmpgt_epi32, _mm256_fmadd_ps,
    _mm256_loadu_ps, _mm256_maskload_ps, _mm256_maskstore_ps, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_setzero_ps,
    _mm256_storeu_ps,
};

/// GEMM microkernel with fixed numbers of vectors and rows; the last slice takes converted rows of halves.
type MicroKernel = unsafe fn(&MicroKernelArgs<'_>, &mut [f32], usize, usize, &mut [f32]);

/// Macro: lists the AVX2 microkernels of a number of vectors, by load mode and number of rows from 1.
macro_rules! kernels {
    ($vectors:literal: $($rows:literal)*) => {
        [
            &[$(kernel::<$vectors, $rows, { LoadMode::FULL }>),*],
            &[$(kernel::<$vectors, $rows, { LoadMode::MASKED_TAIL }>),*],
            &[$(kernel::<$vectors, $rows, { LoadMode::PREFETCHING }>),*],
            &[$(kernel::<$vectors, $rows, { LoadMode::F16_ROWS }>),*],
        ]
    };
}

/// AVX2 microkernels by number of vectors, load mode, and number of rows from 1.
const KERNELS: [[&[MicroKernel]; 4]; Avx2::SHAPE.vectors] =
    [kernels!(1: 1 2 3 4 5 6 7 8 9 10 11 12), kernels!(2: 1 2 3 4 5 6)];

pub fn accumulate_tile(_proof: Avx2, tile: &MicroKernelArgs<'_>, acc: &mut [f32], acc_row: usize) {
    if tile.rows == 0 || tile.columns == 0 {
        return;
    }
    // The bounds check that makes the kernels sound.
    tile.check_bounds(&Avx2::SHAPE, acc, acc_row);
    let kernels = KERNELS[tile.columns.div_ceil(LANES) - 1][tile.load_mode(LANES)];
    for (row, tile, count) in tile.row_tiles(&Avx2::SHAPE) {
        // SAFETY: the token proves the features; the bounds were checked above.
        unsafe { kernels[tile.rows - 1](&tile, &mut acc[row * acc_row..], acc_row, count, &mut []) }
    }
}

/// Multiplies short rows of halves by B with AVX2; the halves are converted through `converted`.
pub fn multiply_f16_rows(_proof: Avx2, rows: &F16Rows<'_>, acc: &mut [f32], converted: &mut [f32]) {
    if acc.is_empty() {
        return;
    }
    // All elements that kernels read and write are inside the slices.
    let kernels = KERNELS[rows.columns.div_ceil(LANES) - 1][LoadMode::F16_ROWS];
    for (row, tile, count) in rows.tile_args(&Avx2::SHAPE, acc, converted).row_tiles(&Avx2::SHAPE) {
        // SAFETY: the token proves the features; the bounds were checked above.
        unsafe { kernels[tile.rows - 1](&tile, &mut acc[row * rows.columns..], rows.columns, count, converted) }
    }
}

/// AVX2 GEMM microkernel: computes `count` tiles of `ROWS` rows, one after another.
///
/// # Safety
/// The features, every index of the formula of [`MicroKernelArgs`] inside its slice, and the requirements of the load
/// mode.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn kernel<const VECTORS: usize, const ROWS: usize, const LOAD_MODE: usize>(
    tile: &MicroKernelArgs<'_>, acc: &mut [f32], acc_row: usize, count: usize, converted: &mut [f32],
) {
    let (mask, whole) = (lane_mask(tile.columns - (VECTORS - 1) * LANES), tile.columns.is_multiple_of(LANES));
    // A masked store takes as long as a dozen whole ones on some processors. If rows are contiguous, a whole store may
    // write past its row, because the rows below are written later; only the last rows may not.
    let end = if acc_row == tile.columns { ROWS * acc_row } else { 0 };
    let (mut acc, mut tile_a) = (acc.as_mut_ptr(), tile.a.as_ptr());
    let mut prefetch = tile.prefetch.as_ptr();
    for _ in 0..count {
        if LOAD_MODE == LoadMode::F16_ROWS {
            // Overlaps with the multiply-adds of the previous tile.
            let len = ROWS * tile.a_row_stride;
            // SAFETY: at least `len` halves are left, in slices of one length.
            unsafe { f16_to_f32(core::slice::from_raw_parts(prefetch, len), &mut converted[..len]) };
            (tile_a, prefetch) = (converted.as_ptr(), prefetch.wrapping_add(len));
        }
        let mut asked = prefetch;
        let mut sums: [[__m256; VECTORS]; ROWS] = [[_mm256_setzero_ps(); VECTORS]; ROWS];
        if !tile.overwrite {
            for (r, sums) in sums.iter_mut().enumerate() {
                for (v, sum) in sums.iter_mut().enumerate() {
                    let from = acc.wrapping_add(r * acc_row + v * LANES);
                    // SAFETY: row r and its columns are inside `acc`, and masked lanes are not accessed.
                    *sum = unsafe {
                        if !whole && v + 1 == VECTORS { _mm256_maskload_ps(from, mask) } else { _mm256_loadu_ps(from) }
                    };
                }
            }
        }
        for run in tile.k_segments {
            let mut b = tile.b.as_ptr().wrapping_add(run.b * tile.b_k_stride);
            // Every third row has its own pointer; the next two are reached by addressing modes.
            let mut a = [tile_a.wrapping_add(run.a); 4];
            for (i, a) in a.iter_mut().enumerate() {
                *a = a.wrapping_add(3 * i * tile.a_row_stride);
            }
            for _ in 0..run.depth {
                let mut row = [_mm256_setzero_ps(); VECTORS];
                for (v, row) in row.iter_mut().enumerate() {
                    let from = b.wrapping_add(v * LANES);
                    // SAFETY: this step of b is inside its slice, and masked lanes are not read.
                    *row = unsafe {
                        if LOAD_MODE == LoadMode::MASKED_TAIL && v + 1 == VECTORS {
                            _mm256_maskload_ps(from, mask)
                        } else {
                            _mm256_loadu_ps(from)
                        }
                    };
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: row r of this step is inside a's slice.
                    let scalar = unsafe { _mm256_broadcast_ss(&*a[r / 3].add(r % 3 * tile.a_row_stride)) };
                    for (sum, &b) in sums.iter_mut().zip(&row) {
                        *sum = _mm256_fmadd_ps(scalar, b, *sum);
                    }
                }
                if LOAD_MODE >= LoadMode::PREFETCHING {
                    _mm_prefetch::<_MM_HINT_T0>(asked.cast());
                    asked = asked.wrapping_add(ROWS);
                }
                // After the last step these may point outside, but nothing is read there.
                b = b.wrapping_add(tile.b_k_stride);
                for a in &mut a {
                    *a = a.wrapping_add(tile.a_k_stride);
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (v, &sum) in sums.iter().enumerate() {
                let at = r * acc_row + v * LANES;
                let to = acc.wrapping_add(at);
                // SAFETY: as the loads above; where a whole vector is written it ends inside this tile.
                unsafe {
                    if !whole && v + 1 == VECTORS && at + LANES > end {
                        _mm256_maskstore_ps(to, mask, sum);
                    } else {
                        _mm256_storeu_ps(to, sum);
                    }
                };
            }
        }
        if LOAD_MODE != LoadMode::F16_ROWS {
            (tile_a, prefetch) = (tile_a.wrapping_add(ROWS * tile.a_row_stride), asked);
        }
        acc = acc.wrapping_add(ROWS * acc_row);
    }
}

/// Returns the AVX2 mask in which the first `lanes` lanes are set.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn lane_mask(lanes: usize) -> __m256i {
    // At most eight.
    let count = i32::try_from(lanes).unwrap_or(i32::MAX);
    _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
}
