//! Known mistakes of others (`docs/specification.md`, section 12), each with a test that finds it.
//!
//! 10 and 11 belong to the optimizer, 15 to the backends.

mod common;

use common::{SplitMix64, assert_bits, assert_near, full, narrow, pow2, row, ulps};
use gradscale_core::{
    cast::{Round, f16_from_f32},
    gradient_rules::{branch_paper, parameter_gradient, sum},
    loss_scale::{
        Bounds, Chainer, Delayed, DelayedConfig, Dynamic, DynamicConfig, Feedback, Hysteresis, LogMax, LogMaxConfig,
        LossScale, RisingFloor,
    },
    scale::Factor,
    scaled::Scaled,
    site::{Calls, Site, SiteConfig, SiteOutcome},
    solve::{Exact, LimitedBy},
    stats::{Convention, Counts, Detail, Stats},
    step_outcome::{FirstNonFinite, NonFiniteKind, Outcome, SkipLimit, TooManySkips, found_inf},
};
use std::panic::catch_unwind;

fn dynamic(config: DynamicConfig) -> LossScale {
    LossScale::Dynamic(Dynamic::new(config).expect("a schedule"))
}

fn every_schedule() -> Vec<LossScale> {
    let bounds = Bounds::default();
    let quick = DynamicConfig { interval: 1, ..DynamicConfig::default() };
    vec![
        dynamic(quick.clone()),
        dynamic(DynamicConfig { hysteresis: Hysteresis::Cumulative(2), ..quick.clone() }),
        dynamic(DynamicConfig { hysteresis: Hysteresis::Consecutive(2), growth: 30, backoff: -30, ..quick.clone() }),
        dynamic(DynamicConfig { tolerance_ppm: 50_000, ..quick.clone() }),
        dynamic(DynamicConfig { floor: RisingFloor::new(&[(5, 1), (50, 29)]).expect("rises"), ..quick }),
        dynamic(DynamicConfig { interval: 1, ..DynamicConfig::backoff() }),
        LossScale::LogMax(LogMax::new(LogMaxConfig::default()).expect("a schedule")),
        LossScale::Chainer(Chainer::new(10, bounds).expect("a schedule")),
        LossScale::Delayed(Delayed::new(DelayedConfig::default()).expect("a schedule")),
        LossScale::fixed(1024.0).expect("a power of two"),
        LossScale::None,
        LossScale::Gradient,
    ]
}

/// Returns the factor of the exponent as an f32, which a training uses.
fn factor(scale: &LossScale) -> f32 {
    Factor::between(0, scale.exponent()).apply(1.0)
}

/// A training ends after a number of consecutive skips, whatever preceded them. A repeat is neither a skip nor a step.
#[test]
fn skips_are_counted_in_a_row() {
    let mut limit = SkipLimit::new(3);
    let mut see = |outcomes: &[Outcome]| outcomes.iter().try_for_each(|&outcome| limit.update(outcome));
    let (skip, repeat) = (
        Outcome::Skipped(None),
        Outcome::Repeated(FirstNonFinite { site: 0, kind: NonFiniteKind::Overflow, exponent: 3 }),
    );
    assert_eq!(see(&[skip, skip, Outcome::Stepped, skip, repeat, skip, Outcome::Stepped, skip, skip]), Ok(()));
    assert_eq!(see(&[skip]), Err(TooManySkips { in_a_row: 3, blame: None }));
    let mut never = SkipLimit::new(0);
    assert!((0..1000).all(|_| never.update(skip).is_ok()));
    // A restored counter continues at its value.
    let mut restored = SkipLimit::new(3);
    restored.restore(2);
    assert_eq!(restored.update(skip).map_err(|error| error.in_a_row), Err(3));
}

/// jmp: the minimum of a restored scaler is the default one.
#[test]
fn mistake_01_a_restored_scaler_keeps_its_minimum() {
    let bounds = Bounds::new(10, 20).expect("limits");
    let mut scale = dynamic(DynamicConfig { bounds, ..DynamicConfig::default() });
    scale.update(&Feedback::FOUND_INF);
    let mut restored = LossScale::from_words(&scale.to_words()).expect("saved");
    for _ in 0..50 {
        restored.update(&Feedback::FOUND_INF);
    }
    assert_eq!(restored.exponent(), 10);
}

