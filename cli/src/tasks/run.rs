//! A training: a task's network and batches in the hands of a trainer.

mod distributed;
mod predict;
mod steps;
mod untrained_params;
mod unusable;

pub(super) use predict::{best, input, logits, loss_of, numbers, predict, values_of};
pub(super) use unusable::SampleLosses;
pub use unusable::{SampleTest, UnusableSamples};

use super::{Classes, DistributedOptions, Predictions, Settings, TrainingConfig, torch, weights};
use crate::{Failure, device::Work, metrics::Metrics};
use distributed::joined;
use gradscale::{
    Attempt, CheckpointError, Difference, Error, Gradients, LaunchTime, MemoryReport, Method, Observation, Operands,
    Parameters, Prefetched, SiteReport, StepOutcome, TorchModule, Trainer,
    distributed::{GradTransport, ReduceTimings, Traffic},
    gradscale_core::{backend::Backend, stats::Detail},
    optim::Optimizer,
    sites::LossScaleWarning,
    window::{GradientErrors, ScaleWindows},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, marker::PhantomData, time::Duration};
use steps::{FirstNetworkTurn, MicroBatching};
use untrained_params::only_decayed;
use unusable::SampleSearch;

/// Split of the data on which a network is evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// Validation set, for the scores during training.
    Validation,
    /// Test set, for the final scores.
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

/// Trait of a training batch, which tells its shape for the log.
pub(super) trait BatchInfo: fmt::Debug {
    /// Returns the shape of the batch, for example `[images, rows, columns, channels]`.
    fn sizes(&self) -> Vec<usize>;
}

impl<const N: usize> BatchInfo for Prefetched<N> {
    fn sizes(&self) -> Vec<usize> {
        self.types().first().map_or_else(Vec::new, |one| one.shape.sizes().to_vec())
    }
}

/// Trait of the task-specific part of a training: batches, forward and backward pass, scores.
pub(super) trait TrainingTask: SampleLosses {
    /// Training batch that the network reads.
    type Batch: BatchInfo;

    /// Reads the next batch and starts its transfer to the device.
    ///
    /// # Errors
    /// Images on disk that can no longer be read, or the device's.
    fn prefetch<B: Backend<Error: 'static>>(&mut self, trainer: &mut Trainer<B>) -> Result<Self::Batch, Failure>;

    /// Returns the layer of a PyTorch model that has these weights, if there is one.
    fn module(&self, layer: &str) -> Option<TorchModule> {
        torch::module(layer, &[])
    }

    /// Configures the trainer before the first step.
    fn begin<B: Backend>(&self, trainer: Trainer<B>) -> Trainer<B> {
        trainer
    }

    /// Runs the forward and backward pass on a batch of the task.
    fn backward<B: Backend>(&self, trainer: &mut Trainer<B>, batch: Self::Batch) -> Result<Gradients, Error<B::Error>>;

    /// Runs the backward pass of the second network after the step of the first, where two networks train alternately
    /// (GAN). The batch ends at `position` in the data.
    fn second_network_backward<B: Backend>(
        &self, _trainer: &mut Trainer<B>, _position: u64,
    ) -> Option<Result<Gradients, Error<B::Error>>> {
        None
    }

    /// Returns true if a batch can be divided into micro-batches.
    fn supports_micro_batches(&self) -> bool {
        true
    }

    /// Returns the names of the losses if a step has several.
    fn losses(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the factor from the loss of a step to the loss of one pixel or image.
    fn ratio(&self) -> f64;

    /// Computes the scores of a split. Without validation data the test data are used.
    fn evaluate<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>, on: On) -> Result<Metrics, Failure>;

    /// Returns the predictions for the test samples of a report, see [`TrainingRun::samples`].
    ///
    /// # Errors
    /// Data on disk that can no longer be read, or the device's.
    fn samples<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>) -> Result<Predictions, Failure>;

    /// Returns the number of samples that were read so far.
    fn position(&self) -> u64;

    /// Continues the order of samples after `position` samples.
    fn seek(&mut self, position: u64);

    /// Stores state for the next step that the data do not contain, for example a recurrent state.
    ///
    /// # Errors
    /// The device's.
    fn after_step<B: Backend<Error: 'static>>(&mut self, _: &Trainer<B>) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns the recurrent state as text for a checkpoint, if there is one.
    fn recurrent_state(&self) -> Option<String> {
        None
    }

    /// Restores the recurrent state that [`TrainingTask::recurrent_state`] returned.
    ///
    /// # Errors
    /// Another text.
    fn restore_state(&mut self, _: Option<&str>) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns the classes that the network predicts.
    fn classes(&self) -> Classes;
}

