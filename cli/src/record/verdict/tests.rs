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

fn statements(records: &[Record], test_set: EvaluationBaseline) -> Vec<String> {
    let mut methods: Vec<&str> = Vec::new();
    for record in records {
        if !methods.contains(&record.method.as_str()) {
            methods.push(&record.method);
        }
    }
    let verdict = verdict("A network", methods, &records.iter().collect::<Vec<_>>(), test_set);
    verdict.into_iter().map(|sentence| format!("{}: {}", sentence.about, sentence.text)).collect()
}

/// Returns the grade of `method` compared with fp32.
fn grade(records: &[Record], method: &str, test_set: EvaluationBaseline) -> Grade {
    let records: Vec<&Record> = records.iter().collect();
    evaluate(["fp32", method], &records, test_set).grades.first().expect("a grade").grade
}

#[test]
fn one_seed_never_says_worse_of_a_small_difference() {
    let runs = [("fp32", 0.49), ("fixed:128", 0.488), ("dynamic", 0.482), ("gs", 0.468)];
    let statements = statements(&runs.map(|(method, miou)| pixels(method, 0, miou)), PIXELS);
    assert_eq!(statements[0], "A network: fixed:128, dynamic and gs are as good as f32 (mIoU 46.8 to 49.0 %).");
    // Chance in 768 answers, with p = (0.49 · 768 + 2) / 772, 1.96 · √(2 · p (1 − p) / 772).
    assert_eq!(
        statements[1],
        "One seed: a loss of up to 5.0 points of mIoU counts as chance; several seeds see smaller ones (--seeds 0,1,2)."
    );
    assert_eq!(statements.len(), 2, "{statements:?}");
}

/// One rule for all scores: the same loss in units of chance has the same grade, whatever the task.
#[test]
fn grades_of_one_seed() {
    let top_1 = |right: f64| json!({ "top_1": right });
    let errors = |wrong: f64| json!({ "cer": wrong });
    let bleu = |score: f64| json!({ "bleu": score });
    const TEXTS: EvaluationBaseline = EvaluationBaseline { constant: 1.0, answers: None };
    const SENTENCES: EvaluationBaseline = EvaluationBaseline { constant: 2.0, answers: None };
    for (baseline, other, test_set, expected) in [
        // 1.96 · √(2 · p (1 − p) / 504) with p = (470 + 2) / 504: 3.0 points.
        (top_1(0.94), top_1(0.915), IMAGES, Grade::AsGood),
        (top_1(0.94), top_1(0.90), IMAGES, Grade::Worse),
        (top_1(0.94), top_1(0.53), IMAGES, Grade::Worse),
        (top_1(0.94), top_1(0.51), IMAGES, Grade::Failed),
        // A perfect score is not certain, and a better one is as good.
        (top_1(1.0), top_1(0.998), IMAGES, Grade::AsGood),
        (top_1(0.90), top_1(0.99), IMAGES, Grade::AsGood),
        // Fewer errors are better.
        (errors(0.02), errors(0.03), TEXTS, Grade::AsGood),
        (errors(0.02), errors(0.30), TEXTS, Grade::Worse),
        (errors(0.02), errors(0.60), TEXTS, Grade::Failed),
        (errors(0.30), errors(0.02), TEXTS, Grade::AsGood),
        // BLEU goes to 100: 4.9 with p = (30 · 7.68 + 2) / 772.
        (bleu(30.0), bleu(27.0), SENTENCES, Grade::AsGood),
        (bleu(30.0), bleu(24.0), SENTENCES, Grade::Worse),
        (bleu(30.0), bleu(12.0), SENTENCES, Grade::Failed),
    ] {
        let runs = [record("fp32", 0, &baseline, &json!([])), record("gs", 0, &other, &json!([]))];
        assert_eq!(grade(&runs, "gs", test_set), expected, "{other} compared with {baseline}");
    }
}

/// The case of a review: FP16 without a scale lost 21 of 48 points, and the first sentence said that all had learned.
#[test]
fn a_loss_is_named_in_numbers_with_one_cause() {
    let fp16 = record(
        "fp16",
        0,
        &json!({"miou": 0.265, "class_accuracy": 0.5, "global_accuracy": 0.5}),
        &json!([site("net.loss/dgrad", 0.1, 0), site("net.encoder.norm1/dgrad", 0.997, 0)]),
    );
    let runs = [pixels("fp32", 0, 0.479), fp16, pixels("dynamic", 0, 0.485), pixels("gs", 0, 0.484)];
    assert_eq!(
        statements(&runs, PIXELS)[0],
        "A network: FP16 without scaling is worse (mIoU 26.5 %, f32 47.9 %): 99.7 % of the gradients at encoder.norm1 \
         became zero. dynamic and gs are as good as f32."
    );
}

