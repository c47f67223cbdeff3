//! Exponentials, logarithms, powers and error functions without calls or branches, because only such functions can be
//! vectorised in loops.
//!
//! The polynomials of exp and ln are those of Moshier's Cephes (`expf.c`, `logf.c`): about one last place. The others
//! are best in the sense of the largest relative error, below 2^-27.
//!
//! A function is a chain of operations, each of which waits for the previous one. So long polynomials are summed in
//! pairs (Estrin's scheme), and functions of several numbers process them in parallel, operation by operation.

/// Constants 1.5 · 2^23 and 1.5 · 2^52, plus twice the bias of exponents: a number added to them is rounded to an
/// integer, in the last bits.
const ROUND: f32 = 12_582_912.0 + 254.0;
const ROUND_WIDE: f64 = 6_755_399_441_055_744.0 + 254.0;

/// Constant ln 2 in two parts, the first with so few bits that its product with an exponent is exact.
const LN_2_SPLIT: [f32; 2] = [355.0 / 512.0, -2.121_944_4e-4];

/// Coefficients of the polynomial of ln, from its highest power.
const LN_COEFFICIENTS: [f32; 9] = [
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

/// Coefficients of the polynomial of [`fast_ln`], from its highest power: smallest maximum error between √½ and √2.
pub const FAST_LN_COEFFICIENTS: [f32; 7] =
    [0.118_274_78, -0.189_019_78, 0.206_046_73, -0.248_813_39, 0.333_033, -0.500_019_67, 1.000_003_2];

/// Bits of √½, at and above which a significand belongs to the next exponent.
pub const SQRT_HALF: u32 = 0x3F35_04F3;

/// Returns the array of f(0), f(1), … f(N − 1).
#[inline(always)]
fn array_of<const N: usize>(f: impl Fn(usize) -> f32) -> [f32; N] {
    core::array::from_fn(f)
}

/// Computes e^x. The results for ±∞ and NaN are those of IEEE 754-2019 §9.2; subnormal results are rounded.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let [y] = exps([x]);
    y
}

/// Computes [`exp`] of N numbers at once.
#[inline(always)]
pub fn exps<const N: usize>(x: [f32; N]) -> [f32; N] {
    // Far enough for ∞ and 0; NaN is kept.
    let x: [f32; N] = array_of(|i| if x[i] > 89.0 { 89.0 } else { x[i] });
    let x: [f32; N] = array_of(|i| if x[i] < -104.0 { -104.0 } else { x[i] });
    let shifted: [f32; N] = array_of(|i| x[i] * core::f32::consts::LOG2_E + ROUND);
    let n: [f32; N] = array_of(|i| shifted[i] - ROUND);
    let r: [f32; N] = array_of(|i| (x[i] - n[i] * LN_2_SPLIT[0]) - n[i] * LN_2_SPLIT[1]);
    let y = exps_near_0(r);
    array_of(|i| times_power(y[i], shifted[i].to_bits()))
}

/// Computes e^r of N numbers for |r| ≤ ln 2 / 2.
#[inline(always)]
fn exps_near_0<const N: usize>(r: [f32; N]) -> [f32; N] {
    let square: [f32; N] = array_of(|i| r[i] * r[i]);
    let high: [f32; N] = array_of(|i| 1.987_569_1e-4 * r[i] + 1.398_199_9e-3);
    let middle: [f32; N] = array_of(|i| 8.333_452e-3 * r[i] + 4.166_579_6e-2);
    let low: [f32; N] = array_of(|i| 1.666_666_5e-1 * r[i] + 0.5);
    let p: [f32; N] = array_of(|i| high[i] * square[i] + middle[i]);
    let p: [f32; N] = array_of(|i| p[i] * square[i] + low[i]);
    array_of(|i| p[i] * square[i] + r[i] + 1.0)
}

/// Computes x · 2^n for |n| ≤ 252, rounded once. The last nine bits of `biased` are those of n + 254: one bias for each
/// half of n.
#[inline(always)]
fn times_power(x: f32, biased: u32) -> f32 {
    let half = biased >> 1;
    x * f32::from_bits(half << 23) * f32::from_bits(biased.wrapping_sub(half) << 23)
}