/// Flax: the scale grows after interval + 1 steps.
#[test]
fn mistake_02_growth_takes_exactly_the_interval() {
    let mut scale = LossScale::Dynamic(Dynamic::default());
    let mut grew = Vec::new();
    for t in 1..=6000 {
        let before = scale.exponent();
        scale.update(&Feedback::FINITE);
        grew.extend((scale.exponent() > before).then_some(t));
    }
    assert_eq!((grew, scale.exponent()), (vec![2000, 4000, 6000], 19));
}

/// OpenSeq2Seq: an overflow is counted in a mean of log2 values as 2^16 instead of 16, and reduces the scale to its
/// minimum.
#[test]
fn mistake_03_an_overflow_is_a_logarithm_among_logarithms() {
    let mut scale = LossScale::LogMax(LogMax::new(LogMaxConfig::default()).expect("a schedule"));
    for _ in 0..1000 {
        scale.update(&Feedback { found_inf: false, amax: Some(Scaled::new(0.0625, 0)) });
    }
    assert_eq!(scale.exponent(), 20);
    scale.update(&Feedback::FOUND_INF);
    assert!((17..20).contains(&scale.exponent()), "one step or two lower, not {}", scale.exponent());
}

/// Megatron: "consecutive" overflows that are counted across finite steps.
#[test]
fn mistake_04_consecutive_is_not_cumulative() {
    let after = |hysteresis| {
        let mut scale = dynamic(DynamicConfig { hysteresis, ..DynamicConfig::default() });
        for _ in 0..10 {
            scale.update(&Feedback::FOUND_INF);
            scale.update(&Feedback::FINITE);
        }
        scale.exponent()
    };
    assert_eq!(after(Hysteresis::Consecutive(2)), 16, "no two overflows follow each other");
    assert_eq!(after(Hysteresis::Cumulative(2)), 16 - 9, "the second and each one after it");
}

/// apex: the scale halves until it is 0, and then 0 · ∞ is always NaN.
#[test]
fn mistake_05_no_schedule_reaches_zero() {
    for mut scale in every_schedule() {
        for _ in 0..10_000 {
            scale.update(&Feedback::FOUND_INF);
            assert!(factor(&scale).is_normal() && scale.exponent() >= -24, "{scale:?}");
        }
    }
}

/// Early torch.amp: the scale grows until it is ∞.
#[test]
fn mistake_06_no_schedule_reaches_infinity() {
    for mut scale in every_schedule() {
        for _ in 0..10_000 {
            scale.update(&Feedback { found_inf: false, amax: Some(Scaled::new(1e-30, 100)) });
            assert!(factor(&scale).is_finite() && scale.exponent() <= 30, "{scale:?}");
        }
    }
}

/// DeepSpeed: the check adds the values, and finite ones sum to ∞.
#[test]
fn mistake_07_a_sum_that_overflows_is_no_overflow() {
    let counts = |values: &[f32]| *row(Convention::FP16, 0, Detail::Moments, values).counts();
    let large = counts(&[f32::MAX; 64]);
    let opposite = counts(&[f32::MAX, f32::MAX, -f32::MAX, -f32::MAX]);
    assert!(!found_inf([&large, &opposite]));
    assert!(found_inf([&large, &counts(&[f32::INFINITY])]));
    assert!(found_inf([&large, &counts(&[f32::NAN])]));
}

/// Transformer Engine: −0 counts as a non-zero value.
#[test]
fn mistake_08_minus_zero_is_a_zero() {
    let counts = *full(0, &[-0.0, 0.0, -1e-30]).counts();
    assert_eq!((counts.zeros, counts.nonzero(), counts.flushed), (2, 1, 1));
    // It also neither prevents nor causes a decision.
    let share = full(0, &[-0.0, 1.0]).flushed_at(-40).expect("a histogram");
    assert_eq!((share.part, share.whole), (1, 1));
    assert!(Exact::FP16.decide(&full(0, &[-0.0; 3])).is_err());
}

