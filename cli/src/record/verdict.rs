//! Verdict of a comparison in sentences: failures and their symptoms, equal methods, effect of scaling.
//!
//! Pure: records in, sentences out. It is careful about chance: methods share weights, order and noise, so several
//! seeds are compared in pairs, and a difference that could not have been detected is *no test*. A single seed never
//! proves a small difference.

mod chance;
mod paired;
mod pairs;
mod words;

pub use pairs::{Comparison, comparisons};

use super::{Record, gradients::percent};
use crate::{
    metrics::{Metric, Metrics},
    tasks::EvaluationBaseline,
};
use gradscale::{Method, Scaling, gradscale_core::loss_scale::LossScale};
use std::collections::BTreeMap;
use words::{listed, strong};

/// Statement of a verdict: its subject and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// Returns the position of a score between a constant answer, 0, and a perfect one, 1.
    fn learned(&self, score: usize, exam: EvaluationBaseline) -> f64 {
        let perfect = self.scores.get(score).map_or(f64::NAN, |(metric, _)| metric.perfect());
        (self.mean(score) - exam.constant) / (perfect - exam.constant)
    }

    /// Formats a value of the score with this index.
    fn text(&self, score: usize, value: f64) -> String {
        self.scores.get(score).map_or(String::new(), |(metric, _)| metric.text(value))
    }

    /// Returns the scores that have lost more than half of the baseline's gain over a constant answer.
    fn lost(&self, baseline: &Self, exam: EvaluationBaseline) -> Vec<usize> {
        let lost = |&score: &usize| {
            let (learned, kept) = (baseline.learned(score, exam), self.learned(score, exam));
            learned >= MIN_LEARNED_FRACTION && (kept.is_nan() || kept < learned / 2.0)
        };
        (0..baseline.scores.len()).filter(lost).collect()
    }
}

/// Minimum share of the gap between the constant-answer baseline and a perfect score.
const MIN_LEARNED_FRACTION: f64 = 0.1;

/// Returns all statements of the verdict on methods, most important first.
pub fn verdict<'a>(
    methods: impl IntoIterator<Item = &'a str>, records: &[&'a Record], exam: EvaluationBaseline,
) -> Vec<Sentence> {
    let stands: Vec<MethodResult<'_>> =
        methods.into_iter().filter_map(|method| MethodResult::new(method, records)).collect();
    let finished = || stands.iter().filter(|stand| stand.finished());
    let total = |stand: &MethodResult<'_>| (0..stand.scores.len()).map(|score| stand.learned(score, exam)).sum::<f64>();
    let best = || finished().max_by(|a, b| total(a).total_cmp(&total(b)));
    let Some(baseline) = finished().find(|stand| stand.method == "fp32").or_else(best) else {
        return stands.iter().map(|stand| failure(stand, None, exam)).collect();
    };
    if (0..baseline.scores.len())
        .all(|score| baseline.learned(score, exam).is_nan() || baseline.learned(score, exam) < MIN_LEARNED_FRACTION)
    {
        return early(baseline, &stands, exam);
    }
    let fails = |stand: &&MethodResult<'_>| !stand.finished() || !stand.lost(baseline, exam).is_empty();
    let (failing, working): (Vec<&MethodResult<'_>>, Vec<&MethodResult<'_>>) = stands.iter().partition(fails);
    let mut all = Vec::new();
    if stands.len() > 1 {
        all.push(headline(&failing, &working));
    }
    all.extend(swept(&stands, &working));
    all.extend(failing.iter().map(|stand| failure(stand, Some(baseline), exam)));
    all.extend(partly(&working));
    let several = baseline.runs.iter().filter(|run| run.metrics.is_some()).count() > 1;
    if several {
        let names: Vec<&str> = working.iter().map(|stand| stand.method).collect();
        all.extend(pairs::said(&names, baseline.method, records));
    } else {
        all.extend(chance::compared(baseline, &working, exam));
    }
    all.extend(changed(&stands, &working));
    all
}

/// Returns the verdict that the run was too short to compare methods.
fn early(baseline: &MethodResult<'_>, stands: &[MethodResult<'_>], exam: EvaluationBaseline) -> Vec<Sentence> {
    let steps = baseline.runs.iter().map(|run| run.loss.len()).max().unwrap_or(0);
    let reached = words::reached(baseline, 0);
    let text = format!(
        "after {steps} steps {} has reached {reached}; a constant answer has {}. Train longer (--iters) before \
         comparing.",
        baseline.method,
        baseline.text(0, exam.constant)
    );
    let unfinished = stands.iter().filter(|stand| !stand.finished()).map(|stand| failure(stand, None, exam));
    std::iter::once(strong("Too early", text)).chain(unfinished).collect()
}

