//! Tests of loss-scale schedules against traces written by hand: the exponent in force after each step.

mod common;

use common::{cases, narrow, pow2};
use gradscale_core::{
    loss_scale::{
        Bounds, Chainer, DELAYED_STEPS, Delayed, DelayedConfig, Dynamic, DynamicConfig, FLOOR_STEPS, Feedback,
        Hysteresis, LogMax, LogMaxConfig, LossScale, RisingFloor, SWEEP, ScheduleError, StateError, WORDS,
        propose_fixed,
    },
    scaled::Scaled,
};
use proptest::{collection::vec, prelude::*, sample::select};

fn dynamic(config: DynamicConfig) -> LossScale {
    LossScale::Dynamic(Dynamic::new(config).expect("a schedule"))
}

/// Small settings, so that a trace fits a line: from 2^4, up after three finite steps.
fn small() -> DynamicConfig {
    DynamicConfig { start: 4, interval: 3, ..DynamicConfig::default() }
}

fn bounds(least: i32, most: i32) -> Bounds {
    Bounds::new(least, most).expect("limits")
}

/// Asserts the exponents after each step of `steps`: `.` a finite one, `x` one with found_inf; spaces are ignored.
#[track_caller]
fn assert_trace(mut scale: LossScale, steps: &str, want: &[i32]) {
    let got: Vec<i32> = steps
        .chars()
        .filter(|&step| step != ' ')
        .map(|step| {
            scale.update(if step == 'x' { &Feedback::FOUND_INF } else { &Feedback::FINITE });
            scale.exponent()
        })
        .collect();
    assert_eq!(got, want, "{steps}");
}

#[test]
fn none_fixed_and_gradient_scaling_do_not_react() {
    assert_trace(LossScale::None, "..x..", &[0; 5]);
    assert_trace(LossScale::Gradient, "..x..", &[0; 5]);
    assert_trace(LossScale::fixed(1024.0).expect("a power of two"), "..x..", &[10; 5]);
    // The sweep for a fixed one, and the proposal from recorded gradients: amax · S < 65504.
    assert_eq!((2f64.powi(*SWEEP.start()), 2f64.powi(*SWEEP.end())), (8.0, 32768.0));
    for (amax, alpha, want) in
        [(1.0, 0, 15), (65504.0, 0, -1), (65503.9, 0, 0), (1e-9, 0, 45), (1.0, 20, 35), (-0.5, 3, 19)]
    {
        let got = propose_fixed(Scaled::new(amax, alpha)).expect("not zero");
        assert_eq!(got, want, "{amax:e} at 2^{alpha}");
        let magnitude = f64::from(amax.abs()) * pow2(-alpha);
        assert!(magnitude * pow2(got) < 65504.0 && magnitude * pow2(got + 1) >= 65504.0);
    }
    assert_eq!(propose_fixed(Scaled::new(0.0, 3)), None);
    assert_eq!(propose_fixed(Scaled::new(f32::NAN, 3)), None);
}

#[test]
fn dynamic_doubles_after_clean_steps_and_halves_at_each_overflow() {
    assert_trace(dynamic(small()), "... ... x ...", &[4, 4, 5, 5, 5, 6, 5, 5, 5, 6]);
    // An overflow interrupts the run of finite steps.
    assert_trace(dynamic(small()), ".. x .. x ... ..", &[4, 4, 3, 3, 3, 2, 2, 2, 3, 3, 3]);
    // All five settings: start, growth, backoff, interval, minimum.
    let config = DynamicConfig { start: 6, growth: 2, backoff: -3, interval: 2, bounds: bounds(1, 9), ..small() };
    assert_trace(dynamic(config), ".. .. xxx .. ..", &[6, 8, 8, 9, 6, 3, 1, 1, 3, 3, 5]);
}

#[test]
fn backoff_starts_at_the_maximum() {
    let config = DynamicConfig { interval: 2, ..DynamicConfig::backoff() };
    assert_eq!(DynamicConfig::backoff().interval, 2000);
    assert_trace(dynamic(config), ".. x .. ..", &[24, 24, 23, 23, 24, 24, 24]);
}

#[test]
fn cumulative_hysteresis_counts_overflows_across_clean_steps() {
    let config = DynamicConfig { hysteresis: Hysteresis::Cumulative(2), ..small() };
    // The second overflow lowers the scale although finite steps are in between, and so does each one after it.
    assert_trace(dynamic(config.clone()), "x .. x . x", &[4, 4, 4, 3, 3, 2]);
    // Growth resets the hysteresis.
    assert_trace(dynamic(config), "x ... x .. x", &[4, 4, 4, 5, 5, 5, 5, 4]);
}