/// Trait of a training of any task on any device.
pub trait TrainingRun {
    /// Runs one step. The loss is that of one pixel or image.
    ///
    /// # Errors
    /// Too many skips in a row, or the device's.
    fn step(&mut self) -> Result<StepOutcome, Failure>;

    /// Returns the samples because of which the last step was skipped, if it was skipped because of its loss and the task
    /// has found them.
    fn unusable_samples(&self) -> Option<&UnusableSamples>;

    /// Returns the shape of the last step's batch.
    fn batch_sizes(&self) -> &[usize];

    /// Returns the time that the last step spent on the next batch: reading, augmentation and transfer to the device.
    fn load_time(&self) -> Duration;

    /// Returns the losses of the last step by name, if it had several. Their sum is the loss of the step.
    fn losses(&self) -> Vec<(&'static str, f32)>;

    /// Computes the scores of a split. Without validation data the test data are used.
    ///
    /// # Errors
    /// The device's.
    fn evaluate(&mut self, on: On) -> Result<Metrics, Failure>;

    /// Returns the predictions for the test samples of a report.
    ///
    /// # Errors
    /// The device's.
    fn samples(&mut self) -> Result<Predictions, Failure>;

    /// Serializes the state of the training, with the metadata of the caller.
    ///
    /// # Errors
    /// The device's.
    fn save(&self, metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, Failure>;

    /// Restores the training from bytes that [`TrainingRun::save`] wrote.
    ///
    /// # Errors
    /// Bytes that are no checkpoint of this training.
    fn load(&mut self, bytes: &[u8]) -> Result<(), Failure>;

    /// Returns the product engine that the user has pinned, if the checkpoint records another.
    fn replaced_engine(&self) -> Option<&Difference>;

    /// Returns the names of the sites whose exponents the checkpoint had and to which no step has stored since.
    fn unused_restored_sites(&self) -> Vec<&str>;

    /// Sets the minimum detail of statistics rows from the next step on.
    fn observe(&mut self, detail: Detail);

    /// Returns a warning about the dynamic loss scale after the last step.
    fn warning(&self) -> Option<LossScaleWarning>;

    /// Measures the window of a single loss scale for the next batch, without a step; none if its gradients are not
    /// finite.
    ///
    /// # Errors
    /// Data on disk that can no longer be read, or the device's.
    fn window(&mut self) -> Result<Option<ScaleWindows>, Failure>;

    /// Measures the errors of the parameters' gradients of the next batch at the exponents in force, without a step;
    /// none if they are not finite or the network has several losses.
    ///
    /// # Errors
    /// Data on disk that can no longer be read, or the device's.
    fn gradient_errors(&mut self) -> Result<Option<GradientErrors>, Failure>;

    /// Returns the exponent of the loss scale in force; 0 under gradient scaling.
    fn loss_scale(&self) -> i32;

    /// Returns the reports of all cast sites.
    fn sites(&self) -> Vec<SiteReport<'_>>;

    /// Returns the reports of all forward stores.
    fn activations(&self) -> Vec<SiteReport<'_>>;

    /// Records the operand statistics that the paper's rules need, from the next step on.
    fn observe_operands(&mut self);

    /// Returns the operand statistics of the sites, by name.
    fn operands(&self) -> Vec<(&str, &Operands)>;

    /// Returns the repeated attempts of the last step, if operand statistics are recorded.
    fn attempts(&self) -> Vec<&Attempt>;

    /// Returns the bytes and time of the communication between ranks.
    fn traffic(&self) -> Traffic;

    /// Returns the measured time of each gradient transport, if none was chosen by the user.
    fn measured(&self) -> Option<ReduceTimings>;

    /// Returns how gradients are communicated between ranks.
    fn route(&self) -> &GradTransport;

    /// Returns the use of device memory, in bytes.
    fn memory(&self) -> MemoryReport;

    /// Switches the timing of launches on or off.
    ///
    /// # Errors
    /// A device without a clock.
    fn time_launches(&mut self, time: bool) -> Result<(), Failure>;

    /// Returns the times of the launches since the last call.
    fn launch_times(&mut self) -> Vec<LaunchTime>;

    /// Returns the names of parameters that training has not changed, except by weight decay. Empty before the first
    /// step.
    ///
    /// # Errors
    /// The device's.
    fn unchanged(&self) -> Result<Vec<String>, Failure>;
}

/// Relative change of perturbed weights, 2^-20: eight units in the last place of an f32, so that none rounds away.
const PERTURBATION: f32 = 1.0 / 1_048_576.0;

/// Creates a training on its device; `begin` creates its task, parameters and optimizer from settings and seed, and
/// parameters take the weights that it is opened with.
pub(super) fn start<'a, T: TrainingTask + 'a>(
    opening: TrainingConfig<'a>, begin: impl FnOnce(Settings, u64) -> Result<(T, Parameters, Optimizer), Failure>,
) -> Result<Box<dyn TrainingRun + 'a>, Failure> {
    let TrainingConfig { device, threads, settings, method, seed, weights: file, perturbed, parts, together } = opening;
    let cut = parts.map(|parts| MicroBatching { parts, batch: settings.batch as u64 });
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
    cut: Option<MicroBatching>,
    together: DistributedOptions,
    /// Marker of the data's lifetime, which the training must not outlive.
    kept: PhantomData<&'a ()>,
}

impl<'a, T: TrainingTask + 'a, F: FnOnce() -> Result<(T, Parameters, Optimizer), Failure>> Work for Start<'a, F> {
    type Output = Box<dyn TrainingRun + 'a>;

