//! Short forms of all regimes: f32's result, nothing finite skipped, few repeats; and the rule of before starves where
//! losses alternate, so that these bounds can be broken.

use super::{
    EIGHT_BITS, METHODS, NATURAL, OUTLIERS, Regimes,
    data::{Data, cut_some},
    images::Images,
    regime::{self, Course, Regime},
    training::{Row, train},
};
use crate::{
    build_feature::BuildFeature,
    data::{DataOptions, Labelled, Speech},
};
use clap::Parser;
use std::sync::OnceLock;

const BEFORE: &str = "gs:exact,room=6,history=0";

fn data() -> &'static Data {
    static DATA: OnceLock<Data> = OnceLock::new();
    DATA.get_or_init(|| Data {
        images: Images::read(&Labelled::synthetic(0)).expect("in memory"),
        recordings: BuildFeature::Speech
            .is_built()
            .then(|| cut_some(Speech::synthetic(0, &DataOptions::default()).expect("words"))),
    })
}

fn run(regime: &Regime, method: &str, steps: u64) -> Row {
    let row = train(regime, data(), (method, &method.parse().expect("a method")), 0, steps, || ());
    row.expect("a training")
}

/// Steps of which a regime's rare batches are some.
fn steps(regime: &Regime) -> u64 {
    match regime.course {
        Course::Alternating { every: 3, .. } | Course::Jump { .. } => 150,
        Course::Alternating { every: 40, .. } => 500,
        Course::Alternating { .. } => 600,
        Course::Fill { every } | Course::NotFinite { every, .. } => every.clamp(200, 520),
        Course::Blocks { .. } | Course::Drift { .. } | Course::LogNormal { .. } => 200,
        Course::Masked => 300,
        Course::Pale { .. } | Course::Same => 100,
    }
}

/// Batches that FP16 cannot serve with the others, and batches on which nothing can train.
fn rare(regime: &Regime, steps: u64) -> [u64; 2] {
    let count = |is: &dyn Fn(u64) -> bool| (0..steps).filter(|&step| is(step)).count() as u64;
    let at = |step: u64| regime.course.at(step, steps, 0);
    let apart = count(&|step| match regime.course {
        Course::Alternating { power: 25.., .. } => at(step).factor == 1.0,
        _ => at(step).target.is_some(),
    });
    [apart, count(&|step| !at(step).finite())]
}

/// Checks all regimes of these families.
fn holds(families: &[&str]) {
    let all = regime::list_regimes();
    let chosen: Vec<&Regime> = all.iter().filter(|regime| families.contains(&regime.family())).collect();
    assert!(chosen.len() >= families.len(), "{families:?}");
    for regime in chosen {
        let steps = steps(regime);
        let (single, half) = (run(regime, "fp32", steps), run(regime, "gs", steps));
        let Row { score, skipped, finite_skipped, repeated, .. } = &half;
        let name = &regime.name;
        let (score, than) = (score.expect("a score"), single.score.expect("a score"));
        println!("{name}: fp32 {than:.1}, gs {score:.1}, {skipped} skipped, {repeated} repeated of {steps}");
        if regime.task.higher_is_better() {
            // One large batch teaches little; all others are enough to beat chance, which is 10, by far.
            let few = matches!(regime.course, Course::Alternating { every: 500, power: 1.. });
            assert!(few || than > 20.0, "{name}: f32 itself does not train, {than}");
            assert!(score > than - 10.0, "{name}: {score} beside {than}");
        } else {
            assert!(than < 40.0 && score < 1.25 * than + 1.0, "{name}: {score} beside {than}");
        }
        let [apart, lost] = rare(regime, steps);
        assert_eq!((*skipped, *finite_skipped, single.skipped), (lost, 0, lost), "{name}");
        // One in twenty, besides values that no common exponent serves. A jump costs up to nine, once.
        let most = apart + 2 * lost + (steps / 20).max(10);
        assert!(*repeated <= most, "{name}: {repeated} repeats, {most} are allowed");
    }
}

#[test]
fn one_in_three() {
    holds(&["1in3"]);
}

#[test]
fn one_in_forty() {
    holds(&["1in40"]);
}

#[test]
fn one_in_five_hundred() {
    holds(&["1in500"]);
}

#[test]
fn values_that_no_half_holds() {
    holds(&["fill", "infinite", "nan"]);
}

#[test]
fn losses_that_change_for_long() {
    holds(&["blocks", "jump", "drift", "masked", "lognormal"]);
}

#[test]
fn networks_that_are_hard() {
    holds(&["rnn", "heads"]);
}

fn regime_of(name: &str) -> Regime {
    regime::list_regimes().into_iter().find(|regime| regime.name == name).expect("a regime")
}