/// Computes ln x for finite positive x, subnormal ones too.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    let (m, e) = decompose(x);
    let f = m - 1.0;
    let square = f * f;
    let tail = polynomial(LN_COEFFICIENTS, f) * f * square + e * LN_2_SPLIT[1] - 0.5 * square;
    f + tail + e * LN_2_SPLIT[0]
}

/// Computes ln x of finite positive x to within 2^-21 and half a last place: in two thirds of the time of [`ln`], for
/// sums of many.
#[inline(always)]
pub fn fast_ln(x: f32) -> f32 {
    let (m, e) = decompose(x);
    let f = m - 1.0;
    polynomial(FAST_LN_COEFFICIENTS, f) * f + e * core::f32::consts::LN_2
}

/// Evaluates a polynomial, whose coefficients start at its highest power, by Horner's rule.
#[inline(always)]
fn polynomial<const N: usize>(coefficients: [f32; N], x: f32) -> f32 {
    let mut p = coefficients[0];
    for c in &coefficients[1..] {
        p = p * x + c;
    }
    p
}

/// Decomposes x to (m, e) with x = m · 2^e and √½ ≤ m < √2.
#[inline(always)]
fn decompose(x: f32) -> (f32, f32) {
    let small = x < f32::MIN_POSITIVE;
    let (x, more) = if small { (x * 8_388_608.0, -23.0) } else { (x, 0.0) };
    let offset = x.to_bits().wrapping_sub(SQRT_HALF);
    let m = f32::from_bits((offset & 0x007F_FFFF) + SQRT_HALF);
    (m, (offset.cast_signed() >> 23) as f32 + more)
}

/// Computes x^p for finite positive normal x and finite p, by the logarithm in f64. An f32 logarithm would lose as many
/// bits as the exponent of the result has.
#[inline(always)]
pub fn pow(x: f32, p: f32) -> f32 {
    let (m, e) = decompose(x);
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
    let [y] = exps_near_0([r]);
    times_power(y, n)
}

/// Computes the logistic function 1 / (1 + e^-x) of N numbers, by the exponential that does not overflow.
#[inline(always)]
pub fn sigmoids<const N: usize>(x: [f32; N]) -> [f32; N] {
    let e = exps::<N>(array_of(|i| -x[i].abs()));
    array_of(|i| (if x[i] < 0.0 { e[i] } else { 1.0 }) / (1.0 + e[i]))
}

/// Computes SiLU, x / (1 + e^-x), of N numbers at once.
#[inline(always)]
pub fn silus<const N: usize>(x: [f32; N]) -> [f32; N] {
    let s = sigmoids(x);
    array_of(|i| x[i] * s[i])
}

/// Computes ln x of every number. The results for ±0, negative numbers, ∞ and NaN are those of IEEE 754-2019 §9.2.
#[inline(always)]
pub fn ln_of_any(x: f32) -> f32 {
    let log = if x <= f32::MAX { ln(x) } else { x };
    let log = if x < 0.0 { f32::NAN } else { log };
    if x == 0.0 { f32::NEG_INFINITY } else { log }
}

/// Computes tanh x of N numbers: by a polynomial near 0, else by the exponential.
#[inline(always)]
pub fn tanhs<const N: usize>(x: [f32; N]) -> [f32; N] {
    let e = exps::<N>(array_of(|i| 2.0 * x[i].abs()));
    let near: [f32; N] = array_of(|i| {
        let (size, z) = (x[i].abs(), x[i] * x[i]);
        let p = -5.704_978_5e-3;
        let p = p * z + 2.063_907_9e-2;
        let p = p * z - 5.373_971e-2;
        let p = p * z + 1.333_144_2e-1;
        let p = p * z - 3.333_328e-1;
        size + size * z * p
    });
    array_of(|i| (if x[i].abs() < 0.625 { near[i] } else { 1.0 - 2.0 / (e[i] + 1.0) }).copysign(x[i]))
}