fn headline(failing: &[&MethodResult<'_>], working: &[&MethodResult<'_>]) -> Sentence {
    let names = |stands: &[&MethodResult<'_>]| listed(&stands.iter().map(|stand| stand.method).collect::<Vec<_>>());
    let towers = working.iter().any(|stand| stand.scores.len() > 1);
    let text = match (failing.len(), working.len()) {
        (0, 2) => format!("{} both learned.", names(working)),
        (0, all) => format!("all {all} methods learned."),
        (_, _) if towers => format!("only {} trained both towers; {} did not.", names(working), names(failing)),
        (_, _) => format!("{} learned; {} did not.", names(working), names(failing)),
    };
    strong("In short", text)
}

/// Describes a sweep of fixed scales: the ranges that learned.
fn swept(stands: &[MethodResult<'_>], working: &[&MethodResult<'_>]) -> Option<Sentence> {
    let exponent = |stand: &MethodResult<'_>| {
        let Scaling::Loss(LossScale::Fixed(fixed)) = stand.method.parse::<Method>().ok()?.scaling else { return None };
        Some(fixed.exponent())
    };
    let mut tried: Vec<(i32, &MethodResult<'_>)> = stands.iter().filter_map(|s| Some((exponent(s)?, s))).collect();
    tried.sort_by_key(|(exponent, _)| *exponent);
    let (first, last) = (tried.first()?.1.method, tried.last()?.1.method);
    if tried.len() < 3 {
        return None;
    }
    let learned = |stand: &MethodResult<'_>| working.iter().any(|one| std::ptr::eq(*one, stand));
    let ranges = tried.chunk_by(|a, b| learned(a.1) == learned(b.1)).filter(|range| learned(range[0].1));
    let ranges: Vec<String> = ranges
        .map(|range| match range {
            [(_, one)] => one.method.to_owned(),
            [(_, least), .., (_, most)] => format!("{} to {}", least.method, most.method),
            [] => String::new(),
        })
        .collect();
    let ranges: Vec<&str> = ranges.iter().map(String::as_str).collect();
    let text = match &ranges[..] {
        [] => format!("of {first} to {last} none learned."),
        [_] if tried.iter().all(|(_, stand)| learned(stand)) => format!("{first} to {last} all learned."),
        ranges => format!("of {first} to {last}, {} learned.", listed(ranges)),
    };
    Some(strong("Fixed scales", text))
}

/// Describes a failed method and its symptoms.
fn failure(stand: &MethodResult<'_>, baseline: Option<&MethodResult<'_>>, exam: EvaluationBaseline) -> Sentence {
    let mut parts = Vec::new();
    if let Some(baseline) = baseline {
        for score in stand.lost(baseline, exam).into_iter().filter(|_| stand.finished()) {
            parts.push(format!(
                "{} where {} has {}; a constant answer has {}",
                words::reached(stand, score),
                baseline.method,
                baseline.text(score, baseline.mean(score)),
                baseline.text(score, exam.constant)
            ));
        }
    }
    parts.extend(ended(stand));
    parts.extend(signs(stand));
    strong(&format!("{} failed", stand.method), format!("{}.", parts.join(". ")))
}

/// Describes the runs of a method that ended early, or returns `None` if there are none.
fn ended(stand: &MethodResult<'_>) -> Option<String> {
    let ended: Vec<_> = stand.runs.iter().filter_map(|run| Some((run, run.failure.as_ref()?))).collect();
    let (run, why) = ended.first()?;
    let step = run.loss.len();
    Some(match stand.runs.len() {
        1 => format!("It ended after {step} steps: {why}"),
        all => format!("{} of {all} seeds ended early, seed {} after {step} steps: {why}", ended.len(), run.seed),
    })
}

/// Describes methods that work although some seeds ended early.
fn partly(working: &[&MethodResult<'_>]) -> Vec<Sentence> {
    let said = |stand: &&MethodResult<'_>| Some(strong(stand.method, format!("{}.", ended(stand)?)));
    working.iter().filter_map(said).collect()
}

/// Returns the symptoms of a failure: non-finite losses, skipped steps, flushed gradients.
fn signs(stand: &MethodResult<'_>) -> Vec<String> {
    let mut signs = Vec::new();
    let infinite = |run: &&&Record| run.loss.iter().any(|loss| !loss.is_finite());
    if stand.runs.iter().filter(infinite).count() > 0 {
        signs.push("Its loss became infinite or NaN".to_owned());
    }
    let steps: usize = stand.runs.iter().map(|run| run.loss.len()).sum();
    let skipped: u64 = stand.runs.iter().map(|run| run.skipped_steps).sum();
    if 10 * skipped > steps as u64 {
        signs.push(format!("{skipped} of {steps} steps were skipped because gradients overflowed"));
    }
    let sites = flushed(stand);
    let many = sites.iter().filter(|(_, share)| *share > 0.5).count();
    if let Some((name, share)) = worst(stand)
        && share > 0.05
    {
        signs.push(match many {
            0 => format!("At {name} {} of the gradients were flushed to zero, mean over the steps", percent(share)),
            1 => format!("At {name} {} of the gradients were flushed to zero", percent(share)),
            _ => format!(
                "At {many} of {} cast sites more than half of the gradients were flushed to zero, at {name} {}",
                sites.len(),
                percent(share)
            ),
        });
    }
    signs
}

/// Returns the flushed share of gradients of each site: the mean over the sampled steps of all seeds.
fn flushed<'a>(stand: &MethodResult<'a>) -> Vec<(&'a str, f64)> {
    let most = stand.runs.iter().max_by_key(|run| run.sites.len());
    let names = most.into_iter().flat_map(|run| &run.sites).map(|site| site.name.as_str());
    let mean = |name: &'a str| {
        let of = stand.runs.iter().filter_map(|run| run.sites.iter().find(|site| site.name == name));
        let shares: Vec<f64> = of.flat_map(|site| &site.gamma_measured).copied().filter(|g| g.is_finite()).collect();
        (!shares.is_empty()).then(|| (name, shares.iter().sum::<f64>() / shares.len() as f64))
    };
    names.filter_map(mean).collect()
}

