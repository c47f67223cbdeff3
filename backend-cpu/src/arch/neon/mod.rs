//! NEON, which every AArch64 target of the compiler's has.

mod cast;
mod microkernel;

use super::{Shape, Tile, simd4::LANES};
use half::f16;

/// Proof that this machine has NEON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neon(());

impl Neon {
    /// 32 registers: 24 accumulators, up to four vectors of b, scalars of a.
    pub const SHAPE: Shape = Shape { lanes: LANES, vectors: 4, accumulators: 24 };

    /// The proof, if there is one.
    pub fn new() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
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