#[test]
fn consecutive_hysteresis_forgives_after_a_clean_step() {
    let config = DynamicConfig { hysteresis: Hysteresis::Consecutive(2), ..small() };
    assert_trace(dynamic(config.clone()), "x .. x . x", &[4, 4, 4, 4, 4, 4]);
    assert_trace(dynamic(config), "xx x . x x", &[4, 3, 2, 2, 2, 1]);
}

#[test]
fn tolerance_lowers_by_the_share_of_overflows_since_the_last_change() {
    let config = DynamicConfig { tolerance_ppm: 250_000, interval: 100, ..small() };
    // 1/5 is tolerated, 2/7 is not; then the count restarts, and 1/1 is not either.
    assert_trace(dynamic(config.clone()), ".... x . x x", &[4, 4, 4, 4, 4, 4, 3, 2]);
    // A quarter passes a tolerance of a quarter.
    assert_trace(dynamic(config.clone()), "... x .... x", &[4, 4, 4, 3, 3, 3, 3, 3, 3]);
    // Growth is a change too: 1/3 of the steps since then, not 1/6 of all.
    let config = DynamicConfig { interval: 3, ..config };
    assert_trace(dynamic(config), "... .. x ... . x", &[4, 4, 5, 5, 5, 4, 4, 4, 5, 5, 4]);
}

#[test]
fn a_rising_minimum_rises_with_the_steps_taken() {
    let floor = RisingFloor::new(&[(3, 2), (5, 6)]).expect("rises");
    let config = DynamicConfig { start: 1, interval: 100, floor, ..small() };
    // After three steps, after five steps: overflows cannot go below the minimum, and skipped steps do not count.
    assert_trace(dynamic(config), "x . x . xx . x . x . x", &[0, 0, -1, -1, -2, -3, 2, 2, 2, 2, 6, 6]);
    for bad in [&[(5, 2), (3, 6)][..], &[(3, 6), (5, 2)], &[(3, 2), (3, 6)], &[(0, 0); FLOOR_STEPS + 1]] {
        assert_eq!(RisingFloor::new(bad), Err(ScheduleError::Floor));
    }
}

#[test]
fn chainer_doubles_until_it_overflows_and_then_creeps() {
    let scale = LossScale::Chainer(Chainer::new(2, Bounds::default()).expect("a schedule"));
    // Doubled in every step; after the first overflow half exponents, of which the floor is in force.
    assert_trace(scale, ".... x . . . x . . x", &[1, 2, 3, 4, 3, 3, 4, 4, 3, 4, 4, 3]);
    let scale = LossScale::Chainer(Chainer::new(10, Bounds::default()).expect("a schedule"));
    let steps = ["x", &".".repeat(10), "x", &".".repeat(9), "x"].concat();
    let want = [[-1; 10].as_slice(), &[0, -1], &[-1; 9], &[-2]].concat();
    assert_trace(scale, &steps, &want);
}

/// Computes the schedule by its definition: weighted mean and standard deviation of log2 amax, weights β^age normalised
/// to a sum of 1.
fn log_max_oracle(logs: &[f64], decays: [f64; 2]) -> f64 {
    let mean = |decay: f64, f: &dyn Fn(f64) -> f64| {
        let weights: Vec<f64> = (0..logs.len()).rev().map(|age| decay.powi(i32::try_from(age).expect("few"))).collect();
        let sum: f64 = weights.iter().zip(logs).map(|(weight, &x)| weight * f(x)).sum();
        sum / weights.iter().sum::<f64>()
    };
    let slow = mean(decays[1], &|x| x);
    16.0 - (mean(decays[0], &|x| x) + 3.09 * mean(decays[1], &|x| (x - slow).powi(2)).sqrt())
}

