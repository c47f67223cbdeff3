//! SIMD128, the vectors of WebAssembly. A module that has them does not load where they are missing, so they are there if
//! the compiler's target has them; what runs everywhere is built without.

mod cast;
mod microkernel;

use super::{Shape, Tile, simd4::LANES};
use half::f16;

/// Proof that the target has SIMD128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simd128(());

impl Simd128 {
    /// An engine on x86-64 has 16 registers: 8 accumulators, four vectors of b, a scalar of a, a product.
    pub const SHAPE: Shape = Shape { lanes: LANES, vectors: 4, accumulators: 8 };

    /// The proof.
    pub const fn new() -> Self {
        Self(())
    }

    pub fn tile(self, tile: &Tile<'_>, acc: &mut [f32], acc_row: usize) {
        microkernel::tile(self, tile, acc, acc_row);
    }

    pub fn widen(self, x: &[f16], y: &mut [f32]) {
        cast::widen(x, y);
    }

    pub fn narrow(self, x: &[f32], y: &mut [f16]) {
        cast::narrow(x, y);
    }
}
