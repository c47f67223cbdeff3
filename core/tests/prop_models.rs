//! Tests of the paper's rule and the authors' code against their formulas in plain f64, of their predictions against
//! rates counted on sampled data, and of N against a count of products.

mod common;

use common::{FP16, Fate, SplitMix64, assert_near, cases, narrow, pow2, row};
use core::f64::consts::{FRAC_1_SQRT_2, PI};
use gradscale_core::{
    model::{
        LAMBDA_MIN,
        terms::{ConvShape, Terms, TermsError},
        theorem1, theorem2,
    },
    solve::{Authors, Choice, LimitedBy, NoDecision, Operand, Paper},
    stats::{Convention, Detail, FlushRule, Stats},
};
use proptest::prelude::*;

/// λ_min and λ_max of the paper.
const LAMBDA: [f64; 2] = [6e-8, 65504.0];

/// Computes ∫ f from a to b by Simpson's rule.
fn integral(f: impl Fn(f64) -> f64, a: f64, b: f64) -> f64 {
    let n = 400;
    let h = (b - a) / f64::from(n);
    let weight = |i: i32| if i == 0 || i == n { 1.0 } else { f64::from(2 + 2 * (i % 2)) };
    (0..=n).map(|i| weight(i) * f(a + f64::from(i) * h)).sum::<f64>() * h / 3.0
}

/// Returns where the increasing `f` has the value `y`, by bisection.
fn inverse(f: impl Fn(f64) -> f64, y: f64, mut a: f64, mut b: f64) -> f64 {
    for _ in 0..60 {
        let middle = f64::midpoint(a, b);
        if f(middle) < y { a = middle } else { b = middle }
    }
    a
}

fn erf(x: f64) -> f64 {
    if x > 6.0 { 1.0 } else { integral(|t| (-t * t).exp(), 0.0, x) * 2.0 / PI.sqrt() }
}

/// Computes Φ by the area on the near side, which avoids cancellation.
fn normal_cdf(z: f64) -> f64 {
    let density = |t: f64| (-t * t / 2.0).exp() / (2.0 * PI).sqrt();
    if z > 0.0 { 1.0 - normal_cdf(-z) } else { integral(density, (z - 9.0).max(-38.0), z) }
}

fn sums(values: &[f32]) -> Stats {
    row(Convention::FP16, 0, Detail::Moments, values)
}

