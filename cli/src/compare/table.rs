//! `table.md`.

use super::record::{Description, Record, Results};
use crate::{args::Setup, machine::Origin, metrics::Metrics, task::Pixels};
use std::fmt::Write;

/// One finished run in one line.
pub fn line(record: &Record) -> String {
    let head = format!("{:16} seed {}", record.method, record.seed);
    match (&record.metrics, &record.failure) {
        (Some(metrics), _) => format!(
            "{head}  {}  loss {:.4}  {} skipped  {} repeated  {:.1} s",
            score(metrics),
            record.final_loss.unwrap_or(f64::NAN),
            record.skipped_steps,
            record.repeats,
            record.seconds
        ),
        (None, Some(failure)) => format!("{head}  {failure}"),
        (None, None) => head,
    }
}

/// The score that counts most.
pub fn score(metrics: &Metrics) -> String {
    match metrics.miou {
        Some(miou) => format!("mIoU {:5.1} %", 100.0 * miou),
        None => format!("right {:5.1} %", 100.0 * metrics.global_accuracy),
    }
}

/// What was trained, in a line.
pub fn title(setup: &Setup, pixels: Pixels, data: &Description) -> String {
    let (name, height, columns) = (&data.name, data.height, data.width);
    format!("{} on {name} ({height}×{columns}), loss divided by {}", setup.network(), setup.divisor(pixels))
}

/// How, and by what.
pub fn circumstances(setup: &Setup, iters: u64, seeds: &[u64], data: &Description, origin: &Origin) -> String {
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    format!(
        "{iters} steps of {} images, {} training and {} test images, seed {}. gradscale {} ({}) on {}.",
        setup.batch(),
        data.training_images,
        data.test_images,
        seeds.join(", "),
        origin.version,
        origin.commit,
        origin.machine,
    )
}

/// All runs in numbers.
#[derive(Debug)]
pub struct Summary {
    pub heads: Vec<&'static str>,
    /// One for each method, the method first; of several seeds mean and standard deviation.
    pub rows: Vec<Vec<String>>,
    /// Which runs did not come to an end, and why.
    pub failures: Vec<String>,
    /// Which results cannot be right, and why.
    pub doubts: Vec<String>,
}

impl Summary {
    /// Of methods in this order.
    pub fn new<'a>(methods: impl IntoIterator<Item = &'a str>, records: &[&Record]) -> Self {
        let of = |method: &str| records.iter().copied().filter(|record| record.method == method).collect::<Vec<_>>();
        // Images with one class each have no intersections.
        let pixels = records.iter().all(|record| record.metrics.is_none_or(|metrics| metrics.miou.is_some()));
        let columns: Vec<_> = COLUMNS.iter().filter(|(head, _)| pixels || *head != MIOU).collect();
        let row = |method: &str| {
            let runs = of(method);
            let cell = |(_, cell): &&(_, Cell)| cell(&runs);
            (!runs.is_empty()).then(|| std::iter::once(method.to_owned()).chain(columns.iter().map(cell)).collect())
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
            heads: std::iter::once("method").chain(columns.iter().map(|(head, _)| *head)).collect(),
            rows: methods.into_iter().filter_map(row).collect(),
            failures: records.iter().copied().filter_map(failure).collect(),
            doubts: records.iter().copied().flat_map(doubts).collect(),
        }
    }
}

/// The file.
pub fn table(results: &Results<'_>) -> String {
    let (arguments, data) = (results.arguments, &results.data);
    let summary = Summary::new(results.methods(), &results.runs.iter().collect::<Vec<_>>());
    let title = title(&arguments.setup, arguments.divisor(), data);
    let seeds = arguments.all_seeds();
    let circumstances = circumstances(&arguments.setup, arguments.iters, &seeds, data, &results.origin);
    let mut text = format!("# {title}\n\n{circumstances}\n\n");
    writeln!(text, "| {} |\n{}|", summary.heads.join(" | "), "|---".repeat(summary.heads.len())).ok();
    for row in &summary.rows {
        writeln!(text, "| {} |", row.join(" | ")).ok();
    }
    for failure in &summary.failures {
        writeln!(text, "\n{failure}").ok();
    }
    if !summary.doubts.is_empty() {
        writeln!(text, "\nDoubtful:\n").ok();
    }
    for doubt in &summary.doubts {
        writeln!(text, "- {doubt}").ok();
    }
    text
}

/// A number from all seeds of a method.
type Cell = fn(&[&Record]) -> String;

const MIOU: &str = "mIoU %";
const COLUMNS: [(&str, Cell); 9] = [
    (MIOU, |runs| percent(runs, |run| run.metrics?.miou)),
    ("class accuracy %", |runs| percent(runs, |run| Some(run.metrics?.class_accuracy))),
    ("global accuracy %", |runs| percent(runs, |run| Some(run.metrics?.global_accuracy))),
    ("loss", |runs| number(runs, 4, |run| run.final_loss)),
    ("skipped", |runs| number(runs, 0, |run| Some(run.skipped_steps as f64))),
    ("repeated", |runs| number(runs, 0, |run| Some(run.repeats as f64))),
    ("flushed at worst %", |runs| number(runs, 3, |run| Some(100.0 * worst(run)?))),
    ("ms per step", |runs| number(runs, 0, |run| Some(1000.0 * run.seconds / run.loss.len().max(1) as f64))),
    ("activations MB", |runs| number(runs, 1, |run| Some(run.activation_bytes as f64 / 1e6))),
];

fn percent(runs: &[&Record], value: fn(&Record) -> Option<f64>) -> String {
    let values: Vec<f64> = runs.iter().filter_map(|run| value(run)).map(|share| 100.0 * share).collect();
    spread(&values, 1)
}

fn number(runs: &[&Record], digits: usize, value: fn(&Record) -> Option<f64>) -> String {
    spread(&runs.iter().filter_map(|run| value(run)).collect::<Vec<_>>(), digits)
}

/// The largest share of a site's values that a step has flushed.
fn worst(run: &Record) -> Option<f64> {
    run.sites.iter().map(|site| site.extremes.worst).reduce(f64::max)
}

/// Mean, with standard deviation where there are several.
fn spread(values: &[f64], digits: usize) -> String {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    match values.len() {
        0 => "–".to_owned(),
        1 => format!("{mean:.digits$}"),
        _ => {
            let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
            format!("{mean:.digits$} ± {:.digits$}", variance.sqrt())
        }
    }
}
