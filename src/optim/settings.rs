//! Checks of coefficients that several update rules have.

use gradscale_core::ops::ShapeError;

/// Minimum constant in a denominator. On devices that flush f32 subnormals the mean square of small gradients becomes 0,
/// and with a smaller constant the update would explode.
const LEAST_EPS: f32 = 1e-17;

/// Checks that coefficients are in [0, 1).
pub(super) fn check_shares(coefficients: &[f32]) -> Result<(), ShapeError> {
    let wrong = coefficients.iter().find(|share| !(0.0..1.0).contains(*share));
    wrong.map_or(Ok(()), |&share| Err(ShapeError::Value(share)))
}

/// Checks the constant in a denominator.
pub(super) fn check_eps(eps: f32) -> Result<(), ShapeError> {
    if eps >= LEAST_EPS && eps.is_finite() { Ok(()) } else { Err(ShapeError::Value(eps)) }
}
