//! Kernels for each instruction set, and the dispatch between them.
//!
//! The portable kernels are the reference implementation. A token of an instruction set exists only where the machine
//! has it, so that calling its kernels is sound.

#[cfg(target_arch = "x86_64")]
pub mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod loops;
mod microkernel;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(target_feature = "simd128")]
mod simd128;
pub mod simd16;
#[cfg(any(target_arch = "aarch64", target_feature = "simd128"))]
mod simd4;
mod store_input;
#[cfg(test)]
mod tests;

pub use loops::{Adam, FusedStoreParams, RowWindows, Sgd, Thresholds};
#[cfg(target_arch = "x86_64")]
use microkernel::LoadMode;
pub use microkernel::{F16Rows, KSegment, LANES, MicroKernelArgs, TileShape, balanced_tile_height};
pub use store_input::{F16_VALUES, F16Lut, StoreInput};

use core::fmt;
use gradscale_core::stats::BINS;
use half::f16;

/// Instruction set of the CPU kernels that this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isa {
    /// Portable code, with the instructions of the compiler's target.
    Portable,
    /// AVX2 with FMA and F16C, on x86-64.
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    /// AVX-512 (F, BW, DQ, VL) with FMA and F16C, on x86-64.
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
    /// AVX-512 as above, with AMX for products of halves.
    #[cfg(target_arch = "x86_64")]
    Amx(amx::Amx),
    /// NEON, on 64-bit ARM.
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Neon),
    /// SIMD128, on WebAssembly.
    #[cfg(target_feature = "simd128")]
    Simd128(simd128::Simd128),
}

impl Isa {
    /// Returns the instruction sets that this machine has, the best last.
    #[must_use]
    pub fn available() -> Vec<Self> {
        #[cfg_attr(
            not(any(target_arch = "x86_64", target_arch = "aarch64", target_feature = "simd128")),
            expect(unused_mut, reason = "there is only one")
        )]
        let mut all = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(avx2::Avx2::new().map(Self::Avx2));
            all.extend(avx512::Avx512::new().map(Self::Avx512));
            all.extend(amx::Amx::new().map(Self::Amx));
        }
        #[cfg(target_arch = "aarch64")]
        all.extend(neon::Neon::new().map(Self::Neon));
        #[cfg(target_feature = "simd128")]
        all.push(Self::Simd128(simd128::Simd128::new()));
        all
    }

    /// Returns the best instruction set of this machine.
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
            Self::Avx2(_) => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "AVX-512",
            #[cfg(target_arch = "x86_64")]
            Self::Amx(_) => "AMX",
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => "NEON",
            #[cfg(target_feature = "simd128")]
            Self::Simd128(_) => "SIMD128",
        })
    }
}

