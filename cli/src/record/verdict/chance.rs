//! Size of chance differences if there is one seed, its source, and sentences about differences. Several seeds are
//! compared in pairs ([`super::pairs`]).

use super::{
    EvaluationBaseline, MethodResult, Sentence, keeps,
    words::{listed, reached, strong},
    worst,
};
use crate::record::gradients::percent;

/// Largest difference between two scores that chance explains, in all but one case in twenty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Chance {
    /// Chance of a single seed: the margin from the number of test answers. Chance in training comes on top.
    Answers { margin: f64, answers: usize },
    /// Unknown chance: a single seed, and a score without countable answers.
    Unknown,
}

impl Chance {
    /// Measures how much one score varies by chance, from the methods that work.
    pub fn measure(score: usize, working: &[&MethodResult<'_>], exam: EvaluationBaseline) -> Self {
        let all = || working.iter().filter_map(|stand| stand.scores.get(score)).map(|(_, seeds)| seeds);
        let (Some(answers), Some(best)) = (exam.answers, all().flatten().copied().reduce(f64::max)) else {
            return Self::Unknown;
        };
        // Agresti and Coull's two more right and two more wrong: no score is certain.
        let count = answers as f64;
        let right = (best * count + 2.0) / (count + 4.0);
        Self::Answers { margin: 1.96 * (2.0 * right * (1.0 - right) / (count + 4.0)).sqrt(), answers }
    }
}

/// Compares the working methods of a single seed with the baseline.
pub fn compared(baseline: &MethodResult<'_>, working: &[&MethodResult<'_>], exam: EvaluationBaseline) -> Vec<Sentence> {
    if working.len() < 2 {
        return Vec::new();
    }
    let scores = 0..baseline.scores.len();
    let chances: Vec<Chance> = scores.clone().map(|score| Chance::measure(score, working, exam)).collect();
    // The score in which a method differs most, if that is more than chance.
    let differs = |stand: &MethodResult<'_>| {
        let differences = chances.iter().enumerate().map(|(score, &chance)| {
            let difference = stand.mean(score) - baseline.mean(score);
            let margin = match chance {
                Chance::Answers { margin, .. } => margin,
                Chance::Unknown => f64::INFINITY,
            };
            (score, difference, margin)
        });
        let beyond = differences.filter(|(_, difference, margin)| difference.abs() > *margin);
        beyond.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))
    };
    let (equal, other): (Vec<&MethodResult<'_>>, Vec<&MethodResult<'_>>) =
        working.iter().partition(|stand| differs(stand).is_none());
    // Without another measure of chance, only methods that equal f32 up to rounding show its size.
    let measured = chances[0] != Chance::Unknown;
    let (equal, lossy): (Vec<&MethodResult<'_>>, Vec<&MethodResult<'_>>) =
        equal.iter().partition(|stand| measured || keeps(stand));
    let mut all = Vec::new();
    if equal.len() > 1 {
        let names = listed(&equal.iter().map(|stand| stand.method).collect::<Vec<_>>());
        let spans: Vec<String> = scores.map(|score| span(&equal, score, chances[score])).collect();
        let about = match chances[0] {
            Chance::Answers { .. } => "Equal within chance",
            Chance::Unknown => "No difference found",
        };
        let wide = (0..chances.len()).any(|score| {
            let (low, high) = ends(&equal, score);
            let learned = (low - exam.constant).abs().max((high - exam.constant).abs());
            high - low > learned / 4.0
        });
        all.push(strong(about, format!("{names}: {}. {}", spans.join("; "), advice(chances[0], wide))));
    }
    for stand in lossy {
        if let Some((name, share)) = worst(stand) {
            let text = format!(
                "{}, although {} of the gradients at {name} were flushed to zero, so it does not compute what {} \
                 computes. Only several seeds show whether the difference of {} is chance (--seeds 0,1,2).",
                reached(stand, 0),
                percent(share),
                baseline.method,
                baseline.scores[0].0.difference((stand.mean(0) - baseline.mean(0)).abs())
            );
            all.push(strong(&format!("{} learned", stand.method), text));
        }
    }
    for stand in other {
        if let Some((score, difference, margin)) = differs(stand) {
            let word = if difference < 0.0 { "lower" } else { "higher" };
            let caution = match chances[score] {
                Chance::Unknown => "",
                Chance::Answers { .. } => " That leaves out chance in training; run several seeds (--seeds 0,1,2).",
            };
            let text = format!(
                "{} where {} has {}, more than the {} that chance explains.{caution}",
                reached(stand, score),
                baseline.method,
                baseline.text(score, baseline.mean(score)),
                baseline.scores[score].0.difference(margin)
            );
            all.push(strong(&format!("{} is {word}", stand.method), text));
        }
    }
    all
}

fn ends(equal: &[&MethodResult<'_>], score: usize) -> (f64, f64) {
    let means = || equal.iter().map(|stand| stand.mean(score));
    (means().fold(f64::INFINITY, f64::min), means().fold(f64::NEG_INFINITY, f64::max))
}

/// Describes the range of a score over methods, and the part that chance explains.
fn span(equal: &[&MethodResult<'_>], score: usize, chance: Chance) -> String {
    let (low, high) = ends(equal, score);
    let metric = equal[0].scores[score].0;
    let within = match chance {
        Chance::Answers { margin, answers } => {
            format!(", and chance in {answers} test images alone explains {}", metric.difference(margin))
        }
        Chance::Unknown => String::new(),
    };
    let (name, low_shown) = (metric.name(), metric.shown(low));
    format!("{name} {low_shown:.1} to {}, {} apart{within}", metric.text(high), metric.difference(high - low))
}

/// Returns the advice on several seeds; `wide` means a difference of more than a quarter of the baseline's gain.
fn advice(chance: Chance, wide: bool) -> &'static str {
    match chance {
        Chance::Answers { .. } => {
            "With one seed, differences of this size mean nothing and slightly larger ones little; run several \
             (--seeds 0,1,2)."
        }
        Chance::Unknown if wide => {
            "One seed does not show whether a difference of this size is chance; run several (--seeds 0,1,2)."
        }
        Chance::Unknown => {
            "All keep at least 90 % of the gradients at every site, so they compute nearly the same. With one seed, \
             differences of this size mean nothing; run several (--seeds 0,1,2)."
        }
    }
}