/// torch, Lightning: schedules that depend on steps advance in skipped steps.
#[test]
fn mistake_09_a_skipped_step_is_not_taken() {
    let floor = RisingFloor::new(&[(10, 12)]).expect("rises");
    let mut scale = dynamic(DynamicConfig { start: 4, floor, interval: 100, ..DynamicConfig::default() });
    for _ in 0..9 {
        scale.update(&Feedback::FINITE);
    }
    for _ in 0..30 {
        scale.update(&Feedback::FOUND_INF);
        assert!(scale.exponent() < 4, "the minimum rises with the tenth step taken, not before");
    }
    scale.update(&Feedback::FINITE);
    assert_eq!(scale.exponent(), 12);

    let mut site = Site::new(SiteConfig::exact()).expect("an interval");
    site.decide(Exact::FP16.decide(&full(0, &[1.0])), 0);
    let taken = site.state().since;
    site.finish(&full(0, &[f32::NAN]), SiteOutcome::SkippedDownstream);
    assert_eq!(site.state().since, taken);
}

/// FSDP: each rank checks its own shard, and their results differ.
#[test]
fn mistake_12_all_ranks_find_the_same() {
    let mut random = SplitMix64(12);
    for round in 0..200 {
        // At most one rank has the value.
        let holder = random.below(12);
        let mut ranks: Vec<Stats> = (0..8)
            .map(|rank| {
                let mut values: Vec<f32> = (0..random.below(50)).map(|_| narrow(random.normal())).collect();
                values.extend((rank == holder).then_some(if round % 2 == 0 { f32::NAN } else { f32::NEG_INFINITY }));
                row(Convention::FP16, 0, Detail::Counts, &values)
            })
            .collect();
        // Every rank merges in its own order.
        for _ in 0..8 {
            random.shuffle(&mut ranks);
            let empty = Stats::new(Convention::FP16, 0, Detail::Counts);
            let merged = ranks.iter().fold(empty, |all, rank| all.merge(rank).expect("of one kind"));
            assert_eq!(found_inf([merged.counts()]), holder < 8);
            let shards: Vec<&Counts> = ranks.iter().map(Stats::counts).collect();
            assert_eq!(found_inf(shards), holder < 8);
        }
    }
}

/// The authors: weight gradients stored as FP16 and unscaled there.
#[test]
fn mistake_13_parameter_gradients_are_f32_and_unscaled_at_birth() {
    // An accumulator in the middle of FP16's range, at the 2^32 of a softmax cast.
    let accumulator = 1.2345f32;
    let gradient = parameter_gradient(32).apply(accumulator);
    assert_bits(gradient, narrow(f64::from(accumulator) * pow2(-32)), "no rounding");
    assert_bits(f16_from_f32(gradient, Round::NearestEven).to_f32(), 0.0, "FP16 has no such number");
    // An accumulator that exceeds the range of half before it is unscaled.
    assert_bits(parameter_gradient(20).apply(1e6), narrow(1e6 * pow2(-20)), "no overflow");
}

/// The authors: the update counter counts calls, so a layer that is called three times updates three times as often.
#[test]
fn mistake_14_an_interval_counts_steps_and_not_calls() {
    let mut site = Site::new(SiteConfig { calls: Calls::Several, ..SiteConfig::exact() }).expect("an interval");
    let mut updates = Vec::new();
    for t in 1..=31 {
        if site.request().detail == Detail::Full {
            updates.push(t);
        }
        if site.request().at_once {
            site.decide(Exact::FP16.decide(&full(0, &[1.0])), 0);
        }
        let alpha = site.alpha().expect("decided");
        let calls = [full(alpha, &[1.0]), full(alpha, &[0.5]), full(alpha, &[0.25])];
        site.finish(
            &calls[0].merge(&calls[1]).and_then(|row| row.merge(&calls[2])).expect("one kind"),
            SiteOutcome::Stepped,
        );
    }
    assert_eq!(updates, [1, 11, 21, 31]);
}

