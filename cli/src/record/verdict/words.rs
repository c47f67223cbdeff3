//! Pieces of sentences.

use super::{
    MethodResult, Sentence,
    grade::{Grade, Judgement},
};
use crate::metrics::Metric;

pub fn sentence(about: &str, text: String) -> Sentence {
    Sentence { about: about.to_owned(), text }
}

/// Joins names of methods, for example `fp32, dynamic and gs`.
pub fn join_names(names: &[&str]) -> String {
    match names {
        [] => "no method".to_owned(),
        [one] => (*one).to_owned(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

/// Returns a method as sentences name it; tables have the names of the command line.
pub fn name_method(method: &str) -> &str {
    match method {
        "fp32" => "f32",
        "fp16" => "FP16 without scaling",
        other => other,
    }
}

/// Formats a score with its name: `mIoU 9.0 %`, `second tower 10.4 %`; of several seeds the mean.
pub fn format_score(result: &MethodResult<'_>, score: usize) -> String {
    let name = result.scores.get(score).map_or("score", |(metric, _)| metric.name());
    format!("{name} {}", result.text(score, result.mean(score)))
}

/// Formats the range of the values that are numbers, or one value if they look the same: `0.6 to 12.0 %`.
pub fn format_range(metric: Metric, values: &[f64]) -> String {
    // `min` and `max` ignore NaN, which is left if there is nothing else.
    let low = values.iter().copied().fold(f64::NAN, f64::min);
    let high = values.iter().copied().fold(f64::NAN, f64::max);
    let [first, last] = [low, high].map(|value| metric.text(value));
    if first == last { last } else { format!("{} to {last}", first.trim_end_matches(" %")) }
}

/// Describes a group of methods that lost something: `dynamic fails (top-1 12.0 %, f32 96.0 %): CAUSE.`
pub fn describe_loss(group: &[&Judgement], baseline: &str) -> String {
    let names: Vec<&str> = group.iter().map(|one| name_method(&one.method)).collect();
    let Some(first) = group.first() else { return String::new() };
    let verb = match (first.grade, group.len()) {
        (Grade::Failed, 1) => "fails",
        (Grade::Failed, _) => "fail",
        (Grade::Worse | Grade::AsGood, 1) => "is worse",
        (Grade::Worse | Grade::AsGood, _) => "are worse",
    };
    let reached: Vec<f64> = group.iter().filter_map(|one| one.reached).collect();
    let numbers = match (first.score, first.baseline) {
        (Some(metric), Some(than)) => {
            let (name, than) = (metric.name(), metric.text(than));
            format!(" ({name} {}, {} {than})", format_range(metric, &reached), name_method(baseline))
        }
        (Some(_) | None, _) => String::new(),
    };
    let cause = first.cause.as_ref().map_or_else(String::new, |cause| format!(": {cause}"));
    format!("{} {verb}{numbers}{cause}.", join_names(&names))
}
