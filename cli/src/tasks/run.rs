//! A training: a task's network and batches in the hands of a trainer.

mod distributed;
mod predict;
mod steps;
mod untrained_params;

pub(super) use predict::{best, logits, numbers, predict};

use super::{Answers, Classes, Opening, Settings, Together, torch, weights};
use crate::{Failure, device::Work, metrics::Metrics};
use distributed::joined;
use gradscale::{
    Attempt, CheckpointError, Difference, Error, Gradients, LaunchTime, MemoryReport, Method, Operands, Parameters,
    Prefetched, SiteReport, StepOutcome, TorchModule, Trainer,
    core::{backend::Backend, stats::Detail},
    optim::Optimizer,
    parallel::{Measured, Route, Traffic},
    sites::LossScaleWarning,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, marker::PhantomData, time::Duration};
use steps::{Cut, FirstTurn};
use untrained_params::only_decayed;

/// Images that scores are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// Those for scores while a training goes on.
    Validation,
    /// Those for the last scores.
    #[default]
    Test,
}

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Validation => "validation",
            Self::Test => "test",
        })
    }
}

/// What a step takes.
pub(super) trait Taken: fmt::Debug {
    /// Sizes of its images, recordings or texts, side by side.
    fn sizes(&self) -> Vec<usize>;
}

impl<const N: usize> Taken for Prefetched<N> {
    fn sizes(&self) -> Vec<usize> {
        self.types().first().map_or_else(Vec::new, |one| one.shape.sizes().to_vec())
    }
}

/// What differs between tasks.
pub(super) trait Task {
    /// What a step takes.
    type Batch: Taken;

    /// Takes the next batch and sends it ahead.
    ///
    /// # Errors
    /// Images on disk that can no longer be read, or the device's.
    fn prefetch<B: Backend<Error: 'static>>(&mut self, trainer: &mut Trainer<B>) -> Result<Self::Batch, Failure>;

    /// A layer as a PyTorch model has it, if such a model can have it.
    fn module(&self, layer: &str) -> Option<TorchModule> {
        torch::module(layer, &[])
    }

    /// What a trainer is told before the first step.
    fn begin<B: Backend>(&self, trainer: Trainer<B>) -> Trainer<B> {
        trainer
    }

    /// Forward and backward pass of a batch.
    fn backward<B: Backend>(&self, trainer: &mut Trainer<B>, batch: Self::Batch) -> Result<Gradients, Error<B::Error>>;

    /// Of two networks that train in turn, the backward pass of the second, after the first one's step; the batch ends at
    /// this position in the data.
    fn second<B: Backend>(
        &self, _trainer: &mut Trainer<B>, _position: u64,
    ) -> Option<Result<Gradients, Error<B::Error>>> {
        None
    }

    /// Whether parts of a batch can be taken by themselves.
    fn has_parts(&self) -> bool {
        true
    }

    /// What the losses of both are called.
    fn losses(&self) -> &'static [&'static str] {
        &[]
    }

    /// By what the loss of a step is multiplied to be that of a pixel, or an image.
    fn ratio(&self) -> f64;

    /// Scores on those images; without images for validation, on the test images.
    fn evaluate<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>, on: On) -> Result<Metrics, Failure>;

    /// What is predicted of the test data that a report shows, see [`Run::samples`].
    ///
    /// # Errors
    /// Data on disk that can no longer be read, or the device's.
    fn samples<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>) -> Result<Answers, Failure>;

    /// Images taken so far.
    fn position(&self) -> u64;

    /// Goes on after so many images.
    fn seek(&mut self, position: u64);

    /// What a step leaves to the next, once it is done: a state that is not in the data.
    ///
    /// # Errors
    /// The device's.
    fn stepped<B: Backend<Error: 'static>>(&mut self, _: &Trainer<B>) -> Result<(), Failure> {
        Ok(())
    }

    /// The same as text, if there is any.
    fn carried(&self) -> Option<String> {
        None
    }

    /// Takes what [`Task::carried`] gave.
    ///
    /// # Errors
    /// Another text.
    fn carry(&mut self, _: Option<&str>) -> Result<(), Failure> {
        Ok(())
    }

    /// What is predicted.
    fn classes(&self) -> Classes;
}

/// One training, whatever its task and device.
pub trait Run {
    /// One step. The loss is that of a pixel, or of an image.
    ///
    /// # Errors
    /// Too many skips in a row, or the device's.
    fn step(&mut self) -> Result<StepOutcome, Failure>;

    /// Sizes of the last step's images, recordings or texts, side by side.
    fn taken(&self) -> &[usize];

    /// What the last step spent on taking the next batch: reading, augmentation, the way to the device.
    fn fetched(&self) -> Duration;

