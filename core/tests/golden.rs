//! Golden values: casts by numpy and ml_dtypes, models with 60 digits. The scripts in `golden/` generate them.

#![allow(clippy::cast_possible_truncation, reason = "numbers that were made to fit")]

use gradscale_core::{
    cast::Round,
    format::Format,
    model::{erf, theorem1, theorem2},
};

const MODELS: &str = include_str!("golden/models.csv");
const CASTS: &str = include_str!("golden/casts.csv");
const CASTS_F64: &str = include_str!("golden/casts_f64.csv");

fn rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    table.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(',').collect())
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).expect("a hexadecimal number")
}

/// Computes a row's function with this crate.
fn compute(kind: &str, x: &[f64]) -> f64 {
    let k = |x: f64| x as i32;
    match (kind, x) {
        ("erf", &[x]) => libm::erf(x),
        ("erfc", &[x]) => libm::erfc(x),
        ("erf_inv", &[y]) => erf::erf_inv(y),
        ("erfc_inv", &[q]) => erf::erfc_inv(q),
        ("quantile", &[p]) => erf::normal_quantile(p),
        ("theorem1_beta", &[lambda, n, dy, w, gamma]) => {
            theorem1::least_scale(lambda, theorem1::spread(n, dy, w), gamma)
        }
        ("theorem1_gamma", &[lambda, sigma, exponent]) => theorem1::predicted(lambda, sigma, k(exponent)),
        ("theorem2_log2beta", &[lambda, mu, s, gamma]) => theorem2::least_log2_scale(lambda, mu, s, gamma),
        ("theorem2_gamma", &[lambda, mu, s, exponent]) => theorem2::predicted(lambda, mu, s, k(exponent)),
        _ => panic!("no function {kind} of {} arguments", x.len()),
    }
}

/// 10^-15 relative, times the condition number that the script computed for each row (1 except for Theorem 2, whose
/// formula subtracts logarithms).
#[test]
fn models_to_1e_15() {
    let mut seen = std::collections::BTreeMap::<&str, (usize, f64)>::new();
    for row in rows(MODELS) {
        let [kind, inputs, want, condition, ..] = row[..] else { panic!("{row:?}") };
        let inputs: Vec<f64> = inputs.split(' ').map(|bits| f64::from_bits(hex(bits))).collect();
        let want = f64::from_bits(hex(want));
        let got = compute(kind, &inputs);
        let bound = 1e-15 * condition.parse::<f64>().expect("a number");
        let error = if got == want { 0.0 } else { ((got - want) / want).abs() };
        assert!(error <= bound, "{kind} {inputs:?}: got {got:e}, want {want:e}, off by {error:e} > {bound:e}");
        let (count, worst) = seen.entry(kind).or_default();
        *count += 1;
        *worst = worst.max(error / bound);
    }
    for (kind, (count, worst)) in &seen {
        println!("{kind}: {count} values, worst {worst:.2} of the bound");
    }
    assert_eq!(seen.len(), 9);
    assert!(seen["erf_inv"].0 >= 100 && seen["quantile"].0 >= 100);
}

/// Tests the constants of specification and paper at γ′ = 10^-3.
#[test]
fn constants_of_the_paper() {
    assert!((erf::erf_inv(1e-3) / 8.862271575e-4 - 1.0).abs() < 1e-9);
    assert!((core::f64::consts::SQRT_2 * erf::erf_inv(1e-3) / 1.253314465e-3 - 1.0).abs() < 1e-9);
    assert!((erf::normal_quantile(1e-3) / -3.090232 - 1.0).abs() < 1e-6);
}

#[test]
fn special_values_of_the_inverses() {
    for bad in [f64::NAN, f64::INFINITY, -1.5, 2.5] {
        assert!(erf::erf_inv(bad).is_nan() && erf::erfc_inv(bad).is_nan() && erf::normal_quantile(bad).is_nan());
    }
    assert_eq!([erf::erf_inv(1.0), erf::erf_inv(-1.0)], [f64::INFINITY, f64::NEG_INFINITY]);
    assert_eq!([erf::erfc_inv(0.0), erf::erfc_inv(2.0)], [f64::INFINITY, f64::NEG_INFINITY]);
    assert_eq!([erf::normal_quantile(0.0), erf::normal_quantile(1.0)], [f64::NEG_INFINITY, f64::INFINITY]);
    assert_eq!(erf::erf_inv(-0.0).to_bits(), (-0.0f64).to_bits());
}

#[test]
fn casts_of_numpy_and_ml_dtypes() {
    let mut count = 0;
    for row in rows(CASTS).filter(|row| row[0] != "f32_bits") {
        let x = f32::from_bits(u32::try_from(hex(row[0])).expect("32 bits"));
        for (format, want) in [Format::FP16, Format::BF16, Format::E5M2, Format::E4M3].into_iter().zip(&row[1..]) {
            let got = format.encode(x, Round::NearestEven).bits;
            assert_eq!(u64::from(got), hex(want), "{x:e} ({}) to {format}", row[0]);
            // f64 includes every f32, so the other entry point must agree.
            assert_eq!(format.encode_f64(f64::from(x), Round::NearestEven).bits, got, "{x:e} as f64 to {format}");
        }
        count += 1;
    }
    assert!(count > 3000);
}

/// Includes sums of a tie and a tiny value, which rounding through f32 gets wrong.
#[test]
fn f64_rounds_once() {
    let (mut count, mut traps) = (0, 0);
    for row in rows(CASTS_F64).filter(|row| row[0] != "f64_bits") {
        let x = f64::from_bits(hex(row[0]));
        let got = Format::FP16.encode_f64(x, Round::NearestEven).bits;
        assert_eq!(u64::from(got), hex(row[1]), "{x:e} ({})", row[0]);
        traps += u32::from(Format::FP16.encode(x as f32, Round::NearestEven).bits != got);
        count += 1;
    }
    assert!(count > 500 && traps > 50, "{count} rows, {traps} traps");
}

/// Exponents far above those of the format.
#[test]
fn f64_beyond_all_formats() {
    for x in [f64::MAX, 2f64.powi(400), 2f64.powi(511), 2f64.powi(512), 2f64.powi(1023), 1e39] {
        for format in [Format::FP16, Format::BF16, Format::E5M2, Format::FP32] {
            let infinity = format.infinity_bits().expect("it has one");
            assert_eq!(format.encode_f64(x, Round::NearestEven).bits, infinity, "{x:e} to {format}");
            assert_eq!(format.encode_f64(x, Round::TowardZero).bits, format.max_bits(), "{x:e} to {format}");
        }
        assert_eq!(Format::E4M3.encode_f64(-x, Round::NearestEven).bits, 0xFF, "{x:e}");
    }
}

/// binary32 is a format too, and the hardware converts f64 to it.
#[test]
fn f64_to_f32_as_the_hardware() {
    let mut state = 1u64;
    for _ in 0..2_000_000 {
        // Full-period generator (Knuth's constants); exponents concentrated at the limits of f32.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = state ^ state >> 29;
        let exponent = 1023 - 160 + mixed % 300;
        let x = f64::from_bits(exponent << 52 | state >> 12 | mixed << 63);
        assert_eq!(Format::FP32.encode_f64(x, Round::NearestEven).bits, (x as f32).to_bits(), "{x:e}");
    }
}
