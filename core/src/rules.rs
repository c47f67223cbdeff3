//! What becomes of ⟨α, ∇X⟩ at each operator of the backward pass (paper, Algorithm 1).
//!
//! The state of a site is its α, and every factor in the system is 2^(α_to − α_from). A weight gradient goes to a
//! slot whose exponent is 0, a branch comes from several slots to one, and a loss scale is the same number in all
//! of them: no special cases.

use crate::{model::LAMBDA_MAX, scale::Factor, scaled::Scaled};

/// The factor of every parameter gradient: it is stored as f32 at exponent 0, so it is unscaled at birth and
/// there is no unscale pass (line 8).
#[must_use]
pub const fn parameter_gradient(alpha: i32) -> Factor {
    Factor::between(alpha, 0)
}

/// What is known of a sum of gradients before it is formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sum {
    /// The exponent at which the f32 sum is formed and first observed: the largest of the parts'. From there on
    /// it is a site like any other.
    pub alpha: i32,
    /// The parts' largest magnitudes lie more than 2^24 apart: the smallest part is lost in the f32 sum, scaled
    /// or not.
    pub absorbs: bool,
}

/// A branch, a residual connection, several consumers: the gradients `parts`, each given by its amax and its
/// exponent, are added in f32 and stored once. Parts that are all zero do not count; `None` if there is no other.
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

/// The paper's rule for a branch (lines 18–22): the largest of the parts' exponents under which each of the parts
/// stays below λ_max. It looks at each part and not at the sum: two parts of 40000 pass, and their sum overflows.
/// `None` if no exponent fits, where the authors' code raises an error.
#[must_use]
pub fn branch_paper(parts: &[Scaled<f32>]) -> Option<i32> {
    let fits = |alpha: i32| parts.iter().all(|part| f64::from(part.factor(alpha).apply(part.data)) < LAMBDA_MAX);
    parts.iter().map(|part| part.alpha).filter(|&alpha| fits(alpha)).max()
}

/// The exponent that the paper's code gives to a split's gradient: that of the part with the largest true
/// magnitude, amax · 2^-α. `None` if there is no part.
#[must_use]
pub fn split_paper(parts: &[Scaled<f32>]) -> Option<i32> {
    parts.iter().max_by_key(|part| magnitude(part)).map(|part| part.alpha)
}

/// |data| · 2^-α as (exponent, digits), comparable for exponents far outside the range of f32.
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
