//! Comparison of paired runs by measure: training loss over the last half, validation loss, scores.

use super::{
    Sentence,
    paired::{LOSS_MARGIN, Paired, SCORE_MARGIN, Verdict},
    words::sentence,
};
use crate::{
    metrics::{Metric, Metrics, Unit},
    record::Record,
    setup::CHAOS,
};
use serde::Serialize;

/// Compared quantity, most sensitive first: paired losses have little noise early on, scores have most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    TrainingLoss,
    /// Validation loss in nats per token; only tasks with a perplexity record it.
    ValidationLoss,
    Score(Metric),
}

impl Measure {
    const fn name(self) -> &'static str {
        match self {
            Self::TrainingLoss => "training loss over the last half",
            Self::ValidationLoss => "validation loss",
            Self::Score(metric) => metric.name(),
        }
    }

    /// Returns the values of this measure in a run and in its baseline.
    fn pair(self, run: &Record, baseline: &Record) -> Option<(f64, f64)> {
        let both =
            |of: &dyn Fn(&Metrics) -> Option<f64>| Some((of(run.metrics.as_ref()?)?, of(baseline.metrics.as_ref()?)?));
        match self {
            Self::TrainingLoss => last_half(&run.loss, &baseline.loss),
            Self::ValidationLoss => {
                let nats = |metrics: &Metrics| {
                    let perplexity = metrics.get(Metric::Perplexity).or_else(|| metrics.get(Metric::PiecePerplexity));
                    perplexity.map(f64::ln)
                };
                both(&nats)
            }
            Self::Score(metric) => both(&|metrics| metrics.get(metric)),
        }
    }

    /// Returns the margin within which differences count as none, by the baseline's mean.
    fn margin(self, baseline: f64) -> f64 {
        match self {
            Self::TrainingLoss | Self::ValidationLoss => LOSS_MARGIN * baseline.abs(),
            Self::Score(metric) => match metric.unit() {
                Unit::Share => SCORE_MARGIN,
                // BLEU and its kin go to 100.
                Unit::Number(_) => 100.0 * SCORE_MARGIN,
            },
        }
    }

    /// Formats a difference in this measure, without its unit.
    fn number(self, difference: f64) -> String {
        match self {
            Self::TrainingLoss | Self::ValidationLoss => format!("{difference:.5}"),
            Self::Score(metric) => format!("{:.2}", metric.shown(difference)),
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::TrainingLoss | Self::ValidationLoss => "",
            Self::Score(metric) => match metric.unit() {
                Unit::Share => " points",
                Unit::Number(_) => "",
            },
        }
    }
}

/// Returns the mean losses over the last half of two runs, of the steps whose loss is finite in both.
fn last_half(one: &[f32], other: &[f32]) -> Option<(f64, f64)> {
    let from = one.len().min(other.len()) / 2;
    let both = one.iter().zip(other).skip(from).filter(|(a, b)| a.is_finite() && b.is_finite());
    let (count, sums) =
        both.fold((0u32, (0.0, 0.0)), |(count, (a, b)), (x, y)| (count + 1, (a + f64::from(*x), b + f64::from(*y))));
    (count > 0).then(|| (sums.0 / f64::from(count), sums.1 / f64::from(count)))
}

/// Comparison of a method with the baseline in one measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub method: String,
    pub baseline: String,
    /// Name of the compared measure, for example a score.
    pub measure: String,
    #[serde(flatten)]
    pub paired: Paired,
    /// Confidence interval of 95 % of the mean difference.
    pub interval: [f64; 2],
    /// Two-sided p-value of the hypothesis that there is no difference.
    pub p: f64,
    /// Smallest difference that would have been found with a probability of 80 %.
    pub detectable: f64,
    /// Margin within which differences count as none, fixed beforehand.
    pub margin: f64,
    /// p-value of two one-sided tests against the margin.
    pub equivalence_p: f64,
    /// Standard deviation of the pairs in units of that of f32 against f32 after another rounding.
    pub chaos_ratio: Option<f64>,
    pub verdict: Verdict,
    #[serde(skip)]
    kind: Measure,
}