#[test]
fn log_max_follows_the_distribution_of_log2_amax() {
    let see = |scale: &mut LossScale, x: f64, alpha: i32| {
        let amax = Some(Scaled::new(narrow(x.exp2()), alpha));
        scale.update(&Feedback { found_inf: false, amax });
        scale.exponent()
    };
    let start = || LossScale::LogMax(LogMax::new(LogMaxConfig::default()).expect("a schedule"));
    // A single magnitude has no spread: 16 − (−4), whatever the exponent at which it was measured.
    let mut scale = start();
    assert_eq!([see(&mut scale, -4.0, 0), see(&mut scale, 6.0, 10), see(&mut scale, -14.0, -10)], [20, 20, 20]);
    // −4 and −8 in turn: a mean near −6 and a standard deviation near 2 give 16 + 6 − 6.2 after many steps.
    let mut scale = start();
    let last = (0..4000).map(|t| see(&mut scale, if t % 2 == 0 { -4.0 } else { -8.0 }, 0)).last();
    assert_eq!(last, Some(15));
    let mut random = common::SplitMix64(5);
    let (mut scale, mut logs) = (start(), Vec::new());
    for _ in 0..300 {
        logs.push(-3.0 + 1.5 * random.normal());
        let (got, want) = (see(&mut scale, *logs.last().expect("pushed"), 0), log_max_oracle(&logs, [0.99, 0.999]));
        let near_integer = (want - want.round()).abs() < 1e-4;
        assert!(f64::from(got) == want.floor().clamp(-24.0, 30.0) || near_integer, "{got} for {want}");
    }
    // Zeros, NaN and steps without amax change nothing.
    let before = scale.clone();
    for amax in [None, Some(Scaled::new(0.0, 4)), Some(Scaled::new(f32::NAN, 4))] {
        scale.update(&Feedback { found_inf: false, amax });
        assert_eq!(scale, before);
    }
}

/// The recipe in numbers: the largest 2^k with amax · 2^k below 65504 for each of the last steps, minus the margin.
#[test]
fn delayed_follows_the_largest_gradient_of_its_history() {
    let mut random = common::SplitMix64(9);
    for (history, margin) in [(1, 0), (4, 3), (16, 1)] {
        let config = DelayedConfig { history, margin, ..DelayedConfig::default() };
        let mut scale = LossScale::Delayed(Delayed::new(config).expect("a schedule"));
        let mut seen: Vec<f64> = Vec::new();
        for step in 0..200 {
            let (amax, alpha) = (narrow((6.0 * random.normal()).exp2()), step % 21 - 10);
            seen.push(f64::from(amax) * f64::from(-alpha).exp2());
            scale.update(&Feedback { found_inf: false, amax: Some(Scaled::new(amax, alpha)) });
            let newest = seen.iter().rev().take(history as usize);
            let largest = newest.copied().fold(0.0, f64::max);
            let fits = |k: &i32| largest * f64::from(*k).exp2() < 65504.0;
            let want = (-100..100).rev().find(fits).expect("a scale") - margin.cast_signed();
            assert_eq!(scale.exponent(), want.clamp(-24, 30), "{history} {margin}: step {step}");
        }
    }
}

#[test]
fn delayed_backs_off_and_forgets() {
    let start = |margin| {
        let config = DelayedConfig { history: 3, margin, bounds: bounds(-2, 30) };
        LossScale::Delayed(Delayed::new(config).expect("a schedule"))
    };
    let clean = Feedback { found_inf: false, amax: Some(Scaled::new(1.0, 0)) };
    for margin in [0, 4] {
        let mut scale = start(margin);
        let mut see = |feedback: &Feedback| {
            scale.update(feedback);
            scale.exponent() + margin.cast_signed()
        };
        // Three consecutive overflows lower it by one each; three finite steps later they are forgotten.
        assert_eq!(see(&clean), 15);
        assert_eq!([(); 3].map(|()| see(&Feedback::FOUND_INF)), [14, 13, 12]);
        assert_eq!([(); 3].map(|()| see(&clean)), [12, 12, 15]);
    }
    // The exponent stays within its limits for any number of overflows.
    let mut scale = start(0);
    (0..40).for_each(|_| scale.update(&Feedback::FOUND_INF));
    assert_eq!(scale.exponent(), -2);
    // Zeros, NaN and steps without amax change nothing.
    let before = scale.clone();
    for amax in [None, Some(Scaled::new(0.0, 4)), Some(Scaled::new(f32::NAN, 4))] {
        scale.update(&Feedback { found_inf: false, amax });
        assert_eq!(scale, before);
    }
    // One step more than the history, and an exponent that no step allows.
    let words = |allowed: &[i64]| LossScale::from_words(&[&[6, 3, 0, -2, 30], allowed].concat()).map(|_| ());
    assert_eq!(words(&[1, 2, 3]), Ok(()));
    assert_eq!([words(&[1, 2, 3, 4]), words(&[5000])], [Err(StateError::Value); 2]);
}

