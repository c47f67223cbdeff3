//! Reference implementation of every kernel, in plain Rust.

use super::{MicroKernelArgs, TileShape};
use half::f16;

/// Tile shape of the portable GEMM microkernel. Any shape would be correct.
pub const SHAPE: TileShape = TileShape { lanes: 16, vectors: 4, accumulators: 24 };

pub fn accumulate_tile(tile: &MicroKernelArgs<'_>, acc: &mut [f32], acc_row: usize) {
    let MicroKernelArgs {
        a,
        a_row_stride,
        a_k_stride,
        b,
        b_k_stride,
        k_segments,
        rows,
        columns,
        overwrite,
        prefetch: _,
    } = *tile;
    if overwrite {
        (0..rows).for_each(|r| acc[r * acc_row..][..columns].fill(0.0));
    }
    for run in k_segments {
        for k in 0..run.depth {
            let b = &b[(run.b + k) * b_k_stride..][..columns];
            for r in 0..rows {
                let a = a[run.a + r * a_row_stride + k * a_k_stride];
                for (acc, &b) in acc[r * acc_row..][..columns].iter_mut().zip(b) {
                    // No `mul_add`, because without the instruction it is a function call.
                    *acc += a * b;
                }
            }
        }
    }
}

/// Converts halves to f32 as core's casts do, without branches, so that the compiler vectorises it.
pub fn f16_to_f32(x: &[f16], y: &mut [f32]) {
    for (x, y) in x.iter().zip(y) {
        let bits = u32::from(x.to_bits());
        let (sign, digits) = ((bits & 0x8000) << 16, (bits & 0x7FFF) << 13);
        // The exponent's bias is 112 more; a product makes subnormal numbers normal, and is exact.
        let finite = (f32::from_bits(digits) * f32::from_bits((127 + 112) << 23)).to_bits();
        let quiet = if digits > 0x0F80_0000 { 0x0040_0000 } else { 0 };
        let size = if digits < 0x0F80_0000 { finite } else { digits | 0x7F80_0000 | quiet };
        *y = f32::from_bits(sign | size);
    }
}

/// Rounds f32 to halves, to nearest even.
pub fn f32_to_f16(x: &[f32], y: &mut [f16]) {
    for (x, y) in x.iter().zip(y) {
        let size = x.to_bits() & 0x7FFF_FFFF;
        // Half a step less one, and the last digit that stays: more than half carries, and a tie where that digit is odd.
        // Then the bias of halves.
        let normal = (size + 0x0FFF + (size >> 13 & 1)).wrapping_sub(112 << 23) >> 13;
        // The step of subnormal halves, 2^-24, is the one of f32 at ½: the sum rounds.
        let subnormal = (f32::from_bits(size) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let finite = if size < 113 << 23 { subnormal } else { normal };
        let rounded = if finite > 0x7C00 { 0x7C00 } else { finite };
        let nan = 0x7E00 | (size >> 13 & 0x03FF);
        let magnitude = if size > 0x7F80_0000 { nan } else { rounded };
        let [first, second, ..] = (x.to_bits() >> 16 & 0x8000 | magnitude).to_le_bytes();
        *y = f16::from_le_bytes([first, second]);
    }
}
