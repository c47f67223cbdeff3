//! Records of runs and their evaluation, for trainings and comparisons.

pub(crate) mod event;
mod from_trace;
pub(crate) mod gradients;
mod ranks;
mod recorder;
mod run_description;
pub(crate) mod site_names;
mod spread;
pub(crate) mod summary;
pub(crate) mod verdict;

pub use from_trace::recorded;
pub use ranks::{GradientTraffic, Stretch};
pub use recorder::{Recorder, StepResult};
pub use run_description::Description;
pub use spread::Spread;

use crate::{
    metrics::{Metrics, each_or_nan, or_nan},
    tasks::{On, Predictions},
};
use event::Event;
use gradscale::{
    SiteReport,
    gradscale_core::{solve::LimitedBy, stats::Stats},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Record of a run: one method and one seed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub method: String,
    pub seed: u64,
    /// Number of requested steps; fewer were run if there is a failure.
    pub iterations: u64,
    /// Mean loss over the last 20 steps, for one pixel or image.
    pub final_loss: Option<f64>,
    pub metrics: Option<Metrics>,
    /// Errors of the parameters' gradients of a batch after the last step; `None` if nothing is stored in half, or the
    /// batch does not fit.
    #[serde(default)]
    pub gradient_error: Option<GradientError>,
    pub skipped_steps: u64,
    /// Number of attempts that overflowed and were repeated.
    #[serde(default)]
    pub repeats: u64,
    /// Time of all training steps, in seconds.
    pub seconds: f64,
    /// Bytes of all activations and of their gradients.
    pub activation_bytes: u64,
    pub failure: Option<String>,
    /// Warnings about implausible results, each with its likely cause.
    #[serde(default)]
    pub doubts: Vec<String>,
    /// Loss of each step, for one pixel or image.
    #[serde(deserialize_with = "each_or_nan")]
    pub loss: Vec<f32>,
    /// Losses of networks that train in turn, by name; along with `loss`, which is their sum.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub losses: BTreeMap<String, Vec<Option<f32>>>,
    pub skipped_at: Vec<u64>,
    /// Steps in which a batch was repeated.
    #[serde(default)]
    pub repeated_at: Vec<u64>,
    /// First skips and repeats of the run, each with its step.
    #[serde(default)]
    pub events: Vec<(u64, Event)>,
    pub scores: Vec<Score>,
    pub sites: Vec<SiteSeries>,
    /// Stores of the forward pass, from the first sampled step on in which one of them has an exponent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub activations: Vec<SiteSeries>,
    /// Stretches of steps that several ranks took together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<Stretch>,
    /// Classes predicted for the images that the report shows, one image after another.
    #[serde(skip_serializing, default = "no_samples")]
    pub samples: Predictions,
}

/// Number of last steps whose mean is the loss of a run. The loss of a single step depends on its batch: in 400 steps of
/// SegNet it differed from this mean by 9 %.
const LOSS_STEPS: usize = 20;

impl Record {
    /// Returns the loss of the run so far, which terminal, table and page show: the mean of its last 20 steps.
    pub fn mean_loss(&self) -> Option<f64> {
        mean_of_last(&self.loss)
    }
}

/// Returns the mean of the last 20 losses; `None` if none of them is finite, as after steps that were skipped.
pub fn mean_of_last(losses: &[f32]) -> Option<f64> {
    let last = losses[losses.len().saturating_sub(LOSS_STEPS)..].iter().filter(|loss| loss.is_finite());
    let (count, sum) = last.fold((0u32, 0.0), |(count, sum), loss| (count + 1, sum + f64::from(*loss)));
    (count > 0).then(|| sum / f64::from(count))
}

/// Returns no predictions, as in results for programs.
const fn no_samples() -> Predictions {
    Predictions::NONE
}

/// Errors of the parameters' gradients, each relative to the gradient of a backward pass in f32: see
/// [`gradscale::window`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradientError {
    #[serde(deserialize_with = "or_nan")]
    pub median: f64,
    #[serde(deserialize_with = "or_nan")]
    pub worst: f64,
    /// Name of the parameter with the largest error.
    pub parameter: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Score {
    pub iteration: u64,
    /// Split of the data that the score was measured on.
    #[serde(default)]
    pub on: On,
    #[serde(flatten)]
    pub metrics: Metrics,
}

/// Time series of a site; all lists have the length of `iteration`. Shares are of the non-zero values of a step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SiteSeries {
    pub name: String,
    pub iteration: Vec<u64>,
    /// Exponent of the site for the next step, in each sampled step: the scale is 2^alpha.
    pub alpha: Vec<i32>,
    #[serde(deserialize_with = "each_or_nan")]
    pub gamma_measured: Vec<f64>,
    pub gamma_predicted: Vec<Option<f64>>,
    /// Number of values so far that overflowed, or were ±∞ or NaN before.
    pub overflows: Vec<u64>,
    #[serde(deserialize_with = "each_or_nan")]
    pub subnormal_share: Vec<f64>,
    /// Share of all values that were zero before they were stored.
    #[serde(default, deserialize_with = "each_or_nan")]
    pub zeros: Vec<f64>,
    /// Share of Σ|u| that was stored as zero, within a factor of 2; `None` without a histogram.
    #[serde(default)]
    pub lost: Vec<Option<f64>>,
    /// log2 of the largest true magnitude; `None` if all values were zero.
    pub amax: Vec<Option<f64>>,
    pub bound: Vec<Option<String>>,
    #[serde(flatten)]
    pub extremes: Extremes,
    /// Last histogram that was observed at the site, if there is one.
    pub histogram: Option<Histogram>,
}

