//! Size of the loss that chance explains.

use super::{
    EvaluationBaseline, MethodResult,
    paired::{Paired, SCORE_MARGIN},
};
use crate::metrics::{Metric, Unit};

/// Number of independent answers that a score of one seed counts as, at most. It stands for chance in the training
/// itself: two trainings of one method differ by a standard deviation of 0.6 to 2.5 points (SegNet, ResNet-8; paired,
/// 4 and 8 seeds), and of so many answers half right, 1.96 standard deviations are the 5 points of the larger.
pub const MAX_ANSWERS: usize = 768;

/// Returns the largest loss of a score that chance explains, but at least the margin of one point.
///
/// With several seeds, two tests at 5 % have to agree that a loss is chance: that of the pairs, which sees small steady
/// losses, and that of the baseline's own spread, since a method that fails in some seeds has a spread that would
/// excuse any loss. Two seeds alone would excuse nearly everything, so several never explain more than one.
pub fn explained_by_chance(
    result: &MethodResult<'_>, baseline: &MethodResult<'_>, score: usize, test_set: EvaluationBaseline,
) -> f64 {
    let Some((metric, _)) = baseline.scores.get(score) else { return 0.0 };
    let margin = SCORE_MARGIN * whole(*metric);
    let value = |run: &super::Record| run.metrics.as_ref()?.get(*metric);
    let pair = |run: &&super::Record| {
        let other = baseline.runs.iter().find(|other| other.seed == run.seed)?;
        Some(value(run)? - value(other)?)
    };
    let differences: Vec<f64> = result.runs.iter().filter_map(pair).collect();
    let one_seed = of_answers(baseline, score, test_set);
    match (Paired::new(&differences), Paired::new(&baseline.scores[score].1)) {
        (Some(pairs), Some(seeds)) => {
            // The difference of two means of independent seeds varies by √2 as much as one of them.
            let spread = std::f64::consts::SQRT_2 * seeds.half_width();
            margin.max(pairs.half_width().min(spread).min(one_seed))
        }
        (Some(_), None) | (None, Some(_)) | (None, None) => margin.max(one_seed),
    }
}

/// Returns the largest difference of two seeds that the number of answers explains, in all but one case in twenty.
fn of_answers(baseline: &MethodResult<'_>, score: usize, test_set: EvaluationBaseline) -> f64 {
    let whole = baseline.scores.get(score).map_or(1.0, |(metric, _)| whole(*metric));
    // Agresti and Coull's two more right and two more wrong: no score is certain.
    let count = test_set.answers.map_or(MAX_ANSWERS, |answers| answers.min(MAX_ANSWERS)) as f64;
    let right = ((baseline.mean(score) / whole).clamp(0.0, 1.0) * count + 2.0) / (count + 4.0);
    1.96 * whole * (2.0 * right * (1.0 - right) / (count + 4.0)).sqrt()
}

/// Returns the value of a score at which all answers are right: BLEU and its kin go to 100.
const fn whole(metric: Metric) -> f64 {
    match metric.unit() {
        Unit::Share => 1.0,
        Unit::Number(_) => 100.0,
    }
}