fn rms(values: &[f32]) -> f64 {
    (values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
}

fn amax(values: &[f32]) -> f64 {
    values.iter().map(|&x| f64::from(x.abs())).fold(0.0, f64::max)
}

/// Computes mean and standard deviation of ln|x| over the non-zeros.
fn logarithms(values: &[f32]) -> (f64, f64) {
    let logs: Vec<f64> = values.iter().filter(|&&x| x != 0.0).map(|&x| f64::from(x).abs().ln()).collect();
    let mean = |f: &dyn Fn(f64) -> f64| logs.iter().map(|&x| f(x)).sum::<f64>() / logs.len() as f64;
    let mu = mean(&|x| x);
    (mu, mean(&|x| (x - mu).powi(2)).sqrt())
}

/// Returns the largest k with bound · 2^k < 65520, tried from above.
fn k_of(bound: f64) -> i32 {
    (-330..330).rev().find(|&k| bound * pow2(k) < 65520.0).expect("some k fits")
}

/// Returns ⌊x⌋, unless the rounding of an f32 sum could move x across an integer.
#[expect(clippy::cast_possible_truncation, reason = "exponents of f64")]
fn floor(x: f64, margin: f64) -> Option<i32> {
    ((x - x.round()).abs() > margin).then(|| x.floor() as i32)
}

/// Computes k = min(max(0, k_uf), k_of), or as printed.
fn paper(k_uf: i32, k_of: i32, literal: bool) -> (i32, LimitedBy) {
    let wanted = if literal { k_uf } else { k_uf.max(0) };
    let held = if k_of < wanted {
        LimitedBy::Overflow
    } else if wanted > k_uf {
        LimitedBy::One
    } else {
        LimitedBy::Threshold
    };
    (wanted.min(k_of), held)
}

/// Computes max(1, ·), then min, then caps on β and on α·β, then floor.
fn authors(needed: f64, most: f64, alpha: i32) -> f64 {
    let mut beta = needed.max(1.0);
    beta = beta.min(most);
    beta = beta.min(LAMBDA[1]);
    if beta * pow2(alpha) > LAMBDA[1] { LAMBDA[1] / pow2(alpha) } else { beta }
}

/// Returns normal or log-normal values at some scale, some of them masked.
fn gradient(low: i32, high: i32) -> impl Strategy<Value = Vec<f32>> {
    (any::<u64>(), 8..120usize, low..high, 0.3f64..3.0, any::<bool>(), 0f64..0.7).prop_map(
        |(seed, n, k, s, heavy, masked)| {
            let mut random = SplitMix64(seed);
            let mut one = |_| {
                let x = if heavy { (s * random.normal()).exp() } else { random.normal() };
                if random.unit() < masked { 0.0 } else { narrow(x * pow2(k)) }
            };
            (0..n).map(&mut one).chain([narrow(pow2(k))]).collect()
        },
    )
}

fn near(got: Choice, want: f64, share: f64) {
    assert_near(got.gamma, want, share * want + 1e-9, "predicted γ");
}

proptest! {
    #![proptest_config(cases(256))]

    /// Theorem 1: σ = √N · rms · rms, β_uf = λ_min / (√2 σ erf⁻¹(γ′)), against N · max · max on the other side.
    #[test]
    fn products_follow_theorem_1(
        dy in gradient(-60, 20), w in gradient(-12, 4), typical in 1f64..5000.0, more in 1f64..8.0, gamma in 1e-6f64..0.9,
        literal in any::<bool>(), alpha in -20..40i32,
    ) {
        let terms = Terms { typical, worst: typical * more };
        let operands = [&dy, &w].map(|values| Operand::from_row(&sums(values)).expect("finite, not zero"));
        let quantile = inverse(erf, gamma, 0.0, 6.0);
        let (worst, sigma) = (terms.worst * amax(&dy) * amax(&w), typical.sqrt() * rms(&dy) * rms(&w));
        let beta = |sigma: f64| LAMBDA[0] / (2f64.sqrt() * sigma * quantile);

        if let Some(below) = floor(beta(sigma).log2(), 1e-4) {
            let rule = Paper::new(gamma).expect("a share");
            let rule = if literal { rule.literal() } else { rule };
            let got = rule.product(&operands[0], &operands[1], terms).expect("σ > 0");
            prop_assert_eq!((got.k, got.held), paper(below + 1, k_of(worst), literal));
            near(got, erf(LAMBDA[0] / (2f64.sqrt() * sigma * pow2(got.k))), 1e-3);
        }
        // Half of the terms, whether they were masked or not.
        let sigma = sigma * FRAC_1_SQRT_2;
        let beta = authors(beta(sigma), LAMBDA[1] / worst, alpha);
        if let Some(k) = floor(beta.log2(), 1e-4) {
            let rule = Authors::new(gamma).expect("a share");
            let got = rule.product(&operands[0], &operands[1], terms, alpha).expect("σ > 0");
            prop_assert_eq!(got.k, k.clamp(-152, 101));
            near(got, erf(LAMBDA[0] / (2f64.sqrt() * sigma * pow2(got.k))), 1e-3);
        }
    }

    /// Theorem 2: β_uf = exp(ln λ_min − μ − s·z(γ′)) against the largest value.
    #[test]
    fn softmax_casts_follow_theorem_2(dy in gradient(-60, 20), gamma in 1e-6f64..0.9, literal in any::<bool>()) {
        let (mu, s) = logarithms(&dy);
        prop_assume!(s > 0.3);
        let z = inverse(normal_cdf, gamma, -9.0, 9.0);
        let needed = (LAMBDA[0].ln() - mu - s * z).exp();
        let predicted = |k: i32| normal_cdf((LAMBDA[0].ln() - mu - pow2(k).ln()) / s);
        // As printed e^⌊·⌋, whose logarithm is near an integer only by chance.
        let printed = floor(needed.ln(), 0.02).map_or(f64::NAN, |whole| f64::from(whole).exp());

        if let Some(below) = floor(if literal { printed } else { needed }.log2(), 0.02) {
            let rule = Paper::new(gamma).expect("a share");
            let rule = if literal { rule.literal() } else { rule };
            let got = rule.softmax_cast(&sums(&dy)).expect("finite, not zero");
            prop_assert_eq!((got.k, got.held), paper(below + 1, k_of(amax(&dy)), literal));
            near(got, predicted(got.k), 0.02);
        }
        if let Some(k) = floor(authors(needed, LAMBDA[1] / amax(&dy), 0).log2(), 5e-4) {
            let got = Authors::new(gamma).expect("a share").softmax_cast(&sums(&dy)).expect("finite, not zero");
            // If the model determines β, the rounding of the sums may change it.
            if floor(needed.log2(), 0.02).is_some() {
                prop_assert_eq!(got.k, k);
                near(got, predicted(got.k), 0.02);
            }
        }
    }

    /// Other casts: k = min(0, k_of).
    #[test]
    fn other_casts_only_ever_lower(values in gradient(-40, 40)) {
        let got = Paper::new(1e-3).expect("a share").other_cast(&sums(&values)).expect("finite, not zero");
        let k_of = k_of(amax(&values));
        prop_assert_eq!((got.k, got.held), (k_of.min(0), if k_of < 0 { LimitedBy::Overflow } else { LimitedBy::One }));
        prop_assert!(got.gamma.is_nan(), "there is no model");
    }

    /// N of a convolution's data gradient is a number of products: count them, far from the border.
    #[test]
    fn terms_count_products(
        kernel in [1..6u32, 1..6u32], stride in [1..6u32, 1..6u32], dilation in [1..5u32, 1..5u32],
        groups in 1..4u32, per_group in 1..4u32,
    ) {
        let shape = ConvShape { out_channels: groups * per_group, kernel, stride, dilation, groups };
        let [k, s, d] = [kernel, stride, dilation].map(|axes| axes.map(|x| x as usize));
        // Far from the border: one whole period of the stride, beginning at the position of the last tap.
        let reach = [0, 1].map(|axis| (k[axis] - 1) * d[axis]);
        let outputs = [0, 1].map(|axis| reach[axis].div_ceil(s[axis]) + 2);
        for group in 0..groups {
            let mut products = vec![vec![0u32; outputs[1] * s[1] + reach[1]]; outputs[0] * s[0] + reach[0]];
            for channel in 0..shape.out_channels {
                if channel / per_group != group {
                    continue;
                }
                for (oy, ox) in (0..outputs[0]).flat_map(|oy| (0..outputs[1]).map(move |ox| (oy, ox))) {
                    for (ky, kx) in (0..k[0]).flat_map(|ky| (0..k[1]).map(move |kx| (ky, kx))) {
                        products[oy * s[0] + ky * d[0]][ox * s[1] + kx * d[1]] += 1;
                    }
                }
            }
            let inner = products[reach[0]..][..s[0]].iter().flat_map(|line| &line[reach[1]..][..s[1]]);
            let some: Vec<f64> = inner.filter(|&&n| n > 0).map(|&n| f64::from(n)).collect();
            let terms = Terms::conv(shape).expect("a convolution");
            prop_assert_eq!(terms.worst, some.iter().copied().fold(0.0, f64::max), "worst of {:?}", shape);
            prop_assert_eq!(terms.worst, f64::from(*products.iter().flatten().max().expect("not empty")));
            assert_near(terms.typical, some.iter().sum::<f64>() / some.len() as f64, 1e-9, format!("typical {shape:?}"));
        }
        // Its transpose reads every tap of every channel of its group for each element; the authors count all groups.
        let all = f64::from(per_group * kernel[0] * kernel[1]);
        prop_assert_eq!(Terms::conv_transpose(shape), Ok(Terms { typical: all, worst: all }));
        let all = all * f64::from(groups);
        prop_assert_eq!(Terms::authors(shape), Terms { typical: all, worst: all });
    }
}

#[test]
fn shapes_that_are_no_convolution_are_refused() {
    let good = ConvShape { out_channels: 6, kernel: [3, 3], stride: [2, 1], dilation: [1, 1], groups: 3 };
    assert_eq!(Terms::conv(good), Ok(Terms { typical: 2.0 * 1.5 * 3.0, worst: 2.0 * 2.0 * 3.0 }));
    assert_eq!(Terms::linear(1000), Terms { typical: 1000.0, worst: 1000.0 });
    for bad in [
        ConvShape { kernel: [0, 3], ..good },
        ConvShape { stride: [1, 0], ..good },
        ConvShape { dilation: [0, 1], ..good },
    ] {
        assert_eq!((Terms::conv(bad), Terms::conv_transpose(bad)), (Err(TermsError::Zero), Err(TermsError::Zero)));
    }
    for groups in [0, 4] {
        let error = Err(TermsError::Groups { channels: 6, groups });
        assert_eq!(Terms::conv(ConvShape { groups, ..good }), error);
    }
}

/// "Below 65520" is strict, also if the quotient of the limits is a power of two.
#[test]
fn the_worst_case_stays_below_the_threshold() {
    let operand = |max: f64| Operand { rms: 1e-12, max, convention: Convention::FP16 };
    let k = |worst: f64, max: f64| {
        let terms = Terms { typical: 1.0, worst };
        let got = Paper::new(1e-3).expect("a share").product(&operand(max), &operand(1.0), terms).expect("σ > 0");
        assert_eq!(got.held, LimitedBy::Overflow);
        got.k
    };
    assert_eq!(k(1.0, 65520.0 * pow2(-20)), 19);
    assert_eq!(k(1.0, 65519.0 * pow2(-20)), 20);
    assert_eq!(k(16.0, 65520.0 * pow2(-20)), 15);
    assert_eq!(k(1.0, pow2(-10)), 25);
}

#[test]
fn a_spread_of_zero_decides_nothing() {
    let operand = Operand { rms: 1.0, max: 1.0, convention: Convention::FP16 };
    let zero = Operand { rms: 0.0, max: 0.0, ..operand };
    let (paper, authors) = (Paper::new(1e-3).expect("a share"), Authors::new(1e-3).expect("a share"));
    assert_eq!(paper.product(&zero, &operand, Terms::linear(8)), Err(NoDecision::Empty));
    assert_eq!(authors.product(&operand, &zero, Terms::linear(8), 0), Err(NoDecision::Empty));
    let infinite = Operand { rms: f64::INFINITY, ..operand };
    assert_eq!(paper.product(&infinite, &operand, Terms::linear(8)), Err(NoDecision::NotFinite));
}

/// Asserts that the number of `n` independent draws that meet a condition of probability `p` is within five standard
/// deviations.
#[track_caller]
fn assert_share(met: usize, n: usize, p: f64, case: &str) {
    let deviation = (n as f64 * p * (1.0 - p)).sqrt();
    assert_near(met as f64, n as f64 * p, 5.0 * deviation, case);
}

fn flushes(u: f64) -> bool {
    FP16.fate(FlushRule::Nearest, u) == Fate::Flushed
}

/// Theorem 1 on normal data: the predicted fraction is the counted one, at many scales. At the threshold, where 10^-3
/// is predicted for λ_min = 6e-8, nearest even really flushes 4.967e-4, because its threshold is 2^-25.
#[test]
fn theorem_1_predicts_what_is_counted_on_normal_data() {
    let mut random = SplitMix64(1);
    let n = 4_000_000;
    let normal: Vec<f64> = (0..n).map(|_| random.normal()).collect();
    for (sigma, k) in [(1e-6, 0), (1e-9, 12), (3e-8, 0), (2e-12, 10), (1e-30, 80), (5.0, -20)] {
        let met = normal.iter().filter(|&z| (z * sigma).abs() * pow2(k) <= LAMBDA_MIN).count();
        assert_share(met, n, theorem1::predicted(LAMBDA_MIN, sigma, k), "Theorem 1");
    }
    for (k, sigma) in [-3, 0, 40].map(|k| (k, LAMBDA[0] / (1.253314465e-3 * pow2(k)))) {
        assert_near(theorem1::predicted(LAMBDA_MIN, sigma, k), 1e-3, 1e-12, "at the threshold");
        let met = normal.iter().filter(|&z| flushes(z * sigma * pow2(k))).count();
        assert_share(met, n, 4.967e-4, "really flushed");
    }
}

/// Theorem 2 on log-normal data, with the same effect at the threshold: 4.4e-4 for a standard deviation of 3.
#[test]
fn theorem_2_predicts_what_is_counted_on_log_normal_data() {
    let mut random = SplitMix64(2);
    let n = 4_000_000;
    let normal: Vec<f64> = (0..n).map(|_| random.normal()).collect();
    for (mu, s, k) in [(-16.6, 3.0, 0), (-30.0, 1.0, 19), (-12.0, 0.5, -8), (-20.0, 4.0, 10), (-40.0, 2.0, 32)] {
        let met = normal.iter().filter(|&z| (mu + s * z).exp() * pow2(k) <= LAMBDA_MIN).count();
        assert_share(met, n, theorem2::predicted(LAMBDA_MIN, mu, s, k), "Theorem 2");
    }
    for k in [-3, 0, 40] {
        let (s, z) = (3.0, -3.090232);
        let mu = LAMBDA[0].ln() - pow2(k).ln() - s * z;
        assert_near(theorem2::predicted(LAMBDA_MIN, mu, s, k), 1e-3, 1e-8, "at the threshold");
        let met = normal.iter().filter(|&x| flushes((mu + s * x).exp() * pow2(k))).count();
        assert_share(met, n, 4.44e-4, "really flushed");
    }
}

/// Lemma 1 on real products, whose incoming gradient is masked by a ReLU: the zeros are included in the rms, and N is
/// the whole number of terms. The rule's prediction at its own k is the counted fraction.
#[test]
fn the_spread_of_masked_products_is_the_predicted_one() {
    let mut random = SplitMix64(3);
    let (n, terms) = (40_000, 256usize);
    let (mut dy, mut w, mut dx) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..n {
        let mut sum = 0.0;
        for _ in 0..terms {
            let masked = random.unit() < 0.5;
            let (y, x) = (random.normal() * 1e-9, random.normal() * 0.05);
            let (y, x) = (narrow(if masked { 0.0 } else { y }), narrow(x));
            sum += f64::from(y) * f64::from(x);
            dy.push(y);
            w.push(x);
        }
        dx.push(sum);
    }
    let operands = [&dy, &w].map(|values| Operand::from_row(&sums(values)).expect("finite, not zero"));
    for gamma in [0.05, 0.3] {
        let rule = Paper::new(gamma).expect("a share");
        let got = rule.product(&operands[0], &operands[1], Terms::linear(256)).expect("σ > 0");
        assert_eq!(got.held, LimitedBy::Threshold);
        assert!(got.gamma <= gamma && gamma < 2.0 * got.gamma * 1.01, "the least power of two");
        let met = dx.iter().filter(|x| x.abs() * pow2(got.k) <= LAMBDA_MIN).count();
        // A sum of 256 masked products is not quite normal: 15/N of excess kurtosis, an eighth of it at 0.
        let bound = 5.0 * (n as f64 * got.gamma).sqrt() + n as f64 * got.gamma * 15.0 / 8.0 / terms as f64;
        assert_near(met as f64, n as f64 * got.gamma, bound, "masked products");
    }
}
