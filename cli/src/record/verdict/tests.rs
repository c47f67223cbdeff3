//! Made-up results in, sentences out.

use super::*;
use crate::{
    data::{Labelled, Segmentation},
    tasks::Dataset,
};
use serde_json::{Value, json};

const PIXELS: EvaluationBaseline = EvaluationBaseline { constant: 0.05, answers: None };
const IMAGES: EvaluationBaseline = EvaluationBaseline { constant: 0.1, answers: Some(500) };

fn site(name: &str, flushed: f64, alpha: i32) -> Value {
    json!({
        "name": name, "iteration": [1, 2], "alpha": [0, alpha], "gamma_measured": [flushed, flushed],
        "gamma_predicted": [null, null], "overflows": [0, 0], "subnormal_share": [0.0, 0.0], "amax": [null, null],
        "bound": [null, null], "worst_at_decision": 0.0, "worst_between": 0.0, "steps_above": 0,
        "bound_by_overflow": 0, "worst": flushed, "histogram": null,
    })
}

fn record(method: &str, seed: u64, metrics: &Value, sites: &Value) -> Record {
    let record = json!({
        "method": method, "seed": seed, "iterations": 100, "final_loss": 0.5, "metrics": metrics, "skipped_steps": 0,
        "seconds": 0.1, "activation_bytes": 0, "failure": null, "loss": vec![0.5; 100], "skipped_at": [],
        "scores": [], "sites": sites, "samples": [],
    });
    serde_json::from_value(record).expect("a record")
}

fn pixels(method: &str, seed: u64, miou: f64) -> Record {
    record(method, seed, &json!({"miou": miou, "class_accuracy": 0.5, "global_accuracy": 0.5}), &json!([]))
}

fn images(method: &str, seed: u64, right: f64) -> Record {
    record(method, seed, &json!({"top_1": right}), &json!([]))
}

fn towers(method: &str, first: f64, second: f64, flushed: f64) -> Record {
    let metrics = json!({"first_tower": first, "second_tower": second});
    let alpha = if method == "gs" { 48 } else { 0 };
    record(method, 0, &metrics, &json!([site("first/dgrad", 0.0, 3), site("second/dgrad", flushed, alpha)]))
}

fn said(records: &[Record], exam: EvaluationBaseline) -> Vec<String> {
    let mut methods: Vec<&str> = Vec::new();
    for record in records {
        if !methods.contains(&record.method.as_str()) {
            methods.push(&record.method);
        }
    }
    let verdict = verdict(methods, &records.iter().collect::<Vec<_>>(), exam);
    verdict.into_iter().map(|sentence| format!("{}: {}", sentence.about, sentence.text)).collect()
}

#[test]
fn one_seed_never_says_worse_of_a_small_difference() {
    let runs = [("fp32", 0.49), ("fixed:128", 0.488), ("dynamic", 0.482), ("gs", 0.468)];
    let said = said(&runs.map(|(method, miou)| pixels(method, 0, miou)), PIXELS);
    assert_eq!(said[0], "In short: all 4 methods learned.");
    assert!(said[1].starts_with(
        "No difference found: fp32, fixed:128, dynamic and gs: mIoU 46.8 to 49.0 %, 2.2 points \
            apart."
    ));
    assert!(said[1].contains("With one seed, differences of this size mean nothing"), "{said:?}");
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said.iter().all(|sentence| !sentence.contains("lower") && !sentence.contains("worse")));
}

#[test]
fn one_seed_says_nothing_of_a_wide_difference() {
    let said = said(&[pixels("fp32", 0, 0.49), pixels("gs", 0, 0.35)], PIXELS);
    assert!(
        said[1].ends_with(
            "One seed does not show whether a difference of this size is chance; run several (--seeds 0,1,2)."
        )
    );
}

