//! Recorder, which fills a record during a training.

use super::{Event, Extremes, GradientError, GradientTraffic, LogEntry, Point, Record, Score, SiteSeries, ranks};
use crate::{
    Failure,
    metrics::Metrics,
    sanity_checks::SanityChecks,
    tasks::{On, Predictions, UnusableSamples},
};
use gradscale::{MemoryReport, SiteReport, StepOutcome, sites::LossScaleWarning, window::GradientErrors};
use std::collections::{BTreeMap, HashMap};

/// Approximate number of points in a site's time series.
const SAMPLES: u64 = 100;

/// Maximum number of skips and repeats that a record stores.
const EVENTS: usize = 50;

/// Result of a finished step.
#[derive(Clone, Copy, Debug)]
pub struct StepResult<'a> {
    pub outcome: &'a StepOutcome,
    /// Losses of the networks by name, if there are several.
    pub losses: &'a [(&'a str, f32)],
    /// Samples because of which the step was skipped, if they were found.
    pub unusable: Option<&'a UnusableSamples>,
    /// Reports of forward stores, for the events of activations.
    pub activations: &'a [SiteReport<'a>],
}

/// Recorder of a training run: collects its record step by step.
#[derive(Debug)]
pub struct Recorder {
    record: Record,
    every: u64,
    /// Places of sites in their lists, by name. No activation has the name of a gradient.
    index: HashMap<String, usize>,
    extremes: HashMap<String, Extremes>,
    doubts: SanityChecks,
}

impl Recorder {
    /// Creates a recorder for a training with these classes.
    pub fn new(method: &str, seed: u64, iterations: u64, classes: &[String]) -> Self {
        let record = Record {
            method: method.to_owned(),
            seed,
            iterations,
            final_loss: None,
            metrics: None,
            gradient_error: None,
            skipped_steps: 0,
            repeats: 0,
            seconds: 0.0,
            activation_bytes: 0,
            failure: None,
            doubts: Vec::new(),
            loss: Vec::new(),
            losses: BTreeMap::new(),
            skipped_at: Vec::new(),
            repeated_at: Vec::new(),
            events: Vec::new(),
            scores: Vec::new(),
            sites: Vec::new(),
            activations: Vec::new(),
            ranks: Vec::new(),
            samples: Predictions::NONE,
        };
        let every = iterations.div_ceil(SAMPLES).max(1);
        Self { record, every, index: HashMap::new(), extremes: HashMap::new(), doubts: SanityChecks::new(classes) }
    }

    pub const fn skipped(&self) -> u64 {
        self.record.skipped_steps
    }

    pub const fn repeats(&self) -> u64 {
        self.record.repeats
    }

    /// Returns true if the sites of a step are recorded.
    pub const fn samples(&self, iteration: u64) -> bool {
        iteration == 1 || iteration == self.record.iterations || iteration.is_multiple_of(self.every)
    }

