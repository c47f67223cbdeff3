//! Convolutions of halves on the matrix unit: the same products over lines, of pairs of bf16.

mod direct;
mod padded_rows;
mod weight_grad;

pub use direct::Weights;
pub use weight_grad::Operands;

use crate::arch::amx::{DEPTH, SIDE};

/// Whether tiles are filled well enough by so many pixels, and by runs of steps that are so long.
fn filled(pixels: usize, runs: impl Iterator<Item = usize> + Clone) -> bool {
    let padded: usize = runs.clone().map(|run| run.next_multiple_of(DEPTH)).sum();
    pixels.next_multiple_of(SIDE) * padded <= 2 * pixels * runs.sum::<usize>()
}
