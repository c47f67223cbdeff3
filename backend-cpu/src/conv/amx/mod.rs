//! Convolutions of halves with AMX: the products over padded rows of `conv`, on pairs of bf16.

mod direct;
mod padded_rows;
mod weight_grad;

pub use direct::PackedWeights;
pub use weight_grad::Operands;

use crate::arch::amx::{K_BLOCK, TILE_DIM};

/// Returns whether at most half of each tile stays empty, for this number of pixels and segments of these lengths.
fn fills_tiles(pixels: usize, k_segments: impl Iterator<Item = usize> + Clone) -> bool {
    let padded: usize = k_segments.clone().map(|len| len.next_multiple_of(K_BLOCK)).sum();
    pixels.next_multiple_of(TILE_DIM) * padded <= 2 * pixels * k_segments.sum::<usize>()
}