#[test]
fn numbers_that_make_no_schedule_are_typed_errors() {
    let history = |history| Delayed::new(DelayedConfig { history, ..DelayedConfig::default() });
    assert_eq!(history(0), Err(ScheduleError::History(0)));
    assert_eq!(history(17), Err(ScheduleError::History(17)));
    assert!(history(16).is_ok() && DELAYED_STEPS == 16);
    let refused = |config: DynamicConfig| Dynamic::new(config).expect_err("no schedule");
    assert_eq!(refused(DynamicConfig { start: 31, ..small() }), ScheduleError::Start(31));
    assert_eq!(refused(DynamicConfig { growth: 0, ..small() }), ScheduleError::Factor(0));
    assert_eq!(refused(DynamicConfig { backoff: 0, ..small() }), ScheduleError::Factor(0));
    assert_eq!(refused(DynamicConfig { interval: 0, ..small() }), ScheduleError::Interval);
    assert_eq!(refused(DynamicConfig { hysteresis: Hysteresis::Cumulative(0), ..small() }), ScheduleError::Interval);
    assert_eq!(refused(DynamicConfig { tolerance_ppm: 1_000_000, ..small() }), ScheduleError::Tolerance(1_000_000));
    assert_eq!(Chainer::new(0, Bounds::default()), Err(ScheduleError::Interval));
    assert_eq!(Bounds::new(5, 4), Err(ScheduleError::Bounds { least: 5, most: 4 }));
    assert!(Bounds::new(-1000, 4).is_err() && Bounds::new(0, 1000).is_err(), "2^k must be a normal f32");
    assert!(LogMax::new(LogMaxConfig { mean_decay: 1.0, ..LogMaxConfig::default() }).is_err());
}

#[test]
fn the_largest_schedule_can_be_saved() {
    let steps: Vec<(u64, i32)> = (0..8).map(|i| (10_000 * i, i32::try_from(i).expect("small"))).collect();
    let floor = RisingFloor::new(&steps).expect("rises");
    let scale = dynamic(DynamicConfig { floor, hysteresis: Hysteresis::Consecutive(3), ..DynamicConfig::default() });
    let words = scale.to_words();
    assert!(words.len() <= WORDS && steps.len() == FLOOR_STEPS);
    assert_eq!(LossScale::from_words(&words), Ok(scale));
}

/// Steps beyond any training are valid in a rising minimum.
#[test]
fn every_rising_minimum_can_be_saved() {
    let floor = RisingFloor::new(&[(0, 1), (u64::MAX, 2)]).expect("rises");
    let scale = dynamic(DynamicConfig { floor, ..DynamicConfig::default() });
    assert_eq!(LossScale::from_words(&scale.to_words()), Ok(scale));
}

/// An invalid state is rejected.
#[test]
fn impossible_states_are_refused() {
    let read = |scale: &LossScale, at: usize, word: i64| {
        let mut words = scale.to_words();
        assert_ne!(words[at], word);
        words[at] = word;
        LossScale::from_words(&words).map(|_| ())
    };
    // Words 5 and 6 are the limits, 10 the exponent, 11 the consecutive finite steps.
    let scale = dynamic(small());
    assert_eq!(read(&scale, 11, 2), Ok(()));
    assert_eq!(read(&scale, 11, 3), Err(StateError::Value), "three clean steps would have grown the scale");
    assert_eq!((read(&scale, 10, 31), read(&scale, 10, -25)), (Err(StateError::Value), Err(StateError::Value)));
    assert!(read(&scale, 5, 31).is_err() && read(&scale, 6, i64::MAX).is_err());
    // Words 4 and 5 are the units of 1/interval and the flag for "no overflow so far".
    let scale = LossScale::Chainer(Chainer::new(10, Bounds::default()).expect("a schedule"));
    assert_eq!((read(&scale, 4, 300), read(&scale, 4, -240)), (Ok(()), Ok(())));
    assert_eq!((read(&scale, 4, 301), read(&scale, 4, -241)), (Err(StateError::Value), Err(StateError::Value)));
    assert_eq!((read(&scale, 5, 0), read(&scale, 5, 2)), (Ok(()), Err(StateError::Value)));
    let fixed = LossScale::fixed(8.0).expect("a power of two");
    assert_eq!((read(&fixed, 1, 126), read(&fixed, 1, 127)), (Ok(()), Err(StateError::Value)));
}

