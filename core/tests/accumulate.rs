//! Tests of long sums in few bits: formulas and emulated sums against `golden/accumulate.py`, the variance model
//! against emulated sums of random terms.

use gradscale_core::{
    accumulate::{Sum, add, exact_equal_terms, swamping_ratio, variance, worst_error},
    cast::Round,
    format::Format,
};
use proptest::prelude::*;

const GOLDEN: &str = include_str!("golden/accumulate.csv");

fn rows(kind: &str) -> impl Iterator<Item = (Vec<u32>, &'static str)> + use<'_> {
    let all = GOLDEN.lines().map(|line| line.split(',').collect::<Vec<_>>());
    all.filter(move |row| row[0] == kind).map(|row| {
        let arguments = row[1].split(' ').map(|number| number.parse().expect("a whole number"));
        (arguments.collect(), row[2])
    })
}

/// Full-period generator (Knuth's constants), equal to that of the script.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0
    }

    /// Returns a 24-bit integer over 2^20, times a power of two between 2^-12 and 2^3.
    fn term(&mut self) -> f64 {
        let state = self.next();
        let digits = (state >> 40) as f64 - 8_388_608.0;
        digits / 1_048_576.0 * 2f64.powi((state >> 36 & 15) as i32 - 12)
    }

    /// Returns a standard normal number (Box and Muller).
    fn normal(&mut self) -> f64 {
        let mut uniform = || ((self.next() >> 11) as f64 + 0.5) / 2f64.powi(53);
        (-2.0 * uniform().ln()).sqrt() * (core::f64::consts::TAU * uniform()).cos()
    }
}

#[test]
fn formulas_of_the_script() {
    let mut count = 0;
    let mut compare = |got: f64, want: &str, bound: f64, what: &[u32]| {
        let want: f64 = want.parse().expect("a number");
        // The script subtracts from 1 with 50 digits, so results below 10^-30 have lost too many of them.
        let error = if want.abs().max(got) < 1e-30 { 0.0 } else { ((got - want) / want).abs() };
        assert!(error <= bound, "{what:?}: {got:e} instead of {want:e}");
        count += 1;
    };
    for (x, want) in rows("lost") {
        compare(variance::lost(x[0], x[1], x[2]), want, 1e-12, &x);
    }
    for (x, want) in rows("lost_chunks") {
        compare(variance::lost_in_chunks(x[0], x[1], x[2], x[3]), want, 1e-12, &x);
    }
    for (x, want) in rows("worst") {
        compare(worst_error(x[0], x[1], x[2]), want, 1e-14, &x);
    }
    assert!(count > 90, "{count}");
}

#[test]
fn sums_of_the_script() {
    let mut count = 0;
    for (x, want) in rows("sum") {
        let format = Format::custom(x[0], x[1]).expect("a format");
        let round = if x[3] == 1 { Round::TowardZero } else { Round::NearestEven };
        let mut random = Random(u64::from(x[5]));
        let sum = (0..x[4]).fold(Sum::new(format, round).in_chunks(x[2]), |sum, _| sum.plus(random.term()));
        let want = f64::from_bits(u64::from_str_radix(want, 16).expect("bits"));
        assert_eq!(sum.total(), want, "{x:?}");
        count += 1;
    }
    assert_eq!(count, 40);
}

#[test]
fn equal_terms_of_the_script() {
    for (x, want) in rows("equal") {
        let (got, want) = (exact_equal_terms(x[0], x[1]), want.parse::<f64>().expect("a number"));
        // With other chunk sizes a sum may be exact slightly longer, because an even number of chunks is added.
        let right = if x[1] == 0 || x[1].is_power_of_two() { got == want } else { got <= want };
        assert!(right, "{x:?}: {got} instead of {want}");
    }
    assert_eq!(exact_equal_terms(2, 9), 8.0, "a chunk that is not exact itself");
    assert_eq!((swamping_ratio(10), swamping_ratio(5000)), (2048.0, f64::INFINITY));
}

/// Two roundings differ from one: the exact sums of these values have 80 bits and more.
#[test]
fn specks_beyond_f64_are_seen() {
    for format in [Format::FP16, Format::BF16, Format::TF32, Format::FP32] {
        let place = 2f64.powi(-(format.mantissa_bits() as i32));
        let middle = 1.0 + place / 2.0;
        for speck in [2f64.powi(-70), 2f64.powi(-1000)] {
            assert_eq!(add(format, middle, speck, Round::NearestEven), 1.0 + place, "{format}");
            assert_eq!(add(format, speck, middle, Round::NearestEven), 1.0 + place, "{format}");
            assert_eq!(add(format, -middle, -speck, Round::NearestEven), -1.0 - place, "{format}");
            assert_eq!(add(format, 1.0 + 1.5 * place, -speck, Round::NearestEven), 1.0 + place, "{format}");
            assert_eq!(add(format, 1.0, -speck, Round::TowardZero), 1.0 - place / 2.0, "{format}");
        }
    }
    assert_eq!(add(Format::FP16, 65504.0, 16.0, Round::NearestEven), f64::INFINITY);
    assert!(add(Format::FP16, f64::INFINITY, f64::NEG_INFINITY, Round::NearestEven).is_nan());
}

