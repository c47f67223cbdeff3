//! Theorem 2: a gradient at the input of a softmax is log-normally distributed.

use super::erf::normal_quantile;
use core::f64::consts::{LN_2, SQRT_2};

/// Computes log2 of the smallest scale at which a predicted fraction `gamma` flushes: (ln λ − μ − s·z(γ)) / ln 2,
/// Equation 4 solved for ln α. `mu` and `s` are the mean and standard deviation of ln|∇Y| over the non-zero values.
///
/// Returns −∞ for γ = 1, ∞ for γ = 0 (s > 0), NaN for γ outside [0, 1].
#[must_use]
pub fn least_log2_scale(lambda: f64, mu: f64, s: f64, gamma: f64) -> f64 {
    (libm::log(lambda) - mu - s * normal_quantile(gamma)) / LN_2
}

/// Computes the predicted fraction that flushes at the scale 2^k (Equation 4). The small tail is computed directly, to
/// keep its significant bits. For s = 0 all or none flush.
#[must_use]
pub fn predicted(lambda: f64, mu: f64, s: f64, k: i32) -> f64 {
    let distance = libm::log(lambda) - mu - f64::from(k) * LN_2;
    if s == 0.0 {
        return if distance >= 0.0 { 1.0 } else { 0.0 };
    }
    0.5 * libm::erfc(-distance / (SQRT_2 * s))
}
