//! Exponentials, logarithms, powers and error functions without calls or branches, which loops over them need to become
//! wide.
//!
//! The polynomials of exp and ln are those of Moshier's Cephes (`expf.c`, `logf.c`): about one last place. The others
//! are best in the sense of the largest relative error, below 2^-27.
//!
//! Long polynomials that stand alone are summed in pairs (Estrin's scheme): the chain of sums of which each waits for the one
//! before is what a loop over a function takes, not the number of its operations.

/// 1.5 · 2^23 and 1.5 · 2^52, and twice the bias of exponents: what is added to them is rounded to an integer, in the last
/// bits.
const ROUND: f32 = 12_582_912.0 + 254.0;
const ROUND_WIDE: f64 = 6_755_399_441_055_744.0 + 254.0;

/// ln 2 in two parts, the first with so few digits that an exponent times it is exact.
pub const LN_2: [f32; 2] = [355.0 / 512.0, -2.121_944_4e-4];

/// The polynomial of ln, from its highest power.
pub const LN: [f32; 9] = [
    7.037_683_6e-2,
    -1.151_461e-1,
    1.167_699_9e-1,
    -1.242_014_1e-1,
    1.424_932_3e-1,
    -1.666_805_8e-1,
    2.000_071_5e-1,
    -2.499_999_4e-1,
    0.333_333_3,
];

/// The bits of √½, from which on digits stand at the next exponent.
pub const SQRT_HALF: u32 = 0x3F35_04F3;

/// e^x; ±∞ and NaN as IEEE 754-2019 §9.2 says, subnormal results rounded.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Far enough for ∞ and 0; NaN is kept.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x * core::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2[0]) - n * LN_2[1];
    times_power(exp_near_0(r), shifted.to_bits())
}

/// e^r for |r| ≤ ln 2 / 2.
#[inline(always)]
fn exp_near_0(r: f32) -> f32 {
    let square = r * r;
    let high = 1.987_569_1e-4 * r + 1.398_199_9e-3;
    let middle = 8.333_452e-3 * r + 4.166_579_6e-2;
    let low = 1.666_666_5e-1 * r + 0.5;
    let p = (high * square + middle) * square + low;
    p * square + r + 1.0
}

/// x · 2^n for |n| ≤ 252, rounded once. The last nine bits of `biased` are those of n + 254: one bias for each half of n.
#[inline(always)]
fn times_power(x: f32, biased: u32) -> f32 {
    let half = biased >> 1;
    x * f32::from_bits(half << 23) * f32::from_bits(biased.wrapping_sub(half) << 23)
}

/// ln x for finite positive x, subnormal ones too.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    let (m, e) = parts(x);
    let f = m - 1.0;
    let [first, rest @ ..] = LN;
    let mut p = first;
    for c in rest {
        p = p * f + c;
    }
    let square = f * f;
    let tail = p * f * square + e * LN_2[1] - 0.5 * square;
    f + tail + e * LN_2[0]
}

/// x = m · 2^e with √½ ≤ m < √2.
#[inline(always)]
fn parts(x: f32) -> (f32, f32) {
    let small = x < f32::MIN_POSITIVE;
    let (x, more) = if small { (x * 8_388_608.0, -23.0) } else { (x, 0.0) };
    let offset = x.to_bits().wrapping_sub(SQRT_HALF);
    let m = f32::from_bits((offset & 0x007F_FFFF) + SQRT_HALF);
    (m, (offset.cast_signed() >> 23) as f32 + more)
}

