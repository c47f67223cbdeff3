//! The paper's statistical models of underflow: the predicted fraction of a gradient that flushes at a scale.

pub mod erf;
pub mod terms;
pub mod theorem1;
pub mod theorem2;

use crate::store_format::StoreFormat;

/// λ_min of the paper (§3.1): values of at most this magnitude count as flushed. It is about 2^-24, but nearest even
/// flushes only up to 2^-25. Therefore the true fraction is about half of a predicted 10^-3.
pub const LAMBDA_MIN: f64 = 6e-8;

/// λ_max of the paper (§3.1), the largest finite FP16 number.
pub const LAMBDA_MAX: f64 = 65504.0;

/// Returns λ_min of a format: the largest magnitude that counts as flushed. It is the paper's number for FP16, and the
/// smallest subnormal number for others.
#[must_use]
pub fn lambda_min(format: StoreFormat) -> f64 {
    match format {
        StoreFormat::Fp16 => LAMBDA_MIN,
        StoreFormat::E5m2 | StoreFormat::E4m3 => libm::scalbn(1.0, format.format().min_subnormal_exponent()),
    }
}

/// Returns λ_max of a format: its largest finite number.
#[must_use]
pub fn lambda_max(format: StoreFormat) -> f64 {
    f64::from(format.format().max())
}

/// Returns ⌊log2 x⌋ of a positive finite number. It is computed from the bits and therefore exact at powers of two.
pub(crate) fn floor_log2(x: f64) -> Option<i32> {
    (x > 0.0 && x.is_finite()).then(|| {
        let (_, exponent) = libm::frexp(x);
        exponent - 1
    })
}
