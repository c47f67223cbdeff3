//! Rule `paper`: Algorithm 1 with Theorems 1 and 2, with its errors corrected; `paper-literal`: as printed.

use super::{Choice, ConfigError, LimitedBy, NoDecision, clamp, open_unit};
use crate::{
    gradient_rules::branch_paper,
    model::{LAMBDA_MIN, floor_log2, lambda_min, terms::Terms, theorem1, theorem2},
    scaled::Scaled,
    stats::{Convention, Counts, Stats, mean_and_spread},
    store_format::StoreFormat,
};
use core::f64::consts::LN_2;

/// Statistics of an operand of a product, as Theorem 1 needs them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operand {
    /// Root mean square of all the operand's values, zeros included.
    pub rms: f64,
    /// Largest magnitude of the operand's values.
    pub max: f64,
    /// Format and flush rule of the cast that follows the product.
    pub convention: Convention,
}

impl Operand {
    /// Computes the statistics of an operand from a row with sums.
    ///
    /// # Errors
    /// [`NoDecision`] for zeros only, values that are not finite, or a row without sums.
    pub fn from_row(row: &Stats) -> Result<Self, NoDecision> {
        let counts = finite(row)?;
        let moments = row.moments().ok_or(NoDecision::Detail)?;
        // Exact, because a row's count is far below 2^53.
        let rms = libm::sqrt(moments.sum_sq / counts.count as f64);
        if !rms.is_finite() {
            return Err(NoDecision::NotFinite);
        }
        Ok(Self { rms, max: f64::from(counts.amax), convention: row.convention() })
    }
}

/// Returns the counts of a row that can decide: finite, and not only zeros.
pub(super) fn finite(row: &Stats) -> Result<&Counts, NoDecision> {
    let counts = row.counts();
    if counts.non_finite() != 0 {
        Err(NoDecision::NotFinite)
    } else if counts.nonzero() == 0 {
        Err(NoDecision::Empty)
    } else {
        Ok(counts)
    }
}

/// Computes mean and standard deviation of ln|u| over the non-zero values.
pub(super) fn logarithms(row: &Stats) -> Result<(f64, f64), NoDecision> {
    let counts = finite(row)?;
    let moments = row.moments().ok_or(NoDecision::Detail)?;
    mean_and_spread(counts.nonzero() as f64, moments.sum_ln, moments.sum_ln_sq).ok_or(NoDecision::NotFinite)
}

/// Returns the largest k with `bound` · 2^k below the overflow threshold.
fn headroom_above(convention: Convention, bound: f64) -> Result<i32, NoDecision> {
    let limit = f64::from(f32::from_bits(convention.nearest_overflow()));
    let k = floor_log2(limit / bound).ok_or(NoDecision::NotFinite)?;
    // The quotient is rounded, and "below" is strict, so the result is checked.
    Ok(if libm::scalbn(bound, k) < limit { k } else { k - 1 })
}

/// Chooses the incoming exponent, or a lower one if the values need it.
pub(super) fn pass_or_less(row: &Stats) -> Result<Choice, NoDecision> {
    finite(row)?;
    let k_of = row.headroom_above().ok_or(NoDecision::Empty)?;
    let held = if k_of < 0 { LimitedBy::Overflow } else { LimitedBy::One };
    Ok(Choice { k: clamp(k_of.min(0)), held, gamma: f64::NAN })
}

/// Chooses the exponent `alpha` of a sum, if its parts agree on one.
pub(super) fn common_exponent(alpha: Option<i32>, sum: &Stats) -> Result<Choice, NoDecision> {
    finite(sum)?;
    let Some(alpha) = alpha else { return pass_or_less(sum) };
    Ok(Choice { k: alpha.saturating_sub(sum.exponent()), held: LimitedBy::One, gamma: f64::NAN })
}

/// Paper's rule for gradient scaling, its Algorithm 1: the underflow side comes from models, the overflow side from the
/// worst case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paper {
    gamma: f64,
    lambda: f64,
    literal: bool,
}

impl Paper {
    /// Creates the paper's rule with the flush threshold γ′ in (0, 1); the paper uses 10^-3.
    ///
    /// # Errors
    /// [`ConfigError::Gamma`] outside (0, 1).
    pub fn new(gamma: f64) -> Result<Self, ConfigError> {
        Ok(Self { gamma: open_unit(gamma)?, lambda: LAMBDA_MIN, literal: false })
    }