/// x^p for finite positive normal x and finite p, by the logarithm in f64: an f32 one would lose as many digits as the
/// exponent of the result has.
#[inline(always)]
pub fn pow(x: f32, p: f32) -> f32 {
    let (m, e) = parts(x);
    let m = f64::from(m);
    // ln m = 2·artanh s.
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let q = 1.0 / 13.0;
    let q = q * z + 1.0 / 11.0;
    let q = q * z + 1.0 / 9.0;
    let q = q * z + 1.0 / 7.0;
    let q = q * z + 1.0 / 5.0;
    let q = q * z + 1.0 / 3.0;
    let log2 = (q * z * s + s) * (2.0 * core::f64::consts::LOG2_E) + f64::from(e);
    let y = log2 * f64::from(p);
    // Far enough for ∞ and 0.
    let y = if y > 130.0 { 130.0 } else { y };
    let y = if y < -152.0 { -152.0 } else { y };
    let shifted = y + ROUND_WIDE;
    #[expect(clippy::cast_possible_truncation, reason = "a fraction of at most ½, rounded; an integer's last bits")]
    let (r, n) = (((y - (shifted - ROUND_WIDE)) * core::f64::consts::LN_2) as f32, shifted.to_bits() as u32);
    times_power(exp_near_0(r), n)
}

/// 1 / (1 + e^-x), by the exponential that does not overflow.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    let e = exp(-x.abs());
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

/// ln x of every number; ±0, negative numbers, ∞ and NaN as IEEE 754-2019 §9.2 says.
#[inline(always)]
pub fn ln_of_any(x: f32) -> f32 {
    let log = if x <= f32::MAX { ln(x) } else { x };
    let log = if x < 0.0 { f32::NAN } else { log };
    if x == 0.0 { f32::NEG_INFINITY } else { log }
}

/// tanh x: by a polynomial near 0, else by the exponential.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let size = x.abs();
    let z = size * size;
    let p = -5.704_978_5e-3;
    let p = p * z + 2.063_907_9e-2;
    let p = p * z - 5.373_971e-2;
    let p = p * z + 1.333_144_2e-1;
    let p = p * z - 3.333_328e-1;
    let near = size + size * z * p;
    let far = 1.0 - 2.0 / (exp(2.0 * size) + 1.0);
    (if size < 0.625 { near } else { far }).copysign(x)
}

/// erf x: by a polynomial near 0, else by its complement.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let size = x.abs();
    let z = size * size;
    let p = 7.898_686_5e-5;
    let p = p * z - 8.024_815e-4;
    let p = p * z + 5.190_162e-3;
    let p = p * z - 2.685_491_6e-2;
    let p = p * z + 1.128_361_75e-1;
    let p = p * z - 3.761_263e-1;
    // 2/√π, less 1: the largest part has no error.
    let near = size + size * (z * p + 1.283_791_7e-1);
    let far = 1.0 - erfcx(size) * exp(-z);
    (if size < 0.75 { near } else { far }).copysign(x)
}

/// e^(x²) · erfc x for x ≥ 0, as 1 − x · t · p(t) with t = 1 / (1 + 0.4·x): near 0 no digit is lost, and far from it
/// fewer than e^(−x²) has lost.
#[inline(always)]
fn erfcx(x: f32) -> f32 {
    // Where e^(−x²) is 0.
    let x = if x > 11.0 { 11.0 } else { x };
    let t = 1.0 / (1.0 + 0.4 * x);
    let (square, fourth) = (t * t, (t * t) * (t * t));
    let [a, b] = [3.256_973_6e-2 * t - 1.400_338_4e-1, 1.666_427_6e-1 * t - 2.403_045_3e-2];
    let [c, d] = [1.708_631_2e-1 * t + 2.117_376_8e-1, 3.106_791_4e-1 * t + 3.999_509_2e-1];
    let p = (a * square + b) * fourth + (c * square + d);
    1.0 - x * t * p
}

/// Φ(x) = erfc(−x/√2) / 2; the lower tail keeps its digits.
#[inline(always)]
pub fn normal_cdf(x: f32) -> f32 {
    let tail = 0.5 * erfcx(x.abs() * core::f32::consts::FRAC_1_SQRT_2) * exp(-0.5 * x * x);
    if x < 0.0 { tail } else { 1.0 - tail }
}

/// Φ′(x) = e^(−x²/2) / √(2π).
#[inline(always)]
pub fn normal_density(x: f32) -> f32 {
    const FACTOR: f32 = 0.5 * core::f32::consts::FRAC_2_SQRT_PI * core::f32::consts::FRAC_1_SQRT_2;
    FACTOR * exp(-0.5 * x * x)
}

