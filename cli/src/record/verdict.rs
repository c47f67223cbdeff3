//! Verdict of a comparison in sentences: grades of the methods, the cause of each loss, effect of scaling.
//!
//! Pure: records in, sentences out. Every method has one of three grades compared with f32 ([`grade`]): as good, worse,
//! failed. "As good" needs a loss that chance explains ([`chance`]); everything else names the loss and one cause
//! ([`cause`]).

mod cause;
mod chance;
mod grade;
mod paired;
mod pairs;
mod words;

pub use grade::{Grade, Judgement};
use pairs::{Comparison, comparisons};

use super::{
    Record, SiteSeries, Spread,
    gradients::{format_of, percent, title},
    site_names::shorten_names,
};
use crate::{
    metrics::{Metric, Metrics},
    setup::CHAOS,
    tasks::EvaluationBaseline,
};
use gradscale::{Method, Scaling, gradscale_core::loss_scale::LossScale};
use serde::Serialize;
use std::collections::BTreeMap;
use words::{describe_loss, format_range, join_names, name_method, sentence};

/// Statement of a verdict: its subject and its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sentence {
    pub about: String,
    pub text: String,
}

/// Results of one method: its runs and their scores.
#[derive(Debug)]
struct MethodResult<'a> {
    method: &'a str,
    runs: Vec<&'a Record>,
    /// Values of each primary score, one for each finished seed.
    scores: Vec<(Metric, Vec<f64>)>,
}

impl<'a> MethodResult<'a> {
    fn new(method: &'a str, records: &[&'a Record]) -> Option<Self> {
        let runs: Vec<&Record> = records.iter().copied().filter(|record| record.method == method).collect();
        let mut all: BTreeMap<Metric, Vec<f64>> = BTreeMap::new();
        for (metric, score) in runs.iter().filter_map(|run| run.metrics.as_ref()).flat_map(Metrics::judged) {
            all.entry(metric).or_default().push(score);
        }
        (!runs.is_empty()).then(|| Self { method, runs, scores: all.into_iter().collect() })
    }

    fn finished(&self) -> bool {
        !self.scores.is_empty()
    }

    fn mean(&self, score: usize) -> f64 {
        self.scores.get(score).map_or(f64::NAN, |(_, seeds)| seeds.iter().sum::<f64>() / seeds.len() as f64)
    }

    /// Returns 1 if a higher value of the score is better, and -1 otherwise.
    fn sign(&self, score: usize, test_set: EvaluationBaseline) -> f64 {
        let perfect = self.scores.get(score).map_or(f64::NAN, |(metric, _)| metric.perfect());
        if perfect < test_set.constant { -1.0 } else { 1.0 }
    }

    /// Returns the position of a score between a constant answer, 0, and a perfect one, 1.
    fn learned(&self, score: usize, test_set: EvaluationBaseline) -> f64 {
        let perfect = self.scores.get(score).map_or(f64::NAN, |(metric, _)| metric.perfect());
        (self.mean(score) - test_set.constant) / (perfect - test_set.constant)
    }

    /// Formats a value of the score with this index.
    fn text(&self, score: usize, value: f64) -> String {
        self.scores.get(score).map_or(String::new(), |(metric, _)| metric.text(value))
    }

    /// Returns true if the score lost more than half of what the baseline gained over a constant answer.
    fn has_lost_half(&self, baseline: &Self, score: usize, test_set: EvaluationBaseline) -> bool {
        let (learned, kept) = (baseline.learned(score, test_set), self.learned(score, test_set));
        learned >= MIN_LEARNED_FRACTION && (kept.is_nan() || kept < learned / 2.0)
    }

    /// Shortens the name of a cast site to its layer: `net.conv1/dgrad` becomes `conv1`.
    fn shorten(&self, site: &str) -> String {
        let names: Vec<&str> =
            self.runs.iter().take(1).flat_map(|run| &run.sites).map(|site| site.name.as_str()).collect();
        let at = names.iter().position(|name| *name == site);
        let name = at.and_then(|at| shorten_names(&names).get(at).copied()).unwrap_or(site);
        name.trim_end_matches("/dgrad").to_owned()
    }
}

/// Minimum share of the gap between the constant-answer baseline and a perfect score.
const MIN_LEARNED_FRACTION: f64 = 0.1;

