//! Loops that compute statistics.

use super::{kernels, math};
use crate::arch::LANES;
use gradscale_core::stats::Detail;

/// Thresholds of the statistics counters, as f32 bits of magnitudes.
#[derive(Clone, Copy, Debug)]
pub struct Thresholds {
    /// Smallest magnitude that the store does not flush to zero.
    pub flush: u32,
    /// Smallest magnitude that is stored as a normal number, not a subnormal.
    pub subnormal: u32,
    /// Smallest magnitude that overflows in the store.
    pub overflow: u32,
}

/// Parameters of the fused store kernel: scale factor, detail, thresholds.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only x86 has such a pass"))]
#[derive(Clone, Copy, Debug)]
pub struct FusedStoreParams {
    /// Scale factor by which values are multiplied before they are rounded.
    pub factor: f32,
    /// Detail of the statistics, and thresholds of the counters.
    pub detail: Detail,
    pub thresholds: Thresholds,
    /// Constant that is added to magnitudes so that their upper byte is the histogram key.
    pub key_constant: u32,
}

impl FusedStoreParams {
    /// Maximum number of values of one call of the kernel: a block of statistics.
    #[cfg(target_arch = "x86_64")]
    pub const MAX_VALUES: usize = 4096;
}

kernels! {
    /// Counts zeros and values below the first two thresholds, and finds the bits of the largest magnitude, of fewer
    /// than 2^32 values. Comparisons become masks, which are subtracted lane by lane.
    fn count_values[](values: &[f32], thresholds: Thresholds) -> [u32; 4] {
        let [mut zeros, mut below_flush, mut below_normal, mut max_bits] = [0u32; 4];
        for value in values {
            let magnitude = value.to_bits() & 0x7FFF_FFFF;
            zeros += u32::from(magnitude == 0);
            below_flush += u32::from(magnitude < thresholds.flush);
            below_normal += u32::from(magnitude < thresholds.subnormal);
            max_bits = max_bits.max(magnitude);
        }
        [zeros, below_flush, below_normal, max_bits]
    }

    /// Adds finite magnitudes to a histogram. Key 0 belongs to zeros, which are not counted.
    fn add_to_histogram[](values: &[f32], key_constant: u32, bins: &mut [u32; 256]) {
        const BLOCK_ELEMENTS: usize = 4096;
        let mut keys = [0u8; BLOCK_ELEMENTS];
        for block in values.chunks(BLOCK_ELEMENTS) {
            for (key, value) in keys.iter_mut().zip(block) {
                let [byte, ..] = (((value.to_bits() & 0x7FFF_FFFF) + key_constant) >> 23).to_le_bytes();
                *key = byte;
            }
            // Four tables, so that equal neighbours do not wait for each other.
            let mut tables = [[0u16; 256]; 4];
            let mut quads = keys[..block.len()].chunks_exact(4);
            for quad in &mut quads {
                for (table, &key) in tables.iter_mut().zip(quad) {
                    table[usize::from(key)] += 1;
                }
            }
            quads.remainder().iter().for_each(|&key| tables[0][usize::from(key)] += 1);
            for (key, bin) in bins.iter_mut().enumerate().skip(1) {
                *bin += tables.iter().map(|table| u32::from(table[key])).sum::<u32>();
            }
        }
    }

    /// Adds Σu, Σu², Σ ln|u| and Σ ln²|u|, in the lanes and blocks that core specifies.
    fn add_moments[](values: &[f32], sums: &mut [f64; 4]) {
        const BLOCK_ELEMENTS: usize = 4096;
        for block in values.chunks(BLOCK_ELEMENTS) {
            let mut lanes = [[0f32; LANES]; 4];
            let mut add = |row: &[f32; LANES]| {
                for i in 0..LANES {
                    let magnitude = row[i].to_bits() & 0x7FFF_FFFF;
                    // Values that do not count add 0, and ln 1.
                    let live = magnitude.wrapping_sub(1) < 0x7F7F_FFFF;
                    let (u, size) = if live { (row[i], f32::from_bits(magnitude)) } else { (0.0, 1.0) };
                    let log = math::fast_ln(size);
                    lanes[0][i] += u;
                    lanes[1][i] += u * u;
                    lanes[2][i] += log;
                    lanes[3][i] += log * log;
                }
            };
            let (rows, rest) = block.as_chunks();
            rows.iter().for_each(&mut add);
            let mut last = [0f32; LANES];
            last[..rest.len()].copy_from_slice(rest);
            add(&last);
            for (sum, lanes) in sums.iter_mut().zip(&lanes) {
                *sum += lanes.iter().fold(0.0, |total, &lane| total + f64::from(lane));
            }
        }
    }
}