    fn on<B: Backend<Error: 'static> + 'static>(self, device: B) -> Result<Self::Output, Failure> {
        let (task, parameters, optimizer) = (self.begin)()?;
        if self.cut.is_some() && !task.supports_micro_batches() {
            return Err(Failure::at("--micro-batches", "a step of this network cannot be split into micro-batches"));
        }
        let trainer = task.begin(Trainer::new(device, parameters, optimizer, self.method)?);
        let (trainer, measured) = joined(trainer, self.cut, self.together)?;
        let mut training = Training::new(task, trainer)?;
        (training.cut, training.measured) = (self.cut, measured);
        Ok(Box::new(training))
    }
}

#[derive(Debug)]
struct Training<B: Backend, T: TrainingTask> {
    task: T,
    trainer: Trainer<B>,
    cut: Option<MicroBatching>,
    /// Measured times of the reduce modes, if requested.
    measured: Option<ReduceTimings>,
    /// Batch of the next step, loaded during the current one.
    ahead: Option<T::Batch>,
    /// Time that loading the next batch took.
    fetched: Duration,
    /// Shape of the input in the last step.
    taken: Vec<usize>,
    /// Number of samples that the steps so far have used.
    position: u64,
    /// The parameters before the first step, by name.
    first: BTreeMap<String, Vec<f32>>,
    /// Number of steps since `first` was stored.
    steps: u64,
    /// Result of the first of two networks in the last step.
    first_turn: FirstNetworkTurn,
    /// Losses of the last step, one per network.
    losses: Vec<f32>,
    search: SampleSearch,
    /// Samples because of which the last step was skipped.
    unusable: Option<UnusableSamples>,
}

impl<B: Backend<Error: 'static>, T: TrainingTask> Training<B, T> {
    fn new(task: T, trainer: Trainer<B>) -> Result<Self, Failure> {
        let first = values(&trainer)?;
        let (first_turn, losses, fetched, taken) = Default::default();
        let (ahead, cut, measured, position, steps) = (None, None, None, 0, 0);
        let (search, unusable) = (SampleSearch::default(), None);
        Ok(Self {
            task,
            trainer,
            cut,
            measured,
            ahead,
            fetched,
            taken,
            position,
            first,
            steps,
            first_turn,
            losses,
            search,
            unusable,
        })
    }
}