fn any_schedule() -> impl Strategy<Value = LossScale> {
    let hysteresis = prop_oneof![
        Just(Hysteresis::None),
        (1..4u32).prop_map(Hysteresis::Cumulative),
        (1..4u32).prop_map(Hysteresis::Consecutive),
    ];
    let dynamics = (0..9, 1..3, -3..0, 1..6u32, hysteresis, select(vec![0, 300_000]), vec(1..9u64, 0..4)).prop_map(
        |(start, growth, backoff, interval, hysteresis, tolerance_ppm, gaps)| {
            let mut at = 0;
            let mut next = |(i, gap): (usize, u64)| {
                at += gap;
                (at, i32::try_from(i).expect("few") - 2)
            };
            let steps: Vec<_> = gaps.into_iter().enumerate().map(&mut next).collect();
            let floor = RisingFloor::new(&steps).expect("rises");
            let bounds = Bounds::new(-4, 12).expect("limits");
            dynamic(DynamicConfig { start, growth, backoff, interval, bounds, hysteresis, tolerance_ppm, floor })
        },
    );
    let log_max = (0.0..0.999, 0.0..0.999, 0.0..5.0).prop_map(|(mean_decay, spread_decay, quantile)| {
        let config = LogMaxConfig { mean_decay, spread_decay, quantile, ..LogMaxConfig::default() };
        LossScale::LogMax(LogMax::new(config).expect("a schedule"))
    });
    let chainer =
        (1..40u32).prop_map(|interval| LossScale::Chainer(Chainer::new(interval, bounds(-6, 9)).expect("a schedule")));
    let plain = select(vec![LossScale::None, LossScale::fixed(128.0).expect("a power of two"), LossScale::Gradient]);
    let delayed = (1..=16u32, 0..9u32, -30..0i32).prop_map(|(history, margin, least)| {
        LossScale::Delayed(
            Delayed::new(DelayedConfig { history, margin, bounds: bounds(least, 20) }).expect("a schedule"),
        )
    });
    prop_oneof![4 => dynamics, 2 => log_max, 2 => chainer, 2 => delayed, 1 => plain]
}

fn feedback() -> impl Strategy<Value = Feedback> {
    let amax = (any::<f32>(), -50..50i32).prop_map(|(data, alpha)| Some(Scaled::new(data, alpha)));
    (any::<bool>(), prop_oneof![Just(None), amax]).prop_map(|(found_inf, amax)| Feedback { found_inf, amax })
}

proptest! {
    #![proptest_config(cases(512))]

    /// A schedule that is saved and restored at any point of a trace continues unchanged, and the scale is never 0 or
    /// ∞.
    #[test]
    fn a_restored_schedule_goes_on(start in any_schedule(), steps in vec(feedback(), 0..80)) {
        let (mut through, mut resumed) = (start.clone(), start);
        for step in &steps {
            resumed = LossScale::from_words(&resumed.to_words()).expect("saved by a schedule");
            prop_assert_eq!(&resumed, &through);
            through.update(step);
            resumed.update(step);
            prop_assert_eq!(resumed.exponent(), through.exponent());
            prop_assert!(narrow(pow2(through.exponent())).is_normal());
        }
    }

    /// Words that no schedule saved are rejected, or give a schedule that stays within its limits.
    #[test]
    fn garbage_never_panics(
        start in any_schedule(), garbage in vec(prop_oneof![-2..9i64, any::<i64>()], 0..WORDS + 3), kind in 0..6i64,
        spots in vec((0..WORDS, prop_oneof![-9..9i64, any::<i32>().prop_map(i64::from), any::<i64>()]), 0..3),
        steps in vec(feedback(), 0..40),
    ) {
        let mut patched = start.to_words().to_vec();
        for (at, word) in spots {
            let length = patched.len();
            patched[at % length] = word;
        }
        for words in [garbage.clone(), [vec![kind], garbage].concat(), patched] {
            let Ok(mut scale) = LossScale::from_words(&words) else { continue };
            for step in &steps {
                prop_assert!((-126..=126).contains(&scale.exponent()), "{:?}", scale);
                scale.update(step);
                let saved = scale.to_words();
                prop_assert_eq!(LossScale::from_words(&saved), Ok(scale.clone()));
            }
        }
        prop_assert_eq!(LossScale::from_words(&[]), Err(StateError::Length));
    }
}