/// Computes the error function of N numbers: by a polynomial near 0, else by its complement.
#[inline(always)]
pub fn erfs<const N: usize>(x: [f32; N]) -> [f32; N] {
    let e = exps::<N>(array_of(|i| -x[i] * x[i]));
    let scaled = erfcxs::<N>(array_of(|i| x[i].abs()));
    let near: [f32; N] = array_of(|i| {
        let (size, z) = (x[i].abs(), x[i] * x[i]);
        let p = 7.898_686_5e-5;
        let p = p * z - 8.024_815e-4;
        let p = p * z + 5.190_162e-3;
        let p = p * z - 2.685_491_6e-2;
        let p = p * z + 1.128_361_75e-1;
        let p = p * z - 3.761_263e-1;
        // 2/√π, less 1: the largest part has no error.
        size + size * (z * p + 1.283_791_7e-1)
    });
    array_of(|i| (if x[i].abs() < 0.75 { near[i] } else { 1.0 - scaled[i] * e[i] }).copysign(x[i]))
}

/// Computes e^(x²) · erfc x of N numbers x ≥ 0, as 1 − x · t · p(t) with t = 1 / (1 + 0.4·x): near 0 no digit is lost,
/// and far from it fewer than e^(−x²) has lost.
#[inline(always)]
fn erfcxs<const N: usize>(x: [f32; N]) -> [f32; N] {
    // Where e^(−x²) is 0.
    let x: [f32; N] = array_of(|i| if x[i] > 11.0 { 11.0 } else { x[i] });
    let t: [f32; N] = array_of(|i| 1.0 / (1.0 + 0.4 * x[i]));
    let square: [f32; N] = array_of(|i| t[i] * t[i]);
    let a: [f32; N] = array_of(|i| 3.256_973_6e-2 * t[i] - 1.400_338_4e-1);
    let b: [f32; N] = array_of(|i| 1.666_427_6e-1 * t[i] - 2.403_045_3e-2);
    let a: [f32; N] = array_of(|i| a[i] * square[i] + b[i]);
    let c: [f32; N] = array_of(|i| 1.708_631_2e-1 * t[i] + 2.117_376_8e-1);
    let d: [f32; N] = array_of(|i| 3.106_791_4e-1 * t[i] + 3.999_509_2e-1);
    let c: [f32; N] = array_of(|i| c[i] * square[i] + d[i]);
    let p: [f32; N] = array_of(|i| a[i] * (square[i] * square[i]) + c[i]);
    array_of(|i| 1.0 - x[i] * t[i] * p[i])
}

/// Computes Φ(x) = erfc(−x/√2) / 2 of N numbers; the lower tail keeps its digits.
#[inline(always)]
fn normal_cdfs<const N: usize>(x: [f32; N]) -> [f32; N] {
    cdfs(x, exps(array_of(|i| -0.5 * x[i] * x[i])))
}

/// Computes Φ(x) of N numbers whose e^(−x²/2) is passed as `e`.
#[inline(always)]
fn cdfs<const N: usize>(x: [f32; N], e: [f32; N]) -> [f32; N] {
    let scaled = erfcxs::<N>(array_of(|i| x[i].abs() * core::f32::consts::FRAC_1_SQRT_2));
    array_of(|i| {
        let tail = 0.5 * scaled[i] * e[i];
        if x[i] < 0.0 { tail } else { 1.0 - tail }
    })
}

/// Computes GELU, x · Φ(x), of N numbers at once.
#[inline(always)]
pub fn gelus<const N: usize>(x: [f32; N]) -> [f32; N] {
    let cdf = normal_cdfs(x);
    array_of(|i| x[i] * cdf[i])
}

/// Computes the slope of GELU, Φ(x) + x · Φ′(x), with Φ′(x) = e^(−x²/2) / √(2π).
#[inline(always)]
pub fn gelu_slopes<const N: usize>(x: [f32; N]) -> [f32; N] {
    const FACTOR: f32 = 0.5 * core::f32::consts::FRAC_2_SQRT_PI * core::f32::consts::FRAC_1_SQRT_2;
    let e = exps(array_of(|i| -0.5 * x[i] * x[i]));
    let cdf = cdfs(x, e);
    array_of(|i| cdf[i] + x[i] * (FACTOR * e[i]))
}

/// Computes the slope of SiLU, σ(x) · (1 + x · (1 − σ(x))), of N numbers.
#[inline(always)]
pub fn silu_slopes<const N: usize>(x: [f32; N]) -> [f32; N] {
    let s = sigmoids(x);
    array_of(|i| s[i] * (1.0 + x[i] * (1.0 - s[i])))
}

