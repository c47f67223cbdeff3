//! Fraction of a sum's variance that survives an accumulator of few bits (Sakr et al. 2019).
//!
//! The model: `length` independent terms of mean 0 and spread 1 with m_p mantissa bits are added one by one with m
//! mantissa bits, so that after i terms the sum is normal with spread √i. With 2Q(x) = erfc(x / √2), the share of a
//! normal number outside ±x spreads:
//!
//! * *Full swamping* first at term i, after which the sum no longer changes: q_i = 2Q(2^m / √i) · (1 − 2Q(2^m / √(i −
//!   1))).
//! * *Partial swamping*: a sum above 2^(m − m_p + j − 1) truncates j bits of each term. Truncated bits are uniform
//!   among 0 … 2^j − 1 in units of 2^-m_p. So a term loses 2^(−2·m_p) · (2^j − 1)(2^(j + 1) − 1) / 6 of its variance,
//!   and that for 2^(m − m_p + j + 1) terms until the next bit is lost. Up to stage J the sum has lost the variance of
//!   α_J = 2^(m − 3·m_p) / 3 · Σ_{j ≤ J} 2^j (2^j − 1)(2^(j + 1) − 1) terms.
//! * A sum that ends in stage j, after j − 1 stages: q'_j = 2Q(2^(m − m_p + j − 1) / √n) · (1 − 2Q(2^(m − m_p + j) /
//!   √n)) for j = 2 … m_p. One that ends before the second stage: q_0 = 1 − 2Q(2^(m − m_p + 1) / √n).
//!
//! The *variance retention ratio* is the mean of the remaining variance over these endings (their Theorem 1):
//!
//! VRR = [Σ_{α < i < n} (i − α) q_i + Σ_j (n − α_(j − 1)) q'_j + n q_0] / (n · [Σ q_i + Σ q'_j + q_0]),
//!
//! over terms that are positive, with α = α_(m_p). It is computed as 1 − VRR, because VRR is near 1 and would lose its
//! significant bits.
//!
//! The model predicts the length at which variance begins to be lost. Beyond that length it is inaccurate: the model
//! keeps a swamped sum constant, but rounding to nearest still changes it. Rounding toward zero loses far more than
//! predicted, because truncation always has the same direction. `tests/accumulate.rs` measures all three.

use super::power;
use core::f64::consts::FRAC_1_SQRT_2;

/// Limit of n · (1 − VRR) from which a sum counts as too long: ln 50, because Sakr et al. require e^(n (1 − VRR)) < 50.
pub const MOST_LOST: f64 = 3.912_023_005_428_146;

/// Computes 1 − VRR of `length` terms with `term` mantissa bits in an accumulator with `mantissa` bits. Terms with more
/// bits than the accumulator count as rounded to the accumulator's width. More than 64 bits count as 64. Returns 0 for
/// a length below 3.
///
/// The time is proportional to the length beyond 2^(2m) / 1500 terms.
///
/// ```
/// use gradscale_core::accumulate::variance::lost;
/// assert!(lost(9, 5, 1024) < 1e-4);
/// assert!(lost(5, 5, 4096) > 0.4);
/// ```
#[must_use]
pub fn lost(mantissa: u32, term: u32, length: u32) -> f64 {
    // A sum cannot have 2^64 terms, so more mantissa bits make no difference.
    let mantissa = mantissa.min(64);
    let term = term.min(mantissa);
    let (n, root) = (f64::from(length), libm::sqrt(f64::from(length)));
    let stages = lost_in_stages(mantissa, term);
    // `part` is the variance lost over all endings, and `whole` their total probability.
    let (mut part, mut whole) = (0.0, 0.0);
    let all = stages(term);
    for i in first(mantissa, all)..length {
        let (before, i) = (f64::from(i - 1), f64::from(i));
        let weight = outside(power(mantissa) / libm::sqrt(i)) * inside(power(mantissa) / libm::sqrt(before));
        part += (n - i + all) * weight;
        whole += weight;
    }
    let spare = mantissa - term;
    for j in 2..=term {
        let gone = stages(j - 1);
        if gone < n {
            let weight = outside(power(spare + j - 1) / root) * inside(power(spare + j) / root);
            part += gone * weight;
            whole += weight;
        }
    }
    whole += inside(power(spare + 1) / root);
    if length < 3 { 0.0 } else { part / (n * whole) }
}

/// Computes 1 − VRR of a sum in chunks (their Corollary 1): VRR(m, m_p, chunk) · VRR(m, m_p + log2 chunk, ⌈length /
/// chunk⌉), because the sums of chunks have more bits than terms. A `chunk` of 0, or of at least `length` terms, means
/// no chunks.
#[must_use]
pub fn lost_in_chunks(mantissa: u32, term: u32, length: u32, chunk: u32) -> f64 {
    if chunk == 0 || chunk >= length {
        return lost(mantissa, term, length);
    }
    let inner = lost(mantissa, term, chunk);
    let outer = lost(mantissa, term.saturating_add(chunk.ilog2()), length.div_ceil(chunk));
    inner + outer - inner * outer
}

/// Computes the smallest mantissa, up to 23 bits, with n · (1 − VRR) below [`MOST_LOST`]; `None` if there is none. In
/// chunks the limit has to hold within each chunk and over all of them.
///
/// ```
/// use gradscale_core::accumulate::variance::least_mantissa;
/// // The weight gradients of a convolution over one image of 28 × 28 pixels, operands of 5 mantissa bits.
/// assert_eq!(least_mantissa(5, 28 * 28, 0), Some(7));
/// assert_eq!(least_mantissa(5, 28 * 28, 64), Some(5));
/// ```
#[must_use]
pub fn least_mantissa(term: u32, length: u32, chunk: u32) -> Option<u32> {
    let fits = |mantissa: u32, term: u32, length: u32| f64::from(length) * lost(mantissa, term, length) < MOST_LOST;
    (1..=23).find(|&mantissa| {
        if chunk == 0 || chunk >= length {
            return fits(mantissa, term, length);
        }
        let outer = term.saturating_add(chunk.ilog2());
        fits(mantissa, term, chunk) && fits(mantissa, outer, length.div_ceil(chunk))
    })
}

/// Returns α_J of the module's formula as a function of the last stage J.
fn lost_in_stages(mantissa: u32, term: u32) -> impl Fn(u32) -> f64 {
    move |last| {
        let sum: f64 = (1..=last).map(|j| power(j) * (power(j) - 1.0) * (power(j + 1) - 1.0)).sum();
        sum * power(mantissa) / (3.0 * power(3 * term))
    }
}

/// Returns the first term at which full swamping counts: beyond α, and where 2Q is not 0 in f64.
fn first(mantissa: u32, alpha: f64) -> u32 {
    const MAX_ALPHA: f64 = 38.6;
    let seen = power(mantissa) / MAX_ALPHA;
    let from = libm::fmax(libm::floor(alpha) + 1.0, libm::floor(seen * seen));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and saturates")]
    let from = from as u32;
    from.max(2)
}

/// Computes 2Q(x), the probability that a normal variable is outside ±x standard deviations.
fn outside(x: f64) -> f64 {
    libm::erfc(x * FRAC_1_SQRT_2)
}

/// Computes 1 − 2Q(x), the probability that a normal variable is within ±x standard deviations.
fn inside(x: f64) -> f64 {
    libm::erf(x * FRAC_1_SQRT_2)
}