impl Isa {
    const fn tile_shape(self) -> TileShape {
        match self {
            Self::Portable => portable::SHAPE,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => avx2::Avx2::SHAPE,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) | Self::Amx(_) => avx512::Avx512::SHAPE,
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => neon::Neon::SHAPE,
            #[cfg(target_feature = "simd128")]
            Self::Simd128(_) => simd128::Simd128::SHAPE,
        }
    }

    /// Returns the token of AMX, if the instruction set includes it.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const fn amx(self) -> Option<amx::Amx> {
        match self {
            Self::Amx(token) => Some(token),
            Self::Portable | Self::Avx2(_) | Self::Avx512(_) => None,
        }
    }

    /// Returns the number of columns of the widest GEMM tile: a multiple of [`LANES`].
    pub(crate) const fn tile_columns(self) -> usize {
        self.tile_shape().columns()
    }

    /// Returns the number of f32 lanes of a vector.
    pub(crate) const fn lanes(self) -> usize {
        self.tile_shape().lanes
    }

    /// Returns the number of rows of the highest GEMM tile with this many columns.
    pub(crate) const fn tile_rows(self, columns: usize) -> usize {
        self.tile_shape().rows(columns)
    }

    /// Accumulates a product in tiles of sums, whose rows are `acc_row` elements apart. Each sum takes its terms in the
    /// order of k. A term is rounded once if the instruction set has a fused multiply-add, otherwise twice.
    #[inline]
    pub(crate) fn accumulate_tile(self, tile: &MicroKernelArgs<'_>, acc: &mut [f32], acc_row: usize) {
        match self {
            Self::Portable => portable::accumulate_tile(tile, acc, acc_row),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(token) => token.accumulate_tile(tile, acc, acc_row),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(token) | Self::Amx(amx::Amx(token)) => token.accumulate_tile(tile, acc, acc_row),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(token) => token.accumulate_tile(tile, acc, acc_row),
            #[cfg(target_feature = "simd128")]
            Self::Simd128(token) => token.accumulate_tile(tile, acc, acc_row),
        }
    }

    /// Returns whether there are microkernels that convert short rows of halves for this many columns.
    pub(crate) const fn has_f16_row_kernels(self, columns: usize) -> bool {
        self.loads_f16_directly() && columns <= self.tile_columns()
    }

    /// Overwrites `acc` with the product of short rows of halves. Returns false if there are no kernels for them.
    /// `converted` has room for the converted rows of a tile.
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "there are none"))]
    pub(crate) fn multiply_f16_rows(self, rows: &F16Rows<'_>, acc: &mut [f32], converted: &mut [f32]) -> bool {
        match self {
            Self::Portable => false,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(token) => {
                token.multiply_f16_rows(rows, acc, converted);
                true
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(token) | Self::Amx(amx::Amx(token)) => {
                token.multiply_f16_rows(rows, acc, converted);
                true
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => false,
            #[cfg(target_feature = "simd128")]
            Self::Simd128(_) => false,
        }
    }

    /// Converts halves to f32, which is exact.
    #[inline]
    pub(crate) fn f16_to_f32(self, x: &[f16], y: &mut [f32]) {
        assert_eq!(x.len(), y.len());
        match self {
            Self::Portable => portable::f16_to_f32(x, y),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(token) => token.f16_to_f32(x, y),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(token) | Self::Amx(amx::Amx(token)) => token.f16_to_f32(x, y),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(token) => token.f16_to_f32(x, y),
            #[cfg(target_feature = "simd128")]
            Self::Simd128(token) => token.f16_to_f32(x, y),
        }
    }

    /// Returns true if vectors are loaded from halves as fast as from f32.
    pub(crate) const fn loads_f16_directly(self) -> bool {
        match self {
            Self::Portable => false,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) | Self::Avx512(_) | Self::Amx(_) => true,
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => false,
            #[cfg(target_feature = "simd128")]
            Self::Simd128(_) => false,
        }
    }

    /// Rounds f32 to halves, to nearest even.
    #[inline]
    pub(crate) fn f32_to_f16(self, x: &[f32], y: &mut [f16]) {
        assert_eq!(x.len(), y.len());
        match self {
            Self::Portable => portable::f32_to_f16(x, y),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(token) => token.f32_to_f16(x, y),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(token) | Self::Amx(amx::Amx(token)) => token.f32_to_f16(x, y),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(token) => token.f32_to_f16(x, y),
            #[cfg(target_feature = "simd128")]
            Self::Simd128(token) => token.f32_to_f16(x, y),
        }
    }

    /// Replaces halves by their results in a lookup table.
    #[inline]
    pub(crate) fn apply_lut(self, lut: &F16Lut, x: &[f16], y: &mut [f32]) {
        assert_eq!(x.len(), y.len());
        let mut apply_scalar = || x.iter().zip(&mut *y).for_each(|(x, y)| *y = lut[usize::from(x.to_bits())]);
        match self {
            Self::Portable => apply_scalar(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => apply_scalar(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(token) | Self::Amx(amx::Amx(token)) => token.apply_lut(lut, x, y),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => apply_scalar(),
            #[cfg(target_feature = "simd128")]
            Self::Simd128(_) => apply_scalar(),
        }
    }

    /// Scales at most 4096 values, writes them as halves and observes them, in one pass. Adds to a histogram and to the
    /// sums of [`Isa::add_moments`] as far as the detail requires, and returns the counters of [`Isa::count_values`].
    /// Where a value overflows, all halves are written but nothing is added. Returns `None` if the instruction set has
    /// no such pass, or none for lookup tables.
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "only x86 has such a pass"))]
    #[inline]
    pub(crate) fn store_fused(
        self, x: StoreInput<'_>, params: FusedStoreParams, y: &mut [f16], bins: &mut [u32; BINS], sums: &mut [f64; 4],
    ) -> Option<[u32; 4]> {
        match self {
            Self::Portable => None,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(token) => match x {
                StoreInput::F32(x) => Some(token.store_fused(x, params, y, bins, sums)),
                StoreInput::Lut(..) => None,
            },
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(token) | Self::Amx(amx::Amx(token)) => Some(token.store_fused(x, params, y, bins, sums)),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => None,
            #[cfg(target_feature = "simd128")]
            Self::Simd128(_) => None,
        }
    }
}
