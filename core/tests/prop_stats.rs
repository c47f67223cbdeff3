//! Tests of rows: they are a commutative monoid, their counters equal the results of casts, and their histogram
//! predicts the result at every other exponent.

mod common;

use common::{
    E4M3, E5M2, FP16, Fate, SplitMix64, Target, assert_bits, assert_near, assert_same_row, detail, kind, narrow, pow2,
    row, value,
};
use gradscale_core::{
    cast::{Round, Status},
    scale::{Factor, MAX_STEP},
    stats::{Convention, Counts, Detail, FlushRule, MergeError, Stats},
};
use proptest::{collection::vec, prelude::*, sample::select};

/// Computes the counters, one value at a time.
fn naive_counts(target: Target, rule: FlushRule, exponent: i32, values: &[f32]) -> Counts {
    let mut counts = Counts::new(exponent);
    for &u in values {
        counts.count += 1;
        if u.is_finite() {
            counts.amax = counts.amax.max(u.abs());
        }
        match target.fate(rule, f64::from(u)) {
            Fate::Zero => counts.zeros += 1,
            Fate::Flushed => counts.flushed += 1,
            Fate::Subnormal => counts.subnormal += 1,
            Fate::Normal => {}
            Fate::Overflowed => counts.overflowed += 1,
            Fate::Infinite => counts.infinite += 1,
            Fate::Nan => counts.nan += 1,
        }
    }
    counts
}

fn merged(left: &Stats, right: &Stats) -> Stats {
    left.merge(right).expect("rows of one kind")
}

