//! Tests of sites and rules whose stores have another format than FP16, against casts of the values themselves.

mod common;

use common::{E4M3, E5M2, FP16, Fate, SplitMix64, Target, cases, narrow, pow2, row, site};
use gradscale_core::{
    model::{lambda_max, lambda_min, terms::Terms, theorem1},
    site::{Calls, Memory, Site, SiteConfig, SiteOutcome},
    solve::{Amax, ConfigError, Operand, Paper},
    stats::{Detail, FlushRule, Stats},
    store_format::StoreFormat,
};
use proptest::{collection::vec, prelude::*, sample::select};

/// Returns the format by the numbers of the specification.
fn target(format: StoreFormat) -> Target {
    match format {
        StoreFormat::Fp16 => FP16,
        StoreFormat::E5m2 => E5M2,
        StoreFormat::E4m3 => E4M3,
    }
}

fn count(format: StoreFormat, values: &[f32], k: i32, fate: Fate) -> usize {
    let of = |&u: &f32| target(format).fate(FlushRule::Nearest, f64::from(u) * pow2(k)) == fate;
    values.iter().filter(|u| of(u)).count()
}

fn seen(format: StoreFormat, alpha: i32, detail: Detail, values: &[f32]) -> Stats {
    let scaled: Vec<f32> = values.iter().map(|&v| narrow(f64::from(v) * pow2(alpha))).collect();
    row(format.convention(), alpha, detail, &scaled)
}

#[test]
fn bounds_are_those_of_the_specification() {
    for format in StoreFormat::ALL {
        let Target { mantissa_bits, least_exponent, max, .. } = target(format);
        let most = common::floor_log2(max);
        let number = format.format();
        assert_eq!(number.binades(), most - least_exponent + 1, "{format}");
        assert_eq!(number.exponents(), most - least_exponent + 1 + mantissa_bits, "{format}");
        assert_eq!(format.convention().format(), number);
        assert_eq!(lambda_max(format), max);
        assert_eq!(SiteConfig::exact().with_format(format).exact.window(), mantissa_bits + 1);
    }
    assert_eq!(StoreFormat::ALL.map(StoreFormat::max_ceiling_spread), [24, 16, 2]);
    assert_eq!(StoreFormat::ALL.map(lambda_min), [6e-8, pow2(-16), pow2(-9)]);
    assert_eq!(StoreFormat::ALL.map(|format| format.to_string()), ["fp16", "e5m2", "e4m3"]);
}