#[cfg(test)]
mod tests {
    use super::{erf, exp, ln, ln_of_any, normal_cdf, normal_density, pow, sigmoid, tanh};

    /// Largest error in last places, over f32 from `from` to `to`.
    fn worst(from: f32, to: f32, got: impl Fn(f32) -> f32, want: impl Fn(f64) -> f64) -> f64 {
        let mut worst = 0f64;
        for i in 0..1_000_000 {
            let x = from + (to - from) * (i as f32 / 1e6);
            let want = want(f64::from(x));
            let error =
                (f64::from(got(x)) - want).abs() / (want.abs().max(f64::from(f32::MIN_POSITIVE)) * 2f64.powi(-24));
            worst = worst.max(error);
        }
        worst
    }

    #[test]
    fn close_to_exact() {
        assert!(worst(-87.0, 88.0, exp, f64::exp) < 3.0);
        assert!(worst(1e-30, 0.7, ln, f64::ln) < 3.0);
        assert!(worst(1.5, 1e30, ln, f64::ln) < 3.0);
        assert!(worst(1e-6, 1e4, |x| pow(x, -0.75), |x| x.powf(-0.75)) < 3.0);
        assert!(worst(1.0, 1e20, |x| pow(x, 1.9), |x| x.powf(f64::from(1.9f32))) < 3.0);
        assert!(worst(-80.0, 80.0, sigmoid, |x| 1.0 / (1.0 + (-x).exp())) < 5.0);
        assert!(worst(-9.5, 9.5, tanh, f64::tanh) < 4.0);
        assert!(worst(-1e-3, 1e-3, tanh, f64::tanh) < 3.0);
        assert!(worst(-4.5, 4.5, erf, libm::erf) < 4.0);
        assert!(worst(-1e-3, 1e-3, erf, libm::erf) < 3.0);
        let cdf = |x: f64| 0.5 * libm::erfc(-x * core::f64::consts::FRAC_1_SQRT_2);
        assert!(worst(-1.0, 6.0, normal_cdf, cdf) < 8.0);
        // The square in the exponent is rounded: an error that grows with it.
        assert!(worst(-13.0, -1.0, normal_cdf, cdf) < 170.0);
        let density = |x: f64| (-0.5 * x * x).exp() / (2.0 * core::f64::consts::PI).sqrt();
        assert!(worst(-1.0, 1.0, normal_density, density) < 4.0);
    }

    #[test]
    fn ends() {
        assert_eq!([exp(f32::NEG_INFINITY), exp(f32::INFINITY), exp(-200.0), exp(0.0)], [0.0, f32::INFINITY, 0.0, 1.0]);
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(exp(-103.0), f32::from_bits(1));
        assert_eq!(
            [ln(1.0), pow(1.0, 7.5), pow(2.0, -149.0), pow(3.0, 100.0)],
            [0.0, 1.0, f32::from_bits(1), f32::INFINITY]
        );
        let ends = [f32::NEG_INFINITY, -0.0, 0.0, f32::INFINITY];
        let bits = |values: [f32; 4]| values.map(f32::to_bits);
        assert_eq!(bits(ends.map(tanh)), bits([-1.0, -0.0, 0.0, 1.0]));
        assert_eq!(bits(ends.map(erf)), bits([-1.0, -0.0, 0.0, 1.0]));
        assert_eq!(ends.map(normal_cdf), [0.0, 0.5, 0.5, 1.0]);
        assert_eq!(ends.map(ln_of_any)[1..], [f32::NEG_INFINITY, f32::NEG_INFINITY, f32::INFINITY]);
        let not_a_number = [ln_of_any(-1.0), ln_of_any(f32::NEG_INFINITY)];
        assert!(not_a_number.into_iter().all(f32::is_nan));
        assert!([tanh, erf, normal_cdf, ln_of_any, sigmoid].iter().all(|f| f(f32::NAN).is_nan()));
    }
}