proptest! {
    #![proptest_config(common::cases(1024))]

    /// Any order, any split, any tree of merges: the integers of a row depend on the values alone.
    #[test]
    fn permutations_and_splits_change_no_bit(
        (target, rule) in kind(), exponent in any::<i32>(), mut values in vec(value(), 0..300), seed in any::<u64>(),
    ) {
        let convention = target.convention(rule);
        let whole = row(convention, exponent, Detail::Full, &values);
        let mut random = SplitMix64(seed);
        random.shuffle(&mut values);
        let mut parts = Vec::new();
        let mut rest = values.as_slice();
        while !rest.is_empty() {
            let (part, tail) = rest.split_at(random.below(rest.len() + 1));
            parts.push(row(convention, exponent, Detail::Full, part));
            rest = tail;
        }
        // Merge two at random until one is left; an empty row is included.
        parts.push(Stats::new(convention, exponent, Detail::Full));
        while parts.len() > 1 {
            let left = parts.swap_remove(random.below(parts.len()));
            let right = parts.swap_remove(random.below(parts.len()));
            parts.push(merged(&left, &right));
        }
        assert_same_row(&parts[0], &whole, "shuffled and split");
    }

    /// Identity, commutativity, associativity; one `observe` after another is a merge.
    #[test]
    fn rows_are_a_commutative_monoid(
        (target, rule) in kind(), exponent in any::<i32>(), level in detail(),
        a in vec(value(), 0..40), b in vec(value(), 0..40), c in vec(value(), 0..40),
    ) {
        let convention = target.convention(rule);
        let of = |values: &[f32]| row(convention, exponent, level, values);
        let (empty, ra, rb, rc) = (of(&[]), of(&a), of(&b), of(&c));
        prop_assert_eq!(empty, Stats::new(convention, exponent, level));
        assert_same_row(&merged(&ra, &empty), &ra, "right identity");
        assert_same_row(&merged(&empty, &ra), &ra, "left identity");
        assert_same_row(&merged(&ra, &rb), &merged(&rb, &ra), "commutativity");
        assert_same_row(&merged(&merged(&ra, &rb), &rc), &merged(&ra, &merged(&rb, &rc)), "associativity");
        let mut continued = ra;
        continued.observe(&b);
        assert_same_row(&continued, &merged(&ra, &rb), "observe twice");
    }

    /// Counters and amax are those of a device that stores one value after the other, for all five rules.
    #[test]
    fn counters_say_what_the_device_does(
        (target, rule) in kind(), exponent in any::<i32>(), values in vec(value(), 0..200),
    ) {
        let stats = row(target.convention(rule), exponent, Detail::Counts, &values);
        let want = naive_counts(target, rule, exponent, &values);
        assert_bits(stats.counts().amax, want.amax, "amax");
        prop_assert_eq!(*stats.counts(), want, "{:?} {:?}", target, rule);
    }

    /// If the device keeps subnormals, the crate's own cast is such a device: same flushes, same overflows.
    #[test]
    fn counters_say_what_the_crates_cast_does(
        target in select(vec![FP16, E5M2, E4M3]), toward_zero in any::<bool>(), saturating in any::<bool>(), u in value(),
    ) {
        let (rule, round) =
            if toward_zero { (FlushRule::TowardZero, Round::TowardZero) } else { (FlushRule::Nearest, Round::NearestEven) };
        let format = if saturating { target.format.saturating() } else { target.format };
        let convention = Convention::new(format, rule).expect("narrower than f32");
        let counts = *row(convention, 0, Detail::Counts, &[u]).counts();
        let cast = format.encode(u, round);
        prop_assert_eq!(counts.flushed == 1, cast.status == Status::Underflow, "{:e}: {:?}", u, cast);
        prop_assert_eq!(counts.overflowed == 1, cast.status == Status::Overflow, "{:e}: {:?}", u, cast);
        let stored = f64::from(format.decode(cast.bits)).abs();
        let subnormal = stored > 0.0 && stored < pow2(target.least_exponent);
        prop_assert_eq!(counts.subnormal == 1, subnormal, "{:e} is stored as {:e}", u, stored);
    }

    /// "Flush if and only if c ≤ T − k" is the flush rate of the device's cast of u · 2^k, for every k of a decision.
    #[test]
    fn the_histogram_rule_is_the_flush_rate_of_the_cast((target, rule) in kind(), values in vec(value(), 1..30)) {
        let stats = row(target.convention(rule), 0, Detail::Full, &values);
        let values: Vec<f32> = values.into_iter().filter(|u| u.is_finite() && *u != 0.0).collect();
        for k in -152..=101 {
            let rate = stats.flushed_at(k).expect("a histogram");
            prop_assert_eq!(rate.whole, values.len() as u64);
            prop_assert_eq!(rate.part, target.flushed(rule, &values, k), "{:?} {:?} k = {}", target, rule, k);
        }
    }

    /// The fraction of Σ|u| that flushes, within a factor of 2; bins of other rules end one rounding before a power of
    /// two.
    #[test]
    fn the_histogram_tells_which_share_of_the_sum_flushes(
        (target, rule) in kind(), values in vec(value(), 1..30), k in -152i32..=101,
    ) {
        let finite = |u: &f32| u.is_finite() && (*u == 0.0 || u.abs() >= f32::MIN_POSITIVE);
        let values: Vec<f32> = values.into_iter().filter(finite).collect();
        let stats = row(target.convention(rule), 0, Detail::Full, &values);
        let said = stats.lost_at(k).expect("a histogram");
        let sum = |values: &[f32]| values.iter().map(|u| f64::from(u.abs())).sum::<f64>();
        let lost: Vec<f32> = values.iter().copied().filter(|&u| u != 0.0 && target.flushed(rule, &[u], k) == 1).collect();
        let share = if lost.is_empty() { 0.0 } else { sum(&lost) / sum(&values) };
        prop_assert!((0.49..=2.04).contains(&(said / share)) || said == share, "{said:e} {share:e}, k = {k}");
    }

    /// Under nearest even bin c holds 2^(c−1) < |u| ≤ 2^c, and bin −126 everything below.
    #[test]
    fn a_bin_ends_at_a_power_of_two(u in value().prop_filter("has a bin", |u| u.is_finite() && *u != 0.0)) {
        let stats = row(Convention::FP16, 0, Detail::Full, &[u]);
        let bins = stats.bins().expect("a histogram");
        let c = (-126..=128).find(|&c| f64::from(u.abs()) <= pow2(c)).expect("2^128 is beyond f32");
        let key = usize::try_from(c + 127).expect("positive");
        prop_assert_eq!((bins[key], bins.iter().sum::<u32>()), (1, 1), "{:e} belongs to bin {}", u, c);
    }

    /// k_of is the largest k at which amax does not overflow under nearest even, found by trying all.
    #[test]
    fn room_above_is_the_last_k_that_fits((target, rule) in kind(), values in vec(value(), 1..5)) {
        let amax = values.iter().filter(|u| u.is_finite()).fold(0f32, |amax, u| amax.max(u.abs()));
        let fits = |k: &i32| target.fate(FlushRule::Nearest, f64::from(amax) * pow2(*k)) != Fate::Overflowed;
        let want = if amax == 0.0 { None } else { (-200..=200).rev().find(fits) };
        prop_assert_eq!(row(target.convention(rule), 0, Detail::Counts, &values).headroom_above(), want, "{:e}", amax);
    }

    /// u = v · 2^(to − from): one rounding, whatever the exponents; a finite v whose product is ±∞ counts as infinite,
    /// not as an overflow of the store.
    #[test]
    fn factors_are_exact_powers_rounded_once(
        v in value(), from in any::<i32>(), k in prop_oneof![
            -400..400i32, any::<i32>(), (select(vec![0, 126, 252, 378, -126, -252, -378]), -2..=2i32).prop_map(|(k, step)| k + step),
        ],
    ) {
        let to = from.saturating_add(k);
        let clamped = i32::try_from((i64::from(to) - i64::from(from)).clamp(-378, 378)).expect("small");
        let factor = Factor::between(from, to);
        // 2^±378 keeps every f32 within f64, so the product is exact and the cast is the only rounding.
        let want = narrow(f64::from(v) * pow2(clamped));
        let u = factor.apply(v);
        assert_bits(u, want, format!("{v:e} · 2^{clamped}"));
        prop_assert!(factor.parts().iter().all(|part| part.is_normal()));
        let needed = match clamped.abs() { 0 => 0, 1..=126 => 1, 127..=252 => 2, _ => 3 };
        prop_assert_eq!(factor.parts().iter().filter(|&&part| part != 1.0).count(), needed);
        let counts = *row(Convention::FP16, to, Detail::Full, &[u]).counts();
        prop_assert_eq!(counts.infinite == 1, want.is_infinite());
        prop_assert!(u.is_finite() || counts.overflowed == 0);
        prop_assert_eq!(MAX_STEP, 378);
    }

    /// Rows of different kinds count different things.
    #[test]
    fn rows_of_different_kinds_do_not_merge(
        a in (kind(), -3..3i32, detail()), b in (kind(), -3..3i32, detail()), values in vec(value(), 0..4),
    ) {
        let of = |((target, rule), exponent, level): ((Target, FlushRule), i32, Detail)| {
            row(target.convention(rule), exponent, level, &values)
        };
        let (left, right) = (of(a), of(b));
        let got = left.merge(&right).map(|_| ());
        match got {
            Ok(()) => prop_assert!(left.convention() == right.convention() && a.1 == b.1 && a.2 == b.2),
            Err(MergeError::Convention) => prop_assert!(left.convention() != right.convention()),
            Err(MergeError::Exponent { left, right }) => prop_assert!((left, right) == (a.1, b.1) && left != right),
            Err(MergeError::Detail) => prop_assert!(a.2 != b.2),
            Err(other) => prop_assert!(false, "{:?}", other),
        }
    }

    /// Moments stay within their bound: 2^-24 · (4096/16 + 16 + 2) and a logarithm's error, against sums in f64.
    /// Squares from 2^-114 to 2^114, so that neither they nor their sums leave f32.
    #[test]
    fn moments_stay_within_their_bound(
        seed in any::<u64>(), length in 0..9000usize, spread in 0f64..11.0, middle in -24f64..24.0, cut in 0..9000usize,
    ) {
        let mut random = SplitMix64(seed);
        let mut values: Vec<f32> = (0..length)
            .map(|_| narrow((middle + spread * random.normal().clamp(-3.0, 3.0)).exp2() * random.normal().signum()))
            .collect();
        if length > 3 {
            // These values are not part of a sum.
            values[..4].copy_from_slice(&[f32::NAN, -0.0, f32::INFINITY, f32::NEG_INFINITY]);
        }
        let (left, right) = values.split_at(cut.min(length));
        let of = |values: &[f32]| row(Convention::FP16, 0, Detail::Moments, values);
        let live: Vec<f64> = values.iter().filter(|u| u.is_finite() && **u != 0.0).map(|&u| f64::from(u)).collect();
        let sum = |term: &dyn Fn(f64) -> f64| live.iter().map(|&u| term(u)).sum::<f64>();
        for (stats, how) in [(of(&values), "whole"), (merged(&of(left), &of(right)), "merged")] {
            let got = stats.moments().expect("sums");
            let bound = |magnitudes: f64| magnitudes * pow2(-24) * (256.0 + 16.0 + 2.0 + 6.0);
            let (ln, abs_ln) = (sum(&|u| u.abs().ln()), sum(&|u| u.abs().ln().abs()));
            let (squares, ln_squares) = (sum(&|u| u * u), sum(&|u| u.abs().ln().powi(2)));
            assert_near(got.sum, sum(&|u| u), bound(sum(&f64::abs)), format!("{how}: Σu"));
            assert_near(got.sum_sq, squares, bound(squares), format!("{how}: Σu²"));
            assert_near(got.sum_ln, ln, bound(abs_ln), format!("{how}: Σ ln|u|"));
            assert_near(got.sum_ln_sq, ln_squares, bound(ln_squares), format!("{how}: Σ ln²|u|"));
        }
    }

}

