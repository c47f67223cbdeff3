//! Grades of methods compared with the baseline. One rule holds for all tasks and scores.
//!
//! ```text
//! failed    a seed of the baseline ended and none of the method did, or the method lost more than half of what the
//!           baseline gained over a constant answer
//! worse     a seed ended early, or a score lost more than chance explains
//! as good   everything else
//! ```

use super::{EvaluationBaseline, MethodResult, cause::Cause, chance::explained_by_chance};
use crate::metrics::Metric;
use serde::Serialize;

/// Grade of a method compared with the baseline, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grade {
    AsGood,
    Worse,
    Failed,
}

/// Grade of one method, with the loss behind it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    pub method: String,
    pub grade: Grade,
    /// Primary score with the largest loss compared with chance; `None` if no seed of the method ended.
    pub score: Option<Metric>,
    /// Mean of this score over the seeds of the method.
    pub reached: Option<f64>,
    /// Mean of this score over the seeds of the baseline.
    pub baseline: Option<f64>,
    /// Loss of this score compared with the baseline; negative where the method is better.
    pub loss: Option<f64>,
    /// Largest loss that chance explains.
    pub chance: Option<f64>,
    /// Likeliest cause of a loss; `None` for a method that is as good.
    pub cause: Option<Cause>,
}

/// Loss of one score, and how it counts.
#[derive(Clone, Copy, Debug)]
struct ScoreLoss {
    score: usize,
    grade: Grade,
    loss: f64,
    chance: f64,
}

impl ScoreLoss {
    fn new(result: &MethodResult<'_>, baseline: &MethodResult<'_>, score: usize, test_set: EvaluationBaseline) -> Self {
        let loss = result.sign(score, test_set) * (baseline.mean(score) - result.mean(score));
        let chance = explained_by_chance(result, baseline, score, test_set);
        let grade = if result.has_lost_half(baseline, score, test_set) {
            Grade::Failed
        } else if loss.is_nan() || loss > chance {
            Grade::Worse
        } else {
            Grade::AsGood
        };
        Self { score, grade, loss, chance }
    }

    fn size(&self) -> f64 {
        relative_size(self.loss, self.chance)
    }
}

/// Returns a loss in units of what chance explains; a loss without a number is the largest.
fn relative_size(loss: f64, chance: f64) -> f64 {
    let size = loss / chance;
    if size.is_nan() { f64::INFINITY } else { size }
}

impl Judgement {
    /// Returns the loss in units of what chance explains; `None` without a score.
    pub fn size(&self) -> Option<f64> {
        Some(relative_size(self.loss?, self.chance?))
    }
}

/// Grades a method.
pub fn judge(result: &MethodResult<'_>, baseline: &MethodResult<'_>, test_set: EvaluationBaseline) -> Judgement {
    let losses = (0..baseline.scores.len()).map(|score| ScoreLoss::new(result, baseline, score, test_set));
    let largest = losses.max_by(|a, b| a.grade.cmp(&b.grade).then(a.size().total_cmp(&b.size())));
    let ended = if result.runs.iter().any(|run| run.failure.is_some()) { Grade::Worse } else { Grade::AsGood };
    let (grade, largest) = match largest.filter(|_| result.finished()) {
        Some(largest) => (largest.grade.max(ended), Some(largest)),
        None => (Grade::Failed, None),
    };
    let value = |of: &dyn Fn(ScoreLoss) -> f64| largest.map(of);
    Judgement {
        method: result.method.to_owned(),
        grade,
        score: largest.map(|one| baseline.scores[one.score].0),
        reached: value(&|one| result.mean(one.score)),
        baseline: value(&|one| baseline.mean(one.score)),
        loss: value(&|one| one.loss),
        chance: value(&|one| one.chance),
        cause: (grade != Grade::AsGood).then(|| Cause::find(result)),
    }
}