    /// The losses of the last step by name, where it had several: their sum is that of the step.
    fn losses(&self) -> Vec<(&'static str, f32)>;

    /// Scores on those images; without images for validation, on the test images.
    ///
    /// # Errors
    /// The device's.
    fn evaluate(&mut self, on: On) -> Result<Metrics, Failure>;

    /// What is predicted of the test images, or recordings, that a report shows.
    ///
    /// # Errors
    /// The device's.
    fn samples(&mut self) -> Result<Answers, Failure>;

    /// Everything that a training needs to go on, with metadata of the caller's.
    ///
    /// # Errors
    /// The device's.
    fn save(&self, metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, Failure>;

    /// Goes on from what [`Run::save`] wrote.
    ///
    /// # Errors
    /// Bytes that are no checkpoint of this training.
    fn load(&mut self, bytes: &[u8]) -> Result<(), Failure>;

    /// The device's engine of products, where the user has pinned another one than the checkpoint records.
    fn replaced_engine(&self) -> Option<&Difference>;

    /// What rows hold at least, from the next step on.
    fn observe(&mut self, detail: Detail);

    /// What is wrong with a dynamic loss scale after the last step.
    fn warning(&self) -> Option<LossScaleWarning>;

    /// What is known of every cast site.
    fn sites(&self) -> Vec<SiteReport<'_>>;

    /// Keeps what the paper's rules would decide from, from the next step on.
    fn observe_operands(&mut self);

    /// What they would decide from, by site.
    fn operands(&self) -> Vec<(&str, &Operands)>;

    /// The attempts of the last step that were repeated, if operands are kept.
    fn attempts(&self) -> Vec<&Attempt>;

    /// What has travelled between ranks.
    fn traffic(&self) -> Traffic;

    /// What the ways of gradients were found to take before the first step, if nobody had said which one to take.
    fn measured(&self) -> Option<Measured>;

    /// How gradients get from rank to rank.
    fn route(&self) -> &Route;

    /// Bytes on the device.
    fn memory(&self) -> MemoryReport;

    /// Whether launches are timed from now on.
    ///
    /// # Errors
    /// A device without a clock.
    fn time_launches(&mut self, time: bool) -> Result<(), Failure>;

    /// What they took since the last call.
    fn launch_times(&mut self) -> Vec<LaunchTime>;

    /// Parameters that are as they were before the first step, or that only weight decay has made smaller since; none while
    /// there was no step.
    ///
    /// # Errors
    /// The device's.
    fn unchanged(&self) -> Result<Vec<String>, Failure>;
}

/// Relative change of perturbed weights, 2^-20: eight units in the last place of an f32, so that none rounds away.
const PERTURBATION: f32 = 1.0 / 1_048_576.0;

/// A training on its device; `begin` makes its task, parameters and optimizer of settings and seed, once there is one, and
/// parameters take the weights that it is opened with.
pub(super) fn start<'a, T: Task + 'a>(
    opening: Opening<'a>, begin: impl FnOnce(Settings, u64) -> Result<(T, Parameters, Optimizer), Failure>,
) -> Result<Box<dyn Run + 'a>, Failure> {
    let Opening { device, threads, settings, method, seed, weights: file, perturbed, parts, together } = opening;
    let cut = parts.map(|parts| Cut { parts, batch: settings.batch as u64 });
    let begin = move || {
        let (task, mut parameters, optimizer) = begin(settings, seed)?;
        weights::import(&mut parameters, file, |layer| task.module(layer))?;
        if perturbed {
            parameters.perturb(PERTURBATION, seed);
        }
        Ok((task, parameters, optimizer))
    };
    device.open(threads, Start { begin, method, cut, together, kept: PhantomData })
}

struct Start<'a, F> {
    begin: F,
    method: Method,
    cut: Option<Cut>,
    together: Together,
    /// For as long as this lives, the training may.
    kept: PhantomData<&'a ()>,
}

impl<'a, T: Task + 'a, F: FnOnce() -> Result<(T, Parameters, Optimizer), Failure>> Work for Start<'a, F> {
    type Output = Box<dyn Run + 'a>;

    fn on<B: Backend<Error: 'static> + 'static>(self, device: B) -> Result<Self::Output, Failure> {
        let (task, parameters, optimizer) = (self.begin)()?;
        if self.cut.is_some() && !task.has_parts() {
            return Err(Failure::at("--micro-batches", "a step of this network is one: its parts need one another"));
        }
        let trainer = task.begin(Trainer::new(device, parameters, optimizer, self.method)?);
        let (trainer, measured) = joined(trainer, self.cut, self.together)?;
        let mut training = Training::new(task, trainer)?;
        (training.cut, training.measured) = (self.cut, measured);
        Ok(Box::new(training))
    }
}

#[derive(Debug)]
struct Training<B: Backend, T: Task> {
    task: T,
    trainer: Trainer<B>,
    cut: Option<Cut>,
    /// What the ways of gradients were found to take, if that was asked.
    measured: Option<Measured>,
    /// The next step's batch.
    ahead: Option<T::Batch>,
    /// What taking it took.
    fetched: Duration,
    /// Sizes of the last step's batch.
    taken: Vec<usize>,
    /// Images that steps have had.
    position: u64,
    /// The parameters before the first step, by name.
    first: BTreeMap<String, Vec<f32>>,
    /// Steps since.
    steps: u64,
    /// Of the last step, what the first of two networks did.
    first_turn: FirstTurn,
    /// Its losses, as many as there are networks.
    losses: Vec<f32>,
}

