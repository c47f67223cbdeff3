//! Loops over one row of an attention's scores.

use super::{
    kernels, math,
    softmax::{sum_products, weigh},
};
use crate::arch::LANES;

kernels! {
    /// Replaces the scores of a row by their weights, and returns the logarithm of their sum, max + ln Σ e^(x − max).
    fn softmax_with_log_sum[](row: &mut [f32]) -> f32 {
        let (max, sum) = weigh::<false>(row);
        #[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
        let sum = sum as f32;
        // `ln` is for finite positive numbers; NaN is kept. The sum of no scores is 0.
        match sum {
            sum if sum > 0.0 && sum <= f32::MAX => max + math::ln(sum),
            0.0 => f32::NEG_INFINITY,
            _ => f32::NAN,
        }
    }

    /// Replaces each x by e^(x − y) of one y.
    fn exp_below[](x: &mut [f32], y: f32) {
        for x in x {
            *x = math::exp(*x - y);
        }
    }

    /// Computes the sum of the products of two rows.
    fn sum_of_products[](a: &[f32], b: &[f32]) -> f32 {
        let ((vectors, rest), (b_vectors, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
        let products: f64 = rest.iter().zip(b_rest).map(|(&a, &b)| f64::from(a * b)).sum();
        #[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once")]
        let sum = (sum_products(vectors, b_vectors) + products) as f32;
        sum
    }

    /// Replaces the gradients of a row's weights by those of its scores. Where the weight is 0, it is 0.
    fn score_gradients[](weights: &[f32], gradients: &mut [f32], delta: f32) {
        for (&weight, gradient) in weights.iter().zip(gradients) {
            *gradient = if weight == 0.0 { 0.0 } else { weight * (*gradient - delta) };
        }
    }
}
