//! Table of all runs.

use super::{Record, SiteSeries, Spread};
use crate::metrics::{MISSING_VALUE, Metric, Metrics, Role};
use std::collections::BTreeSet;

/// Table that summarises records of runs, one row per method.
#[derive(Debug)]
pub struct Summary {
    pub heads: Vec<String>,
    /// Rows of the table, one per method, its name first; of several seeds mean and standard deviation.
    pub rows: Vec<Vec<String>>,
    /// Descriptions of the runs that ended early, with the reason.
    pub failures: Vec<String>,
    /// Descriptions of implausible results, with the reason.
    pub doubts: Vec<String>,
}

impl Summary {
    /// Creates the summary of methods in this order.
    pub fn new<'a>(methods: impl IntoIterator<Item = &'a str>, records: &[&Record]) -> Self {
        let of = |method: &str| records.iter().copied().filter(|record| record.method == method).collect::<Vec<_>>();
        let taken = records.iter().filter_map(|record| record.metrics.as_ref()).flat_map(Metrics::iter);
        let metrics: BTreeSet<Metric> = taken.map(|(metric, _)| metric).collect();
        let (first, details): (Vec<Metric>, Vec<Metric>) =
            metrics.into_iter().partition(|metric| metric.role() != Role::Detail);
        let columns: Vec<Column> = (first.into_iter().map(Column::Score))
            .chain(SCALING.into_iter().map(Column::Other))
            .chain(details.into_iter().map(Column::Score))
            .chain(COSTS.into_iter().map(Column::Other))
            .collect();
        let row = |method: &str| {
            let runs = of(method);
            let cells = columns.iter().map(|column| column.cell(&runs));
            (!runs.is_empty()).then(|| std::iter::once(method.to_owned()).chain(cells).collect())
        };
        let failure = |record: &Record| {
            let failure = record.failure.as_ref()?;
            Some(format!("{}, seed {}: {failure}", record.method, record.seed))
        };
        let doubts = |record: &Record| {
            let (method, seed) = (record.method.clone(), record.seed);
            record.doubts.clone().into_iter().map(move |doubt| format!("{method}, seed {seed}: {doubt}"))
        };
        Self {
            heads: std::iter::once("method".to_owned()).chain(columns.iter().map(Column::head)).collect(),
            rows: methods.into_iter().filter_map(row).collect(),
            failures: records.iter().copied().filter_map(failure).collect(),
            doubts: records.iter().copied().flat_map(doubts).collect(),
        }
    }
}

/// Number column of the table: its head, its decimals, and its value in a run.
type Number = (&'static str, usize, fn(&Record) -> Option<f64>);

/// Column of the summary table: a score or another number.
enum Column {
    Score(Metric),
    Other(Number),
}

impl Column {
    fn head(&self) -> String {
        match self {
            Self::Score(metric) => metric.head(),
            Self::Other((head, ..)) => (*head).to_owned(),
        }
    }

    fn cell(&self, runs: &[&Record]) -> String {
        match self {
            Self::Score(metric) => {
                let score = |run: &&Record| Some(metric.shown(run.metrics.as_ref()?.get(*metric)?));
                format_spread(&runs.iter().filter_map(score).collect::<Vec<_>>(), metric.digits())
            }
            Self::Other((_, digits, number)) => {
                format_spread(&runs.iter().filter_map(|run| number(run)).collect::<Vec<_>>(), *digits)
            }
        }
    }
}

/// Columns about scaling, most important first, because a phone shows only those.
const SCALING: [Number; 4] = [
    ("gradient error %", 3, |run| Some(100.0 * run.gradient_error.as_ref()?.worst)),
    ("flushed %", 2, |run| Some(100.0 * flushed(run)?)),
    ("skipped", 0, |run| Some(run.skipped_steps as f64)),
    ("repeated", 0, |run| Some(run.repeats as f64)),
];

/// Columns about the cost of a step.
const COSTS: [Number; 3] = [
    ("loss", 4, |run| run.final_loss),
    ("ms per step", 0, |run| Some(1000.0 * run.seconds / run.loss.len().max(1) as f64)),
    ("activations MB", 1, |run| (run.activation_bytes > 0).then(|| run.activation_bytes as f64 / 1e6)),
];

/// Returns the share of gradients that became zero at the site that lost most, mean over the recorded steps.
fn flushed(run: &Record) -> Option<f64> {
    run.sites.iter().filter_map(SiteSeries::mean_flushed).reduce(f64::max)
}

/// Formats a mean, with the standard deviation if there are several values, and a dash where it is not defined.
fn format_spread(values: &[f64], digits: usize) -> String {
    let values: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    match Spread::new(&values) {
        None => MISSING_VALUE.to_owned(),
        Some(Spread { mean, deviation: None }) => format!("{mean:.digits$}"),
        Some(Spread { mean, deviation: Some(deviation) }) => format!("{mean:.digits$} ± {deviation:.digits$}"),
    }
}