#[test]
fn of_images_chance_is_the_binomial_error() {
    // 1.96 · √(2 · p (1 − p) / 504) with p = (470 + 2) / 504: 3.0 points.
    let said_of = |gs: f64| said(&[images("fp32", 0, 0.94), images("gs", 0, gs)], IMAGES);
    let equal = said_of(0.915);
    assert!(
        equal[1].contains("91.5 to 94.0 %, 2.5 points apart, and chance in 500 test images alone explains 3.0 points")
    );
    let lower = said_of(0.90);
    assert!(lower[1].starts_with("gs is lower: top-1 90.0 % where fp32 has 94.0 %, more than the 3.0 points"));
    // A perfect score is not certain either.
    assert!(lower[1].ends_with("run several seeds (--seeds 0,1,2)."), "one seed stays careful: {lower:?}");
    let certain = said(&[images("fp32", 0, 1.0), images("gs", 0, 0.998)], IMAGES);
    assert!(certain[1].starts_with("Equal"), "{certain:?}");
}

/// Runs of seeds 0, 1, … with these losses and scores.
fn seeds(method: &str, runs: &[(f32, f64)]) -> Vec<Record> {
    let run = |(seed, &(loss, miou)): (u64, &(f32, f64))| Record {
        // Only the last half counts.
        loss: [vec![9.0; 50], vec![loss; 50]].concat(),
        ..pixels(method, seed, miou)
    };
    (0..).zip(runs).map(run).collect()
}

fn together<const N: usize>(methods: [Vec<Record>; N]) -> Vec<Record> {
    methods.into_iter().flatten().collect()
}

#[test]
fn several_seeds_are_compared_pair_by_pair() {
    let base = [(0.50, 0.48), (0.56, 0.53), (0.44, 0.50)];
    let moved = |by: [(f32, f64); 3]| -> Vec<(f32, f64)> {
        base.iter().zip(by).map(|(one, by)| (one.0 + by.0, one.1 + by.1)).collect()
    };
    let told = |method: &[(f32, f64)]| said(&together([seeds("fp32", &base), seeds("gs", method)]), PIXELS)[1].clone();
    // Seeds differ by six hundredths and pairs by two thousandths, which a test of two means would miss.
    let differs = told(&moved([(0.010, 0.0), (0.012, 0.0), (0.011, 0.0)]));
    assert!(
        differs.starts_with(
            "gs: training loss over the last half +0.01100 compared with fp32 (95 % +0.00852 to +0.01348, 3 pairs): differs (p 0.003)."
        ),
        "{differs}"
    );
    assert!(
        differs
            .contains("mIoU +0.00 points compared with fp32 (95 % +0.00 to +0.00, 3 pairs): equal within 1.00 points")
    );
    // Half a percent of the loss is the margin, fixed beforehand.
    let equal = told(&moved([(0.0003, 0.001), (-0.0002, -0.002), (0.0001, 0.0)]));
    assert!(equal.contains("training loss over the last half +0.00007 compared with fp32"), "{equal}");
    assert!(equal.contains("3 pairs): equal within 0.00250 (TOST, p "), "{equal}");
    assert!(
        equal.contains("mIoU -0.03 points compared with fp32") && equal.contains("equal within 1.00 points"),
        "{equal}"
    );
    // A spread of points cannot test for one point.
    let wide = told(&moved([(0.02, 0.06), (-0.03, -0.05), (0.01, 0.01)]));
    assert!(wide.contains("mIoU +0.67 points") && wide.contains("no test, because only "), "{wide}");
    assert!(!wide.contains("lower") && !wide.contains("worse"));
}

#[test]
fn chaos_is_the_yardstick() {
    let base = [(0.50, 0.48), (0.56, 0.53), (0.44, 0.50)];
    let by = |size: f32| -> Vec<(f32, f64)> {
        base.iter().zip([1.0, -1.0, 0.5]).map(|(one, sign)| (one.0 + sign * size, one.1)).collect()
    };
    let runs = together([seeds("fp32", &base), seeds("chaos", &by(0.001)), seeds("gs", &by(0.003))]);
    let said = said(&runs, PIXELS);
    assert!(
        said[2].starts_with("gs: ") && said[2].contains("Its pairs vary 3.0 times as much as those of f32"),
        "{said:?}"
    );
    assert!(said[1].starts_with("chaos: ") && !said[1].contains("Its pairs vary"), "{said:?}");
}