#[test]
fn grades_of_several_seeds() {
    let base = [0.48, 0.53, 0.50];
    let of = |method: &str, scores: [f64; 3]| -> Vec<Record> {
        (0..).zip(scores).map(|(seed, score)| pixels(method, seed, score)).collect()
    };
    for (scores, expected) in [
        ([0.48, 0.53, 0.50], Grade::AsGood),
        // Half a point in all seeds is certain, and within the margin of one point.
        ([0.475, 0.525, 0.495], Grade::AsGood),
        // Two points in all seeds are more than chance in the pairs.
        ([0.46, 0.511, 0.48], Grade::Worse),
        // The pairs vary, but less than the mean loss, in units of the baseline's own spread.
        ([0.49, 0.35, 0.20], Grade::Worse),
        ([0.50, 0.06, 0.05], Grade::Failed),
        ([0.55, 0.54, 0.53], Grade::AsGood),
        // These pairs vary so much that they would explain 20 points, but several seeds never explain more than one.
        ([0.50, 0.41, 0.38], Grade::Worse),
    ] {
        let runs = together([of("fp32", base), of("gs", scores)]);
        assert_eq!(grade(&runs, "gs", PIXELS), expected, "{scores:?}");
    }
}

#[test]
fn a_scale_that_fell_is_the_cause() {
    let fallen = |method: &str, seed: u64, flushed: f64| {
        let mut site = site("loss/dgrad", flushed, -24);
        site["alpha"] = json!([16, -24]);
        let run = record(method, seed, &json!({"top_1": 0.22}), &json!([site]));
        Record { skipped_steps: 8, skipped_at: (1..9).collect(), ..run }
    };
    let fell = "its scale fell from 2^16 to 2^-24 over 8 skipped steps, and gradients became zero.";
    let unknown = "the counts do not explain it (at most";
    for (method, flushed, cause) in [
        ("dynamic", 0.9, fell),
        ("dynamic:interval=steps/20", 0.9, fell),
        ("torch", 0.9, fell),
        // A scale that fell without gradients becoming zero is not the cause.
        ("dynamic", 0.01, unknown),
        // An exponent of a site is no loss scale.
        ("amax:history=16", 0.01, unknown),
        ("amax:history=16", 0.9, "90.0 % of the gradients at loss became zero."),
        ("gs", 0.9, "90.0 % of the gradients at loss became zero."),
    ] {
        let runs = [fallen(method, 0, flushed), fallen(method, 1, flushed)];
        let runs = [&[images("fp32", 0, 0.9), images("fp32", 1, 0.91)][..], &runs].concat();
        let statements = &statements(&runs, IMAGES)[0];
        let start = format!("A network: {method} fails (top-1 22.0 %, f32 90.5 %): {cause}");
        assert!(
            statements.starts_with(&start) && statements.ends_with(" No other method is as good as f32."),
            "{statements}"
        );
    }
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
    let text =
        |method: &[(f32, f64)]| statements(&together([seeds("fp32", &base), seeds("gs", method)]), PIXELS)[1].clone();
    // Seeds differ by six hundredths and pairs by two thousandths, which a test of two means would miss.
    let differs = text(&moved([(0.010, 0.0), (0.012, 0.0), (0.011, 0.0)]));
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
    let equal = text(&moved([(0.0003, 0.001), (-0.0002, -0.002), (0.0001, 0.0)]));
    assert!(equal.contains("training loss over the last half +0.00007 compared with fp32"), "{equal}");
    assert!(equal.contains("3 pairs): equal within 0.00250 (TOST, p "), "{equal}");
    assert!(
        equal.contains("mIoU -0.03 points compared with fp32") && equal.contains("equal within 1.00 points"),
        "{equal}"
    );
    // A spread of points cannot test for one point.
    let wide = text(&moved([(0.02, 0.06), (-0.03, -0.05), (0.01, 0.01)]));
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
    let statements = statements(&runs, PIXELS);
    assert!(
        statements[2].starts_with("gs: ") && statements[2].contains("Its pairs vary 3.0 times as much as those of f32"),
        "{statements:?}"
    );
    assert!(statements[1].starts_with("chaos: ") && !statements[1].contains("Its pairs vary"), "{statements:?}");
}

