//! SIMD128, the vectors of WebAssembly. A module that uses them does not load in an engine without them. So they exist
//! if the compiler's target has them, and code for all engines is built without.

mod cast;
mod microkernel;

use super::{MicroKernelArgs, TileShape, simd4::LANES};
use half::f16;

/// Token that proves that the target has SIMD128 of WebAssembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simd128(());

impl Simd128 {
    /// Tile shape for the 16 registers of an engine on x86-64: 8 accumulators, four vectors of b, a scalar of a, a
    /// product.
    pub const SHAPE: TileShape = TileShape { lanes: LANES, vectors: 4, accumulators: 8 };

    /// Returns the token of SIMD128, which the target has.
    pub const fn new() -> Self {
        Self(())
    }

    pub fn accumulate_tile(self, tile: &MicroKernelArgs<'_>, acc: &mut [f32], acc_row: usize) {
        microkernel::accumulate_tile(self, tile, acc, acc_row);
    }

    pub fn f16_to_f32(self, x: &[f16], y: &mut [f32]) {
        cast::f16_to_f32(x, y);
    }

    pub fn f32_to_f16(self, x: &[f32], y: &mut [f16]) {
        cast::f32_to_f16(x, y);
    }
}