/// Returns the method that others are compared with: f32, or the best without it. A method that has diverged, whose
/// scores are no numbers, is the worst.
fn find_baseline<'a, 'b>(
    results: &'b [MethodResult<'a>], test_set: EvaluationBaseline,
) -> Option<&'b MethodResult<'a>> {
    let finished = || results.iter().filter(|result| result.finished());
    let total = |result: &MethodResult<'_>| {
        let total: f64 = (0..result.scores.len()).map(|score| result.learned(score, test_set)).sum();
        if total.is_finite() { total } else { f64::NEG_INFINITY }
    };
    let best = || finished().max_by(|a, b| total(a).total_cmp(&total(b)));
    finished().find(|result| result.method == "fp32").or_else(best)
}

/// Returns true if the baseline has learned too little for a comparison.
fn is_early(baseline: &MethodResult<'_>, test_set: EvaluationBaseline) -> bool {
    let early =
        |score| baseline.learned(score, test_set).is_nan() || baseline.learned(score, test_set) < MIN_LEARNED_FRACTION;
    (0..baseline.scores.len()).all(early)
}

/// Comparison of all methods with one baseline, for programs.
#[derive(Debug, Serialize)]
pub struct Evaluation {
    /// Comparisons over pairs of runs, if there are at least two seeds.
    pub paired: Vec<Comparison>,
    /// Grade of every method but the baseline. Empty if nothing can be compared yet.
    pub grades: Vec<Judgement>,
}

/// Compares and grades methods. Both parts have the baseline of [`verdict`].
pub fn evaluate<'a>(
    methods: impl IntoIterator<Item = &'a str>, records: &[&'a Record], test_set: EvaluationBaseline,
) -> Evaluation {
    let results: Vec<MethodResult<'_>> =
        methods.into_iter().filter_map(|method| MethodResult::new(method, records)).collect();
    let Some(baseline) = find_baseline(&results, test_set) else {
        return Evaluation { paired: Vec::new(), grades: Vec::new() };
    };
    let names: Vec<&str> = results.iter().map(|result| result.method).collect();
    let grades = if is_early(baseline, test_set) { Vec::new() } else { judged(&results, baseline, test_set) };
    Evaluation { paired: comparisons(&names, baseline.method, records), grades }
}

fn judged(results: &[MethodResult<'_>], baseline: &MethodResult<'_>, test_set: EvaluationBaseline) -> Vec<Judgement> {
    let others = results.iter().filter(|result| result.method != baseline.method);
    others.map(|result| grade::judge(result, baseline, test_set)).collect()
}

/// Returns all statements of the verdict on methods, most important first. The first is about `subject`.
pub fn verdict<'a>(
    subject: &str, methods: impl IntoIterator<Item = &'a str>, records: &[&'a Record], test_set: EvaluationBaseline,
) -> Vec<Sentence> {
    let results: Vec<MethodResult<'_>> =
        methods.into_iter().filter_map(|method| MethodResult::new(method, records)).collect();
    let Some(baseline) = find_baseline(&results, test_set) else {
        return results.iter().map(describe_failure).collect();
    };
    if is_early(baseline, test_set) {
        return describe_too_early(subject, baseline, &results, test_set);
    }
    let judged = judged(&results, baseline, test_set);
    let mut all = Vec::new();
    // The noise of f32 is no method to be compared.
    if judged.iter().all(|one| one.method == CHAOS && one.grade == Grade::AsGood) {
        all.push(describe_scores(subject, baseline, test_set));
    } else {
        all.push(describe_losses(subject, &judged, baseline));
    }
    let is_good = |method: &str| judged.iter().all(|one| one.method != method || one.grade == Grade::AsGood);
    let good: Vec<&MethodResult<'_>> = results.iter().filter(|result| is_good(result.method)).collect();
    all.extend(describe_sweep(&results, &good));
    let several = baseline.runs.iter().filter(|run| run.metrics.is_some()).count() > 1;
    if several {
        let names: Vec<&str> = results.iter().filter(|result| result.finished()).map(|result| result.method).collect();
        all.extend(pairs::describe_pairs(&names, baseline.method, records));
    } else if results.len() > 1 {
        all.extend(describe_chance(&judged, test_set));
    }
    all.extend(describe_scales(&results, &good));
    all
}

/// Returns the verdict that the run was too short to compare methods.
fn describe_too_early(
    subject: &str, baseline: &MethodResult<'_>, results: &[MethodResult<'_>], test_set: EvaluationBaseline,
) -> Vec<Sentence> {
    let steps = baseline.runs.iter().map(|run| run.loss.len()).max().unwrap_or(0);
    let advice = if results.len() > 1 { "Train longer (--iters) before comparing" } else { "Train longer (--iters)" };
    let text = format!(
        "too early: after {steps} steps {} has {}; a constant answer has {}. {advice}.",
        name_method(baseline.method),
        words::format_score(baseline, 0),
        baseline.text(0, test_set.constant)
    );
    let unfinished = results.iter().filter(|result| !result.finished()).map(describe_failure);
    std::iter::once(sentence(subject, text)).chain(unfinished).collect()
}

