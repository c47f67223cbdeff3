//! AVX-512.
//!
//! A tile is 6 × 64: 24 accumulators of 16 lanes, four vectors of b, one broadcast scalar of a: 29 of 32 registers. A
//! scalar is broadcast once and used four times; embedded broadcasts would need two loads for each product.

use super::{TILE_COLUMNS, Tile};
use core::arch::x86_64::{
    __m256i, __m512, __mmask16, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT, _mm256_mask_storeu_epi16,
    _mm256_maskz_loadu_epi16, _mm512_cvtph_ps, _mm512_cvtps_ph, _mm512_fmadd_ps, _mm512_mask_storeu_ps,
    _mm512_maskz_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps,
};
use gradscale_core::stats::Stats;
use half::f16;

/// Proof that this machine has AVX-512 F, BW, DQ, VL, FMA and F16C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx512(());

const LANES: usize = 16;

impl Avx512 {
    /// The proof, if there is one.
    pub fn new() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        has.then_some(Self(()))
    }

    pub fn tile(self, tile: &Tile<'_>, acc: &mut [f32], acc_row: usize) {
        let Tile { a, a_row, a_step, b, b_step, depth, rows, columns } = *tile;
        if depth == 0 || rows == 0 || columns == 0 {
            return;
        }
        // What the kernel reads and writes lies inside the slices.
        assert!((rows - 1) * a_row + (depth - 1) * a_step < a.len());
        assert!((depth - 1) * b_step + columns <= b.len());
        assert!((rows - 1) * acc_row + columns <= acc.len());
        assert!(columns <= TILE_COLUMNS && rows <= super::tile_rows(columns));
        let vectors = columns.div_ceil(LANES);
        // SAFETY: the token proves the features; the bounds were checked above.
        unsafe {
            match (vectors, rows) {
                (4, 6) => kernel::<4, 6>(tile, acc, acc_row),
                (4, 5) => kernel::<4, 5>(tile, acc, acc_row),
                (4, 4) => kernel::<4, 4>(tile, acc, acc_row),
                (4, 3) => kernel::<4, 3>(tile, acc, acc_row),
                (4, 2) => kernel::<4, 2>(tile, acc, acc_row),
                (4, _) => kernel::<4, 1>(tile, acc, acc_row),
                (3, 6) => kernel::<3, 6>(tile, acc, acc_row),
                (3, _) => each_row::<3>(tile, acc, acc_row),
                (2, 12) => kernel::<2, 12>(tile, acc, acc_row),
                (2, 6) => kernel::<2, 6>(tile, acc, acc_row),
                (2, _) => each_row::<2>(tile, acc, acc_row),
                (_, 12) => kernel::<1, 12>(tile, acc, acc_row),
                (_, 6) => kernel::<1, 6>(tile, acc, acc_row),
                _ => each_row::<1>(tile, acc, acc_row),
            }
        }
    }

    pub fn widen(self, x: &[f16], y: &mut [f32]) {
        // SAFETY: the token proves the features; the slices are of one length.
        unsafe { widen(x, y) }
    }

    pub fn narrow(self, x: &[f32], y: &mut [f16]) {
        // SAFETY: the token proves the features; the slices are of one length.
        unsafe { narrow(x, y) }
    }

    pub fn observe(self, row: &mut Stats, values: &[f32]) {
        // SAFETY: the token proves the features.
        unsafe { observe(row, values) }
    }
}

/// Lanes of vector `v` of so many columns.
fn mask(columns: usize, v: usize) -> __mmask16 {
    let left = columns.saturating_sub(v * LANES).min(LANES);
    if left == LANES { __mmask16::MAX } else { (1 << left) - 1 }
}

/// # Safety
/// The features, and every index below [`Tile`]'s formula inside its slice.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
unsafe fn kernel<const VECTORS: usize, const ROWS: usize>(tile: &Tile<'_>, acc: &mut [f32], acc_row: usize) {
    let masks: [__mmask16; VECTORS] = core::array::from_fn(|v| mask(tile.columns, v));
    let mut sums: [[__m512; VECTORS]; ROWS] = [[_mm512_setzero_ps(); VECTORS]; ROWS];
    for (r, sums) in sums.iter_mut().enumerate() {
        for (v, sum) in sums.iter_mut().enumerate() {
            // SAFETY: row r and the masked columns lie inside `acc`.
            *sum = unsafe { _mm512_maskz_loadu_ps(masks[v], acc.as_ptr().add(r * acc_row + v * LANES)) };
        }
    }
    let (mut a, mut b) = (tile.a.as_ptr(), tile.b.as_ptr());
    for k in 0..tile.depth {
        // SAFETY: step k of b lies inside its slice, and masked lanes are not read.
        let row: [__m512; VECTORS] =
            core::array::from_fn(|v| unsafe { _mm512_maskz_loadu_ps(masks[v], b.add(v * LANES)) });
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: row r of step k lies inside a's slice.
            let scalar = _mm512_set1_ps(unsafe { *a.add(r * tile.a_row) });
            for (sum, &b) in sums.iter_mut().zip(&row) {
                *sum = _mm512_fmadd_ps(scalar, b, *sum);
            }
        }
        if k + 1 < tile.depth {
            // SAFETY: there is a step k + 1, so both stay inside their slices.
            let next = unsafe { (a.add(tile.a_step), b.add(tile.b_step)) };
            (a, b) = next;
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        for (v, &sum) in sums.iter().enumerate() {
            // SAFETY: as the loads above.
            unsafe { _mm512_mask_storeu_ps(acc.as_mut_ptr().add(r * acc_row + v * LANES), masks[v], sum) };
        }
    }
}

/// Tiles of unusual height, row by row: the edges of a matrix.
///
/// # Safety
/// As [`kernel`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
unsafe fn each_row<const VECTORS: usize>(tile: &Tile<'_>, acc: &mut [f32], acc_row: usize) {
    for r in 0..tile.rows {
        let row = Tile { a: &tile.a[r * tile.a_row..], rows: 1, ..*tile };
        // SAFETY: a row of a tile whose indices lie inside.
        unsafe { kernel::<VECTORS, 1>(&row, &mut acc[r * acc_row..], acc_row) };
    }
}

/// # Safety
/// The features, and slices of one length.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
unsafe fn widen(x: &[f16], y: &mut [f32]) {
    for i in (0..x.len()).step_by(LANES) {
        let mask = mask(x.len() - i, 0);
        // SAFETY: masked lanes are not touched; `f16` is 16 bits without padding.
        unsafe {
            let bits: __m256i = _mm256_maskz_loadu_epi16(mask, x.as_ptr().add(i).cast());
            _mm512_mask_storeu_ps(y.as_mut_ptr().add(i), mask, _mm512_cvtph_ps(bits));
        }
    }
}

/// # Safety
/// The features, and slices of one length.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
unsafe fn narrow(x: &[f32], y: &mut [f16]) {
    for i in (0..x.len()).step_by(LANES) {
        let mask = mask(x.len() - i, 0);
        // SAFETY: masked lanes are not touched; `f16` is 16 bits without padding.
        unsafe {
            let values = _mm512_maskz_loadu_ps(mask, x.as_ptr().add(i));
            let bits = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(values);
            _mm256_mask_storeu_epi16(y.as_mut_ptr().add(i).cast(), mask, bits);
        }
    }
}

/// core's statistics, compiled for wider vectors.
///
/// # Safety
/// The features.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
unsafe fn observe(row: &mut Stats, values: &[f32]) {
    row.observe(values);
}
