//! Loops over one row of a softmax, which is in L1 for all of them. Elements behind the last whole vector are padded to
//! a vector by values without influence, because short rows would otherwise mostly consist of them.

use super::{
    kernels, math,
    rows::{F32_SUM_ELEMENTS, sum_lanes},
};
use crate::arch::LANES;

/// Number of vectors whose elements are added in f32 before the sum continues in f64.
const F32_SUM_VECTORS: usize = F32_SUM_ELEMENTS / LANES;

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

/// Returns the largest of sixteen lanes, by pairs, because comparisons one by one would wait for each other.
#[inline(always)]
fn largest_lane(lanes: [f32; LANES]) -> f32 {
    let lanes: [f32; 8] = core::array::from_fn(|l| larger(lanes[l], lanes[l + 8]));
    let lanes: [f32; 4] = core::array::from_fn(|l| larger(lanes[l], lanes[l + 4]));
    larger(larger(lanes[0], lanes[2]), larger(lanes[1], lanes[3]))
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

/// Replaces the scores of a row by their weights, or with `LOG` by the logarithms of these. Returns the maximum of the
/// scores, and the sum of the exponentials below it.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
pub fn weigh<const LOG: bool>(row: &mut [f32]) -> (f32, f64) {
    let (vectors, rest) = row.as_chunks_mut::<LANES>();
    let mut tail = padded(rest, f32::NEG_INFINITY);
    let mut lanes = tail;
    for x in &*vectors {
        for (max, &x) in lanes.iter_mut().zip(x) {
            *max = larger(*max, x);
        }
    }
    let (max, mut sum) = (largest_lane(lanes), 0f64);
    for block in vectors.chunks_mut(F32_SUM_VECTORS) {
        let mut totals = [0f32; LANES];
        for x in block {
            exponentials::<LOG>(x, max, &mut totals);
        }
        sum += sum_lanes(totals);
    }
    if !rest.is_empty() {
        let mut totals = [0f32; LANES];
        exponentials::<LOG>(&mut tail, max, &mut totals);
        rest.copy_from_slice(&tail[..rest.len()]);
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
    (max, sum)
}

/// Returns the sum of the products of results and their gradients.
#[inline(always)]
pub fn sum_products(y: &[[f32; LANES]], dy: &[[f32; LANES]]) -> f64 {
    let mut sum = 0f64;
    for (y, dy) in y.chunks(F32_SUM_VECTORS).zip(dy.chunks(F32_SUM_VECTORS)) {
        let mut totals = [0f32; LANES];
        for (y, dy) in y.iter().zip(dy) {
            for ((&y, &dy), total) in y.iter().zip(dy).zip(&mut totals) {
                *total += y * dy;
            }
        }
        sum += sum_lanes(totals);
    }
    sum
}

/// Returns the sum of gradients.
#[inline(always)]
fn sum_gradients(dy: &[[f32; LANES]]) -> f64 {
    let mut sum = 0f64;
    for dy in dy.chunks(F32_SUM_VECTORS) {
        let mut totals = [0f32; LANES];
        for dy in dy {
            for (total, &dy) in totals.iter_mut().zip(dy) {
                *total += dy;
            }
        }
        sum += sum_lanes(totals);
    }
    sum
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
        // In a loop of its own, because a sum with a choice in it is not vectorised.
        for (&y, dy) in y.iter().zip(&mut *dy) {
            *dy = if y == 0.0 { 0.0 } else { *dy };
        }
        let ((vectors, rest), (dy_vectors, dy_rest)) = (y.as_chunks(), dy.as_chunks());
        let mut sum = sum_products(vectors, dy_vectors);
        if !rest.is_empty() {
            sum += sum_products(&[padded(rest, 0.0)], &[padded(dy_rest, 0.0)]);
        }
        #[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
        let sum = sum as f32;
        for (&y, dy) in y.iter().zip(dy) {
            *dy = if y == 0.0 { 0.0 } else { y * (*dy - sum) };
        }
    }

    /// Replaces the gradients of the logarithms y of a row's weights by those of its scores.
    fn log_softmax_vjp[](y: &[f32], dy: &mut [f32]) {
        let (vectors, rest) = dy.as_chunks();
        let mut sum = sum_gradients(vectors);
        if !rest.is_empty() {
            sum += sum_gradients(&[padded(rest, 0.0)]);
        }
        #[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
        let sum = sum as f32;
        for (&y, dy) in y.iter().zip(dy) {
            *dy -= math::exp(y) * sum;
        }
    }
}
