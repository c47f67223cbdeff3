//! Rule `authors`: the scales that the paper's public Chainer code chooses, for comparison. Everything around a
//! decision is this project's: f32 sums, parameter gradients in f32, skipped steps.

use super::{Choice, ConfigError, LimitedBy, NoDecision, Operand, clamp, open_unit, paper};
use crate::{
    gradient_rules::{branch_paper, split_paper},
    model::{LAMBDA_MAX, LAMBDA_MIN, floor_log2, terms::Terms, theorem1, theorem2},
    scaled::Scaled,
    stats::Stats,
};

/// Rule of the authors' code for gradient scaling. It differs from [`Paper`](super::Paper) in these points: half of the
/// terms always, because a ReLU is assumed everywhere; max(1, ·) before the overflow side; overflow at 65504; both the
/// factor and the accumulated scale capped at 65504; rounding down to a power of two as the last operation.
///
/// The cap is too low. For example, SegNet's softmax cast needs 2^23 by the authors' own measurement (the loss divided
/// by the pixels of 12 images of 360 × 480).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Authors {
    gamma: f64,
}

impl Authors {
    /// Creates the rule of the authors' code with the threshold γ′ in (0, 1).
    ///
    /// # Errors
    /// [`ConfigError::Gamma`] outside (0, 1).
    pub fn new(gamma: f64) -> Result<Self, ConfigError> {
        Ok(Self { gamma: open_unit(gamma)? })
    }

    /// Returns the flush threshold γ′ of the authors' rule.
    #[must_use]
    pub const fn gamma(&self) -> f64 {
        self.gamma
    }

    /// Decides the data gradient of a product whose incoming gradient has the accumulated exponent `alpha`.
    ///
    /// # Errors
    /// [`NoDecision`] if σ is zero or not finite.
    pub fn product(&self, dy: &Operand, w: &Operand, terms: Terms, alpha: i32) -> Result<Choice, NoDecision> {
        let sigma = theorem1::spread(terms.typical / 2.0, dy.rms, w.rms);
        if sigma == 0.0 {
            return Err(NoDecision::Empty);
        }
        let needed = theorem1::least_scale(LAMBDA_MIN, sigma, self.gamma);
        let most = LAMBDA_MAX / (terms.worst * dy.max * w.max);
        choose(needed, most, alpha, |k| theorem1::predicted(LAMBDA_MIN, sigma, k))
    }

    /// Decides the cast after a softmax, from a row with sums over the f32 values, observed at the row's exponent.
    ///
    /// # Errors
    /// [`NoDecision`] for zeros only, values that are not finite, or a row without sums.
    pub fn softmax_cast(&self, row: &Stats) -> Result<Choice, NoDecision> {
        let (mu, s) = paper::logarithms(row)?;
        let needed = libm::exp2(theorem2::least_log2_scale(LAMBDA_MIN, mu, s, self.gamma));
        let most = LAMBDA_MAX / f64::from(row.counts().amax);
        choose(needed, most, row.exponent(), |k| theorem2::predicted(LAMBDA_MIN, mu, s, k))
    }

    /// Decides a branch like [`Paper::branch`](super::Paper::branch). The authors' code ends with an error if no
    /// exponent fits.
    ///
    /// # Errors
    /// [`NoDecision`] for zeros only, or values that are not finite.
    pub fn branch(&self, parts: &[Scaled<f32>], sum: &Stats) -> Result<Choice, NoDecision> {
        paper::common_exponent(branch_paper(parts), sum)
    }

    /// Decides the gradient of a split: the exponent of the part with the largest true magnitude. k is relative to the
    /// exponent of `sum`, the f32 gradient.
    ///
    /// # Errors
    /// See [`Authors::branch`].
    pub fn split(&self, parts: &[Scaled<f32>], sum: &Stats) -> Result<Choice, NoDecision> {
        paper::common_exponent(split_paper(parts), sum)
    }

    /// Decides any other cast: the incoming exponent, or a lower one if the values need it.
    ///
    /// # Errors
    /// See [`Authors::branch`].
    pub fn other_cast(&self, row: &Stats) -> Result<Choice, NoDecision> {
        paper::pass_or_less(row)
    }
}

fn choose(needed: f64, most: f64, alpha: i32, predicted: impl Fn(i32) -> f64) -> Result<Choice, NoDecision> {
    if needed.is_nan() || most.is_nan() {
        return Err(NoDecision::NotFinite);
    }
    let least = needed.max(1.0);
    let accumulated = libm::scalbn(LAMBDA_MAX, alpha.saturating_neg());
    let capped = least.min(most).min(LAMBDA_MAX).min(accumulated);
    let k = clamp(floor_log2(capped).ok_or(NoDecision::NotFinite)?);
    let held = if capped < least {
        LimitedBy::Overflow
    } else if needed < 1.0 {
        LimitedBy::One
    } else {
        LimitedBy::Threshold
    };
    Ok(Choice { k, held, gamma: predicted(k) })
}
