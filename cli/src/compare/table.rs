//! `table.md`.

use super::record::{Record, Results};
use crate::task::Pixels;
use std::fmt::Write;

/// One finished run in one line.
pub fn line(record: &Record) -> String {
    let head = format!("{:16} seed {}", record.method, record.seed);
    match (&record.metrics, &record.failure) {
        (Some(metrics), _) => format!(
            "{head}  mIoU {:5.1} %  loss {:.4}  {} skipped  {:.1} s",
            100.0 * metrics.miou,
            record.final_loss.unwrap_or(f64::NAN),
            record.skipped_steps,
            record.seconds
        ),
        (None, Some(failure)) => format!("{head}  {failure}"),
        (None, None) => head,
    }
}

/// What was compared, in a line.
pub fn title(results: &Results<'_>) -> String {
    let (arguments, data) = (results.arguments, &results.data);
    let divisor = match arguments.pixels {
        Pixels::Batch => "the labelled pixels of its batch".to_owned(),
        Pixels::Fixed(number) => format!("{number} pixels"),
    };
    let (width, name, height, columns) = (arguments.width, &data.name, data.height, data.width);
    format!("SegNetBasic ({width} channels) on {name} ({height}×{columns}), loss divided by {divisor}")
}

/// How, and by what.
pub fn circumstances(results: &Results<'_>) -> String {
    let (arguments, data, origin) = (results.arguments, &results.data, &results.origin);
    let seeds: Vec<String> = arguments.all_seeds().iter().map(u64::to_string).collect();
    format!(
        "{} steps of {} images, {} training and {} test images, seed {}. gradscale {} ({}) on {}.",
        arguments.iters,
        arguments.batch,
        data.training_images,
        data.test_images,
        seeds.join(", "),
        origin.version,
        origin.commit,
        origin.machine,
    )
}

/// Heads of the columns of [`Summary`].
pub const HEADS: [&str; 9] = [
    "method",
    "mIoU %",
    "class accuracy %",
    "global accuracy %",
    "loss",
    "skipped",
    "flushed at worst %",
    "ms per step",
    "activations MB",
];

/// All runs in numbers.
#[derive(Debug)]
pub struct Summary {
    /// One for each method; of several seeds mean and standard deviation.
    pub rows: Vec<[String; 9]>,
    /// Which runs did not come to an end, and why.
    pub failures: Vec<String>,
}

impl Summary {
    /// Of methods in this order.
    pub fn new<'a>(methods: impl IntoIterator<Item = &'a str>, records: &[Record]) -> Self {
        let of = |method: &str| records.iter().filter(|record| record.method == method).collect::<Vec<_>>();
        let rows = methods.into_iter().map(|method| (method, of(method)));
        let rows = rows.filter(|(_, runs)| !runs.is_empty()).map(|(method, runs)| row(method, &runs)).collect();
        let failure = |record: &Record| {
            let failure = record.failure.as_ref()?;
            Some(format!("{}, seed {}: {failure}", record.method, record.seed))
        };
        Self { rows, failures: records.iter().filter_map(failure).collect() }
    }
}

/// The file.
pub fn table(results: &Results<'_>) -> String {
    let summary = Summary::new(results.methods(), &results.runs);
    let mut text = format!("# {}\n\n{}\n\n", title(results), circumstances(results));
    writeln!(text, "| {} |\n{}|", HEADS.join(" | "), "|---".repeat(HEADS.len())).ok();
    for row in &summary.rows {
        writeln!(text, "| {} |", row.join(" | ")).ok();
    }
    for failure in &summary.failures {
        writeln!(text, "\n{failure}").ok();
    }
    text
}

fn row(method: &str, runs: &[&Record]) -> [String; 9] {
    let of =
        |value: &dyn Fn(&Record) -> Option<f64>| -> Vec<f64> { runs.iter().filter_map(|run| value(run)).collect() };
    let percent = |values: Vec<f64>| spread(&values.iter().map(|value| 100.0 * value).collect::<Vec<_>>(), 1);
    let worst =
        |run: &Record| (!run.sites.is_empty()).then(|| run.sites.iter().map(|site| site.worst).fold(0.0, f64::max));
    [
        method.to_owned(),
        percent(of(&|run| Some(run.metrics?.miou))),
        percent(of(&|run| Some(run.metrics?.class_accuracy))),
        percent(of(&|run| Some(run.metrics?.global_accuracy))),
        spread(&of(&|run| run.final_loss), 4),
        spread(&of(&|run| Some(run.skipped_steps as f64)), 0),
        spread(&of(&|run| worst(run).map(|share| 100.0 * share)), 3),
        spread(&of(&|run| Some(1000.0 * run.seconds / run.loss.len().max(1) as f64)), 0),
        spread(&of(&|run| Some(run.activation_bytes as f64 / 1e6)), 1),
    ]
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