/// A long sum whose additions all round in one direction: without blocks its error would grow with its length.
#[test]
fn long_sums_lose_no_more_than_short_ones() {
    for below in 1..24 {
        let x = f64::from(3f32 - narrow(pow2(1 - below)));
        let n = 1u32 << 20;
        let stats = row(Convention::FP16, 0, Detail::Moments, &vec![narrow(x); n as usize]);
        let got = stats.moments().expect("sums");
        let sums = [(got.sum, x), (got.sum_sq, x * x), (got.sum_ln, x.ln()), (got.sum_ln_sq, x.ln().powi(2))];
        for (got, term) in sums {
            let want = term * f64::from(n);
            assert_near(got, want, want * pow2(-24) * (256.0 + 16.0 + 2.0 + 6.0), format!("{n} times {x}"));
        }
    }
}

#[test]
fn minus_zero_is_a_zero_and_f32_subnormals_are_not() {
    let tiny = f32::from_bits(1);
    let stats = row(Convention::FP16, 0, Detail::Full, &[-0.0, 0.0, tiny, -tiny]);
    let counts = stats.counts();
    assert_eq!((counts.count, counts.zeros, counts.flushed, counts.nonzero()), (4, 2, 2, 2));
    assert_bits(counts.amax, tiny, "amax");
    assert_eq!(stats.bins().map(|bins| bins[1]), Some(2), "key 1 holds (0, 2^-126]");
}
