//! Theorem 2: a gradient that comes out of a softmax is log-normally distributed.

use super::erf::normal_quantile;
use core::f64::consts::{LN_2, SQRT_2};

/// log2 of the least scale at which a predicted share `gamma` flushes: (ln λ − μ − s·z(γ)) / ln 2, Equation 4
/// solved for ln α, with mean `mu` and spread `s` of ln|∇Y| over the non-zero values.
///
/// −∞ for γ = 1, ∞ for γ = 0 (s > 0), NaN for γ outside [0, 1].
#[must_use]
pub fn least_log2_scale(lambda: f64, mu: f64, s: f64, gamma: f64) -> f64 {
    (libm::log(lambda) - mu - s * normal_quantile(gamma)) / LN_2
}

/// The predicted share that flushes at the scale 2^k (Equation 4), with the small tail computed as such.
/// For s = 0 all or none flush.
#[must_use]
pub fn predicted(lambda: f64, mu: f64, s: f64, k: i32) -> f64 {
    let distance = libm::log(lambda) - mu - f64::from(k) * LN_2;
    if s == 0.0 {
        return if distance >= 0.0 { 1.0 } else { 0.0 };
    }
    0.5 * libm::erfc(-distance / (SQRT_2 * s))
}