/// Returns true if overflow bound a site's decisions in over a quarter of the steps, because its values span more than
/// FP16 holds.
fn wide(stand: &MethodResult<'_>, name: &str) -> bool {
    let sites = stand.runs.iter().flat_map(|run| &run.sites).filter(|site| site.name == name);
    let bound: u64 = sites.map(|site| site.extremes.bound_by_overflow).sum();
    4 * bound > stand.runs.iter().map(|run| run.loss.len() as u64).sum()
}

/// Returns the site with the largest flushed share.
fn worst<'a>(stand: &MethodResult<'a>) -> Option<(&'a str, f64)> {
    flushed(stand).into_iter().reduce(|a, b| if b.1 > a.1 { b } else { a })
}

/// Returns true if every site kept 90 % of its gradients, so that the method computes the results of f32 up to
/// rounding.
fn keeps(stand: &MethodResult<'_>) -> bool {
    worst(stand).is_none_or(|(_, share)| share <= 0.1)
}

/// Describes the effect of scaling on the gradients.
fn changed(stands: &[MethodResult<'_>], working: &[&MethodResult<'_>]) -> Vec<Sentence> {
    let mut all = Vec::new();
    let lost = |stand: &MethodResult<'_>| {
        let (name, share) = worst(stand)?;
        let why = if share > 0.01 && wide(stand, name) {
            format!(" (at {name}, whose values span more than FP16 holds, so every scale flushes some or overflows)")
        } else {
            String::new()
        };
        Some(format!("{} {}{why}", stand.method, percent(share)))
    };
    let shares: Vec<String> = stands.iter().filter_map(lost).collect();
    if !shares.is_empty() {
        let text = format!("share of the worst cast site’s gradients, mean over the steps: {}.", shares.join(", "));
        all.push(strong("Flushed to zero", text));
    }
    for stand in stands.iter().filter(|stand| super::gradients::threshold(stand.method).is_some()) {
        let last = stand.runs.iter().flat_map(|run| &run.sites).filter_map(|site| site.alpha.last());
        let (least, most) = (last.clone().min(), last.max());
        let sites = stand.runs.iter().map(|run| run.sites.len()).max().unwrap_or(0);
        if let (Some(least), Some(most)) = (least, most) {
            let text = format!("a scale for each of {sites} cast sites, in the end from 2^{least} to 2^{most}.");
            all.push(strong(&format!("Scales of {}", stand.method), text));
        }
    }
    if working.iter().any(|stand| stand.method == "fp16" && keeps(stand)) && stands.len() > 1 {
        let text = "fp16 without a scale learned too, because these gradients are large enough for it.".to_owned();
        all.push(strong("No scale needed", text));
    }
    all
}

#[cfg(test)]
mod tests;
