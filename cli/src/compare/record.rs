//! What is kept of a run.

use crate::{Failure, args::Compare, data::Segmentation, machine::Origin, task::segnet::Metrics};
use gradscale::{
    MemoryReport, StepOutcome, Trainer,
    core::{backend::Backend, solve::Held, stats::Stats},
};
use serde::Serialize;
use std::collections::HashMap;

/// Points of the time series of a site.
const SAMPLES: u64 = 100;

/// `results.json`.
#[derive(Debug, Serialize)]
pub struct Results<'a> {
    #[serde(flatten)]
    pub origin: Origin,
    pub arguments: &'a Compare,
    pub data: Description,
    pub runs: Vec<Record>,
}

/// The data set.
#[derive(Debug, Serialize)]
pub struct Description {
    pub name: String,
    pub height: usize,
    pub width: usize,
    pub training_images: usize,
    pub test_images: usize,
    pub classes: Vec<String>,
}

/// One method, one seed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct Record {
    pub method: String,
    pub seed: u64,
    /// Steps asked for; fewer were run if there is a failure.
    pub iterations: u64,
    /// Mean over the last 20 steps, for one pixel.
    pub final_loss: Option<f64>,
    pub metrics: Option<Metrics>,
    pub skipped_steps: u64,
    /// In training steps.
    pub seconds: f64,
    /// Bytes of activations and their gradients.
    pub activation_bytes: u64,
    pub failure: Option<String>,
    pub loss: Vec<f32>,
    pub skipped_at: Vec<u64>,
    pub scores: Vec<Score>,
    pub sites: Vec<SiteSeries>,
    /// Classes predicted for the images that the report shows, one image after another.
    #[serde(skip_serializing)]
    pub samples: Vec<u8>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct Score {
    pub iteration: u64,
    #[serde(flatten)]
    pub metrics: Metrics,
}

/// One site over time; the lists run along `iteration`. Shares are of the non-zero values of a step.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct SiteSeries {
    pub name: String,
    pub iteration: Vec<u64>,
    /// Exponent in force for the next step: the scale is 2^alpha.
    pub alpha: Vec<i32>,
    pub gamma_measured: Vec<f64>,
    pub gamma_predicted: Vec<Option<f64>>,
    /// Values so far that overflowed or came as ±∞ or NaN.
    pub overflows: Vec<u64>,
    pub subnormal_share: Vec<f64>,
    /// log2 of the largest true magnitude; none if all values were zero.
    pub amax: Vec<Option<f64>>,
    pub bound: Vec<Option<String>>,
    /// Over all steps: the largest share that a decision expected where it was not bound by overflow.
    pub worst_at_decision: f64,
    /// Over all steps that were not bound by overflow: the largest share measured.
    pub worst_between: f64,
    /// Steps of those in which more than 3·10^-3 were flushed.
    pub steps_above: u64,
    /// Steps in which the last decision was bound by overflow.
    pub bound_by_overflow: u64,
    /// Over all steps: the largest share measured.
    pub worst: f64,
    /// The last that was observed: in steps that decide, under gradient scaling.
    pub histogram: Option<Histogram>,
}

/// Values by true magnitude: `counts[i]` of those with 2^(first + i − 1) < |v| ≤ 2^(first + i).
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct Histogram {
    pub iteration: u64,
    pub first: i32,
    pub counts: Vec<u32>,
}

impl Histogram {
    /// Of a row that observed one, if it saw anything.
    fn of(row: &Stats, iteration: u64) -> Option<Self> {
        let bins = row.bins()?;
        let start = bins.iter().position(|&count| count > 0)?;
        let end = bins.iter().rposition(|&count| count > 0)?;
        // Bin 127 ends at 2^0 of what was stored.
        let first = i32::try_from(start).ok()? - 127 - row.exponent();
        Some(Self { iteration, first, counts: bins[start..=end].to_vec() })
    }
}