impl<B: Backend<Error: 'static>, T: TrainingTask> TrainingRun for Training<B, T> {
    fn step(&mut self) -> Result<StepOutcome, Failure> {
        let start = self.position;
        let outcome = match self.cut {
            Some(cut) => self.step_in_parts(cut)?,
            None => self.step_whole()?,
        };
        self.steps += 1;
        let outcome = self.with_sample(start, outcome);
        let ratio = self.task.ratio();
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        let of_one = |loss: f32| (f64::from(loss) * ratio) as f32;
        self.losses.iter_mut().for_each(|loss| *loss = of_one(*loss));
        Ok(StepOutcome { loss: of_one(outcome.loss), ..outcome })
    }

    fn unusable_samples(&self) -> Option<&UnusableSamples> {
        self.unusable.as_ref()
    }

    fn batch_sizes(&self) -> &[usize] {
        &self.taken
    }

    fn load_time(&self) -> Duration {
        self.fetched
    }

    fn losses(&self) -> Vec<(&'static str, f32)> {
        self.task.losses().iter().copied().zip(self.losses.iter().copied()).collect()
    }

    fn evaluate(&mut self, on: On) -> Result<Metrics, Failure> {
        self.task.evaluate(&mut self.trainer, on)
    }

    fn samples(&mut self) -> Result<Predictions, Failure> {
        self.task.samples(&mut self.trainer)
    }

    fn save(&self, metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, Failure> {
        let mut metadata = metadata.clone();
        metadata.insert("position".to_owned(), self.position.to_string());
        metadata.extend(self.task.recurrent_state().map(|text| ("carried".to_owned(), text)));
        let classes = serde_json::to_string(&self.task.classes());
        metadata.insert("classes".to_owned(), classes.map_err(|error| Failure::at("checkpoint", error))?);
        Ok(self.trainer.save(&metadata)?)
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let metadata = self.trainer.load(bytes).map_err(|error| match &error {
            Error::Checkpoint(CheckpointError::Settings { of, .. }) if of == CheckpointError::DEVICE => {
                // A training must not silently continue with other bits, so the user has to request that, or choose the
                // device.
                Failure::from(error).hint("GRADSCALE_WGPU_PRODUCTS=simt resumes with sums in another order")
            }
            _ => Failure::from(error),
        })?;
        let position = metadata.get("position").and_then(|position| position.parse().ok());
        self.position = position.ok_or_else(|| Failure::at("checkpoint", "lacks the position in the data"))?;
        self.task.seek(self.position);
        self.task.restore_state(metadata.get("carried").map(String::as_str))?;
        self.ahead = None;
        (self.first, self.steps) = (values(&self.trainer)?, 0);
        Ok(())
    }

    fn replaced_engine(&self) -> Option<&Difference> {
        self.trainer.replaced_engine()
    }

    fn unused_restored_sites(&self) -> Vec<&str> {
        gradscale::unused_restored_sites(&self.trainer).collect()
    }

    fn observe(&mut self, detail: Detail) {
        self.trainer.observe(Observation::Rows(detail));
    }

    fn warning(&self) -> Option<LossScaleWarning> {
        self.trainer.loss_scale_warning()
    }

    fn window(&mut self) -> Result<Option<ScaleWindows>, Failure> {
        let Self { task, trainer, position, ahead, .. } = self;
        *ahead = None;
        let window = trainer.window(|trainer| {
            task.seek(*position);
            let batch = task.prefetch(trainer)?;
            Ok::<_, Failure>(task.backward(trainer, batch)?)
        })?;
        task.seek(*position);
        Ok(window)
    }

    fn gradient_errors(&mut self) -> Result<Option<GradientErrors>, Failure> {
        let Self { task, trainer, position, ahead, .. } = self;
        if !task.losses().is_empty() {
            return Ok(None);
        }
        *ahead = None;
        let errors = gradscale::gradient_errors(trainer, |trainer| {
            task.seek(*position);
            let batch = task.prefetch(trainer)?;
            Ok::<_, Failure>(task.backward(trainer, batch)?)
        })?;
        task.seek(*position);
        Ok(errors)
    }

    fn loss_scale(&self) -> i32 {
        self.trainer.loss_scale()
    }

    fn sites(&self) -> Vec<SiteReport<'_>> {
        self.trainer.sites().collect()
    }

    fn activations(&self) -> Vec<SiteReport<'_>> {
        gradscale::forward_sites(&self.trainer).collect()
    }

    fn observe_operands(&mut self) {
        self.trainer.observe(Observation::Operands);
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

    fn measured(&self) -> Option<ReduceTimings> {
        self.measured
    }

    fn route(&self) -> &GradTransport {
        self.trainer.grad_transport()
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

/// Returns the values of all parameters by name.
fn values<B: Backend<Error: 'static>>(trainer: &Trainer<B>) -> Result<BTreeMap<String, Vec<f32>>, Failure> {
    Ok(trainer.parameters()?.into_iter().map(|(name, tensor)| (name, tensor.data)).collect())
}
