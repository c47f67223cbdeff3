//! AVX2, with fused multiply-adds and conversions of halves.

mod cast;
mod exponent_histogram;
mod microkernel;
mod simd16;
mod store;

use super::{F16Rows, MicroKernelArgs, TileShape};
use half::f16;
pub use simd16::Avx2F32x16;

/// Token that proves that this machine has AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx2(());

/// Number of f32 lanes of an AVX2 vector.
const LANES: usize = 8;

impl Avx2 {
    /// Tile shape for 16 registers: 12 accumulators, two vectors of b, a broadcast scalar of a.
    pub const SHAPE: TileShape = TileShape { lanes: LANES, vectors: 2, accumulators: 12 };

    /// Returns the proof that AVX2 can be used, if the machine has it with FMA and F16C.
    pub fn new() -> Option<Self> {
        let has =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        has.then_some(Self(()))
    }

    pub fn accumulate_tile(self, tile: &MicroKernelArgs<'_>, acc: &mut [f32], acc_row: usize) {
        microkernel::accumulate_tile(self, tile, acc, acc_row);
    }

    pub fn multiply_f16_rows(self, rows: &F16Rows<'_>, acc: &mut [f32], converted: &mut [f32]) {
        microkernel::multiply_f16_rows(self, rows, acc, converted);
    }

    pub fn f16_to_f32(self, x: &[f16], y: &mut [f32]) {
        // SAFETY: the token proves the features; the slices are of one length.
        unsafe { cast::f16_to_f32(x, y) }
    }

    pub fn f32_to_f16(self, x: &[f32], y: &mut [f16]) {
        // SAFETY: the token proves the features; the slices are of one length.
        unsafe { cast::f32_to_f16(x, y) }
    }
}
