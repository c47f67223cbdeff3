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

/// All runs; of several seeds mean and standard deviation.
pub fn table(results: &Results<'_>) -> String {
    let arguments = results.arguments;
    let data = &results.data;
    let mut text = String::new();
    let divisor = match arguments.pixels {
        Pixels::Batch => "the labelled pixels of its batch".to_owned(),
        Pixels::Fixed(number) => format!("{number} pixels"),
    };
    writeln!(
        text,
        "# SegNetBasic ({} channels) on {} ({}×{}), loss divided by {divisor}\n",
        arguments.width, data.name, data.height, data.width
    )
    .ok();
    let seeds: Vec<String> = arguments.all_seeds().iter().map(u64::to_string).collect();
    writeln!(
        text,
        "{} steps of {} images, {} training and {} test images, seed {}. gradscale {} ({}) on {}.\n",
        arguments.iters,
        arguments.batch,
        data.training_images,
        data.test_images,
        seeds.join(", "),
        results.origin.version,
        results.origin.commit,
        results.origin.machine,
    )
    .ok();
    text.push_str("| method | mIoU % | class accuracy % | global accuracy % | loss | skipped | flushed at worst % | ms per step | activations MB |\n");
    text.push_str("|---|---|---|---|---|---|---|---|---|\n");
    for (method, _) in &arguments.methods.0 {
        let runs: Vec<&Record> = results.runs.iter().filter(|record| record.method == *method).collect();
        if !runs.is_empty() {
            row(&mut text, method, &runs);
        }
    }
    for record in &results.runs {
        if let Some(failure) = &record.failure {
            writeln!(text, "\n{}, seed {}: {failure}", record.method, record.seed).ok();
        }
    }
    text
}

fn row(text: &mut String, method: &str, runs: &[&Record]) {
    let of =
        |value: &dyn Fn(&Record) -> Option<f64>| -> Vec<f64> { runs.iter().filter_map(|run| value(run)).collect() };
    let percent = |values: Vec<f64>| spread(&values.iter().map(|value| 100.0 * value).collect::<Vec<_>>(), 1);
    let worst =
        |run: &Record| (!run.sites.is_empty()).then(|| run.sites.iter().map(|site| site.worst).fold(0.0, f64::max));
    writeln!(
        text,
        "| {method} | {} | {} | {} | {} | {} | {} | {} | {} |",
        percent(of(&|run| Some(run.metrics?.miou))),
        percent(of(&|run| Some(run.metrics?.class_accuracy))),
        percent(of(&|run| Some(run.metrics?.global_accuracy))),
        spread(&of(&|run| run.final_loss), 4),
        spread(&of(&|run| Some(run.skipped_steps as f64)), 0),
        spread(&of(&|run| worst(run).map(|share| 100.0 * share)), 3),
        spread(&of(&|run| Some(1000.0 * run.seconds / run.loss.len().max(1) as f64)), 0),
        spread(&of(&|run| Some(run.activation_bytes as f64 / 1e6)), 1),
    )
    .ok();
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
