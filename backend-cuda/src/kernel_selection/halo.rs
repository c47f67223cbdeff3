//! Modelled cycles of convolutions from halo tiles.
//!
//! ```text
//! tensor cores   16 channels of a tap for 256 pixels × 64 results: 128 cycles
//! shared memory  128 bytes a cycle: weights and pixels of both warpgroups, what TMA writes, and sums
//! L2             a stage of weights for each four K steps, and the halo
//! TMA            one 16-byte line of the halo after the other
//! ```
//!
//! The longest of the four is the main loop. Tiles at the edge of an image count whole, so an image of 90 × 120 pixels costs
//! that of 96 × 128.

use super::{BLOCK_OVERHEAD_CYCLES, K_TILE, SMEM_WRITES_PER_CYCLE, STORES_PER_CYCLE};
use crate::conv_halo::{HaloConv, TILE_RESULTS, TILE_SIDE};

/// Cycles of a K step: 64 for each of two warpgroups, 2048 multiplications a cycle.
const STEP_CYCLES: u64 = 128;
/// Bytes of shared memory that tensor cores read in a K step: 64 results and 128 pixels of 16 channels, for each of two
/// warpgroups.
const STEP_READ_BYTES: u64 = 2 * 2 * 16 * (64 + 128);
/// Bytes of a stage of weights, which has four K steps.
const STAGE_BYTES: u64 = 2 * 64 * K_TILE as u64;
/// K steps of a stage of weights.
const STAGE_STEPS: u64 = K_TILE as u64 / 16;
/// Bytes that shared memory moves in a cycle.
const SMEM_BYTES_PER_CYCLE: u64 = 128;
/// Bytes of L2 for each multiprocessor in a cycle: 64 of each of 80 slices, for 132 multiprocessors of an H100. The number
/// of slices is an estimate.
const L2_BYTES_PER_SM_CYCLE: u64 = 38;
/// Bytes that L2 reads for 16 bytes of a pixel: a sector.
const SECTOR_BYTES: u64 = 32;
/// Cycles of TMA for a 16-byte line, an estimate that was not measured.
const TMA_LINE_CYCLES: u64 = 2;

/// Returns the cycles of a convolution.
pub fn cycles(conv: &HaloConv, multiprocessors: u32) -> u64 {
    let (steps, lines) = (u64::from(conv.steps()), u64::from(conv.load_vec8s()));
    let (weight_bytes, results) =
        (steps.div_ceil(STAGE_STEPS) * STAGE_BYTES, u64::from(TILE_SIDE * TILE_SIDE * TILE_RESULTS));
    // The epilogue reads sums while tensor cores multiply, which wait while they are written.
    let smem_bytes = steps * STEP_READ_BYTES + weight_bytes + 16 * lines + 4 * results;
    let mainloop = (steps * STEP_CYCLES)
        .max(smem_bytes / SMEM_BYTES_PER_CYCLE)
        .max((weight_bytes + SECTOR_BYTES * lines) / L2_BYTES_PER_SM_CYCLE)
        .max(TMA_LINE_CYCLES * lines);
    let between = (mainloop + results / SMEM_WRITES_PER_CYCLE).max(results / STORES_PER_CYCLE);
    let waves = u64::from(conv.tiles().div_ceil(multiprocessors));
    BLOCK_OVERHEAD_CYCLES + waves.saturating_sub(1) * between + mainloop + results / STORES_PER_CYCLE
}
