//! The definition of every kernel, in plain Rust.

use super::{Shape, Tile};
use gradscale_core::cast::{Round, f16_from_f32};
use half::f16;

/// Any shape would do.
pub const SHAPE: Shape = Shape { lanes: 16, vectors: 4, accumulators: 24 };

pub fn tile(tile: &Tile<'_>, acc: &mut [f32], acc_row: usize) {
    let Tile { a, a_row, a_step, b, b_step, runs, rows, columns, fresh } = *tile;
    if fresh {
        (0..rows).for_each(|r| acc[r * acc_row..][..columns].fill(0.0));
    }
    for run in runs {
        for k in 0..run.depth {
            let b = &b[(run.b + k) * b_step..][..columns];
            for r in 0..rows {
                let a = a[run.a + r * a_row + k * a_step];
                for (acc, &b) in acc[r * acc_row..][..columns].iter_mut().zip(b) {
                    // No `mul_add`: without the instruction it is a call.
                    *acc += a * b;
                }
            }
        }
    }
}

pub fn widen(x: &[f16], y: &mut [f32]) {
    for (x, y) in x.iter().zip(y) {
        *y = gradscale_core::format::Format::FP16.decode(u32::from(x.to_bits()));
    }
}

pub fn narrow(x: &[f32], y: &mut [f16]) {
    for (&x, y) in x.iter().zip(y) {
        *y = f16_from_f32(x, Round::NearestEven);
    }
}
