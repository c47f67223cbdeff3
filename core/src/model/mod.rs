//! The paper's statistical models of underflow: which share of a gradient flushes at which scale.

pub mod erf;
pub mod terms;
pub mod theorem1;
pub mod theorem2;

/// λ_min of the paper (§3.1): values of at most this magnitude count as flushed. About 2^-24; what nearest even
/// really flushes is 2^-25, so a predicted 10^-3 is about half of that in truth.
pub const LAMBDA_MIN: f64 = 6e-8;

/// λ_max of the paper (§3.1), the largest finite FP16.
pub const LAMBDA_MAX: f64 = 65504.0;

/// ⌊log2 x⌋ of a positive finite number, from its bits: exact at powers of two.
pub(crate) fn floor_log2(x: f64) -> Option<i32> {
    (x > 0.0 && x.is_finite()).then(|| {
        let (_, exponent) = libm::frexp(x);
        exponent - 1
    })
}