impl<B: Backend<Error: 'static>, T: Task> Training<B, T> {
    fn new(task: T, trainer: Trainer<B>) -> Result<Self, Failure> {
        let first = values(&trainer)?;
        let (first_turn, losses, fetched, taken) = Default::default();
        let (ahead, cut, measured, position, steps) = (None, None, None, 0, 0);
        Ok(Self { task, trainer, cut, measured, ahead, fetched, taken, position, first, steps, first_turn, losses })
    }
}

impl<B: Backend<Error: 'static>, T: Task> Run for Training<B, T> {
    fn step(&mut self) -> Result<StepOutcome, Failure> {
        let outcome = match self.cut {
            Some(cut) => self.step_in_parts(cut)?,
            None => self.step_whole()?,
        };
        self.steps += 1;
        let ratio = self.task.ratio();
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        let of_one = |loss: f32| (f64::from(loss) * ratio) as f32;
        self.losses.iter_mut().for_each(|loss| *loss = of_one(*loss));
        Ok(StepOutcome { loss: of_one(outcome.loss), ..outcome })
    }

    fn taken(&self) -> &[usize] {
        &self.taken
    }

    fn fetched(&self) -> Duration {
        self.fetched
    }

    fn losses(&self) -> Vec<(&'static str, f32)> {
        self.task.losses().iter().copied().zip(self.losses.iter().copied()).collect()
    }

    fn evaluate(&mut self, on: On) -> Result<Metrics, Failure> {
        self.task.evaluate(&mut self.trainer, on)
    }

    fn samples(&mut self) -> Result<Answers, Failure> {
        self.task.samples(&mut self.trainer)
    }

    fn save(&self, metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, Failure> {
        let mut metadata = metadata.clone();
        metadata.insert("position".to_owned(), self.position.to_string());
        metadata.extend(self.task.carried().map(|text| ("carried".to_owned(), text)));
        let classes = serde_json::to_string(&self.task.classes());
        metadata.insert("classes".to_owned(), classes.map_err(|error| Failure::at("checkpoint", error))?);
        Ok(self.trainer.save(&metadata)?)
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let metadata = self.trainer.load(bytes).map_err(|error| match &error {
            Error::Checkpoint(CheckpointError::Settings { of, .. }) if of == CheckpointError::DEVICE => {
                // A training that goes on silently with other bits is wrong: the user says so, or chooses the device.
                Failure::from(error).hint("GRADSCALE_WGPU_PRODUCTS=simt goes on with sums in another order")
            }
            _ => Failure::from(error),
        })?;
        let position = metadata.get("position").and_then(|position| position.parse().ok());
        self.position = position.ok_or_else(|| Failure::at("checkpoint", "no position in the data"))?;
        self.task.seek(self.position);
        self.task.carry(metadata.get("carried").map(String::as_str))?;
        self.ahead = None;
        (self.first, self.steps) = (values(&self.trainer)?, 0);
        Ok(())
    }

    fn replaced_engine(&self) -> Option<&Difference> {
        self.trainer.replaced_engine()
    }

    fn observe(&mut self, detail: Detail) {
        self.trainer.set_detail(detail);
    }

    fn warning(&self) -> Option<LossScaleWarning> {
        self.trainer.loss_scale_warning()
    }

    fn sites(&self) -> Vec<SiteReport<'_>> {
        self.trainer.sites().collect()
    }

    fn observe_operands(&mut self) {
        self.trainer.observe_operands();
    }

    fn operands(&self) -> Vec<(&str, &Operands)> {
        let before = self.first_turn.operands.iter().map(|(name, operands)| (name.as_str(), operands));
        before.chain(self.trainer.operands()).collect()
    }

    fn attempts(&self) -> Vec<&Attempt> {
        self.first_turn.attempts.iter().chain(self.trainer.attempts()).collect()
    }

    fn traffic(&self) -> Traffic {
        self.trainer.traffic()
    }

    fn measured(&self) -> Option<Measured> {
        self.measured
    }

    fn route(&self) -> &Route {
        self.trainer.route()
    }

    fn memory(&self) -> MemoryReport {
        self.trainer.memory()
    }

    fn time_launches(&mut self, time: bool) -> Result<(), Failure> {
        Ok(self.trainer.time_launches(time)?)
    }

    fn launch_times(&mut self) -> Vec<LaunchTime> {
        self.trainer.launch_times()
    }

    fn unchanged(&self) -> Result<Vec<String>, Failure> {
        if self.steps == 0 {
            return Ok(Vec::new());
        }
        let now = values(&self.trainer)?;
        let same = |(name, now): &(String, Vec<f32>)| {
            self.first.get(name).is_some_and(|first| only_decayed(first, now, self.steps))
        };
        Ok(now.into_iter().filter(same).map(|(name, _)| name).collect())
    }
}

/// Of all parameters, by name.
fn values<B: Backend<Error: 'static>>(trainer: &Trainer<B>) -> Result<BTreeMap<String, Vec<f32>>, Failure> {
    Ok(trainer.parameters()?.into_iter().map(|(name, tensor)| (name, tensor.data)).collect())
}
