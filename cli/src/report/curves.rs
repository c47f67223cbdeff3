//! Loss and scores over time, and the steps that were skipped.

use super::{
    Report,
    axis::{Axis, Unit as Scale},
    page::{card, grid, legend, section},
    plot::{Plot, RowPlot},
    series::{extent, mean_and_spread, raw, sample_positions, smooth},
    text::escape,
};
use crate::{
    metrics::{Metric, Unit},
    record::Record,
    tasks::{Dataset, On},
};
use std::collections::BTreeSet;

/// Returns the HTML section of the report about losses and scores over the steps.
pub fn section_of(report: &Report<'_>, data: &dyn Dataset) -> String {
    let networks: BTreeSet<&String> = report.runs.iter().flat_map(|run| run.losses.keys()).collect();
    let of = if networks.is_empty() { "" } else { ", of both networks together" };
    let title = format!("<b>Loss</b> of the training steps{of}");
    let mut cards = vec![card(&title, &loss(report, data, |run| run.loss.clone()))];
    for name in networks {
        let of_network = |run: &Record| {
            let losses = run.losses.get(name).into_iter().flatten();
            losses.map(|loss| loss.unwrap_or(f32::NAN)).collect()
        };
        cards.push(card(&format!("<b>Loss of {}</b>", escape(name)), &loss(report, data, of_network)));
    }
    let several = report.runs.iter().any(|run| run.scores.len() > 1);
    let taken = report.runs.iter().flat_map(|run| &run.scores).flat_map(|score| score.metrics.iter());
    let metrics: BTreeSet<Metric> = taken.map(|(metric, _)| metric).collect();
    for metric in metrics {
        let drawing = if several { over_time(report, metric) } else { score_bars(report, metric, None) };
        let on = report.runs.iter().flat_map(|run| &run.scores).next().map_or(On::Test, |score| score.on);
        let on = if several { on } else { On::Test };
        cards.push(card(&format!("<b>{}</b> on the {on} set", metric.name()), &drawing));
    }
    cards.push(card("<b>Skipped steps</b> over the training", &skipped(report)));
    let legend = legend(report.coloured().map(|(method, class)| (class, method)));
    let lead = "Thin: every step of every seed. Thick: a moving average, the mean of the seeds; shaded: ± one standard \
                deviation between them.";
    section("curves", "Loss and scores", lead, &(legend + &grid("cards", &cards)))
}

/// Returns the horizontal axis over all training steps.
fn steps(report: &Report<'_>) -> Axis {
    let last = report.runs.iter().map(|run| run.iterations).max().unwrap_or(1);
    Axis::new(Scale::Plain, 0.0, last as f64)
}

/// Draws the curve of a loss of each run.
fn loss(report: &Report<'_>, data: &dyn Dataset, of: impl Fn(&Record) -> Vec<f32>) -> String {
    let smoothed: Vec<(&Record, Vec<f64>)> = report.runs.iter().map(|run| (*run, smooth(&of(run)))).collect();
    let (low, high) = extent(smoothed.iter().flat_map(|(_, loss)| loss.iter().copied()));
    // A loss that runs away would leave nothing to see of the others.
    let first = mean_and_spread(smoothed.iter().filter_map(|(_, loss)| loss.first().copied()));
    let high = first.map_or(high, |(first, _)| high.min(4.0 * first));
    let y = Axis::new(Scale::Plain, (low - 0.08 * (high - low)).max(0.0), high + 0.05 * (high - low));
    let mut plot = Plot::new(steps(report), y, "training step", data.loss_of());
    for (method, class) in report.coloured() {
        for run in report.runs_of(method) {
            plot.line(&format!("raw {class}"), &raw(&of(run)));
        }
    }
    for (method, class) in report.coloured() {
        let seeds: Vec<&Vec<f64>> =
            smoothed.iter().filter(|(run, _)| run.method == method).map(|(_, loss)| loss).collect();
        let length = seeds.iter().map(|loss| loss.len()).max().unwrap_or(0);
        let points = sample_positions(length, 200).filter_map(|i| {
            let (mean, spread) = mean_and_spread(seeds.iter().filter_map(|loss| loss.get(i).copied()))?;
            Some((i as f64 + 1.0, mean, spread))
        });
        spread_line(&mut plot, &class, &points.collect::<Vec<_>>());
    }
    plot.svg.finish("Loss over training steps, by method")
}

/// Draws a line of means with a band of their spread; points are x, mean and spread.
fn spread_line(plot: &mut Plot, class: &str, points: &[(f64, f64, f64)]) {
    if points.iter().any(|(_, _, spread)| *spread > 0.0) {
        let band: Vec<_> = points.iter().map(|(x, mean, spread)| (*x, mean - spread, mean + spread)).collect();
        plot.band(&format!("band {class}"), &band);
    }
    plot.line(&format!("line {class}"), &points.iter().map(|(x, mean, _)| (*x, *mean)).collect::<Vec<_>>());
}

