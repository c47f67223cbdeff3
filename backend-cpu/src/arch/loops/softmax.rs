//! Loops over one row of a softmax, which is in L1 for all of them. Elements behind the last whole vector are padded to
//! a vector by values without influence, because short rows would otherwise mostly consist of them.

use super::{
    kernels, math,
    rows::{F32_SUM_ELEMENTS, sum_lanes},
};
use crate::arch::LANES;

/// Returns the elements behind the last whole vector with `neutral` behind them.
#[inline(always)]
fn padded(rest: &[f32], neutral: f32) -> [f32; LANES] {
    let mut vector = [neutral; LANES];
    vector[..rest.len()].copy_from_slice(rest);
    vector
}

/// Returns the larger value, or NaN if one is NaN.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if (b > a) | b.is_nan() { b } else { a }
}

/// Replaces sixteen scores by their exponentials below the maximum, or with `LOG` by their distances from it. Adds the
/// exponentials to totals.
#[inline(always)]
fn exponentials<const LOG: bool>(x: &mut [f32; LANES], max: f32, totals: &mut [f32; LANES]) {
    for (x, total) in x.iter_mut().zip(totals) {
        let below = *x - max;
        let e = math::exp(below);
        *x = if LOG { below } else { e };
        *total += e;
    }
}

/// Replaces the scores of a row by their weights, or with `LOG` by the logarithms of these.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
fn weigh<const LOG: bool>(row: &mut [f32]) {
    let (vectors, rest) = row.as_chunks::<LANES>();
    let mut lanes = padded(rest, f32::NEG_INFINITY);
    for x in vectors {
        for (max, &x) in lanes.iter_mut().zip(x) {
            *max = larger(*max, x);
        }
    }
    let max = lanes.into_iter().fold(f32::NEG_INFINITY, larger);
    let mut sum = 0f64;
    for block in row.chunks_mut(F32_SUM_ELEMENTS) {
        let mut totals = [0f32; LANES];
        let (vectors, rest) = block.as_chunks_mut::<LANES>();
        for x in vectors {
            exponentials::<LOG>(x, max, &mut totals);
        }
        if !rest.is_empty() {
            let mut x = padded(rest, f32::NEG_INFINITY);
            exponentials::<LOG>(&mut x, max, &mut totals);
            rest.copy_from_slice(&x[..rest.len()]);
        }
        sum += sum_lanes(totals);
    }
    if LOG {
        let sum = sum as f32;
        // `ln` is for finite numbers; NaN is kept.
        let log = if sum <= f32::MAX { math::ln(sum) } else { sum };
        for x in row {
            *x -= log;
        }
    } else {
        let factor = (1.0 / sum) as f32;
        for x in row {
            *x *= factor;
        }
    }
}

/// Adds the products of a result of the softmax and its gradient to totals. A result of 0 adds nothing.
#[inline(always)]
fn add_products(y: &[f32; LANES], dy: &[f32; LANES], totals: &mut [f32; LANES]) {
    for ((&y, &dy), total) in y.iter().zip(dy).zip(totals) {
        *total += if y == 0.0 { 0.0 } else { y * dy };
    }
}

kernels! {
    /// Replaces the scores of a row by their softmax weights.
    fn softmax[](row: &mut [f32]) {
        weigh::<false>(row);
    }

    /// Replaces the scores of a row by the logarithms of their softmax weights.
    fn log_softmax[](row: &mut [f32]) {
        weigh::<true>(row);
    }

    /// Replaces the gradients of a row's weights y by those of its scores.
    fn softmax_vjp[](y: &[f32], dy: &mut [f32]) {
        let mut sum = 0f64;
        for (y, dy) in y.chunks(F32_SUM_ELEMENTS).zip(dy.chunks(F32_SUM_ELEMENTS)) {
            let mut totals = [0f32; LANES];
            let ((y, y_rest), (dy, dy_rest)) = (y.as_chunks(), dy.as_chunks());
            for (y, dy) in y.iter().zip(dy) {
                add_products(y, dy, &mut totals);
            }
            add_products(&padded(y_rest, 0.0), &padded(dy_rest, 0.0), &mut totals);
            sum += sum_lanes(totals);
        }
        #[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
        let sum = sum as f32;
        for (&y, dy) in y.iter().zip(dy) {
            *dy = if y == 0.0 { 0.0 } else { y * (*dy - sum) };
        }
    }

    /// Replaces the gradients of the logarithms y of a row's weights by those of its scores.
    fn log_softmax_vjp[](y: &[f32], dy: &mut [f32]) {
        let mut sum = 0f64;
        for dy in dy.chunks(F32_SUM_ELEMENTS) {
            let (vectors, rest) = dy.as_chunks::<LANES>();
            let mut totals = padded(rest, 0.0);
            for dy in vectors {
                for (total, &dy) in totals.iter_mut().zip(dy) {
                    *total += dy;
                }
            }
            sum += sum_lanes(totals);
        }
        #[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
        let sum = sum as f32;
        for (&y, dy) in y.iter().zip(dy) {
            *dy -= math::exp(y) * sum;
        }
    }
}
