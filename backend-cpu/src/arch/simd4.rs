//! Vectors of four lanes: tiles of accumulators, which stay in registers over all runs, and casts.

use super::{Shape, Tile, even};
use half::f16;

/// Lanes of a vector.
pub const LANES: usize = 4;

/// A vector of four f32 of an instruction set that the target has.
pub trait Quad: Copy {
    /// Zeros.
    fn zero() -> Self;

    /// # Safety
    /// Four elements can be read.
    unsafe fn load(from: *const f32) -> Self;

    /// # Safety
    /// Four elements can be written.
    unsafe fn store(self, to: *mut f32);

    /// `self + b · a`, in each lane.
    fn plus(self, b: Self, a: f32) -> Self;
}

pub type Kernel = unsafe fn(&Tile<'_>, &mut [f32], usize);

/// By vectors, whether the last one is cut, and rows.
pub type Kernels<const VECTORS: usize> = [[&'static [Kernel]; 2]; VECTORS];

/// For each number of vectors, kernels for each number of rows from 1; for whole vectors, and for a last one that is not.
macro_rules! kernels {
    ($quad:ty; $($vectors:literal: $($rows:literal)*;)*) => {
        [$([
            &[$($crate::arch::simd4::kernel::<$quad, $vectors, $rows, false>),*],
            &[$($crate::arch::simd4::kernel::<$quad, $vectors, $rows, true>),*],
        ]),*]
    };
}
pub(super) use kernels;

/// Picks a kernel, whose instruction set the target has, and runs it.
pub fn tile<const VECTORS: usize>(
    kernels: &Kernels<VECTORS>, shape: &Shape, tile: &Tile<'_>, acc: &mut [f32], acc_row: usize,
) {
    if tile.rows == 0 || tile.columns == 0 {
        return;
    }
    // What kernels read and write lies inside the slices.
    tile.check(shape, acc, acc_row);
    let cut = !tile.columns.is_multiple_of(LANES);
    let kernels = kernels[tile.columns.div_ceil(LANES) - 1][usize::from(cut)];
    // Tiles that fit registers, evenly high.
    let height = even(tile.rows, shape.rows(tile.columns));
    for row in (0..tile.rows).step_by(height) {
        let part = Tile { a: &tile.a[row * tile.a_row..], rows: height.min(tile.rows - row), ..*tile };
        // SAFETY: the bounds were checked above.
        unsafe { kernels[part.rows - 1](&part, &mut acc[row * acc_row..], acc_row) }
    }
}

/// # Safety
/// Every index of [`Tile`]'s formula inside its slice, and `CUT` unless all vectors are whole.
pub unsafe fn kernel<Q: Quad, const VECTORS: usize, const ROWS: usize, const CUT: bool>(
    tile: &Tile<'_>, acc: &mut [f32], acc_row: usize,
) {
    // Lanes of each vector.
    let lanes = |v: usize| if CUT && v + 1 == VECTORS { tile.columns - v * LANES } else { LANES };
    let mut sums = [[Q::zero(); VECTORS]; ROWS];
    if !tile.fresh {
        for (r, sums) in sums.iter_mut().enumerate() {
            for (v, sum) in sums.iter_mut().enumerate() {
                // SAFETY: row r and these columns lie inside `acc`.
                *sum = unsafe { load(acc.as_ptr().add(r * acc_row + v * LANES), lanes(v)) };
            }
        }
    }
    for run in tile.runs {
        let mut b = tile.b.as_ptr().wrapping_add(run.b * tile.b_step);
        let mut a = tile.a.as_ptr().wrapping_add(run.a);
        for _ in 0..run.depth {
            let mut row = [Q::zero(); VECTORS];
            for (v, row) in row.iter_mut().enumerate() {
                // SAFETY: this step of b lies inside its slice.
                *row = unsafe { load(b.add(v * LANES), lanes(v)) };
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: row r of this step lies inside a's slice.
                let scalar = unsafe { *a.add(r * tile.a_row) };
                for (sum, &b) in sums.iter_mut().zip(&row) {
                    *sum = sum.plus(b, scalar);
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
                sum.store(all.as_mut_ptr());
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
unsafe fn load<Q: Quad>(from: *const f32, lanes: usize) -> Q {
    // SAFETY: the caller's promise.
    unsafe {
        if lanes == LANES {
            Q::load(from)
        } else {
            let mut all = [0f32; LANES];
            all.as_mut_ptr().copy_from_nonoverlapping(from, lanes);
            Q::load(all.as_ptr())
        }
    }
}

/// Halves as f32, by a function of four.
#[inline(always)]
pub fn widen(x: &[f16], y: &mut [f32], four: impl Fn(&[f16; LANES], &mut [f32; LANES])) {
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks(), y.as_chunks_mut());
    for (x, y) in x.iter().zip(y) {
        four(x, y);
    }
    if !x_rest.is_empty() {
        let (mut from, mut to) = ([f16::ZERO; LANES], [0f32; LANES]);
        from[..x_rest.len()].copy_from_slice(x_rest);
        four(&from, &mut to);
        y_rest.copy_from_slice(&to[..y_rest.len()]);
    }
}

/// f32 as halves, by a function of four.
#[inline(always)]
pub fn narrow(x: &[f32], y: &mut [f16], four: impl Fn(&[f32; LANES], &mut [f16; LANES])) {
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks(), y.as_chunks_mut());
    for (x, y) in x.iter().zip(y) {
        four(x, y);
    }
    if !x_rest.is_empty() {
        let (mut from, mut to) = ([0f32; LANES], [f16::ZERO; LANES]);
        from[..x_rest.len()].copy_from_slice(x_rest);
        four(&from, &mut to);
        y_rest.copy_from_slice(&to[..y_rest.len()]);
    }
}
