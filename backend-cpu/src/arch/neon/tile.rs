//! Tiles of accumulators, which stay in registers over all runs.
//!
//! 6 × 16, 8 × 12, 12 × 8 or 24 × 4: 24 accumulators of four lanes, with one to four vectors of b. A product takes its
//! scalar of a from a lane.

use super::{LANES, Neon};
use crate::arch::Tile;
use core::arch::aarch64::{float32x4_t, vdupq_n_f32, vfmaq_n_f32, vld1q_f32, vst1q_f32};

type Kernel = unsafe fn(&Tile<'_>, &mut [f32], usize);

/// Kernels of so many vectors for each number of rows from 1; for whole vectors, and for a last one that is not.
macro_rules! kernels {
    ($vectors:literal: $($rows:literal)*) => {
        [&[$(kernel::<$vectors, $rows, false>),*], &[$(kernel::<$vectors, $rows, true>),*]]
    };
}

/// By vectors, whether the last one is cut, and rows.
const KERNELS: [[&[Kernel]; 2]; Neon::SHAPE.vectors] = [
    kernels!(1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24),
    kernels!(2: 1 2 3 4 5 6 7 8 9 10 11 12),
    kernels!(3: 1 2 3 4 5 6 7 8),
    kernels!(4: 1 2 3 4 5 6),
];

pub fn tile(_proof: Neon, tile: &Tile<'_>, acc: &mut [f32], acc_row: usize) {
    if tile.rows == 0 || tile.columns == 0 {
        return;
    }
    // What the kernel reads and writes lies inside the slices.
    tile.check(&Neon::SHAPE, acc, acc_row);
    let cut = !tile.columns.is_multiple_of(LANES);
    let kernel = KERNELS[tile.columns.div_ceil(LANES) - 1][usize::from(cut)][tile.rows - 1];
    // SAFETY: the bounds were checked above.
    unsafe { kernel(tile, acc, acc_row) }
}

/// # Safety
/// Every index of [`Tile`]'s formula inside its slice, and `CUT` unless all vectors are whole.
unsafe fn kernel<const VECTORS: usize, const ROWS: usize, const CUT: bool>(
    tile: &Tile<'_>, acc: &mut [f32], acc_row: usize,
) {
    // Lanes of each vector.
    let lanes = |v: usize| if CUT && v + 1 == VECTORS { tile.columns - v * LANES } else { LANES };
    // SAFETY: the target has NEON.
    let zero = unsafe { vdupq_n_f32(0.0) };
    let mut sums = [[zero; VECTORS]; ROWS];
    for (r, sums) in sums.iter_mut().enumerate() {
        for (v, sum) in sums.iter_mut().enumerate() {
            // SAFETY: row r and these columns lie inside `acc`.
            *sum = unsafe { load(acc.as_ptr().add(r * acc_row + v * LANES), lanes(v)) };
        }
    }
    for run in tile.runs {
        let mut b = tile.b.as_ptr().wrapping_add(run.b * tile.b_step);
        let mut a = tile.a.as_ptr().wrapping_add(run.a);
        for _ in 0..run.depth {
            let mut row = [zero; VECTORS];
            for (v, row) in row.iter_mut().enumerate() {
                // SAFETY: this step of b lies inside its slice.
                *row = unsafe { load(b.add(v * LANES), lanes(v)) };
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: row r of this step lies inside a's slice.
                let scalar = unsafe { *a.add(r * tile.a_row) };
                for (sum, &b) in sums.iter_mut().zip(&row) {
                    // SAFETY: the target has NEON.
                    *sum = unsafe { vfmaq_n_f32(*sum, b, scalar) };
                }
            }
            // Behind the last step they may point outside, where nothing is read.
            b = b.wrapping_add(tile.b_step);
            a = a.wrapping_add(tile.a_step);
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        for (v, &sum) in sums.iter().enumerate() {
            let mut all = [0f32; LANES];
            // SAFETY: four lanes, of which those that belong to row r of `acc` are copied there.
            unsafe {
                vst1q_f32(all.as_mut_ptr(), sum);
                let to = acc.as_mut_ptr().add(r * acc_row + v * LANES);
                to.copy_from_nonoverlapping(all.as_ptr(), lanes(v));
            }
        }
    }
}

/// The first `lanes` of a vector, and zeros.
///
/// # Safety
/// So many elements can be read, at most four.
#[inline(always)]
unsafe fn load(from: *const f32, lanes: usize) -> float32x4_t {
    // SAFETY: the caller's promise; the target has NEON.
    unsafe {
        if lanes == LANES {
            vld1q_f32(from)
        } else {
            let mut all = [0f32; LANES];
            all.as_mut_ptr().copy_from_nonoverlapping(from, lanes);
            vld1q_f32(all.as_ptr())
        }
    }
}