    /// Adds a finished step to the record, with its seconds, and the communication between ranks if there are several; its
    /// sites are kept if it is `sampled`.
    pub fn step(
        &mut self, iteration: u64, StepResult { outcome, losses, unusable, activations }: StepResult<'_>,
        (seconds, ranks): (f64, Option<GradientTraffic>), sites: &[SiteReport<'_>], sampled: bool,
    ) -> LogEntry {
        let mut points = Vec::new();
        for site in sites {
            let extremes = self.extremes.entry(site.name.to_owned()).or_default();
            extremes.add(site);
            self.doubts.set_flushed(site.name, extremes.flushes_all());
            if sampled {
                points.push(Point::new(site, *extremes, iteration));
            }
        }
        let mut forward = Vec::new();
        let begins = self.record.activations.is_empty();
        if !begins || activations.iter().any(|site| site.alpha != 0) {
            for site in activations {
                let extremes = self.extremes.entry(site.name.to_owned()).or_default();
                extremes.add(site);
                if sampled || begins {
                    forward.push(Point::new(site, *extremes, iteration));
                }
            }
        }
        let all = || sites.iter().chain(activations);
        let skipped = outcome.skipped.as_ref().map(|skipped| Event::from_skip(skipped, unusable, all()));
        let repeated = outcome.repeated.iter().map(|one| Event::new(one, Some(&one.site), all())).collect();
        let (loss, scores, validation) = (outcome.loss, None, None);
        let losses = losses.iter().map(|&(name, loss)| (name.to_owned(), Some(loss).filter(|loss| loss.is_finite())));
        let losses = losses.collect();
        let (sites, activations) = (points, forward);
        let entry = LogEntry {
            iteration,
            loss,
            losses,
            seconds,
            skipped,
            repeated,
            scores,
            validation,
            sites,
            activations,
            ranks,
        };
        self.add(&entry);
        entry
    }

    /// Records a warning about a dynamic loss scale after a step.
    pub fn warned(&mut self, iteration: u64, warning: Option<LossScaleWarning>) {
        if let Some(warning) = warning {
            self.doubts.loss_scale(iteration, warning);
            self.record.doubts = self.doubts.sentences();
        }
    }

    /// Warns about a sample whose loss is infinite or NaN, after the step that was skipped because of it.
    pub fn warn_of_samples(&mut self, entry: &LogEntry) {
        if let Some(samples) = entry.skipped.as_ref().and_then(|skipped| skipped.samples.as_ref()) {
            self.doubts.samples(entry.iteration, samples);
            self.record.doubts = self.doubts.sentences();
        }
    }

    /// Records the errors of the parameters' gradients after the last step.
    pub fn gradient_errors(&mut self, errors: Option<GradientErrors>) {
        // JSON has one `null` for NaN and ∞, so that a restored record would differ.
        let finite = |error: f64| if error.is_finite() { error } else { f64::NAN };
        self.record.gradient_error = errors.map(|GradientErrors { median, worst, parameter }| GradientError {
            median: finite(median),
            worst: finite(worst),
            parameter,
        });
    }

    /// Restores a step from the entry of a log. Its totals of sites include all earlier steps.
    pub fn restore(&mut self, entry: &LogEntry) {
        for point in &entry.sites {
            self.extremes.insert(point.name.clone(), point.extremes);
            self.doubts.set_flushed(&point.name, point.extremes.flushes_all());
        }
        for point in &entry.activations {
            self.extremes.insert(point.name.clone(), point.extremes);
        }
        self.add(entry);
        self.warn_of_samples(entry);
        self.scored(entry);
        // They were printed when they were found.
        self.doubts.news();
    }

    fn add(&mut self, entry: &LogEntry) {
        let record = &mut self.record;
        record.loss.push(entry.loss);
        for (name, loss) in &entry.losses {
            let all = record.losses.entry(name.clone()).or_default();
            // Losses of steps whose log was lost are unknown.
            all.resize(record.loss.len() - 1, None);
            all.push(*loss);
        }
        self.doubts.losses(entry.iteration, entry.skipped.is_some(), &entry.losses);
        record.seconds += entry.seconds;
        if let Some(travelled) = entry.ranks {
            ranks::add(&mut record.ranks, entry.iteration, entry.seconds, travelled);
        }
        self.doubts.step(entry.iteration, entry.loss, entry.skipped.as_ref().map(|event| event.said.as_str()));
        record.doubts = self.doubts.sentences();
        if entry.skipped.is_some() {
            record.skipped_steps += 1;
            record.skipped_at.push(entry.iteration);
        }
        if !entry.repeated.is_empty() {
            record.repeats += entry.repeated.len() as u64;
            record.repeated_at.push(entry.iteration);
        }
        let events = entry.repeated.iter().chain(&entry.skipped).cloned().map(|event| (entry.iteration, event));
        record.events.extend(events.take(EVENTS.saturating_sub(record.events.len())));
        for (points, all) in [(&entry.sites, &mut record.sites), (&entry.activations, &mut record.activations)] {
            for point in points {
                let next = all.len();
                let index = *self.index.entry(point.name.clone()).or_insert(next);
                if index == next {
                    all.push(SiteSeries { name: point.name.clone(), ..SiteSeries::default() });
                }
                all[index].push(entry.iteration, point);
            }
        }
    }

    /// Records the scores of a step. A curve has scores of one split only: with a validation set, the final test scores
    /// are no point of it.
    pub fn scored(&mut self, entry: &LogEntry) {
        let LogEntry { iteration, scores, validation, .. } = entry;
        let point = |on: On| move |metrics: &Metrics| Score { iteration: *iteration, on, metrics: metrics.clone() };
        let all = &mut self.record.scores;
        all.extend(validation.as_ref().map(point(On::Validation)).or(scores.as_ref().map(point(On::Test))));
        for metrics in validation.iter().chain(scores) {
            self.doubts.score(*iteration, metrics);
        }
        self.record.doubts = self.doubts.sentences();
    }

    /// Returns the warnings that have not been printed yet.
    pub fn news(&mut self) -> Vec<String> {
        self.doubts.news()
    }

    /// Returns the record of the steps so far.
    pub const fn record(&self) -> &Record {
        &self.record
    }

    /// Records the results at the end of a run, and the parameters that never changed.
    pub fn finish(&mut self, metrics: Metrics, samples: Predictions, memory: MemoryReport, unchanged: &[String]) {
        self.record.final_loss = self.record.mean_loss();
        self.record.metrics = Some(metrics);
        self.record.samples = samples;
        self.record.activation_bytes = memory.activations;
        self.doubts.weights(unchanged);
        self.record.doubts = self.doubts.sentences();
    }

    /// Returns the record of a finished run.
    pub fn done(self) -> Record {
        self.record
    }

    /// Returns the record of a run that ended early with an error.
    pub fn failed(mut self, error: &Failure) -> Record {
        for site in self.record.sites.iter_mut().chain(&mut self.record.activations) {
            if let Some(extremes) = self.extremes.get(&site.name) {
                site.extremes = *extremes;
            }
        }
        Record { failure: Some(error.to_string()), ..self.record }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradscale::gradscale_core::stats::{Convention, Detail, Stats};

    #[test]
    fn activations_are_recorded_once_one_has_an_exponent() {
        let mut row = Stats::new(Convention::FP16, 0, Detail::Counts);
        row.observe(&[1e-9, 1.0]);
        let report = |name, alpha| SiteReport {
            name,
            alpha,
            row: &row,
            gamma_measured: 0.5,
            gamma_predicted: None,
            bound: None,
            overflows: 0,
            subnormal_share: 0.0,
            log2_amax: Some(0.0),
        };
        let mut recorder = Recorder::new("gs", 0, 1000, &[]);
        let outcome =
            StepOutcome { loss: 1.0, skipped: None, repeated: Vec::new(), gradient_norm: None, below_eps: Vec::new() };
        let mut step = |iteration, alphas: [i32; 2]| {
            let activations = [report("a/forward", alphas[0]), report("b/forward", alphas[1])];
            let result = StepResult { outcome: &outcome, losses: &[], unusable: None, activations: &activations };
            let sampled = recorder.samples(iteration);
            recorder.step(iteration, result, (0.1, None), &[], sampled).activations.len()
        };
        // Between samples only the first step with an exponent is recorded.
        assert_eq!([step(1, [0, 0]), step(12, [0, -3]), step(13, [0, -3]), step(20, [0, 0])], [0, 2, 0, 2]);
        let record = recorder.done();
        let [a, b] = &record.activations[..] else { panic!("{:?}", record.activations) };
        assert_eq!((a.name.as_str(), &b.iteration, &b.alpha), ("a/forward", &vec![12, 20], &vec![-3, 0]));
        assert!(record.sites.is_empty() && a.extremes.worst > 0.4);
    }
}