proptest! {
    #![proptest_config(cases(256))]

    /// Nothing overflows at a decision. Where the format has room for all values beside the window and the headroom, none
    /// is even subnormal.
    #[test]
    fn a_decision_keeps_values_inside_the_format(
        format in select(StoreFormat::ALL.to_vec()), low in -60..40i32, width in 0..30u8, seed in any::<u64>(),
    ) {
        let mut random = SplitMix64(seed);
        let exponents = (0..200).map(|i| {
            let above = if i == 0 { usize::from(width) } else { random.below(usize::from(width) + 1) };
            low + i32::try_from(above).expect("below 30")
        });
        let exponents: Vec<i32> = exponents.collect();
        let digits = |exponent: i32| narrow((1.0 + random.unit() * 0.99) * pow2(exponent));
        let values: Vec<f32> = exponents.into_iter().map(digits).collect();
        let mut site = site(SiteConfig::exact().with_format(format));
        let alpha = site.decide(site.exact(&seen(format, 0, Detail::Full, &values)), 0).expect("not all zero");
        prop_assert_eq!(count(format, &values, alpha, Fate::Overflowed), 0);
        let binades = format.format().binades();
        if i32::from(width) + 1 + 6 < binades {
            prop_assert_eq!(count(format, &values, alpha, Fate::Subnormal), 0);
            prop_assert_eq!(count(format, &values, alpha, Fate::Flushed), 0);
        }
        // The counters of the store agree with the casts.
        let stored = seen(format, alpha, Detail::Full, &values);
        let counts = stored.counts();
        prop_assert_eq!(counts.flushed, count(format, &values, alpha, Fate::Flushed) as u64);
        prop_assert_eq!(counts.subnormal, count(format, &values, alpha, Fate::Subnormal) as u64);
    }

    /// Rules of FP8 libraries: the largest power of two at which no row of the history overflows, minus the margin.
    #[test]
    fn amax_follows_the_bounds(
        format in select(StoreFormat::ALL.to_vec()), history in 1..=16u32, margin in 0..=4u32,
        magnitudes in vec((-30..30i32, 1.0..2.0f64), 1..24),
    ) {
        let amax = Amax::new(history, margin).expect("in range");
        let mut site = site(SiteConfig::amax(amax).with_format(format));
        let mut known = Vec::new();
        for (exponent, digits) in magnitudes {
            let value = narrow(digits * pow2(exponent));
            let row = seen(format, site.alpha().unwrap_or(0), Detail::Counts, &[value]);
            let end = if row.counts().overflowed == 0 { SiteOutcome::Stepped } else { SiteOutcome::Skipped };
            site.finish(&row, end);
            known.push(value);
            let last = &known[known.len().saturating_sub(history as usize)..];
            let fits = |k: &i32| count(format, last, *k, Fate::Overflowed) == 0;
            let most = (-120..120).rev().find(fits).expect("some exponent fits");
            prop_assert_eq!(site.alpha(), Some(most - i32::try_from(margin).expect("small")));
        }
    }

    /// Theorem 1 with the bounds of a format: the fraction that its cast flushes is below the threshold, because values up
    /// to half of λ_min flush, and one exponent lower it would be predicted above it.
    #[test]
    fn theorem_1_takes_the_bounds(format in select(StoreFormat::ALL.to_vec()), exponent in -20..4i32, seed in any::<u64>()) {
        let mut random = SplitMix64(seed);
        let normal: Vec<f32> = (0..4000).map(|_| narrow(random.normal() * pow2(exponent))).collect();
        let row = row(format.convention(), 0, Detail::Moments, &normal);
        let dy = Operand::from_row(&row).expect("finite");
        let w = Operand { rms: 1.0, max: 1.0, convention: format.convention() };
        let paper = Paper::new(1e-3).expect("a share").with_format(format);
        let choice = paper.product(&dy, &w, Terms { typical: 1.0, worst: 1.0 }).expect("finite");
        let sigma = theorem1::spread(1.0, dy.rms, 1.0);
        let predicted = |k: i32| theorem1::predicted(lambda_min(format), sigma, k);
        prop_assert_eq!(choice.gamma, predicted(choice.k));
        prop_assert!(choice.k == 0 || predicted(choice.k) <= 1e-3 && predicted(choice.k - 1) > 1e-3);
        let flushed = count(format, &normal, choice.k, Fate::Flushed);
        prop_assert!(flushed <= 14, "{flushed} of 4000 flushed");
        prop_assert_eq!(count(format, &normal, choice.k, Fate::Overflowed), 0);
    }
}

/// The history serves ceilings as far apart as the format allows. A row further away decides alone, and the others keep
/// their exponent.
#[test]
fn the_span_is_that_of_the_format() {
    for (format, apart, together) in [
        (StoreFormat::E4m3, 2, true),
        (StoreFormat::E4m3, 3, false),
        (StoreFormat::E5m2, 16, true),
        (StoreFormat::E5m2, 17, false),
    ] {
        let mut site = site(SiteConfig { interval: 1, ..SiteConfig::exact().with_format(format) });
        // Values so far apart that the headroom decides the exponent, and not the window.
        let width = format.format().exponents() - 4;
        let batch = |m: i32| [vec![narrow(pow2(m))], vec![narrow(pow2(m - width)); 99]].concat();
        let (small, large) = (batch(0), batch(apart));
        let alpha = site.decide(site.exact(&seen(format, 0, Detail::Full, &small)), 0).expect("a value");
        for _ in 0..20 {
            site.finish(&seen(format, site.alpha().expect("decided"), Detail::Full, &small), SiteOutcome::Stepped);
        }
        let usual = site.alpha().expect("decided");
        assert!(usual > alpha, "{format}: the headroom falls to two bits");
        let failed = seen(format, usual, Detail::Full, &large);
        assert_eq!(failed.counts().overflowed != 0, apart > 2, "{format}: two bits are free");
        site.repeat(&failed);
        let own = site.decide(site.exact(&seen(format, 0, Detail::Full, &large)), 0).expect("a value");
        let stored = seen(format, own, Detail::Full, &large);
        assert_eq!(stored.counts().overflowed, 0, "{format}");
        site.finish(&stored, SiteOutcome::Stepped);
        assert_eq!(site.alpha() != Some(usual), together, "{format}: {apart} binades apart");
    }
}