#[test]
fn fewer_than_two_pairs_are_no_test() {
    let runs = together([seeds("fp32", &[(0.5, 0.48), (0.6, 0.5)]), seeds("gs", &[(0.5, 0.48)])]);
    let said = said(&runs, PIXELS);
    assert_eq!(said[1], "gs: no test, because fewer than two seeds finished both here and in fp32.");
}

#[test]
fn comparisons_go_to_files() {
    let base = [(0.50, 0.48), (0.56, 0.53), (0.44, 0.50)];
    let runs = together([seeds("fp32", &base), seeds("gs", &base)]);
    let all = comparisons(&["fp32", "gs"], "fp32", &runs.iter().collect::<Vec<_>>());
    let told = serde_json::to_value(&all).expect("JSON");
    assert_eq!(all.len(), 2, "{told}");
    let keys: Vec<&str> = told[0].as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "baseline",
            "chaos_ratio",
            "detectable",
            "deviation",
            "equivalence_p",
            "interval",
            "margin",
            "mean",
            "measure",
            "method",
            "p",
            "pairs",
            "verdict"
        ]
    );
    assert_eq!(
        (&told[0]["verdict"], &told[0]["mean"], &told[1]["measure"]),
        (&json!("equal"), &json!(0.0), &json!("mIoU"))
    );
}

#[test]
fn what_failed_and_how_one_sees_it() {
    let said = said(
        &[towers("fp32", 0.97, 0.96, 0.0), towers("dynamic", 0.97, 0.12, 0.999), towers("gs", 0.96, 0.97, 1e-4)],
        IMAGES,
    );
    assert_eq!(said[0], "In short: only fp32 and gs trained both towers; dynamic did not.");
    assert_eq!(
        said[1],
        "dynamic failed: second tower 12.0 % where fp32 has 96.0 %; a constant answer has 10.0 %. \
         At second/dgrad 99.9 % of the gradients were flushed to zero."
    );
    assert!(said[2].starts_with("Equal within chance: fp32 and gs: first tower 96.0 to 97.0 %"), "{said:?}");
    assert!(said[3].ends_with("fp32 0 %, dynamic 99.9 %, gs 0.01 %."), "{said:?}");
    assert_eq!(said[4], "Scales of gs: a scale for each of 2 cast sites, in the end from 2^3 to 2^48.");
}

#[test]
fn a_run_that_ends_early_is_named() {
    let ended = || {
        let mut ended = pixels("dynamic", 1, 0.0);
        (ended.metrics, ended.failure) = (None, Some("100 steps in a row were skipped".to_owned()));
        (ended.skipped_steps, ended.loss) = (99, vec![f32::NAN; 99]);
        ended
    };
    let alone = said(&[pixels("fp32", 1, 0.4), ended()], PIXELS);
    assert_eq!(
        alone[1],
        "dynamic failed: It ended after 99 steps: 100 steps in a row were skipped. Its loss became infinite or NaN. \
         99 of 99 steps were skipped because gradients overflowed."
    );
    // Another seed of it came to its end.
    let partly = said(&[pixels("fp32", 0, 0.4), pixels("dynamic", 0, 0.4), ended()], PIXELS);
    assert!(partly[1].starts_with("dynamic: 1 of 2 seeds ended early, seed 1 after 99 steps: 100 steps"), "{partly:?}");
    // All trainings ended early, so there is no baseline.
    assert!(said(&[ended()], PIXELS)[0].starts_with("dynamic failed: It ended after 99 steps"));
}

