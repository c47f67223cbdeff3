//! NEON, which every AArch64 target of the compiler has.

mod cast;
mod microkernel;

use super::{MicroKernelArgs, TileShape, simd4::LANES};
use half::f16;

/// Token that proves that this machine has NEON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neon(());

impl Neon {
    /// Tile shape for 32 registers: 24 accumulators, up to four vectors of b, scalars of a.
    pub const SHAPE: TileShape = TileShape { lanes: LANES, vectors: 4, accumulators: 24 };

    /// Returns the token of NEON, if the machine has it.
    pub fn new() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
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