/// Compares every method with the baseline in each common measure. Methods with fewer than two pairs are omitted.
pub fn comparisons(methods: &[&str], baseline: &str, records: &[&Record]) -> Vec<Comparison> {
    let of = |method: &str| -> Vec<&Record> {
        records.iter().copied().filter(|record| record.method == method && record.metrics.is_some()).collect()
    };
    let (those, chaos) = (of(baseline), of(CHAOS));
    let judged = those.first().and_then(|run| run.metrics.as_ref()).into_iter().flat_map(Metrics::judged);
    let measures: Vec<Measure> = [Measure::TrainingLoss, Measure::ValidationLoss]
        .into_iter()
        .chain(judged.map(|(metric, _)| Measure::Score(metric)))
        .collect();
    let pairs = |runs: &[&Record], measure: Measure| -> Vec<(f64, f64)> {
        let pair = |run: &&Record| {
            let other = those.iter().find(|other| other.seed == run.seed)?;
            measure.pair(run, other)
        };
        runs.iter().filter_map(pair).collect()
    };
    let paired = |pairs: &[(f64, f64)]| Paired::new(&pairs.iter().map(|(a, b)| a - b).collect::<Vec<_>>());
    let mut all = Vec::new();
    for method in methods.iter().filter(|method| **method != baseline) {
        let runs = of(method);
        for &measure in &measures {
            let these = pairs(&runs, measure);
            let Some(one) = paired(&these) else { continue };
            let margin = measure.margin(these.iter().map(|(_, b)| b).sum::<f64>() / these.len() as f64);
            let spread = paired(&pairs(&chaos, measure)).map(|chaos| chaos.deviation).filter(|spread| *spread > 0.0);
            all.push(Comparison {
                method: (*method).to_owned(),
                baseline: baseline.to_owned(),
                measure: measure.name().to_owned(),
                paired: one,
                interval: one.interval(),
                p: one.p(),
                detectable: one.detectable(),
                margin,
                equivalence_p: one.equivalence_p(margin),
                chaos_ratio: spread.filter(|_| *method != CHAOS).map(|spread| one.deviation / spread),
                verdict: one.verdict(margin),
                kind: measure,
            });
        }
    }
    all
}

/// Returns one statement per method that learned (`working`), in the order of the measures.
pub fn describe_pairs(working: &[&str], baseline: &str, records: &[&Record]) -> Vec<Sentence> {
    let all = comparisons(working, baseline, records);
    let method = |method: &&&str| **method != baseline;
    let entry = |method: &&str| {
        let texts: Vec<String> = all.iter().filter(|one| one.method == **method).map(Comparison::text).collect();
        let text = if texts.is_empty() {
            format!("no test, because fewer than two seeds finished both here and in {baseline}.")
        } else {
            texts.join(" ")
        };
        sentence(method, text)
    };
    working.iter().filter(method).map(entry).collect()
}

impl Comparison {
    fn text(&self) -> String {
        let number = |difference: f64| self.kind.number(difference);
        let signed =
            |difference: f64| if difference < 0.0 { number(difference) } else { format!("+{}", number(difference)) };
        let (unit, [low, high]) = (self.kind.unit(), self.interval);
        let verdict = match self.verdict {
            Verdict::Differs => format!("differs (p {})", probability(self.p)),
            Verdict::Equal => {
                format!("equal within {}{unit} (TOST, p {})", number(self.margin), probability(self.equivalence_p))
            }
            Verdict::NotToldApart => {
                format!("no difference found, although {}{unit} would have been detected", number(self.detectable))
            }
            Verdict::NoTest => format!(
                "no test, because only {}{unit} could be detected and the margin is {}",
                number(self.detectable),
                number(self.margin)
            ),
        };
        let chaos = match (self.chaos_ratio, self.kind) {
            (Some(ratio), Measure::TrainingLoss) => {
                format!(" Its pairs vary {ratio:.1} times as much as those of f32 from weights that differ by 2^-20.")
            }
            (Some(_), Measure::ValidationLoss | Measure::Score(_)) | (None, _) => String::new(),
        };
        format!(
            "{} {}{unit} compared with {} (95 % {} to {}, {} pairs): {verdict}.{chaos}",
            self.measure,
            signed(self.paired.mean),
            self.baseline,
            signed(low),
            signed(high),
            self.paired.pairs
        )
    }
}

/// Formats a probability with an adequate number of digits.
fn probability(p: f64) -> String {
    if p < 0.001 { "below 0.001".to_owned() } else { format!("{p:.3}") }
}
