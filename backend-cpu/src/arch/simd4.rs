//! Vectors of four f32 (NEON, SIMD128): the microkernel, which keeps its accumulators in registers over all segments,
//! and casts.

use super::{MicroKernelArgs, TileShape, balanced_tile_height};
use half::f16;

/// Number of f32 lanes of a 128-bit vector.
pub const LANES: usize = 4;

/// Trait of a vector of four f32, of an instruction set that the target has.
pub trait F32x4: Copy {
    /// Returns the vector of zeros.
    fn zero() -> Self;

    /// Loads the vector from four f32 in memory.
    ///
    /// # Safety
    /// Four elements can be read.
    unsafe fn load(from: *const f32) -> Self;

    /// Writes the vector to four f32 in memory.
    ///
    /// # Safety
    /// Four elements can be written.
    unsafe fn store(self, to: *mut f32);

    /// Returns `self + b · a` in each lane: fused where the instruction set has a fused multiply-add.
    fn add_product(self, b: Self, a: f32) -> Self;
}

/// GEMM microkernel with fixed numbers of vectors and rows.
pub type MicroKernel = unsafe fn(&MicroKernelArgs<'_>, &mut [f32], usize);

/// GEMM microkernels by number of vectors, masked tail, and number of rows.
pub type Kernels<const VECTORS: usize> = [[&'static [MicroKernel]; 2]; VECTORS];

/// Macro: lists the microkernels of each number of vectors and rows, with whole vectors and with a last one that is not
/// whole.
macro_rules! kernels {
    ($quad:ty; $($vectors:literal: $($rows:literal)*;)*) => {
        [$([
            &[$($crate::arch::simd4::kernel::<$quad, $vectors, $rows, false>),*],
            &[$($crate::arch::simd4::kernel::<$quad, $vectors, $rows, true>),*],
        ]),*]
    };
}
pub(super) use kernels;

/// Runs the GEMM microkernel that fits these arguments; the target has its instruction set.
pub fn run_kernel<const VECTORS: usize>(
    kernels: &Kernels<VECTORS>, shape: &TileShape, tile: &MicroKernelArgs<'_>, acc: &mut [f32], acc_row: usize,
) {
    if tile.rows == 0 || tile.columns == 0 {
        return;
    }
    // The bounds check that makes the kernels sound.
    tile.check_bounds(shape, acc, acc_row);
    let has_tail = !tile.columns.is_multiple_of(LANES);
    let kernels = kernels[tile.columns.div_ceil(LANES) - 1][usize::from(has_tail)];
    // Tiles of equal height that fit the registers.
    let height = balanced_tile_height(tile.rows, shape.rows(tile.columns));
    for row in (0..tile.rows).step_by(height) {
        let part =
            MicroKernelArgs { a: &tile.a[row * tile.a_row_stride..], rows: height.min(tile.rows - row), ..*tile };
        // SAFETY: the bounds were checked above.
        unsafe { kernels[part.rows - 1](&part, &mut acc[row * acc_row..], acc_row) }
    }
}

/// GEMM microkernel of 128-bit vectors for a number of vectors and rows.
///
/// # Safety
/// Every index of [`MicroKernelArgs`]'s formula inside its slice, and `MASKED_TAIL` unless all vectors are whole.
pub unsafe fn kernel<V: F32x4, const VECTORS: usize, const ROWS: usize, const MASKED_TAIL: bool>(
    tile: &MicroKernelArgs<'_>, acc: &mut [f32], acc_row: usize,
) {
    // Lanes of each vector.
    let lanes = |v: usize| if MASKED_TAIL && v + 1 == VECTORS { tile.columns - v * LANES } else { LANES };
    let mut sums = [[V::zero(); VECTORS]; ROWS];
    if !tile.overwrite {
        for (r, sums) in sums.iter_mut().enumerate() {
            for (v, sum) in sums.iter_mut().enumerate() {
                // SAFETY: row r and these columns are inside `acc`.
                *sum = unsafe { load_lanes(acc.as_ptr().add(r * acc_row + v * LANES), lanes(v)) };
            }
        }
    }
    for run in tile.k_segments {
        let mut b = tile.b.as_ptr().wrapping_add(run.b * tile.b_k_stride);
        let mut a = tile.a.as_ptr().wrapping_add(run.a);
        for _ in 0..run.depth {
            let mut row = [V::zero(); VECTORS];
            for (v, row) in row.iter_mut().enumerate() {
                // SAFETY: this step of b is inside its slice.
                *row = unsafe { load_lanes(b.add(v * LANES), lanes(v)) };
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: row r of this step is inside a's slice.
                let scalar = unsafe { *a.add(r * tile.a_row_stride) };
                for (sum, &b) in sums.iter_mut().zip(&row) {
                    *sum = sum.add_product(b, scalar);
                }
            }
            // After the last step these may point outside, but nothing is read there.
            b = b.wrapping_add(tile.b_k_stride);
            a = a.wrapping_add(tile.a_k_stride);
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        for (v, &sum) in sums.iter().enumerate() {
            let mut all = [0f32; LANES];
            // SAFETY: four lanes, of which those that belong to row r of `acc` are copied there.
            unsafe {
                sum.store(all.as_mut_ptr());
                let to = acc.as_mut_ptr().add(r * acc_row + v * LANES);
                to.copy_from_nonoverlapping(all.as_ptr(), lanes(v));
            }
        }
    }
}

/// Loads the first `lanes` elements of a 128-bit vector; the other lanes are 0.
///
/// # Safety
/// `lanes` elements can be read, at most four.
#[inline(always)]
unsafe fn load_lanes<V: F32x4>(from: *const f32, lanes: usize) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        if lanes == LANES {
            V::load(from)
        } else {
            let mut all = [0f32; LANES];
            all.as_mut_ptr().copy_from_nonoverlapping(from, lanes);
            V::load(all.as_ptr())
        }
    }
}

/// Converts halves to f32 with a function that converts four at a time.
#[inline(always)]
pub fn f16_to_f32(x: &[f16], y: &mut [f32], convert_x4: impl Fn(&[f16; LANES], &mut [f32; LANES])) {
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks(), y.as_chunks_mut());
    for (x, y) in x.iter().zip(y) {
        convert_x4(x, y);
    }
    if !x_rest.is_empty() {
        let (mut from, mut to) = ([f16::ZERO; LANES], [0f32; LANES]);
        from[..x_rest.len()].copy_from_slice(x_rest);
        convert_x4(&from, &mut to);
        y_rest.copy_from_slice(&to[..y_rest.len()]);
    }
}

/// Rounds f32 to halves with a function that rounds four at a time.
#[inline(always)]
pub fn f32_to_f16(x: &[f32], y: &mut [f16], convert_x4: impl Fn(&[f32; LANES], &mut [f16; LANES])) {
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks(), y.as_chunks_mut());
    for (x, y) in x.iter().zip(y) {
        convert_x4(x, y);
    }
    if !x_rest.is_empty() {
        let (mut from, mut to) = ([0f32; LANES], [f16::ZERO; LANES]);
        from[..x_rest.len()].copy_from_slice(x_rest);
        convert_x4(&from, &mut to);
        y_rest.copy_from_slice(&to[..y_rest.len()]);
    }
}