#[test]
fn fewer_than_two_pairs_are_no_test() {
    let runs = together([seeds("fp32", &[(0.5, 0.48), (0.6, 0.5)]), seeds("gs", &[(0.5, 0.48)])]);
    let statements = statements(&runs, PIXELS);
    assert_eq!(statements[1], "gs: no test, because fewer than two seeds finished both here and in fp32.");
}

#[test]
fn comparisons_go_to_files() {
    let base = [(0.50, 0.48), (0.56, 0.53), (0.44, 0.50)];
    let runs = together([seeds("fp32", &base), seeds("gs", &base)]);
    let all = comparisons(&["fp32", "gs"], "fp32", &runs.iter().collect::<Vec<_>>());
    let text = serde_json::to_value(&all).expect("JSON");
    assert_eq!(all.len(), 2, "{text}");
    let keys: Vec<&str> = text[0].as_object().expect("an object").keys().map(String::as_str).collect();
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
        (&text[0]["verdict"], &text[0]["mean"], &text[1]["measure"]),
        (&json!("equal"), &json!(0.0), &json!("mIoU"))
    );
}

#[test]
fn what_failed_and_how_one_sees_it() {
    let statements = statements(
        &[towers("fp32", 0.97, 0.96, 0.0), towers("dynamic", 0.97, 0.12, 0.999), towers("gs", 0.96, 0.97, 1e-4)],
        IMAGES,
    );
    assert_eq!(
        statements[0],
        "A network: dynamic fails (second tower 12.0 %, f32 96.0 %): 99.9 % of the gradients at second became zero. gs \
         is as good as f32."
    );
    assert!(statements[1].starts_with("One seed: a loss of up to "), "{statements:?}");
    assert!(statements[2].ends_with("fp32 0 %, dynamic 99.9 %, gs 0.01 %."), "{statements:?}");
    assert_eq!(statements[3], "Scales of gs: a scale for each of 2 cast sites, in the end from 2^3 to 2^48.");
}

#[test]
fn a_run_that_ends_early_is_named() {
    let ended = || {
        let mut ended = pixels("dynamic", 1, 0.0);
        (ended.metrics, ended.failure) = (None, Some("100 steps in a row were skipped".to_owned()));
        (ended.skipped_steps, ended.loss) = (99, vec![f32::NAN; 99]);
        ended
    };
    let alone = statements(&[pixels("fp32", 1, 0.4), ended()], PIXELS);
    assert_eq!(
        alone[0],
        "A network: dynamic fails: it ended after 99 steps: 100 steps in a row were skipped. No other method is as good as \
         f32."
    );
    // Another seed of it came to its end.
    let partly = statements(&[pixels("fp32", 0, 0.4), pixels("dynamic", 0, 0.4), ended()], PIXELS);
    assert!(
        partly[0].starts_with(
            "A network: dynamic is worse (mIoU 40.0 %, f32 40.0 %): 1 of 2 seeds ended early, after 99 steps: 100 steps"
        ),
        "{partly:?}"
    );
    // All trainings ended early, so there is no baseline.
    assert!(statements(&[ended()], PIXELS)[0].starts_with("dynamic failed: it ended after 99 steps"));
}

#[test]
fn too_early_to_tell() {
    let early = statements(&[pixels("fp32", 0, 0.06), pixels("gs", 0, 0.02)], PIXELS);
    assert_eq!(early.len(), 1);
    assert!(
        early[0].starts_with("A network: too early: after 100 steps f32 has mIoU 6.0 %; a constant answer has 5.0 %")
    );
    assert!(statements(&[], PIXELS).is_empty());
}

#[test]
fn half_alone_may_do() {
    let statements = statements(&[pixels("fp32", 0, 0.5), pixels("fp16", 0, 0.49), pixels("gs", 0, 0.5)], PIXELS);
    assert!(statements.last().expect("one").starts_with("No scale needed: FP16 alone is as good"));
}

#[test]
fn without_f32_the_best_is_the_measure() {
    let statements = statements(&[pixels("fp16", 0, 0.06), pixels("gs", 0, 0.5)], PIXELS);
    assert!(
        statements[0].starts_with("A network: FP16 without scaling fails (mIoU 6.0 %, gs 50.0 %): the counts do not"),
        "{statements:?}"
    );
}