/// rten: a comparator with ulp(0) < 0, for which everything equals 0.
#[test]
fn mistake_16_the_comparators_of_these_tests_can_fail() {
    let least = f32::from_bits(1);
    assert_eq!((ulps(0.0, 0.0), ulps(0.0, -0.0), ulps(0.0, least), ulps(-least, least)), (0, 1, 1, 3));
    assert!(ulps(0.0, 1e-30) > 1 << 20 && ulps(f32::MAX, f32::INFINITY) == 1 && ulps(f32::NAN, f32::NAN) == 0);
    assert_eq!((ulps(f32::NAN, 1.0), ulps(0.0, f32::NAN)), (u64::MAX, u64::MAX));
    let wrong = [(0.0, -0.0), (1.0, 0.0), (least, 0.0), (f32::NAN, 0.0), (f32::INFINITY, f32::MAX), (-1.0, 1.0)];
    for (a, b) in wrong {
        assert!(catch_unwind(|| assert_bits(a, b, "must differ")).is_err(), "{a} and {b}");
        assert!(catch_unwind(|| assert_bits(b, a, "must differ")).is_err(), "{b} and {a}");
    }
    let far =
        [(1.0, 0.0), (f64::NAN, 0.0), (0.0, f64::NAN), (f64::INFINITY, f64::MAX), (f64::INFINITY, f64::NEG_INFINITY)];
    for (a, b) in far {
        assert!(catch_unwind(|| assert_near(a, b, 0.5, "must differ")).is_err(), "{a} and {b}");
    }
}

/// The paper: a branch's rule checks each part, and 40000 + 40000 overflows.
#[test]
fn mistake_17_a_branch_is_decided_by_its_sum() {
    let parts = [Scaled::new(40000f32, 5), Scaled::new(40000f32, 5)];
    assert_eq!(branch_paper(&parts), Some(5), "each part fits");
    let added = parts[0].data + parts[1].data;
    assert!(f16_from_f32(added, Round::NearestEven).is_infinite(), "and the sum does not");
    // This project: the f32 sum is observed at the largest exponent, and is a site like any other.
    let alpha = sum(&parts).expect("not zero").alpha;
    let choice = Exact::FP16.decide(&full(alpha, &[added])).expect("finite");
    let stored = f16_from_f32(Factor::between(alpha, alpha + choice.k).apply(added), Round::NearestEven);
    assert_bits(stored.to_f32(), narrow(80000.0 * pow2(choice.k)), "exact: 80000 has seven digits");
}

/// A first draft of this project: keeping β, which is wrong as soon as the incoming exponent changes.
#[test]
fn mistake_18_the_state_is_alpha() {
    let truth = [3e-9f32, -7e-10, 2e-9];
    let mut site = Site::new(SiteConfig { interval: 1, ..SiteConfig::exact() }).expect("an interval");
    site.decide(Exact::FP16.decide(&full(0, &truth)), 0);
    let alpha = site.alpha().expect("decided");
    // The neighbour's exponent rises and falls; the stored values and decisions of this site do not change.
    for from in [0, 17, -30, 40, 3, 60] {
        let incoming = truth.map(|x| narrow(f64::from(x) * pow2(from)));
        let u = incoming.map(|v| Factor::between(from, alpha).apply(v));
        for (u, x) in u.iter().zip(truth) {
            assert_bits(*u, narrow(f64::from(x) * pow2(alpha)), format!("from 2^{from}"));
        }
        site.finish(&full(alpha, &u), SiteOutcome::Stepped);
        assert_eq!(site.alpha(), Some(alpha));
    }
}

/// A first draft of this project: the smallest scale that keeps γ′ flushes nothing of ±1/1000 and has an error of 95 %.
#[test]
fn mistake_19_narrow_tensors_are_not_left_among_the_subnormals() {
    let values = [1e-3f32, -1e-3, 1e-3, -1e-3];
    let error = |rule: Exact| {
        let choice = rule.decide(&full(0, &values)).expect("finite");
        assert_near(choice.gamma, 0.0, 0.0, "nothing flushes either way");
        let factor = Factor::between(0, choice.k);
        let stored = f64::from(f16_from_f32(factor.apply(values[0]), Round::NearestEven).to_f32()) * pow2(-choice.k);
        ((stored / f64::from(values[0]) - 1.0).abs(), choice.held)
    };
    let (least, held) = error(Exact::FP16.with_window(0).expect("in range"));
    assert!(least > 0.95 && held == LimitedBy::NormalRange, "a window of 0 is the least scale");
    let (ours, held) = error(Exact::FP16);
    assert!(ours <= pow2(-11) && held == LimitedBy::NormalRange);
}
