//! Kernels for each instruction set, and the choice between them.
//!
//! The portable kernels are the definition. A token of an instruction set exists only where the machine has it, so that
//! calling its kernels is sound.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod channels;
mod classes;
mod elements;
mod kernels;
pub mod math;
mod observe;
mod portable;
mod update;
mod windows;

pub use update::Sgd;
pub use windows::Along;

use core::fmt;
use half::f16;

/// An instruction set that this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isa {
    /// Whatever the compiler's target has.
    Portable,
    /// AVX-512 F, BW, DQ, VL with FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
}

impl Isa {
    /// All that this machine has, the best last.
    #[must_use]
    pub fn available() -> Vec<Self> {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut, reason = "there is only one"))]
        let mut all = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        all.extend(avx512::Avx512::new().map(Self::Avx512));
        all
    }

    /// The best that this machine has.
    #[must_use]
    pub fn best() -> Self {
        Self::available().last().copied().unwrap_or(Self::Portable)
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "AVX-512",
        })
    }
}

/// Columns of the widest tile.
pub const TILE_COLUMNS: usize = 64;
/// Lanes of the columns of a tile.
pub const LANES: usize = 16;

/// Operands of one tile, `acc[r][c] += Σ a[run.a + r·a_row + k·a_step] · b[(run.b + k)·b_step + c]` over all runs, in
/// order, and all k below their depths.
#[derive(Clone, Copy, Debug)]
pub struct Tile<'a> {
    /// Scalars.
    pub a: &'a [f32],
    /// Elements between rows of the tile.
    pub a_row: usize,
    /// Elements between steps.
    pub a_step: usize,
    /// Vectors.
    pub b: &'a [f32],
    /// Elements between steps.
    pub b_step: usize,
    /// Steps.
    pub runs: &'a [Run],
    /// Rows, at most [`tile_rows`] of the columns.
    pub rows: usize,
    /// Columns, at most [`TILE_COLUMNS`]; b has so many at each step.
    pub columns: usize,
}

/// Steps that are evenly spaced in both operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First element of a.
    pub a: usize,
    /// First step of b.
    pub b: usize,
    /// Steps.
    pub depth: usize,
}

/// Thresholds of counters, as bits of magnitudes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The least that does not flush.
    pub flush: u32,
    /// The least that is stored as a normal number.
    pub subnormal: u32,
    /// The least that overflows.
    pub overflow: u32,
}

/// Rows of the largest tile with so many columns: what fits in registers, 24 accumulators of 16 lanes.
pub const fn tile_rows(columns: usize) -> usize {
    match columns.div_ceil(LANES) {
        0 | 1 => 24,
        2 => 12,
        3 => 8,
        _ => 6,
    }
}

/// The height of tiles, at most `most`, that cover so many rows evenly.
pub const fn even(rows: usize, most: usize) -> usize {
    if rows == 0 { most } else { rows.div_ceil(rows.div_ceil(most)) }
}

impl Isa {
    /// Adds a product to a tile of accumulators, whose rows are `acc_row` elements apart. Each accumulator takes its
    /// terms in the order of k, with one rounding each where the instruction set has a fused multiply-add, else two.
    #[inline]
    pub(crate) fn tile(self, tile: &Tile<'_>, acc: &mut [f32], acc_row: usize) {
        match self {
            Self::Portable => portable::tile(tile, acc, acc_row),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(token) => token.tile(tile, acc, acc_row),
        }
    }

    /// Halves as f32, exactly.
    #[inline]
    pub(crate) fn widen(self, x: &[f16], y: &mut [f32]) {
        assert_eq!(x.len(), y.len());
        match self {
            Self::Portable => portable::widen(x, y),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(token) => token.widen(x, y),
        }
    }

    /// f32 as halves, to nearest even.
    #[inline]
    pub(crate) fn narrow(self, x: &[f32], y: &mut [f16]) {
        assert_eq!(x.len(), y.len());
        match self {
            Self::Portable => portable::narrow(x, y),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(token) => token.narrow(x, y),
        }
    }

    /// Zeros, values below the first two limits and the largest magnitude's bits, of fewer than 2^32 values; `None`
    /// where core counts as fast.
    #[inline]
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "core counts"))]
    pub(crate) fn count(self, values: &[f32], limits: Limits) -> Option<[u32; 4]> {
        match self {
            Self::Portable => None,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(token) => Some(token.count(values, limits)),
        }
    }
}