/// A saved site keeps its format, under every rule, and a site of FP16 has the words that it had before formats.
#[test]
fn words_keep_the_format() {
    let amax = |history, margin| SiteConfig::amax(Amax::new(history, margin).expect("in range"));
    let memory = |memory| SiteConfig { memory, calls: Calls::Several, ..SiteConfig::exact() };
    let all = [amax(0, 0), amax(16, 15), memory(Memory::None), memory(Memory::Least), memory(Memory::Ring)];
    for config in all {
        let plain = site(config).to_words();
        for format in StoreFormat::ALL {
            let words = site(config.with_format(format)).to_words();
            let back = Site::from_words(&words).expect("saved by a site");
            assert_eq!(*back.config(), config.with_format(format));
            assert_eq!(back.to_words(), words);
            assert_eq!(words == plain, format == StoreFormat::Fp16);
        }
        let mut unknown = plain;
        unknown[3] += 3 * (site(config.with_format(StoreFormat::E5m2)).to_words()[3] - plain[3]);
        assert!(Site::from_words(&unknown).is_err(), "no such format");
    }
}

#[test]
fn a_margin_must_leave_a_normal_number() {
    let margin = |margin| SiteConfig::amax(Amax::new(16, margin).expect("in range")).with_format(StoreFormat::E4m3);
    assert!(Site::new(margin(15)).is_ok());
    let refused = Site::new(margin(16)).map(|_| ());
    assert_eq!(refused, Err(ConfigError::MarginOfFormat { margin: 16, format: StoreFormat::E4m3 }));
    assert_eq!(
        refused.map_err(|error| error.to_string()),
        Err("an amax margin must be at most 15 binades with format=e4m3, not 16".to_owned())
    );
}

/// A device writes words without a format. Whoever knows the store names it, and the row decides as if observed so.
#[test]
fn a_counted_row_takes_its_format() {
    for format in StoreFormat::ALL {
        let values = [1.0, 3e-5, 700.0, 0.0, f32::NAN];
        let own = row(format.convention(), 3, Detail::Moments, &values);
        let read = Stats::from_words(&own.to_words(), StoreFormat::Fp16.convention(), 3).expect("written by a row");
        assert_eq!(read.counted_in(format), Stats::from_words(&own.to_words(), format.convention(), 3).expect("a row"));
    }
}

/// A store rounds once, and the half holds every pattern of the format: at all bounds between neighbours and beside
/// them, the result is that of arithmetic in f64, and the counters are those of the casts.
#[test]
fn a_store_rounds_once_and_is_counted() {
    for format in StoreFormat::ALL {
        let number = format.format();
        let Target { mantissa_bits, least_exponent, max, .. } = target(format);
        let line: Vec<f32> = (0..=number.max_bits()).map(|bits| number.decode(bits)).collect();
        for &value in &line {
            assert_eq!(format.round(value).to_f32().to_bits(), value.to_bits(), "{format}: {value:e} is no half");
            assert_eq!(format.round(-value).to_f32().to_bits(), (-value).to_bits());
        }
        let middles = line.windows(2).map(|pair| narrow(f64::midpoint(pair[0].into(), pair[1].into())));
        let middle = number.max() + (number.max() - line[line.len() - 2]) / 2.0;
        let around = |x: f32| [x.to_bits().saturating_sub(1), x.to_bits(), x.to_bits() + 1].map(f32::from_bits);
        let inputs: Vec<f32> = middles.chain([middle, f32::MAX, 1e-40]).flat_map(around).collect();
        let (mut flushed, mut subnormal, mut overflowed) = (0, 0, 0);
        for &x in inputs.iter().filter(|x| x.is_finite()) {
            let exact = f64::from(x);
            let exponent = if exact < pow2(least_exponent) { least_exponent } else { common::floor_log2(exact) };
            let quantum = pow2(exponent - mantissa_bits);
            let want = (exact / quantum).round_ties_even() * quantum;
            let got = format.round(x).to_f64();
            if want > max {
                assert!(
                    !got.is_finite() && got.is_nan() == (format == StoreFormat::E4m3),
                    "{format}: {x:e} gave {got:e}"
                );
                overflowed += 1;
            } else {
                assert_eq!(got.to_bits(), want.to_bits(), "{format}: {x:e} gave {got:e}");
                flushed += u64::from(want == 0.0 && x != 0.0);
                subnormal += u64::from(want != 0.0 && want < pow2(least_exponent));
            }
        }
        let finite: Vec<f32> = inputs.into_iter().filter(|x| x.is_finite()).collect();
        let row = row(format.convention(), 0, Detail::Counts, &finite);
        let counts = row.counts();
        assert_eq!((counts.flushed, counts.subnormal, counts.overflowed), (flushed, subnormal, overflowed), "{format}");
        assert!(format.round(f32::NAN).is_nan());
        let infinite = format.round(f32::NEG_INFINITY);
        assert!(if format == StoreFormat::E4m3 { infinite.is_nan() } else { infinite == half::f16::NEG_INFINITY });
    }
}