/// One bad image lowers a dynamic scale by one bit per epoch. Other methods skip only its batch.
#[test]
fn one_bad_image_costs_a_dynamic_scale_a_bit_an_epoch() {
    for name in ["bad-sample:nan", "bad-sample:infinite", "bad-sample:corrupt"] {
        let regime = regime_of(name);
        // Made-up digits: 15 batches an epoch.
        assert_eq!(regime.steps(true, &data().images), 60 * 15, "{name}");
        let rows = ["fp32", "torch", "torch-floor", "gs"].map(|method| run(&regime, method, 240));
        let met = rows[0].skipped;
        assert!((14..=17).contains(&met), "{name}: {met} in 16 epochs");
        for row in &rows {
            assert_eq!((row.skipped, row.finite_skipped), (met, 0), "{name}, {}", row.method);
        }
        let lost = i32::try_from(met).expect("few");
        assert_eq!(
            rows.each_ref().map(|row| row.scale),
            [Some(0), Some(16 - lost), Some((16 - lost).max(0)), None],
            "{name}"
        );
    }
}

/// A batch with a recording that is too short has no finite loss, unless the option leaves the recording out.
#[cfg(feature = "speech")]
#[test]
fn short_recordings_are_skipped_unless_the_loss_leaves_them_out() {
    let short = regime_of("short-recordings");
    let rows = ["fp32", "torch", "gs"].map(|method| run(&short, method, 60));
    let met = rows[0].skipped;
    assert!(met > 0 && met < 60, "{met}");
    for row in &rows {
        assert_eq!(row.skipped, met + row.finite_skipped, "{}", row.method);
        assert!(row.score.is_some_and(|wrong| wrong < 50.0), "{row:?}");
    }
    let untrained = run(&short, "fp32", 1);
    assert!(untrained.score.is_some_and(|wrong| wrong > 50.0), "{untrained:?}");
    // 2^16 may overflow in the first steps, which a dynamic scale is designed for.
    assert_eq!([rows[0].finite_skipped, rows[2].finite_skipped], [0, 0]);
    assert_eq!(rows[1].scale, Some(16 - i32::try_from(rows[1].skipped).expect("few")));
    let right = ["torch", "gs"].map(|method| run(&regime_of("short-recordings:zero-infinity"), method, 60));
    let first = i32::try_from(right[0].skipped).expect("few");
    assert!(first < 3, "{first} overflows without a short recording");
    assert_eq!(
        right.map(|row| (row.finite_skipped == row.skipped, row.scale)),
        [(true, Some(16 - first)), (true, None)]
    );
}

/// Updates without a reward have gradients of zero, which a dynamic scale counts as clean.
#[test]
fn a_scale_grows_where_there_is_no_reward() {
    let lock = regime_of("rare-reward");
    let row = run(&lock, "torch:interval=100", 350);
    assert_eq!((row.skipped, row.scale), (0, Some(19)), "{row:?}");
    // Nothing was learned: each digit is right in about one of eight cases.
    let same = run(&lock, "gs", 350);
    assert_eq!((same.skipped, row.score, same.score.map(|chance| chance < 0.1)), (0, same.score, Some(true)));
}

/// One scale for a tensor loses the tasks below the range of its format, and one for each row or part of it does not.
#[test]
fn formats_of_eight_bits_differ_where_magnitudes_do() {
    let scores = |name: &str, methods: [&str; 4]| {
        methods.map(|method| {
            let row = run(&regime_of(name), method, 150);
            assert_eq!((row.skipped, row.failure.as_ref()), (0, None), "{name}, {method}");
            row.score.expect("a score")
        })
    };
    let methods = ["fp32", "gs:format=e4m3", "block:format=e4m3,size=128", "block:format=e4m3,size=32"];
    let [ordinary, examples, outputs] =
        ["eight-bits:ordinary", "eight-bits:examples", "eight-bits:outputs"].map(|name| scores(name, methods));
    println!("{ordinary:?} {examples:?} {outputs:?}");
    assert!(ordinary.iter().all(|score| (score - ordinary[0]).abs() < 10.0), "{ordinary:?}");
    let [single, tensor, rows, parts] = examples;
    // Each task has seven images a step, so that 150 steps are few.
    assert!(tensor < single - 10.0 && rows > single - 5.0 && parts > single - 5.0, "{examples:?}");
    // A row of 50 logits is one block of 128, and two of 32.
    let [single, tensor, rows, parts] = outputs;
    assert!(tensor < single - 20.0 && rows < single - 20.0 && parts > rows + 10.0, "{outputs:?}");
}

