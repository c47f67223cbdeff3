//! A run of a comparison: a network, trained by one method with one seed.

use super::{Part, finished::Key};
use crate::{
    Failure,
    commands::train::signals::{Signal, Signals},
    output::{Counter, Progress},
    record::{LogEntry, Record, Recorder, StepResult},
    sanity_checks,
    setup::CHAOS,
    tasks::{DistributedOptions, On, TrainingConfig, open},
};
use gradscale::{
    Method,
    gradscale_core::{amp::Level, stats::Detail},
};
use std::time::Instant;

/// End of a run.
pub enum Ended {
    Finished(Box<Record>),
    /// A signal came after this step.
    Stopped {
        signal: Signal,
        step: u64,
    },
}

/// Run of a comparison: one method and one seed of a part.
pub struct Run<'a> {
    pub part: &'a Part,
    pub key: Key,
    method: &'a Method,
    /// Position of the run among parts, methods and seeds.
    counters: [Counter; 3],
}

/// Returns all runs in the order of the results: by part, seed and method.
pub fn plan(parts: &[Part]) -> Vec<Run<'_>> {
    let counter = |noun, at: usize, of: usize| Counter { noun, at: at as u64 + 1, of: of as u64 };
    let mut runs = Vec::new();
    for (at_part, part) in parts.iter().enumerate() {
        let (methods, seeds) = (&part.arguments.methods.0, part.arguments.all_seeds());
        for (at_seed, &seed) in seeds.iter().enumerate() {
            for (at_method, (name, method)) in methods.iter().enumerate() {
                let counters = [
                    counter("part", at_part, parts.len()),
                    counter("method", at_method, methods.len()),
                    counter("seed", at_seed, seeds.len()),
                ];
                runs.push(Run { part, key: Key { part: at_part, method: name.clone(), seed }, method, counters });
            }
        }
    }
    runs
}

impl Run<'_> {
    /// Returns the number of steps.
    pub fn steps(&self) -> u64 {
        self.part.arguments.iters
    }

    /// Trains until the last step or a signal. `is_shown` tells whether the progress shows this run, as one of those
    /// that train at the same time.
    ///
    /// # Errors
    /// A device or an evaluation that fails.
    pub fn train(&self, progress: &Progress, is_shown: impl Fn() -> bool, signals: &Signals) -> Result<Ended, Failure> {
        let Self { part: Part { arguments, data }, key: Key { method: name, seed, .. }, .. } = self;
        let (data, seed) = (&**data, *seed);
        let settings = arguments.setup.settings(arguments.divisor(), arguments.iters)?;
        let method = arguments.setup.amp.apply_to(self.method.clone());
        let stores_half = method.amp.level() != Level::O0;
        let (device, threads) = (arguments.setup.device(), arguments.threads_per_run());
        let (weights, parts, together, perturbed) = (None, None, DistributedOptions::alone(), name == CHAOS);
        let opening = TrainingConfig { device, threads, settings, method, seed, weights, perturbed, parts, together };
        let mut run = open(data, opening)?;
        let mut recorder = Recorder::new(name, seed, arguments.iters, data.classes());
        let about = format!("{name}, seed {seed}");
        let mut last = None;
        for iteration in 1..=arguments.iters {
            let sampled = recorder.samples(iteration);
            run.observe(if sampled { Detail::Full } else { Detail::Counts });
            let start = Instant::now();
            let outcome = match run.step() {
                Ok(outcome) => outcome,
                Err(error) => {
                    // A method that cannot train is a result too.
                    progress.skip(arguments.iters - iteration + 1);
                    return Ok(Ended::Finished(Box::new(recorder.failed(&error))));
                }
            };
            let seconds = start.elapsed().as_secs_f64();
            let losses = run.losses();
            let (activations, unusable) = (run.activations(), run.unusable_samples());
            let result = StepResult { outcome: &outcome, losses: &losses, unusable, activations: &activations };
            let mut entry = recorder.step(iteration, result, (seconds, None), &run.sites(), sampled);
            recorder.warned(iteration, run.warning());
            sanity_checks::print_warnings(progress, &about, &recorder.news());
            if is_shown() {
                let step = [Counter { noun: "step", at: iteration, of: arguments.iters }];
                progress.set_counters(&[&self.counters[..], &step].concat());
                let [skipped, repeated] = [recorder.skipped(), recorder.repeats()];
                let loss = outcome.loss;
                progress.set_message(format!("{name}: loss {loss:.4}, {skipped} skipped, {repeated} repeated"));
            }
            progress.inc(1);
            // After the last step there is only the evaluation, which takes less time than the run would take again.
            if let Some(signal) = signals.received().filter(|_| iteration < arguments.iters) {
                return Ok(Ended::Stopped { signal, step: iteration });
            }
            if iteration < arguments.iters
                && arguments.eval_every != 0
                && iteration.is_multiple_of(arguments.eval_every)
            {
                let metrics = run.evaluate(On::Validation)?;
                match data.validation_count() {
                    Some(_) => entry.validation = Some(metrics),
                    None => entry.scores = Some(metrics),
                }
                recorder.scored(&entry);
            }
            last = Some(entry);
        }
        // Measured before the evaluation, whose batches have other sizes.
        let memory = run.memory();
        let metrics = run.evaluate(On::Test)?;
        if let Some(last) = last {
            let validation = match data.validation_count().filter(|_| arguments.eval_every != 0) {
                Some(_) => Some(run.evaluate(On::Validation)?),
                None => None,
            };
            recorder.scored(&LogEntry { scores: Some(metrics.clone()), validation, ..last });
        }
        let (samples, unchanged) = (run.samples()?, run.unchanged()?);
        // Measured last: it takes another batch, and leaves gradients that no step takes.
        if stores_half {
            recorder.gradient_errors(run.gradient_errors()?);
        }
        recorder.finish(metrics, samples, memory, &unchanged);
        sanity_checks::print_warnings(progress, &about, &recorder.news());
        Ok(Ended::Finished(Box::new(recorder.done())))
    }
}
