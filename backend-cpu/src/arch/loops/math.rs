//! Exponentials, logarithms and powers without calls or branches, which loops over them need to become wide.
//!
//! The polynomials of exp and ln are those of Moshier's Cephes (`expf.c`, `logf.c`): about one last place.

/// 1.5 · 2^23 and 1.5 · 2^52: what is added to them is rounded to an integer, in the last bits.
const ROUND: f32 = 12_582_912.0;
const ROUND_WIDE: f64 = 6_755_399_441_055_744.0;

/// ln 2 in two parts, the first with so few digits that an exponent times it is exact.
const LN_2: [f32; 2] = [355.0 / 512.0, -2.121_944_4e-4];

/// e^x; ±∞ and NaN as IEEE 754-2019 §9.2 says, subnormal results rounded.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Far enough for ∞ and 0; NaN is kept.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x * core::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2[0]) - n * LN_2[1];
    times_power(exp_near_0(r), shifted.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed())
}

/// e^r for |r| ≤ ln 2 / 2.
#[inline(always)]
fn exp_near_0(r: f32) -> f32 {
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    p * (r * r) + r + 1.0
}

/// x · 2^n for |n| ≤ 252, rounded once.
#[inline(always)]
fn times_power(x: f32, n: i32) -> f32 {
    let power = |n: i32| f32::from_bits((n.wrapping_add(127).cast_unsigned()) << 23);
    let half = n >> 1;
    x * power(half) * power(n.wrapping_sub(half))
}

/// ln x for finite positive x, subnormal ones too.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    let (m, e) = parts(x);
    let f = m - 1.0;
    let p = 7.037_683_6e-2;
    let p = p * f - 1.151_461e-1;
    let p = p * f + 1.167_699_9e-1;
    let p = p * f - 1.242_014_1e-1;
    let p = p * f + 1.424_932_3e-1;
    let p = p * f - 1.666_805_8e-1;
    let p = p * f + 2.000_071_5e-1;
    let p = p * f - 2.499_999_4e-1;
    let p = p * f + 0.333_333_3;
    let square = f * f;
    let tail = p * f * square + e * LN_2[1] - 0.5 * square;
    f + tail + e * LN_2[0]
}

/// x = m · 2^e with √½ ≤ m < √2.
#[inline(always)]
fn parts(x: f32) -> (f32, f32) {
    const SQRT_HALF: u32 = 0x3F35_04F3;
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
    let (r, n) = (
        ((y - (shifted - ROUND_WIDE)) * core::f64::consts::LN_2) as f32,
        shifted.to_bits().wrapping_sub(ROUND_WIDE.to_bits()) as i32,
    );
    times_power(exp_near_0(r), n)
}

/// 1 / (1 + e^-x), by the exponential that does not overflow.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    let e = exp(-x.abs());
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

#[cfg(test)]
mod tests {
    use super::{exp, ln, pow, sigmoid};

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
    }
}
