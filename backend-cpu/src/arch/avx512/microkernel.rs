//! GEMM microkernel of AVX-512: tiles of accumulators that stay in registers over all segments.
//!
//! Up to 24 accumulators of 16 lanes, with one to four vectors of B and one broadcast scalar of A: at most 29 of 32
//! registers. A scalar that is used for several vectors is broadcast once. With a single vector there is one load for
//! each multiply-add, which the load ports sustain.

use super::{Avx512, f16_to_f32, lane_mask};
use crate::arch::{F16Rows, LANES, LoadMode, MicroKernelArgs};
use core::{
    arch::{
        asm,
        x86_64::{
            __m512, _MM_HINT_T0, _mm_prefetch, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_storeu_ps,
            _mm512_maskz_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
        },
    },
    hint::black_box,
};

/// GEMM microkernel with fixed numbers of vectors and rows; the last slice takes converted rows of halves.
type MicroKernel = unsafe fn(&MicroKernelArgs<'_>, &mut [f32], usize, usize, &mut [f32]);

/// Macro: lists the AVX-512 microkernels of a number of vectors, by load mode and number of rows from 1.
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

/// AVX-512 microkernels by number of vectors, load mode, and number of rows from 1.
const KERNELS: [[&[MicroKernel]; 4]; Avx512::SHAPE.vectors] = [
    kernels!(1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24),
    kernels!(2: 1 2 3 4 5 6 7 8 9 10 11 12),
    kernels!(3: 1 2 3 4 5 6 7 8),
    kernels!(4: 1 2 3 4 5 6),
];

pub fn accumulate_tile(_proof: Avx512, tile: &MicroKernelArgs<'_>, acc: &mut [f32], acc_row: usize) {
    if tile.rows == 0 || tile.columns == 0 {
        return;
    }
    // The bounds check that makes the kernels sound.
    tile.check_bounds(&Avx512::SHAPE, acc, acc_row);
    let kernels = KERNELS[tile.columns.div_ceil(LANES) - 1][tile.load_mode(LANES)];
    for (row, tile, count) in tile.row_tiles(&Avx512::SHAPE) {
        // SAFETY: the token proves the features; the bounds were checked above.
        unsafe { kernels[tile.rows - 1](&tile, &mut acc[row * acc_row..], acc_row, count, &mut []) }
    }
}

/// Multiplies short rows of halves by B with AVX-512; the halves are converted through `converted`.
pub fn multiply_f16_rows(_proof: Avx512, rows: &F16Rows<'_>, acc: &mut [f32], converted: &mut [f32]) {
    if acc.is_empty() {
        return;
    }
    // All elements that kernels read and write are inside the slices.
    let kernels = KERNELS[rows.columns.div_ceil(LANES) - 1][LoadMode::F16_ROWS];
    for (row, tile, count) in rows.tile_args(&Avx512::SHAPE, acc, converted).row_tiles(&Avx512::SHAPE) {
        // SAFETY: the token proves the features; the bounds were checked above.
        unsafe { kernels[tile.rows - 1](&tile, &mut acc[row * rows.columns..], rows.columns, count, converted) }
    }
}

/// Returns the same pointer, but hides its origin from the compiler. Otherwise the compiler computes all addresses of a
/// loop from one, with an addition each, and additions take the ports of multiply-adds.
#[inline(always)]
fn opaque_pointer(pointer: *const f32) -> *const f32 {
    let mut kept = pointer;
    // SAFETY: there is no instruction, only a comment.
    unsafe { asm!("/* {0} */", inout(reg) kept, options(pure, readonly, nostack, preserves_flags)) };
    kept
}

/// AVX-512 GEMM microkernel: computes `count` tiles of `ROWS` rows, one after another.
///
/// # Safety
/// The features, every index of the formula of [`MicroKernelArgs`] inside its slice, and the requirements of the load
/// mode.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
unsafe fn kernel<const VECTORS: usize, const ROWS: usize, const LOAD_MODE: usize>(
    tile: &MicroKernelArgs<'_>, acc: &mut [f32], acc_row: usize, count: usize, converted: &mut [f32],
) {
    let (last, whole) = (lane_mask(tile.columns, VECTORS - 1), tile.columns.is_multiple_of(LANES));
    let (one, three) = (tile.a_row_stride, black_box(3 * tile.a_row_stride));
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
        let mut sums: [[__m512; VECTORS]; ROWS] = [[_mm512_setzero_ps(); VECTORS]; ROWS];
        if !tile.overwrite {
            let mut row = acc.cast_const();
            for sums in &mut sums {
                for (v, sum) in sums.iter_mut().enumerate() {
                    let from = row.wrapping_add(v * LANES);
                    // SAFETY: this row's columns are inside `acc`, and masked lanes are not read.
                    *sum = unsafe {
                        if v + 1 == VECTORS && !whole {
                            _mm512_maskz_loadu_ps(last, from)
                        } else {
                            _mm512_loadu_ps(from)
                        }
                    };
                }
                row = opaque_pointer(row.wrapping_add(acc_row));
            }
        }
        for run in tile.k_segments {
            let mut b = tile.b.as_ptr().wrapping_add(run.b * tile.b_k_stride);
            // Every fourth row has its own pointer; the next three are reached by addressing modes.
            let mut a: [*const f32; 6] = [core::ptr::null(); 6];
            let mut row = tile_a.wrapping_add(run.a);
            for a in a.iter_mut().take(ROWS.div_ceil(4)) {
                *a = row;
                row = opaque_pointer(row.wrapping_add(4 * tile.a_row_stride));
            }
            for _ in 0..run.depth {
                let mut row: [__m512; VECTORS] = [_mm512_setzero_ps(); VECTORS];
                for (v, row) in row.iter_mut().enumerate() {
                    let from = b.wrapping_add(v * LANES);
                    // A masked load would use a port of multiply-adds; elements after the columns are not stored.
                    // SAFETY: this step of b is inside its slice, and masked lanes are not read.
                    *row = unsafe {
                        if LOAD_MODE == LoadMode::MASKED_TAIL && v + 1 == VECTORS {
                            _mm512_maskz_loadu_ps(last, from)
                        } else {
                            _mm512_loadu_ps(from)
                        }
                    };
                }
                for (&a, sums) in a.iter().zip(sums.chunks_mut(4)) {
                    let rows = [a, a.wrapping_add(one), a.wrapping_add(2 * one), a.wrapping_add(three)];
                    for (row_of_a, sums) in rows.into_iter().zip(sums) {
                        // SAFETY: this row of this step is inside a's slice.
                        let scalar = _mm512_set1_ps(unsafe { *row_of_a });
                        for (sum, &b) in sums.iter_mut().zip(&row) {
                            *sum = _mm512_fmadd_ps(scalar, b, *sum);
                        }
                    }
                }
                if LOAD_MODE >= LoadMode::PREFETCHING {
                    _mm_prefetch::<_MM_HINT_T0>(asked.cast());
                    asked = asked.wrapping_add(ROWS);
                }
                // After the last step these may point outside, but nothing is read there.
                b = b.wrapping_add(tile.b_k_stride);
                for a in a.iter_mut().take(ROWS.div_ceil(4)) {
                    *a = opaque_pointer(a.wrapping_add(tile.a_k_stride));
                }
            }
        }
        for sums in &sums {
            for (v, &sum) in sums.iter().enumerate() {
                let to = acc.wrapping_add(v * LANES);
                // SAFETY: as the loads above.
                unsafe {
                    if v + 1 == VECTORS && !whole {
                        _mm512_mask_storeu_ps(to, last, sum);
                    } else {
                        _mm512_storeu_ps(to, sum);
                    }
                }
            }
            acc = opaque_pointer(acc.wrapping_add(acc_row)).cast_mut();
        }
        if LOAD_MODE != LoadMode::F16_ROWS {
            (tile_a, prefetch) = (tile_a.wrapping_add(ROWS * tile.a_row_stride), asked);
        }
    }
}
