//! Inverses of the error function. `erf` and `erfc` are those of `libm`; both are tested against 60-digit values in
//! `tests/golden.rs`.

use core::f64::consts::{FRAC_2_SQRT_PI, LN_2, PI, SQRT_2};

/// Computes erf⁻¹: the x with erf(x) = `y`, to a relative error of 10^-15.
///
/// | y | result |
/// |---|---|
/// | ±0 | ±0 |
/// | ±1 | ±∞ |
/// | \|y\| > 1, NaN | NaN |
///
/// ```
/// let x = gradscale_core::model::erf::erf_inv(1e-3);
/// assert!((x - 8.862271575e-4).abs() < 1e-12);
/// ```
#[must_use]
pub fn erf_inv(y: f64) -> f64 {
    let a = y.abs();
    let x = if a < 1e-8 {
        // erf(x) = 2x/√π · (1 − x²/3 …), and the second term is below an ulp.
        a / FRAC_2_SQRT_PI
    } else if a <= 0.5 {
        let series = a / FRAC_2_SQRT_PI * (1.0 + PI / 12.0 * a * a);
        refine(series, |x| libm::erf(x) - a)
    } else {
        // 1 − y is exact for y ≥ ½.
        erfc_inv(1.0 - a)
    };
    libm::copysign(x, y)
}

/// Computes erfc⁻¹: the x with 1 − erf(x) = `q`, to a relative error of 10^-15, also for tiny `q`.
///
/// | q | result |
/// |---|---|
/// | 0 | +∞ |
/// | 1 | 0 |
/// | 2 | −∞ |
/// | below 0, above 2, NaN | NaN |
#[must_use]
pub fn erfc_inv(q: f64) -> f64 {
    if q.is_nan() || !(0.0..=2.0).contains(&q) {
        f64::NAN
    } else if q == 0.0 {
        f64::INFINITY
    } else if q > 1.5 {
        -erfc_inv(2.0 - q)
    } else if q >= 0.5 {
        erf_inv(1.0 - q)
    } else {
        let x = tail_start(q);
        if q < 1e-200 { refine_log(x, q) } else { refine(x, |x| q - libm::erfc(x)) }
    }
}

/// Computes the quantile z of the standard normal distribution: Φ(z) = `p`, to a relative error of 10^-15.
///
/// It is computed from p itself, because 2p − 1, as the paper writes it (Algorithm 1, line 14), loses the significant
/// bits of small p.
///
/// | p | result |
/// |---|---|
/// | 0, ½, 1 | −∞, 0, +∞ |
/// | below 0, above 1, NaN | NaN |
///
/// ```
/// let z = gradscale_core::model::erf::normal_quantile(1e-3);
/// assert!((z + 3.090232).abs() < 1e-6);
/// ```
#[must_use]
pub fn normal_quantile(p: f64) -> f64 {
    if p < 0.25 {
        -SQRT_2 * erfc_inv(2.0 * p)
    } else if p <= 0.75 {
        SQRT_2 * erf_inv(2.0 * p - 1.0)
    } else {
        SQRT_2 * erfc_inv(2.0 * (1.0 - p))
    }
}

/// Refines a root of `f` by three of Halley's steps. The derivative of `f` is that of erf: (2/√π)·exp(−x²); its second
/// derivative is −2x times that. Each step triples the number of correct digits.
fn refine(mut x: f64, f: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..3 {
        let newton = f(x) / (FRAC_2_SQRT_PI * libm::exp(-x * x));
        x -= newton / (1.0 + x * newton);
    }
    x
}

/// Computes the upper tail's x to 4.5·10^-4 (Hastings' rational approximation of the normal quantile, Abramowitz and
/// Stegun 26.2.23), for 0 < q < ½.
fn tail_start(q: f64) -> f64 {
    // ln(q/2), in this order because half of the smallest subnormal is 0.
    let t = libm::sqrt(-2.0 * (libm::log(q) - LN_2));
    let above = 2.515517 + t * (0.802853 + t * 0.010328);
    let below = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308));
    (t - above / below) / SQRT_2
}

/// Refines x by Newton's steps on ln erfc, from its asymptotic series (Abramowitz and Stegun 7.1.23). It is used where
/// erfc itself is near or below the smallest normal number and has lost significant bits. x is above 21 here.
fn refine_log(mut x: f64, q: f64) -> f64 {
    let target = libm::log(q) + libm::log(PI) / 2.0;
    for _ in 0..4 {
        let half = 1.0 / (2.0 * x * x);
        let series = 1.0 - half * (1.0 - 3.0 * half * (1.0 - 5.0 * half * (1.0 - 7.0 * half * (1.0 - 9.0 * half))));
        let error = -x * x - libm::log(x) + libm::log(series) - target;
        x += error * series / (2.0 * x);
    }
    x
}