/// Extremes of a site over all steps, including those between samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Extremes {
    /// Largest share of flushed values that a decision expected where it was not bound by overflow.
    pub worst_at_decision: f64,
    /// Largest share of flushed values, over steps that were not bound by overflow.
    pub worst_between: f64,
    /// Number of these steps in which more than 3·10^-3 were flushed.
    pub steps_above: u64,
    /// Number of steps in which the last decision was bound by overflow.
    pub bound_by_overflow: u64,
    /// Largest share of flushed values that was measured in any step.
    pub worst: f64,
    /// Smallest share of flushed values in a step with non-zero values; `None` before one, and in earlier files.
    #[serde(default)]
    pub best: Option<f64>,
}

impl Extremes {
    /// Returns true if every step with non-zero values flushed all of them.
    fn flushes_all(&self) -> bool {
        self.best == Some(1.0)
    }

    fn add(&mut self, site: &SiteReport<'_>) {
        self.worst = self.worst.max(site.gamma_measured);
        if site.row.counts().nonzero() > 0 {
            self.best = Some(self.best.map_or(site.gamma_measured, |best| best.min(site.gamma_measured)));
        }
        if site.bound == Some(LimitedBy::Overflow) {
            self.bound_by_overflow += 1;
        } else {
            self.worst_between = self.worst_between.max(site.gamma_measured);
            self.steps_above += u64::from(site.gamma_measured > 3e-3);
            // f64::max ignores NaN.
            self.worst_at_decision = self.worst_at_decision.max(site.gamma_predicted.unwrap_or(0.0));
        }
    }
}

/// State of a cast site after one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub name: String,
    pub alpha: i32,
    pub gamma_measured: f64,
    pub gamma_predicted: Option<f64>,
    pub overflows: u64,
    pub subnormal_share: f64,
    #[serde(default)]
    pub zeros: f64,
    #[serde(default)]
    pub lost: Option<f64>,
    pub amax: Option<f64>,
    pub bound: Option<String>,
    #[serde(flatten)]
    pub extremes: Extremes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histogram: Option<Histogram>,
}

impl Point {
    fn new(site: &SiteReport<'_>, extremes: Extremes, iteration: u64) -> Self {
        Self {
            name: site.name.to_owned(),
            alpha: site.alpha,
            gamma_measured: site.gamma_measured,
            // Rules without a model answer NaN.
            gamma_predicted: site.gamma_predicted.filter(|gamma| !gamma.is_nan()),
            overflows: site.overflows,
            subnormal_share: site.subnormal_share,
            zeros: site.row.counts().zeros as f64 / (site.row.counts().count as f64).max(1.0),
            lost: site.row.lost_at(0),
            amax: site.log2_amax,
            bound: site.bound.map(|held| held.to_string()),
            extremes,
            histogram: Histogram::from_row(site.row, iteration),
        }
    }
}

impl SiteSeries {
    /// Returns the mean share of flushed values over the sampled steps; `None` without one.
    pub fn mean_flushed(&self) -> Option<f64> {
        let shares: Vec<f64> = self.gamma_measured.iter().copied().filter(|share| share.is_finite()).collect();
        Spread::new(&shares).map(|spread| spread.mean)
    }

    fn push(&mut self, iteration: u64, point: &Point) {
        self.iteration.push(iteration);
        self.alpha.push(point.alpha);
        self.gamma_measured.push(point.gamma_measured);
        self.gamma_predicted.push(point.gamma_predicted);
        self.overflows.push(point.overflows);
        self.subnormal_share.push(point.subnormal_share);
        self.zeros.push(point.zeros);
        self.lost.push(point.lost);
        self.amax.push(point.amax);
        self.bound.push(point.bound.clone());
        self.extremes = point.extremes;
        self.histogram = point.histogram.clone().or(self.histogram.take());
    }
}

/// Values by true magnitude: `counts[i]` of those with 2^(first + i − 1) < |v| ≤ 2^(first + i).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    pub iteration: u64,
    pub first: i32,
    pub counts: Vec<u32>,
}

impl Histogram {
    /// Returns the histogram of a row, if it observed one and has values.
    fn from_row(row: &Stats, iteration: u64) -> Option<Self> {
        let bins = row.bins()?;
        let start = bins.iter().position(|&count| count > 0)?;
        let end = bins.iter().rposition(|&count| count > 0)?;
        // Bin 127 ends at 2^0 of the stored values.
        let first = i32::try_from(start).ok()? - 127 - row.exponent();
        Some(Self { iteration, first, counts: bins[start..=end].to_vec() })
    }
}

/// Training step as records and logs store it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogEntry {
    pub iteration: u64,
    #[serde(deserialize_with = "or_nan")]
    pub loss: f32,
    /// Loss of each network in alternating training, by name; `None` if it is not finite.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub losses: BTreeMap<String, Option<f32>>,
    pub seconds: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<Event>,
    /// Repeated attempts of the step before the last one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repeated: Vec<Event>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scores: Option<Metrics>,
    /// Scores on the validation set after the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<Metrics>,
    /// State of each site, in sampled steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<Point>,
    /// State of each store of the forward pass, in sampled steps, if one of them has an exponent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub activations: Vec<Point>,
    /// Communication of gradients between ranks, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<GradientTraffic>,
}