/// Measures the fraction of the variance that sums in `mantissa` bits keep, and its standard error, over `runs` sums of
/// normal terms of 5 mantissa bits. The same terms are also added exactly, so the error is that of the difference.
fn kept(mantissa: u32, length: u32, chunk: u32, round: Round, runs: u32) -> (f64, f64) {
    let (format, terms) = (Format::custom(8, mantissa).expect("a format"), Format::custom(8, 5).expect("a format"));
    let mut random = Random(u64::from(length));
    let (mut few, mut full, mut shares) = (0.0, 0.0, Vec::new());
    for _ in 0..runs {
        let (mut sum, mut exact) = (Sum::new(format, round).in_chunks(chunk), 0.0);
        for _ in 0..length {
            let term = f64::from(terms.decode(terms.encode_f64(random.normal(), Round::NearestEven).bits));
            sum = sum.plus(term);
            exact += term;
        }
        few += sum.total().powi(2);
        full += exact.powi(2);
        shares.push((sum.total().powi(2), exact.powi(2)));
    }
    let (ratio, n) = (few / full, f64::from(runs));
    // Standard error of a ratio of means (W. Cochran, Sampling Techniques, 1977, §2.11).
    let spread: f64 = shares.iter().map(|(few, full)| (few - ratio * full).powi(2)).sum();
    (ratio, (spread / n).sqrt() / (full / n) / n.sqrt())
}

/// If the model predicts no loss, none is measured (within 2 %). If it predicts a loss of a tenth or more, a sum with
/// 16 times the terms has lost that much. Rounding to nearest loses less than the model.
#[test]
fn variance_is_lost_where_the_model_says() {
    let (mut safe, mut late) = (0, 0);
    for mantissa in [3, 4, 5, 6] {
        for length in [16, 64, 256, 1024] {
            let lost = variance::lost(mantissa, 5, length);
            if lost < 0.02 {
                let (ratio, error) = kept(mantissa, length, 0, Round::NearestEven, 400);
                assert!((ratio - 1.0).abs() < 0.02 + 4.0 * error, "{mantissa} {length}: {ratio} ± {error}");
                safe += 1;
            } else if lost > 0.1 && length <= 256 {
                let (ratio, error) = kept(mantissa, 16 * length, 0, Round::NearestEven, 100);
                assert!(ratio < 0.9 + 4.0 * error, "{mantissa} {length}: {ratio} ± {error} after 16 times the terms");
                late += 1;
            }
        }
    }
    assert!(safe >= 5 && late >= 4, "{safe} lengths that are safe, {late} that are not");
}

/// 4096 terms in 4 bits: one by one a large part is lost, in chunks of 32 nearly nothing; toward zero nearly all.
#[test]
fn chunks_keep_what_single_terms_lose() {
    let (alone, chunks) = (variance::lost(4, 5, 4096), variance::lost_in_chunks(4, 5, 4096, 64));
    assert!(alone > 0.4 && chunks < alone, "{alone} {chunks}");
    let (one_by_one, error) = kept(4, 4096, 0, Round::NearestEven, 100);
    assert!(one_by_one < 0.75 + 4.0 * error, "{one_by_one} ± {error}");
    let (in_chunks, error) = kept(4, 4096, 64, Round::NearestEven, 100);
    assert!((in_chunks - 1.0).abs() < 0.03 + 4.0 * error, "{in_chunks} ± {error}");
    let (toward_zero, error) = kept(4, 4096, 0, Round::TowardZero, 100);
    assert!(toward_zero < 0.1 + 4.0 * error, "{toward_zero} ± {error}");
}

#[test]
fn lengths_and_widths_without_sense_do_not_break_it() {
    let all = [0, 1, 2, 3, 23, 64, u32::MAX];
    for mantissa in all {
        for term in all {
            for length in [0, 1, 2, 3, 1000] {
                for chunk in [0, 1, 2, 7, u32::MAX] {
                    let lost = variance::lost_in_chunks(mantissa, term, length, chunk);
                    assert!((0.0..=1.0).contains(&lost), "{mantissa} {term} {length} {chunk}: {lost}");
                }
            }
        }
        assert!(worst_error(mantissa, u32::MAX, 3) >= 0.0 && exact_equal_terms(mantissa, 3) > 0.0);
    }
    assert_eq!(variance::least_mantissa(5, 1, 0), Some(1));
}

/// The weight gradients of a convolution over 128 images of 32 × 32 pixels, operands of 5 mantissa bits.
#[test]
fn long_sums_need_a_long_mantissa_or_chunks() {
    assert_eq!(variance::least_mantissa(5, 128 * 32 * 32, 0), Some(12));
    assert_eq!(variance::least_mantissa(5, 128 * 32 * 32, 64), Some(8));
}

proptest! {
    /// No sum exceeds the error bound, whatever its terms.
    #[test]
    fn worst_error_bounds_every_sum(
        terms in prop::collection::vec(-1e3f64..1e3, 1..200), mantissa in 1u32..12, chunk in 0u32..20,
    ) {
        let format = Format::custom(8, mantissa).expect("a format");
        let sum = terms.iter().fold(Sum::new(format, Round::NearestEven).in_chunks(chunk), |sum, &x| sum.plus(x));
        let (exact, all) = terms.iter().fold((0.0, 0.0), |(exact, all), &x| (exact + x, all + x.abs()));
        let bound = worst_error(mantissa, u32::try_from(terms.len()).expect("short"), chunk) * all;
        prop_assert!((sum.total() - exact).abs() <= bound * (1.0 + 1e-9) + 1e-9, "{} {exact} {bound}", sum.total());
    }
}