/// A method that has diverged is the worst, whether its score was computed here or read from a file.
#[test]
fn a_diverged_method_is_no_baseline() {
    const TOKENS: EvaluationBaseline = EvaluationBaseline { constant: 0.0, answers: None };
    let run = |method: &str, bits: f64| record(method, 0, &json!({"bits_saved": bits}), &json!([]));
    let computed = Record { metrics: Some(Metrics::new([(Metric::BitsSaved, f64::NEG_INFINITY)])), ..run("fp16", 0.0) };
    let json = serde_json::to_value(&computed.metrics).expect("JSON");
    let restored = Record { metrics: serde_json::from_value(json).expect("scores"), ..computed.clone() };
    for diverged in [computed, restored] {
        let runs = [diverged, run("gs", 0.4)];
        let statements = statements(&runs, TOKENS);
        assert!(
            statements[0]
                .starts_with("A network: FP16 without scaling fails (bits saved –, gs 40.0 %): the counts do not"),
            "{statements:?}"
        );
    }
}

/// Pairs and grades have the same baseline, here the better method.
#[test]
fn one_baseline_for_pairs_and_grades() {
    let runs = together([seeds("fp16", &[(0.9, 0.06), (0.9, 0.07)]), seeds("gs", &[(0.5, 0.48), (0.5, 0.5)])]);
    let all = evaluate(["fp16", "gs"], &runs.iter().collect::<Vec<_>>(), PIXELS);
    assert!(all.paired.iter().all(|one| one.baseline == "gs" && one.method == "fp16"), "{all:?}");
    assert!(all.paired.len() == 2 && all.grades.len() == 1 && all.grades[0].method == "fp16", "{all:?}");
}

/// f32 against f32 after another rounding compares no methods.
#[test]
fn chaos_alone_is_no_comparison() {
    let base = [(0.50, 0.48), (0.56, 0.53)];
    let runs = together([seeds("fp32", &base), seeds("chaos", &base)]);
    assert_eq!(
        statements(&runs, PIXELS)[0],
        "A network: mIoU 50.5 % after 100 steps of fp32; a constant answer has 5.0 %."
    );
}

#[test]
fn constant_answers_of_data() {
    let test_set = Labelled::synthetic(0).baseline();
    assert_eq!(test_set.answers, Some(500));
    assert!((0.1..0.15).contains(&test_set.constant), "{test_set:?}");
    let scenes = Segmentation::synthetic(0).baseline();
    assert!(scenes.answers.is_none() && (0.0..0.12).contains(&scenes.constant), "{scenes:?}");
}

#[test]
fn of_a_sweep_the_range_that_works() {
    let swept = |scores: &[(&str, f64)]| {
        let runs: Vec<Record> = scores.iter().map(|(method, right)| images(method, 0, *right)).collect();
        statements(&runs, IMAGES).into_iter().find(|sentence| sentence.starts_with("Fixed scales: "))
    };
    let scores = [("fp32", 0.9), ("fixed:8", 0.1), ("fixed:16", 0.88), ("fixed:2^6", 0.91), ("fixed:32", 0.9)];
    assert_eq!(
        swept(&scores).as_deref(),
        Some("Fixed scales: of fixed:8 to fixed:2^6, fixed:16 to fixed:2^6 are as good as f32.")
    );
    let gap = [("fp32", 0.9), ("fixed:8", 0.9), ("fixed:16", 0.1), ("fixed:32", 0.9), ("fixed:64", 0.1)];
    assert_eq!(
        swept(&gap).as_deref(),
        Some("Fixed scales: of fixed:8 to fixed:64, fixed:8 and fixed:32 are as good as f32.")
    );
    let none = [("fp32", 0.9), ("fixed:8", 0.1), ("fixed:16", 0.1), ("fixed:32", 0.1)];
    assert_eq!(swept(&none).as_deref(), Some("Fixed scales: of fixed:8 to fixed:32 none is as good as f32."));
    let all = [scores[0], scores[2], scores[3], scores[4]];
    assert_eq!(swept(&all).as_deref(), Some("Fixed scales: fixed:16 to fixed:2^6 are all as good as f32."));
    assert_eq!(swept(&scores[..3]), None, "two are no sweep");
}
