//! All runs in numbers.

use super::Record;
use crate::metrics::Metrics;

/// A table of them.
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
        // Only pixels have intersections, only two towers two shares that are right, only texts characters.
        let has = |has: fn(&Metrics) -> bool| records.iter().filter_map(|record| record.metrics.as_ref()).any(has);
        let (pixels, towers) = (has(|metrics| metrics.miou.is_some()), has(|metrics| metrics.towers.is_some()));
        let made = has(|metrics| metrics.generated.is_some());
        let (texts, top_5) = (has(|metrics| metrics.cer.is_some()), has(|metrics| metrics.top_5.is_some()));
        let shown = |of: Of| match of {
            Of::All => true,
            Of::Pixels => pixels,
            Of::Images => !pixels && !towers && !texts && !made,
            Of::Towers => towers,
            Of::Top5 => top_5,
            Of::Classes => !towers && !texts && !made,
            Of::Made => made,
            Of::Texts => texts,
        };
        let columns: Vec<_> = COLUMNS.iter().filter(|(_, of, _)| shown(*of)).collect();
        let row = |method: &str| {
            let runs = of(method);
            let cell = |(_, _, cell): &&(_, Of, Cell)| cell(&runs);
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
            heads: std::iter::once("method").chain(columns.iter().map(|(head, ..)| *head)).collect(),
            rows: methods.into_iter().filter_map(row).collect(),
            failures: records.iter().copied().filter_map(failure).collect(),
            doubts: records.iter().copied().flat_map(doubts).collect(),
        }
    }
}

/// A number from all seeds of a method.
type Cell = fn(&[&Record]) -> String;

/// Which tables have a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    All,
    Pixels,
    Images,
    Towers,
    /// Images of more than five classes.
    Top5,
    /// All but two towers, whose answers together say little, texts, and images that are made.
    Classes,
    Texts,
    Made,
}

/// Those that say most come first: a phone shows these.
const COLUMNS: [(&str, Of, Cell); 19] = [
    ("Fréchet distance", Of::Made, |runs| number(runs, 4, |run| Some(run.metrics?.generated?.distance))),
    ("nearness %", Of::Made, |runs| percent(runs, |run| Some(run.metrics?.generated?.nearness()))),
    ("variety %", Of::Made, |runs| percent(runs, |run| Some(run.metrics?.generated?.variety))),
    ("character errors %", Of::Texts, |runs| percent(runs, |run| Some(run.metrics?.cer?[1]))),
    ("mIoU %", Of::Pixels, |runs| percent(runs, |run| run.metrics?.miou)),
    ("first tower %", Of::Towers, |runs| percent(runs, |run| Some(run.metrics?.towers?[0]))),
    ("second tower %", Of::Towers, |runs| percent(runs, |run| Some(run.metrics?.towers?[1]))),
    ("top-1 %", Of::Images, |runs| percent(runs, |run| Some(run.metrics?.global_accuracy))),
    ("top-5 %", Of::Top5, |runs| percent(runs, |run| run.metrics?.top_5)),
    ("flushed at worst %", Of::All, |runs| number(runs, 3, |run| Some(100.0 * worst(run)?))),
    ("skipped", Of::All, |runs| number(runs, 0, |run| Some(run.skipped_steps as f64))),
    ("repeated", Of::All, |runs| number(runs, 0, |run| Some(run.repeats as f64))),
    ("global accuracy %", Of::Pixels, |runs| percent(runs, |run| Some(run.metrics?.global_accuracy))),
    ("all right %", Of::Texts, |runs| percent(runs, |run| Some(run.metrics?.global_accuracy))),
    ("character errors % (greedy)", Of::Texts, |runs| percent(runs, |run| Some(run.metrics?.cer?[0]))),
    ("loss", Of::All, |runs| number(runs, 4, |run| run.final_loss)),
    ("class accuracy %", Of::Classes, |runs| percent(runs, |run| Some(run.metrics?.class_accuracy))),
    ("ms per step", Of::All, |runs| number(runs, 0, |run| Some(1000.0 * run.seconds / run.loss.len().max(1) as f64))),
    ("activations MB", Of::All, |runs| number(runs, 1, |run| Some(run.activation_bytes as f64 / 1e6))),
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