/// The earlier rule starves in the regime where that is known, and its skips show it.
#[test]
fn the_rule_of_before_starves() {
    let all = regime::list_regimes();
    for name in ["1in3:2^8", "1in3:2^12", "1in3:2^20", "1in3:2^40", "1in40:2^20", "1in40:2^40"] {
        let regime = all.iter().find(|regime| regime.name == name).expect("a regime");
        let steps = steps(regime);
        let (single, before) = (run(regime, "fp32", steps), run(regime, BEFORE, steps));
        let (score, than) = (before.score.expect("a score"), single.score.expect("a score"));
        println!("{name}: fp32 {than:.1}, before {score:.1}, {} of {steps} skipped", before.skipped);
        assert!(score < than - 10.0, "{name}: {score} beside {than}");
        assert!(before.finite_skipped >= steps / 60 && before.repeated == 0, "{name}: {}", before.skipped);
    }
}

/// Every regime has five default methods, and a sixth where that makes a difference.
#[test]
fn every_default_method_is_one() {
    /// Arguments as the program parses them.
    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        regimes: Regimes,
    }
    let Alone { regimes } = Alone::try_parse_from(["regimes"]).expect("no options are needed");
    let chosen = regimes.chosen().expect("all regimes");
    let all = regime::list_regimes();
    assert_eq!(chosen.len(), all.iter().filter(|regime| regime.is_built()).count());
    // Both of short recordings need speech.
    let left_out = if BuildFeature::Speech.is_built() { 0 } else { 2 };
    assert_eq!(all.len() - chosen.len(), left_out);
    for regime in &chosen {
        let names: Vec<String> = regimes.methods(regime, &data().images).into_iter().map(|(name, _)| name).collect();
        let usual = match regime.task {
            task if task.has_eight_bits() => &EIGHT_BITS[..],
            task if task.is_natural() => &NATURAL[..],
            _ => &METHODS[..],
        };
        let all = usual.iter().chain(regime.name.starts_with("fill").then_some(&OUTLIERS));
        assert!(names.iter().eq(all), "{}: {names:?}", regime.name);
    }
    let natural = chosen.iter().filter(|regime| regime.task.is_natural()).count();
    let jobs = regimes.jobs(&chosen, &data().images).len();
    // Three regimes of 8 bits have more methods.
    let of_eight_bits = 3 * (EIGHT_BITS.len() - METHODS.len());
    assert_eq!((natural, jobs), (6 - left_out, 3 * (5 * chosen.len() + 2 + natural + of_eight_bits)));
}

/// Every regime differs from the others, and behaves as its description states.
#[test]
fn regimes_are_what_they_are_called() {
    let all = regime::list_regimes();
    let mut names: Vec<&str> = all.iter().map(|regime| regime.name.as_str()).collect();
    assert_eq!(all.iter().filter(|regime| regime.is_called("1in40")).count(), 7);
    assert_eq!(all.iter().filter(|regime| regime.is_called("1in40:2^-8")).count(), 1);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all.len());
    let factors = |course: Course, steps: u64| -> Vec<f32> {
        (0..steps).map(|step| course.at(step, steps, 7).factor.log2()).collect()
    };
    assert_eq!(factors(Course::Alternating { every: 3, power: 8 }, 6), [-8.0, -8.0, 0.0, -8.0, -8.0, 0.0]);
    assert_eq!(factors(Course::Alternating { every: 3, power: -8 }, 6), [0.0, 0.0, -8.0, 0.0, 0.0, -8.0]);
    assert_eq!(factors(Course::Blocks { length: 2, power: 20 }, 6), [0.0, 0.0, -20.0, -20.0, 0.0, 0.0]);
    assert_eq!(factors(Course::Jump { power: 12 }, 4), [0.0, 0.0, 12.0, 12.0]);
    assert_eq!(factors(Course::Jump { power: -12 }, 4), [12.0, 12.0, 0.0, 0.0]);
    assert_eq!(factors(Course::Drift { power: -30 }, 3), [20.0, 10.0, 0.0]);
    let zeros = |step: u64| Course::Masked.at(step, 600, 0).factor == 0.0;
    assert_eq!(
        (0..600).filter(|&step| zeros(step)).collect::<Vec<_>>(),
        [100..200, 400..500].map(Vec::from_iter).concat()
    );
    // One in each fifty, at no fixed place.
    let places: Vec<u64> =
        (0..5000).filter(|&step| Course::Fill { every: 50 }.at(step, 5000, 7).target == Some(1e20)).collect();
    assert!(places.iter().zip(0..).all(|(&place, block)| place / 50 == block) && places.len() == 100);
    assert!((0..10).all(|digit| places.iter().any(|place| place % 10 == digit)));
    // e^3z: of a normal distribution.
    let logs = factors(Course::LogNormal { sigma: 3.0 }, 4000);
    let mean = logs.iter().sum::<f32>() / 4000.0;
    let spread = (logs.iter().map(|log| (log - mean).powi(2)).sum::<f32>() / 4000.0).sqrt();
    let expected = 3.0 * std::f32::consts::LOG2_E;
    assert!(mean.abs() < 0.3 && (spread / expected - 1.0).abs() < 0.05, "{mean} ± {spread}");
}