/// Returns the vertical axis for a score, and its unit.
fn axis(metric: Metric, high: f64) -> (Axis, &'static str) {
    match metric.unit() {
        Unit::Share => (Axis::new(Scale::Percent, 0.0, (1.08 * high).min(1.0)), "%"),
        Unit::Number(_) => (Axis::new(Scale::Plain, 0.0, 1.08 * high), ""),
    }
}

fn over_time(report: &Report<'_>, metric: Metric) -> String {
    let all = report.runs.iter().flat_map(|run| &run.scores);
    let (_, high) = extent(all.filter_map(|score| score.metrics.get(metric)));
    let (y, unit) = axis(metric, high);
    let mut plot = Plot::new(steps(report), y, "training step", unit);
    for (method, class) in report.coloured() {
        let mut times: Vec<u64> =
            report.runs_of(method).flat_map(|run| &run.scores).map(|score| score.iteration).collect();
        times.sort_unstable();
        times.dedup();
        let points = times.into_iter().filter_map(|time| {
            let at = |run: &Record| run.scores.iter().find(|score| score.iteration == time)?.metrics.get(metric);
            let (mean, spread) = mean_and_spread(report.runs_of(method).filter_map(at))?;
            Some((time as f64, mean, spread))
        });
        let points: Vec<_> = points.collect();
        spread_line(&mut plot, &class, &points);
        for &(x, mean, spread) in &points {
            let tip = format!("{method}, step {x}: {} ± {}", metric.text(mean), metric.difference(spread));
            plot.svg.dot(&format!("fill {class}"), (plot.x.at(x), plot.y.at(mean)), 3.0, &tip);
        }
    }
    plot.svg.finish(&format!("{} over training steps, by method", metric.name()))
}

/// Draws the final score of each seed as a dot, their mean as a bar with the standard deviation, and the score of a
/// constant answer as a dashed line.
pub fn score_bars(report: &Report<'_>, metric: Metric, constant: Option<f64>) -> String {
    let scores = |method: &str| -> Vec<(u64, f64)> {
        report.runs_of(method).filter_map(|run| Some((run.seed, run.metrics.as_ref()?.get(metric)?))).collect()
    };
    let (_, high) = extent(report.methods.iter().flat_map(|method| scores(method)).map(|(_, score)| score));
    let (x, unit) = axis(metric, constant.map_or(high, |constant| high.max(constant)));
    let mut rows = RowPlot::new(&report.methods, x, unit);
    if let Some(constant) = constant {
        rows.mark("dashed strong", constant);
    }
    for (i, (method, class)) in report.coloured().enumerate() {
        let scores = scores(method);
        let y = rows.y(i);
        if let Some((mean, spread)) = mean_and_spread(scores.iter().map(|(_, score)| *score)) {
            let tip = format!("{method}: {} ± {}", metric.text(mean), metric.difference(spread));
            rows.svg.rect(
                &format!("bar {class}"),
                (rows.x.from, y - rows.half()),
                (rows.x.at(mean), y + rows.half()),
                &tip,
            );
            if spread > 0.0 {
                rows.svg.line("join", (rows.x.at(mean - spread), y), (rows.x.at(mean + spread), y));
            }
            rows.svg.text("row", (rows.x.from + 5.0, y + 3.8), &metric.text(mean));
        }
        for (seed, score) in scores {
            let tip = format!("{method}, seed {seed}: {}", metric.text(score));
            rows.svg.dot(&format!("fill {class}"), (rows.x.at(score), y), 3.5, &tip);
        }
    }
    rows.svg.finish(&format!("{} at the end, by method", metric.name()))
}

/// Draws a tick for each skipped step, in a row for each method.
fn skipped(report: &Report<'_>) -> String {
    let mut rows = RowPlot::new(&report.methods, steps(report), "training step");
    let end = rows.x.to;
    for (i, (method, class)) in report.coloured().enumerate() {
        let y = rows.y(i);
        rows.svg.line("grid", (rows.x.from, y), (end, y));
        let (mut count, mut runs) = (0, 0);
        for run in report.runs_of(method) {
            count += run.skipped_at.len();
            runs += 1;
            for step in &run.skipped_at {
                let x = rows.x.at(*step as f64);
                rows.svg.line(&format!("line {class}"), (x, y - rows.half()), (x, y + rows.half()));
            }
        }
        if runs > 0 {
            let text = if count == 0 { "none".to_owned() } else { count.to_string() };
            rows.svg.text("note end", (end, y - rows.half() - 1.0), &text);
        }
    }
    rows.svg.finish("Skipped steps by method")
}
