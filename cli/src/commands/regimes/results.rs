//! `regimes.json`: all trainings and their summary.

use super::{Regime, figure::Figure, training::Row};
use crate::{machine::Origin, record::Spread};
use serde::Serialize;
use serde_json::Value;

/// Results of `gradscale regimes`: all trainings so far.
#[derive(Debug, Serialize)]
pub struct Results<'a> {
    #[serde(flatten)]
    pub origin: Origin,
    /// Command-line arguments of the run, as JSON.
    pub arguments: Value,
    /// Description of the training data in a phrase.
    pub data: &'a str,
    pub regimes: &'a [Regime],
    pub rows: Vec<Row>,
    pub figures: Vec<Figure>,
}

/// Results of one method in one regime, over all seeds.
#[derive(Debug)]
pub struct Cell<'a> {
    pub regime: &'a Regime,
    pub method: &'a str,
    pub rows: Vec<&'a Row>,
}

impl<'a> Results<'a> {
    pub const fn new(arguments: Value, origin: Origin, data: &'a str, regimes: &'a [Regime]) -> Self {
        Self { origin, arguments, data, regimes, rows: Vec::new(), figures: Vec::new() }
    }

    /// Returns the names of all methods, in the order of the command line.
    pub fn methods(&self) -> Vec<&str> {
        let mut methods: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !methods.contains(&row.method.as_str()) {
                methods.push(&row.method);
            }
        }
        methods
    }

    /// Returns the regimes for which all trainings have results.
    pub fn done(&self) -> impl Iterator<Item = &'a Regime> {
        self.regimes.iter().filter(|regime| self.rows.iter().any(|row| row.regime == regime.name))
    }

    /// Returns the results of a method in a regime; `None` if it has not run.
    pub fn cell<'b>(&'b self, regime: &'b Regime, method: &'b str) -> Option<Cell<'b>> {
        let rows: Vec<&Row> =
            self.rows.iter().filter(|row| row.regime == regime.name && row.method == method).collect();
        (!rows.is_empty()).then_some(Cell { regime, method, rows })
    }

    /// Returns true if a method is clearly worse than f32; `None` if either has not run, or if neither has a score.
    pub fn behind(&self, regime: &Regime, method: &str) -> Option<bool> {
        let (single, cell) = (self.cell(regime, "fp32")?, self.cell(regime, method)?);
        cell.behind(&single)
    }

    /// Returns true if any method is clearly worse than f32 in the regime.
    pub fn is_any_behind(&self, regime: &Regime) -> bool {
        self.methods().iter().any(|method| self.behind(regime, method) == Some(true))
    }
}

impl Cell<'_> {
    /// Returns the scores of the seeds that finished.
    pub fn scores(&self) -> Vec<f64> {
        self.rows.iter().filter_map(|row| row.score).collect()
    }

    /// Returns the mean of a count over the seeds.
    pub fn mean(&self, of: fn(&Row) -> u64) -> f64 {
        self.rows.iter().map(|row| of(row) as f64).sum::<f64>() / self.rows.len().max(1) as f64
    }

    /// Returns true if it is clearly worse. With several seeds: by more than 3 points or a quarter of an error, and by
    /// more than twice the standard error of the difference. With one seed, whose chance is unknown: by 10 points or
    /// twice the error. A training without a score is worse. `None` if no training of either has a score.
    fn behind(&self, single: &Self) -> Option<bool> {
        let (all, own, other) = (self.rows.len(), self.scores(), single.scores());
        let (Some(mine), Some(reference)) = (Spread::new(&own), Spread::new(&other)) else {
            return (own.len() != other.len()).then_some(own.len() < other.len());
        };
        let higher = self.regime.task.higher_is_better();
        let (points, share) = if all > 1 { (3.0, 0.25) } else { (10.0, 1.0) };
        let loss = if higher { reference.mean - mine.mean } else { mine.mean - reference.mean };
        let margin = if higher { points } else { share * reference.mean };
        let [own_deviation, deviation] = [mine, reference].map(|spread| spread.deviation.unwrap_or(0.0));
        let noise = 2.0 * own_deviation.hypot(deviation) / (all as f64).sqrt();
        Some(own.len() < all || loss > margin.max(noise))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::regimes::regime::list_regimes;

    fn row(regime: &Regime, method: &str, (seed, score): (u64, Option<f64>)) -> Row {
        Row { score, ..Row::new(regime, method, seed, 1) }
    }

    /// Checks the rule of two seeds, also of trainings without a score. Scores are of images classified correctly.
    #[test]
    fn a_method_is_behind_f32() {
        let regimes: Vec<Regime> = list_regimes().into_iter().filter(|regime| regime.name == "masked").collect();
        let regime = &regimes[0];
        assert!(regime.task.higher_is_better());
        let with = |name: &str, scores: [Option<f64>; 2]| {
            (0..).zip(scores).map(|one| row(regime, name, one)).collect::<Vec<_>>()
        };
        for (single, other, expected) in [
            ([Some(90.0), Some(90.0)], [Some(88.0), Some(88.0)], Some(false)),
            ([Some(90.0), Some(90.0)], [Some(86.0), Some(86.0)], Some(true)),
            ([Some(90.0), Some(90.0)], [Some(90.0), None], Some(true)),
            ([Some(90.0), None], [None, None], Some(true)),
            ([None, None], [Some(50.0), None], Some(false)),
            // Without any score nothing is compared, so the method is not as good.
            ([None, None], [None, None], None),
        ] {
            let mut results = Results::new(Value::Null, Origin::here(), "data", &regimes);
            results.rows = [with("fp32", single), with("gs", other)].concat();
            assert_eq!(results.behind(regime, "gs"), expected, "{single:?}, {other:?}");
        }
    }
}