#[cfg(test)]
mod tests {
    use super::{erfs, exp, exps, fast_ln, gelu_slopes, ln, ln_of_any, normal_cdfs, pow, sigmoids, tanhs};

    /// Returns the scalar form of a vectorised function, by calling it with an array of one element.
    fn scalar(f: impl Fn([f32; 1]) -> [f32; 1]) -> impl Fn(f32) -> f32 {
        move |x| f([x])[0]
    }

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
        assert!(worst(-80.0, 80.0, scalar(sigmoids), |x| 1.0 / (1.0 + (-x).exp())) < 5.0);
        assert!(worst(-9.5, 9.5, scalar(tanhs), f64::tanh) < 4.0);
        assert!(worst(-1e-3, 1e-3, scalar(tanhs), f64::tanh) < 3.0);
        assert!(worst(-4.5, 4.5, scalar(erfs), libm::erf) < 4.0);
        assert!(worst(-1e-3, 1e-3, scalar(erfs), libm::erf) < 3.0);
        let cdf = |x: f64| 0.5 * libm::erfc(-x * core::f64::consts::FRAC_1_SQRT_2);
        assert!(worst(-1.0, 6.0, scalar(normal_cdfs), cdf) < 8.0);
        // The square in the exponent is rounded: an error that grows with it.
        assert!(worst(-13.0, -1.0, scalar(normal_cdfs), cdf) < 170.0);
        let density = |x: f64| (-0.5 * x * x).exp() / (2.0 * core::f64::consts::PI).sqrt();
        assert!(worst(-0.5, 6.0, scalar(gelu_slopes), |x| cdf(x) + x * density(x)) < 10.0);
        // A hundred numbers at a time have the bits of one.
        let x: [f32; 100] = core::array::from_fn(|i| i as f32 * 0.2 - 10.0);
        for (all, each) in [
            (erfs(x), x.map(scalar(erfs))),
            (exps(x), x.map(exp)),
            (gelu_slopes(x), x.map(scalar(gelu_slopes))),
            (sigmoids(x), x.map(scalar(sigmoids))),
            (tanhs(x), x.map(scalar(tanhs))),
        ] {
            assert_eq!(all.map(f32::to_bits), each.map(f32::to_bits));
        }
    }

    /// All of the digits, and numbers of every exponent.
    #[test]
    fn short_logarithm() {
        let error = |x: f32| (f64::from(fast_ln(x)) - f64::from(x).ln()).abs();
        let near = (0.5f32.to_bits()..2f32.to_bits()).map(|bits| error(f32::from_bits(bits)));
        assert!(near.fold(0.0, f64::max) < 2f64.powi(-21));
        let far = (1..f32::INFINITY.to_bits()).step_by(9973).map(f32::from_bits);
        // And half a last place of the product with the exponent and of the sum.
        let allowed = |x: f32| 2f64.powi(-21) + 2f64.powi(-23) * f64::from(x).ln().abs();
        assert!(far.map(|x| error(x) / allowed(x)).fold(0.0, f64::max) < 1.0);
        assert_eq!(fast_ln(1.0), 0.0);
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
        assert_eq!(bits(ends.map(scalar(tanhs))), bits([-1.0, -0.0, 0.0, 1.0]));
        assert_eq!(bits(ends.map(scalar(erfs))), bits([-1.0, -0.0, 0.0, 1.0]));
        assert_eq!(ends.map(scalar(normal_cdfs)), [0.0, 0.5, 0.5, 1.0]);
        assert_eq!(ends.map(ln_of_any)[1..], [f32::NEG_INFINITY, f32::NEG_INFINITY, f32::INFINITY]);
        let not_a_number = [ln_of_any(-1.0), ln_of_any(f32::NEG_INFINITY)];
        assert!(not_a_number.into_iter().all(f32::is_nan));
        assert!(ln_of_any(f32::NAN).is_nan());
        assert!([tanhs, erfs, normal_cdfs, sigmoids].iter().all(|f| f([f32::NAN])[0].is_nan()));
    }
}
