//! Theorem 1: the data gradient of a matrix product is normally distributed.

use super::erf::erf_inv;
use core::f64::consts::SQRT_2;

/// Computes σ = √N · rms(∇Y) · rms(W), the standard deviation of the data gradient (Lemma 1, Equation 2).
///
/// The operands are those that are multiplied. If a ReLU has masked ∇Y, its zeros are included in the rms, so the
/// paper's √(N/2) for the unmasked gradient needs no special case.
#[must_use]
pub fn spread(terms: f64, rms_dy: f64, rms_w: f64) -> f64 {
    libm::sqrt(terms) * rms_dy * rms_w
}

/// Computes the smallest scale at which a predicted fraction `gamma` flushes: λ / (√2 · σ · erf⁻¹(γ)), Equation 3
/// solved for α.
///
/// Returns ∞ for σ = 0 or γ = 0, 0 for γ = 1, NaN for γ outside [0, 1].
#[must_use]
pub fn least_scale(lambda: f64, sigma: f64, gamma: f64) -> f64 {
    lambda / (SQRT_2 * sigma * erf_inv(gamma))
}

/// Computes the predicted fraction that flushes at the scale 2^k: erf(λ / (2^k · √2 · σ)), Equation 3. Returns 1 for σ
/// = 0.
#[must_use]
pub fn predicted(lambda: f64, sigma: f64, k: i32) -> f64 {
    libm::erf(libm::scalbn(lambda / (SQRT_2 * sigma), k.saturating_neg()))
}
