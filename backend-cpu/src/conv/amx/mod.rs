//! Convolutions of halves on the matrix unit: the same products over lines, of pairs of bf16.

mod direct;
mod padded_rows;
mod weight_grad;

pub use direct::PackedWeights;
pub use weight_grad::Operands;

use crate::arch::amx::{K_BLOCK, TILE_DIM};

/// Whether tiles are filled well enough by so many pixels, and by runs of steps that are so long.
fn fills_tiles(pixels: usize, k_segments: impl Iterator<Item = usize> + Clone) -> bool {
    let padded: usize = k_segments.clone().map(|len| len.next_multiple_of(K_BLOCK)).sum();
    pixels.next_multiple_of(TILE_DIM) * padded <= 2 * pixels * k_segments.sum::<usize>()
}
