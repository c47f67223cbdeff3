//! Rules for ⟨α, ∇X⟩ at each operator of the backward pass (paper, Algorithm 1).
//!
//! The state of a site is its α, and every factor in the system is 2^(α_to − α_from). There are no special cases: a
//! weight gradient is stored to a slot whose exponent is 0, a branch is a sum of several slots into one, and a loss
//! scale is the same number in all slots.

use crate::{model::LAMBDA_MAX, scale::Factor, scaled::Scaled};

/// Returns the factor of every parameter gradient's store. The gradient is stored as f32 at exponent 0, so it is
/// unscaled when it is computed, and there is no unscale pass (line 8).
#[must_use]
pub const fn parameter_gradient(alpha: i32) -> Factor {
    Factor::between(alpha, 0)
}

/// Exponent of a sum of gradients and its loss of accuracy, known before the sum is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sum {
    /// Exponent at which the f32 sum is computed and first observed: the largest of the parts' exponents. From there on
    /// it is a site like any other.
    pub alpha: i32,
    /// True if the parts' largest magnitudes differ by more than a factor of 2^24: the smallest part is then lost in
    /// the f32 sum, scaled or not.
    pub absorbs: bool,
}

/// Computes the exponent of a sum of gradients at a branch, a residual connection or several consumers. The gradients
/// `parts`, each described by its amax and exponent, are added in f32 and stored once. Parts that are all zero do not
/// count; `None` if all are.
#[must_use]
pub fn sum(parts: &[Scaled<f32>]) -> Option<Sum> {
    let mut live = parts.iter().filter(|part| part.data > 0.0);
    let first = live.next()?;
    let (mut alpha, mut least, mut most) = (first.alpha, magnitude(first), magnitude(first));
    for part in live {
        alpha = alpha.max(part.alpha);
        least = least.min(magnitude(part));
        most = most.max(magnitude(part));
    }
    Some(Sum { alpha, absorbs: (most.0 - 24, most.1) > least })
}

/// Computes the exponent of a branch by the paper's rule (lines 18–22): the largest of the parts' exponents under which
/// each part stays below λ_max. The rule checks each part and not the sum, so two parts of 40000 pass, and their sum
/// overflows. `None` if no exponent fits; the authors' code raises an error then.
#[must_use]
pub fn branch_paper(parts: &[Scaled<f32>]) -> Option<i32> {
    let fits = |alpha: i32| parts.iter().all(|part| f64::from(part.factor(alpha).apply(part.data)) < LAMBDA_MAX);
    parts.iter().map(|part| part.alpha).filter(|&alpha| fits(alpha)).max()
}

/// Computes the exponent that the paper's code gives to a split's gradient: that of the part with the largest true
/// magnitude, amax · 2^-α. `None` if there is no part.
#[must_use]
pub fn split_paper(parts: &[Scaled<f32>]) -> Option<i32> {
    parts.iter().max_by_key(|part| magnitude(part)).map(|part| part.alpha)
}

/// Returns |data| · 2^-α as (exponent, significand), which can be compared for exponents far outside the range of f32.
fn magnitude(part: &Scaled<f32>) -> (i64, u32) {
    let bits = part.data.to_bits() & 0x7FFF_FFFF;
    if bits == 0 {
        return (i64::MIN, 0);
    }
    let (digits, exponent) = if bits >> 23 == 0 {
        let shift = bits.leading_zeros() - 8;
        (bits << shift, -i64::from(shift))
    } else {
        (bits & 0x007F_FFFF | 0x0080_0000, i64::from(bits >> 23) - 1)
    };
    (exponent - i64::from(part.alpha), digits)
}