/// Describes the scores of a training that is not compared with another.
fn describe_scores(subject: &str, result: &MethodResult<'_>, test_set: EvaluationBaseline) -> Sentence {
    let steps = result.runs.iter().map(|run| run.loss.len()).max().unwrap_or(0);
    let scores: Vec<String> = (0..result.scores.len()).map(|score| words::format_score(result, score)).collect();
    let text = format!(
        "{} after {steps} steps of {}; a constant answer has {}.",
        scores.join(", "),
        result.method,
        result.text(0, test_set.constant)
    );
    sentence(subject, text)
}

/// Describes a method of which no seed ended.
fn describe_failure(result: &MethodResult<'_>) -> Sentence {
    sentence(&format!("{} failed", result.method), format!("{}.", cause::Cause::find(result)))
}

/// Returns the first sentence: the methods that lost something, with numbers and cause, then those that are as good.
fn describe_losses(subject: &str, judged: &[Judgement], baseline: &MethodResult<'_>) -> Sentence {
    let mut groups: Vec<Vec<&Judgement>> = Vec::new();
    let alike = |a: &Judgement, b: &Judgement| {
        let causes = a.cause.as_ref().zip(b.cause.as_ref());
        a.grade == b.grade && a.score == b.score && causes.is_some_and(|(a, b)| a.is_like(b))
    };
    for grade in [Grade::Failed, Grade::Worse] {
        for one in judged.iter().filter(|one| one.grade == grade) {
            match groups.iter_mut().find(|group| alike(group[0], one)) {
                Some(group) => group.push(one),
                None => groups.push(vec![one]),
            }
        }
    }
    let mut parts: Vec<String> = groups.iter().map(|group| describe_loss(group, baseline.method)).collect();
    let good: Vec<&Judgement> = judged.iter().filter(|one| one.grade == Grade::AsGood && one.method != CHAOS).collect();
    let names: Vec<&str> = good.iter().map(|one| name_method(&one.method)).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    let than = name_method(baseline.method);
    parts.push(match (&good[..], groups.is_empty()) {
        ([], _) => format!("No other method is as good as {than}."),
        (_, false) => format!("{} {verb} as good as {than}.", join_names(&names)),
        (_, true) => {
            let spans = (0..baseline.scores.len()).map(|score| {
                let (metric, _) = baseline.scores[score];
                let reached = good.iter().filter(|one| one.score == Some(metric)).filter_map(|one| one.reached);
                let all: Vec<f64> = reached.chain([baseline.mean(score)]).collect();
                format!("{} {}", metric.name(), format_range(metric, &all))
            });
            let spans: Vec<String> = spans.collect();
            format!("{} {verb} as good as {than} ({}).", join_names(&names), spans.join(", "))
        }
    });
    sentence(subject, parts.join(" "))
}

/// Describes the loss that chance explains if there is one seed.
fn describe_chance(judged: &[Judgement], test_set: EvaluationBaseline) -> Option<Sentence> {
    let largest = judged.iter().max_by(|a, b| a.chance.unwrap_or(0.0).total_cmp(&b.chance.unwrap_or(0.0)))?;
    let (metric, chance) = (largest.score?, largest.chance?);
    let of = test_set.answers.map_or_else(String::new, |answers| format!(" in {answers} test images"));
    let text = format!(
        "a loss of up to {} of {} counts as chance{of}; several seeds see smaller ones (--seeds 0,1,2).",
        metric.difference(chance),
        metric.name()
    );
    Some(sentence("One seed", text))
}