/// Fills a record while a run goes on.
#[derive(Debug)]
pub struct Recorder {
    record: Record,
    every: u64,
    index: HashMap<String, usize>,
}

impl Recorder {
    pub fn new(method: &str, seed: u64, iterations: u64) -> Self {
        let record = Record {
            method: method.to_owned(),
            seed,
            iterations,
            final_loss: None,
            metrics: None,
            skipped_steps: 0,
            seconds: 0.0,
            activation_bytes: 0,
            failure: None,
            loss: Vec::new(),
            skipped_at: Vec::new(),
            scores: Vec::new(),
            sites: Vec::new(),
            samples: Vec::new(),
        };
        Self { record, every: iterations.div_ceil(SAMPLES), index: HashMap::new() }
    }

    pub const fn skipped(&self) -> u64 {
        self.record.skipped_steps
    }

    pub fn step<B: Backend>(&mut self, iteration: u64, outcome: &StepOutcome, trainer: &Trainer<B>) {
        let record = &mut self.record;
        record.loss.push(outcome.loss);
        if outcome.skipped.is_some() {
            record.skipped_steps += 1;
            record.skipped_at.push(iteration);
        }
        let sampled = iteration == 1 || iteration == record.iterations || iteration.is_multiple_of(self.every);
        for site in trainer.sites() {
            let series = match self.index.get(site.name) {
                Some(&index) => &mut record.sites[index],
                None => {
                    self.index.insert(site.name.to_owned(), record.sites.len());
                    record.sites.push(SiteSeries { name: site.name.to_owned(), ..SiteSeries::default() });
                    let last = record.sites.len() - 1;
                    &mut record.sites[last]
                }
            };
            series.worst = series.worst.max(site.gamma_measured);
            if site.bound == Some(Held::Overflow) {
                series.bound_by_overflow += 1;
            } else {
                series.worst_between = series.worst_between.max(site.gamma_measured);
                series.steps_above += u64::from(site.gamma_measured > 3e-3);
                // f64::max takes the number beside a NaN.
                series.worst_at_decision = series.worst_at_decision.max(site.gamma_predicted.unwrap_or(0.0));
            }
            series.histogram = Histogram::of(site.row, iteration).or(series.histogram.take());
            if sampled {
                series.iteration.push(iteration);
                series.alpha.push(site.alpha);
                series.gamma_measured.push(site.gamma_measured);
                series.gamma_predicted.push(site.gamma_predicted);
                series.overflows.push(site.overflows);
                series.subnormal_share.push(site.subnormal_share);
                series.amax.push(site.log2_amax);
                series.bound.push(site.bound.map(|held| held.to_string()));
            }
        }
    }

    pub fn score(&mut self, iteration: u64, metrics: Metrics) {
        self.record.scores.push(Score { iteration, metrics });
    }

    pub fn done(self, metrics: Metrics, samples: Vec<u8>, seconds: f64, memory: MemoryReport) -> Record {
        let loss = &self.record.loss;
        let last = &loss[loss.len().saturating_sub(20)..];
        let mean = last.iter().copied().map(f64::from).sum::<f64>() / last.len().max(1) as f64;
        let activation_bytes = memory.activations;
        Record { final_loss: Some(mean), metrics: Some(metrics), samples, seconds, activation_bytes, ..self.record }
    }

    pub fn failed(self, error: &Failure, seconds: f64) -> Record {
        Record { failure: Some(error.to_string()), seconds, ..self.record }
    }
}

impl<'a> Results<'a> {
    pub fn new(origin: Origin, arguments: &'a Compare, data: &Segmentation) -> Self {
        let data = Description {
            name: data.name.clone(),
            height: data.train.height,
            width: data.train.width,
            training_images: data.train.count,
            test_images: data.test.count,
            classes: data.classes.clone(),
        };
        Self { origin, arguments, data, runs: Vec::new() }
    }

    /// Names of the methods, in the order asked for.
    pub fn methods(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.arguments.methods.0.iter().map(|(name, _)| name.as_str())
    }
}