    /// Returns the same rule for stores in another format: values up to its smallest subnormal number count as flushed.
    /// Rows and operands must have its convention, from which the overflow side follows.
    ///
    /// ```
    /// use gradscale_core::{solve::Paper, stats::{Detail, Stats}, store_format::StoreFormat};
    /// let mut row = Stats::new(StoreFormat::E5m2.convention(), 0, Detail::Moments);
    /// row.observe(&[1e-4; 100]);
    /// // All values are equal, so the scale takes them just above 2^-16.
    /// assert_eq!(Paper::new(1e-3)?.with_format(StoreFormat::E5m2).softmax_cast(&row).map(|choice| choice.k), Ok(0));
    /// # Ok::<(), gradscale_core::solve::ConfigError>(())
    /// ```
    #[must_use]
    pub fn with_format(self, format: StoreFormat) -> Self {
        Self { lambda: lambda_min(format), ..self }
    }

    /// Returns the rule of Algorithm 1 as printed. It differs in three points. First, k = min(k_uf, k_of), so a scale
    /// may fall below 1 without need; the authors' code has a max(1, ·) that the paper lacks. Second, after a softmax
    /// it uses e^⌊·⌋ (line 14), up to e times too small. Third, any other cast passes the scale through (line 24), even
    /// if values overflow.
    #[must_use]
    pub const fn literal(self) -> Self {
        Self { literal: true, ..self }
    }

    /// Returns the flush threshold γ′ of the paper's rule.
    #[must_use]
    pub const fn gamma(&self) -> f64 {
        self.gamma
    }

    /// Returns true if the rule is Algorithm 1 as printed in the paper.
    #[must_use]
    pub const fn is_literal(&self) -> bool {
        self.literal
    }

    /// Decides the data gradient of a product (lines 2–9). `dy` is the incoming gradient as stored, `w` the weights. k
    /// is relative to the exponent of `dy`.
    ///
    /// # Errors
    /// [`NoDecision`] if σ is zero or not finite.
    pub fn product(&self, dy: &Operand, w: &Operand, terms: Terms) -> Result<Choice, NoDecision> {
        let sigma = theorem1::spread(terms.typical, dy.rms, w.rms);
        if sigma == 0.0 {
            return Err(NoDecision::Empty);
        }
        let scale = theorem1::least_scale(self.lambda, sigma, self.gamma);
        let k_uf = floor_log2(scale).ok_or(NoDecision::NotFinite)? + 1;
        let k_of = headroom_above(dy.convention, terms.worst * dy.max * w.max)?;
        Ok(self.choose(k_uf, k_of, |k| theorem1::predicted(self.lambda, sigma, k)))
    }

    /// Decides the cast after a softmax (lines 10–15), from a row with sums over the f32 values.
    ///
    /// # Errors
    /// [`NoDecision`] for zeros only, values that are not finite, or a row without sums.
    pub fn softmax_cast(&self, row: &Stats) -> Result<Choice, NoDecision> {
        let (mu, s) = logarithms(row)?;
        let log2 = theorem2::least_log2_scale(self.lambda, mu, s, self.gamma);
        let log2 = if self.literal { libm::floor(log2 * LN_2) / LN_2 } else { log2 };
        #[expect(clippy::cast_possible_truncation, reason = "saturates, and is clamped")]
        let k_uf = libm::floor(log2) as i32;
        let k_of = row.headroom_above().ok_or(NoDecision::Empty)?;
        Ok(self.choose(k_uf.saturating_add(1), k_of, |k| theorem2::predicted(self.lambda, mu, s, k)))
    }

    /// Decides a branch or a split (lines 18–22): the largest exponent of the `parts` under which each of them stays
    /// below λ_max. Each part is given by its amax and its exponent. If no exponent fits, the paper has no rule; then
    /// the f32 `sum` decides as at any other cast. k is relative to the exponent of `sum`. The prediction is NaN.
    ///
    /// # Errors
    /// [`NoDecision`] for zeros only, or values that are not finite.
    pub fn branch(&self, parts: &[Scaled<f32>], sum: &Stats) -> Result<Choice, NoDecision> {
        common_exponent(branch_paper(parts), sum)
    }

    /// Decides any other cast: k = min(0, k_of), as in the authors' code; as printed it is 0, even if values overflow
    /// (line 24). The prediction is NaN, because there is no model.
    ///
    /// # Errors
    /// [`NoDecision`] for zeros only, or values that are not finite.
    pub fn other_cast(&self, row: &Stats) -> Result<Choice, NoDecision> {
        finite(row)?;
        if self.literal { Ok(Choice { k: 0, held: LimitedBy::One, gamma: f64::NAN }) } else { pass_or_less(row) }
    }

    fn choose(&self, k_uf: i32, k_of: i32, predicted: impl Fn(i32) -> f64) -> Choice {
        let least = if self.literal { k_uf } else { k_uf.max(0) };
        let k = clamp(least.min(k_of));
        let held = if least > k_of {
            LimitedBy::Overflow
        } else if least > k_uf {
            LimitedBy::One
        } else {
            LimitedBy::Threshold
        };
        Choice { k, held, gamma: predicted(k) }
    }
}
