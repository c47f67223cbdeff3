//! Tiles of accumulators, which stay in registers over all runs.
//!
//! Up to 24 accumulators of 16 lanes, with one to four vectors of b and one broadcast scalar of a: 29 of 32 registers
//! at most. A scalar that meets several vectors is broadcast once; with a single vector there is one load for each
//! product, and still no more than the load ports do.

use super::{Avx512, mask};
use crate::arch::{LANES, Tile};
use core::arch::x86_64::{
    __m512, __mmask16, _mm512_fmadd_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps,
};

type Kernel = unsafe fn(&Tile<'_>, &mut [f32], usize);

/// Kernels of so many vectors for each number of rows from 1.
macro_rules! kernels {
    ($vectors:literal: $($rows:literal)*) => { &[$(kernel::<$vectors, $rows>),*] };
}

/// By vectors and rows, from 1.
const KERNELS: [&[Kernel]; Avx512::SHAPE.vectors] = [
    kernels!(1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24),
    kernels!(2: 1 2 3 4 5 6 7 8 9 10 11 12),
    kernels!(3: 1 2 3 4 5 6 7 8),
    kernels!(4: 1 2 3 4 5 6),
];

pub fn tile(_proof: Avx512, tile: &Tile<'_>, acc: &mut [f32], acc_row: usize) {
    if tile.rows == 0 || tile.columns == 0 {
        return;
    }
    // What kernels read and write lies inside the slices.
    tile.check(&Avx512::SHAPE, acc, acc_row);
    let kernels = KERNELS[tile.columns.div_ceil(LANES) - 1];
    for (row, tile) in tile.fitting(&Avx512::SHAPE) {
        // SAFETY: the token proves the features; the bounds were checked above.
        unsafe { kernels[tile.rows - 1](&tile, &mut acc[row * acc_row..], acc_row) }
    }
}

/// # Safety
/// The features, and every index of [`Tile`]'s formula inside its slice.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
unsafe fn kernel<const VECTORS: usize, const ROWS: usize>(tile: &Tile<'_>, acc: &mut [f32], acc_row: usize) {
    let masks: [__mmask16; VECTORS] = core::array::from_fn(|v| mask(tile.columns, v));
    let mut sums: [[__m512; VECTORS]; ROWS] = [[_mm512_setzero_ps(); VECTORS]; ROWS];
    if !tile.fresh {
        for (r, sums) in sums.iter_mut().enumerate() {
            for (v, sum) in sums.iter_mut().enumerate() {
                // SAFETY: row r and the masked columns lie inside `acc`.
                *sum = unsafe { _mm512_maskz_loadu_ps(masks[v], acc.as_ptr().add(r * acc_row + v * LANES)) };
            }
        }
    }
    for run in tile.runs {
        let mut b = tile.b.as_ptr().wrapping_add(run.b * tile.b_step);
        // Every fourth row has a pointer of its own, from which the next three are one addressing mode away.
        let mut a: [*const f32; 6] = core::array::from_fn(|i| tile.a.as_ptr().wrapping_add(run.a + 4 * i * tile.a_row));
        for _ in 0..run.depth {
            // SAFETY: this step of b lies inside its slice, and masked lanes are not read.
            let row: [__m512; VECTORS] =
                core::array::from_fn(|v| unsafe { _mm512_maskz_loadu_ps(masks[v], b.add(v * LANES)) });
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: row r of this step lies inside a's slice.
                let scalar = _mm512_set1_ps(unsafe { *a[r / 4].add(r % 4 * tile.a_row) });
                for (sum, &b) in sums.iter_mut().zip(&row) {
                    *sum = _mm512_fmadd_ps(scalar, b, *sum);
                }
            }
            // Behind the last step they may point outside, where nothing is read.
            b = b.wrapping_add(tile.b_step);
            a = a.map(|a| a.wrapping_add(tile.a_step));
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        for (v, &sum) in sums.iter().enumerate() {
            // SAFETY: as the loads above.
            unsafe { _mm512_mask_storeu_ps(acc.as_mut_ptr().add(r * acc_row + v * LANES), masks[v], sum) };
        }
    }
}