#[test]
fn too_early_to_tell() {
    let early = said(&[pixels("fp32", 0, 0.06), pixels("gs", 0, 0.02)], PIXELS);
    assert_eq!(early.len(), 1);
    assert!(early[0].starts_with("Too early: after 100 steps fp32 has reached mIoU 6.0 %; a constant answer has"));
    assert!(said(&[], PIXELS).is_empty());
}

#[test]
fn half_alone_may_do() {
    let said = said(&[pixels("fp32", 0, 0.5), pixels("fp16", 0, 0.49), pixels("gs", 0, 0.5)], PIXELS);
    assert!(said.last().expect("one").starts_with("No scale needed: fp16 without a scale learned too"));
}

#[test]
fn half_that_loses_gradients_is_not_the_same_though_it_learned() {
    let lossy = record(
        "fp16",
        0,
        &json!({"miou": 0.26, "class_accuracy": 0.5, "global_accuracy": 0.5}),
        &json!([site("a/dgrad", 0.994, 0), site("b/dgrad", 0.0, 0)]),
    );
    let said = said(&[pixels("fp32", 0, 0.305), lossy, pixels("gs", 0, 0.306)], PIXELS);
    assert!(
        said[1].starts_with("No difference found: fp32 and gs: mIoU 30.5 to 30.6 %, 0.1 points apart."),
        "{said:?}"
    );
    assert_eq!(
        said[2],
        "fp16 learned: mIoU 26.0 %, although 99.4 % of the gradients at a/dgrad were flushed to zero, so it does not \
         compute what fp32 computes. Only several seeds show whether the difference of 4.5 points is chance (--seeds \
         0,1,2)."
    );
    assert!(said.iter().all(|sentence| !sentence.starts_with("No scale needed")), "{said:?}");
}

#[test]
fn without_f32_the_best_is_the_measure() {
    let said = said(&[pixels("fp16", 0, 0.06), pixels("gs", 0, 0.5)], PIXELS);
    assert!(said[1].starts_with("fp16 failed: mIoU 6.0 % where gs has 50.0 %"), "{said:?}");
}

#[test]
fn constant_answers_of_data() {
    let exam = Labelled::synthetic(0).baseline();
    assert_eq!(exam.answers, Some(500));
    assert!((0.1..0.15).contains(&exam.constant), "{exam:?}");
    let scenes = Segmentation::synthetic(0).baseline();
    assert!(scenes.answers.is_none() && (0.0..0.12).contains(&scenes.constant), "{scenes:?}");
}

#[test]
fn of_a_sweep_the_range_that_works() {
    let swept = |scores: &[(&str, f64)]| {
        let runs: Vec<Record> = scores.iter().map(|(method, right)| images(method, 0, *right)).collect();
        said(&runs, IMAGES).into_iter().find(|sentence| sentence.starts_with("Fixed scales: "))
    };
    let scores = [("fp32", 0.9), ("fixed:8", 0.1), ("fixed:16", 0.88), ("fixed:2^6", 0.91), ("fixed:32", 0.9)];
    assert_eq!(
        swept(&scores).as_deref(),
        Some("Fixed scales: of fixed:8 to fixed:2^6, fixed:16 to fixed:2^6 learned.")
    );
    let gap = [("fp32", 0.9), ("fixed:8", 0.9), ("fixed:16", 0.1), ("fixed:32", 0.9), ("fixed:64", 0.1)];
    assert_eq!(swept(&gap).as_deref(), Some("Fixed scales: of fixed:8 to fixed:64, fixed:8 and fixed:32 learned."));
    let none = [("fp32", 0.9), ("fixed:8", 0.1), ("fixed:16", 0.1), ("fixed:32", 0.1)];
    assert_eq!(swept(&none).as_deref(), Some("Fixed scales: of fixed:8 to fixed:32 none learned."));
    let all = [scores[0], scores[2], scores[3], scores[4]];
    assert_eq!(swept(&all).as_deref(), Some("Fixed scales: fixed:16 to fixed:2^6 all learned."));
    assert_eq!(swept(&scores[..3]), None, "two are no sweep");
}