/// Describes a sweep of fixed scales: the ranges that are as good as f32.
fn describe_sweep(results: &[MethodResult<'_>], working: &[&MethodResult<'_>]) -> Option<Sentence> {
    let exponent = |result: &MethodResult<'_>| {
        let Scaling::Loss(LossScale::Fixed(fixed)) = result.method.parse::<Method>().ok()?.scaling else { return None };
        Some(fixed.exponent())
    };
    let mut tried: Vec<(i32, &MethodResult<'_>)> = results.iter().filter_map(|s| Some((exponent(s)?, s))).collect();
    tried.sort_by_key(|(exponent, _)| *exponent);
    let (first, last) = (tried.first()?.1.method, tried.last()?.1.method);
    if tried.len() < 3 {
        return None;
    }
    let learned = |result: &MethodResult<'_>| working.iter().any(|one| std::ptr::eq(*one, result));
    let ranges = tried.chunk_by(|a, b| learned(a.1) == learned(b.1)).filter(|range| learned(range[0].1));
    let ranges: Vec<String> = ranges
        .map(|range| match range {
            [(_, one)] => one.method.to_owned(),
            [(_, lowest), .., (_, highest)] => format!("{} to {}", lowest.method, highest.method),
            [] => String::new(),
        })
        .collect();
    let ranges: Vec<&str> = ranges.iter().map(String::as_str).collect();
    let text = match &ranges[..] {
        [] => format!("of {first} to {last} none is as good as f32."),
        [_] if tried.iter().all(|(_, result)| learned(result)) => format!("{first} to {last} are all as good as f32."),
        [one] if !one.contains(" to ") => format!("of {first} to {last}, only {one} is as good as f32."),
        ranges => format!("of {first} to {last}, {} are as good as f32.", join_names(ranges)),
    };
    Some(sentence("Fixed scales", text))
}

/// Returns the flushed share of gradients of each site: the mean over the seeds, each with its mean over the sampled steps.
fn flushed_shares<'a>(result: &MethodResult<'a>) -> Vec<(&'a str, f64)> {
    // A run that failed early may lack sites.
    let complete = result.runs.iter().max_by_key(|run| run.sites.len());
    let names = complete.into_iter().flat_map(|run| &run.sites).map(|site| site.name.as_str());
    let mean = |name: &'a str| {
        let sites = result.runs.iter().filter_map(|run| run.sites.iter().find(|site| site.name == name));
        let shares: Vec<f64> = sites.filter_map(SiteSeries::mean_flushed).collect();
        Spread::new(&shares).map(|spread| (name, spread.mean))
    };
    names.filter_map(mean).collect()
}

/// Returns true if overflow bound a site's decisions in over a quarter of the steps, because its values span more than
/// its format holds.
fn is_wide(result: &MethodResult<'_>, name: &str) -> bool {
    let sites = result.runs.iter().flat_map(|run| &run.sites).filter(|site| site.name == name);
    let bound: u64 = sites.map(|site| site.extremes.bound_by_overflow).sum();
    4 * bound > result.runs.iter().map(|run| run.loss.len() as u64).sum()
}

/// Returns the site with the largest flushed share.
fn worst_site<'a>(result: &MethodResult<'a>) -> Option<(&'a str, f64)> {
    flushed_shares(result).into_iter().reduce(|a, b| if b.1 > a.1 { b } else { a })
}

/// Returns true if every site kept 90 % of its gradients, so that the method computes the results of f32 up to
/// rounding.
fn keeps_gradients(result: &MethodResult<'_>) -> bool {
    worst_site(result).is_none_or(|(_, share)| share <= 0.1)
}

/// Describes the effect of scaling on the gradients.
fn describe_scales(results: &[MethodResult<'_>], working: &[&MethodResult<'_>]) -> Vec<Sentence> {
    let mut all = Vec::new();
    let lost = |result: &MethodResult<'_>| {
        let (name, share) = worst_site(result)?;
        let why = if share > 0.01 && is_wide(result, name) {
            let format = title(format_of(result.method));
            format!(
                " (at {name}, whose values span more than {format} holds, so every scale flushes some or overflows)"
            )
        } else {
            String::new()
        };
        Some(format!("{} {}{why}", result.method, percent(share)))
    };
    let shares: Vec<String> = results.iter().filter_map(lost).collect();
    if !shares.is_empty() {
        let text = format!(
            "share of the gradients at the cast site that lost most, mean over the steps: {}.",
            shares.join(", ")
        );
        all.push(sentence("Flushed to zero", text));
    }
    for result in results.iter().filter(|result| super::gradients::threshold(result.method).is_some()) {
        let last = result.runs.iter().flat_map(|run| &run.sites).filter_map(|site| site.alpha.last());
        let (lowest, highest) = (last.clone().min(), last.max());
        let sites = result.runs.iter().map(|run| run.sites.len()).max().unwrap_or(0);
        if let (Some(lowest), Some(highest)) = (lowest, highest) {
            let text = format!("a scale for each of {sites} cast sites, in the end from 2^{lowest} to 2^{highest}.");
            all.push(sentence(&format!("Scales of {}", result.method), text));
        }
    }
    if working.iter().any(|result| result.method == "fp16" && keeps_gradients(result)) && results.len() > 1 {
        let text = "FP16 alone is as good, because these gradients are large enough for it.".to_owned();
        all.push(sentence("No scale needed", text));
    }
    all
}

#[cfg(test)]
mod tests;
