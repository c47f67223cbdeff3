//! The settings of a training: all of them are in every checkpoint, so that a resume needs none.

use crate::{
    Failure,
    data::Fingerprint,
    help::{Completed, heading, methods},
    optimizer::Schedule,
    rule_versions,
    setup::Setup,
    tasks::{Dataset, DistributedOptions, LossDivisor, TrainingConfig, TrainingRun, open},
};
use clap::Args;
use gradscale::{
    Method,
    distributed::{BatchNormScope, Group, MAX_MICRO_BATCHES, Overlap, ReduceMode},
};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    path::{self, PathBuf},
    str::FromStr,
};

/// Settings of a training, stored in its checkpoints. Optional ones have a value once the training has started.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub(crate) struct Plan {
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) setup: Setup,
    /// Precision and scaling; compare --help lists them
    #[arg(long, value_name = "METHOD", default_value = "gs", value_parser = Completed::<String>::new(methods), hide_possible_values = true, help_heading = heading::PRECISION)]
    pub(super) method: String,
    /// Default history of the method's sites.
    #[arg(skip = rule_versions::CURRENT_HISTORY.to_owned())]
    #[serde(default = "before")]
    history: String,
    /// Default of the method's exponents of activations.
    #[arg(skip = rule_versions::CURRENT_FORWARD.to_owned())]
    #[serde(default = "forward_before")]
    forward: String,
    /// Divisor of the summed losses: a number, or batch
    ///
    /// A number of pixels or images, or `batch` for the labelled ones of the batch. Learning rate, weight decay and
    /// --clip are given for a mean over the batch and are adapted to another divisor, so that training in f32 stays the
    /// same.
    #[arg(long, help_heading = heading::PRECISION, value_name = "N|batch", default_value = "batch")]
    pub(super) pixels: LossDivisor,
    /// Seed of weights, order and flips
    #[arg(long, help_heading = heading::TRAINING, value_name = "S", default_value_t = 0)]
    pub(super) seed: u64,
    /// Steps between evaluations; 0: only the final one
    ///
    /// Evaluates on a validation set: a set named val next to test, or else every tenth training image, which is held
    /// out. The final evaluation uses the test set.
    #[arg(long, help_heading = heading::TRAINING, value_name = "N", default_value_t = 0)]
    pub(super) eval_every: u64,
    /// Divides every batch into N micro-batches whose f16 gradients are summed exactly, so that results do not depend
    /// on the number of ranks of `mpirun -n 4 gradscale train` [default: one for each rank]
    #[arg(long, hide_short_help = true, help_heading = heading::DEVICE, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_MICRO_BATCHES)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) micro_batches: Option<u32>,
    /// Sum of the gradients of all ranks: exact sums f16 values, with the same bits for any number of ranks; fast sums
    /// in f32 with MPI or NCCL [default: exact with --micro-batches, or else the faster one at the start of the
    /// training]
    #[arg(long, hide_short_help = true, help_heading = heading::DEVICE, value_name = "exact|fast")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exchange: Option<Named<ReduceMode>>,
    /// Overlap of gradient communication with the backward pass of a rank's last micro-batch: on, off, or the number of
    /// weights in a bucket. Results are the same.
    #[arg(long, hide_short_help = true, help_heading = heading::DEVICE, value_name = "on|off|N")]
    #[serde(skip)]
    pub(super) overlap: Option<Named<Overlap>>,
    /// Images over which batch norm computes mean and variance: rank, each micro-batch; or world, all ranks together.
    /// World needs one micro-batch per rank, and results depend on the number of ranks [default: rank]
    #[arg(long, hide_short_help = true, help_heading = heading::DEVICE, value_name = "rank|world")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) batch_norm: Option<Named<BatchNormScope>>,
    /// Shards the optimizer over the ranks (ZeRO stage 1): each stores the state of some weights. Results and
    /// checkpoints are the same, but more bytes are sent.
    #[arg(long, hide_short_help = true, help_heading = heading::DEVICE)]
    #[serde(skip)]
    pub(super) shard_optimizer: bool,
    /// Training steps in all, with those before a resume [default: 400]
    #[arg(long, help_heading = heading::TRAINING, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) iters: Option<u64>,
    /// Steps between checkpoints; 0: only at the end [default: 100]
    #[arg(long, help_heading = heading::RESULTS, value_name = "N")]
    pub(super) checkpoint_every: Option<u64>,
    /// Number of CPU threads; 0: one for each core [default: 0]
    ///
    /// Results do not depend on it.
    #[arg(long, help_heading = heading::DEVICE, value_name = "N", value_parser = clap::value_parser!(u16).range(..=4096))]
    pub(super) threads: Option<u16>,
    /// First weights: a checkpoint or a PyTorch model
    ///
    /// A checkpoint of the same network, or a PyTorch model as a safetensors file of its state_dict. Its modules must have the names that `gradscale plan` lists, without the network's name
    /// (encoder.conv1.weight). Layers that a PyTorch model lacks are initialised as usual.
    #[arg(long, help_heading = heading::TRAINING, value_name = "FILE", conflicts_with = "resume")]
    pub(super) weights: Option<PathBuf>,
    /// Records every step to a new file, for gradscale replay
    ///
    /// The file has the statistics of every cast site. Steps take longer.
    #[arg(long, help_heading = heading::RESULTS, value_name = "FILE", conflicts_with = "resume")]
    pub(super) trace: Option<PathBuf>,
    /// Names and sizes of the files of the data set; `None` for synthetic data and in checkpoints of earlier versions.
    #[arg(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data_files: Option<Fingerprint>,
}

/// Setting of the engine that the command line gives by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String", bound = "T: FromStr<Err = String> + fmt::Display + Clone")]
pub(crate) struct Named<T>(pub(super) T);

impl<T: FromStr<Err = String>> FromStr for Named<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self)
    }
}

impl<T: FromStr<Err = String>> TryFrom<String> for Named<T> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl<T: fmt::Display> From<Named<T>> for String {
    fn from(Named(choice): Named<T>) -> Self {
        choice.to_string()
    }
}

/// Returns the history of sites in checkpoints that do not record it.
fn before() -> String {
    rule_versions::LEGACY_HISTORY.to_owned()
}

/// Returns the exponents of activations in checkpoints that do not record them.
fn forward_before() -> String {
    rule_versions::LEGACY_FORWARD.to_owned()
}

/// Default number of training steps.
const ITERS: u64 = 400;
/// Default number of steps between checkpoints.
const CHECKPOINT_EVERY: u64 = 100;

impl Plan {
    /// Returns the settings of a new training, which evaluates on a validation set before the final test. A resumed
    /// training keeps the set it had.
    pub fn fresh(&self) -> Self {
        let mut plan = self.clone();
        plan.setup.reading.validation = plan.eval_every != 0;
        plan
    }

    /// Returns the settings with all defaults resolved and with absolute paths, so that a resume works from any
    /// directory.
    pub fn begun(&self, group: &Group) -> Result<Self, Failure> {
        let mut plan = self.clone();
        if self.micro_batches.is_some() {
            // A user who sets the micro-batches wants results that do not depend on the number of ranks.
            plan.exchange = Some(self.exchange.unwrap_or(Named(ReduceMode::ExactF16)));
        }
        if group.size() > 1 {
            plan.micro_batches = Some(self.micro_batches.unwrap_or(u32::try_from(group.size()).unwrap_or(u32::MAX)));
        }
        plan.check_parts(group.size())?;
        let amp = &self.setup.amp;
        // A part of the run is that of the run that begins, whatever a resume asks for.
        if self.method.parse::<Method>().is_err() {
            plan.method = self.scaling()?.to_string();
        }
        let method = self.scaling()?;
        amp.check(self.setup.chosen.network()?, [(self.method.as_str(), &method)])?;
        amp.only(method)?;
        plan.setup = self.setup.resolved()?;
        plan.setup.updates = self.setup.recipe(self.iters())?.to_updates();
        let setup = &mut plan.setup;
        for path in [&mut setup.data, &mut setup.reading.features].into_iter().flatten() {
            *path = path.canonicalize().map_err(|error| Failure::file(&*path, error))?;
        }
        plan.iters = Some(self.iters());
        plan.checkpoint_every = Some(self.checkpoint_every());
        plan.threads = Some(self.threads.unwrap_or(0));
        // First weights are read once, and name where they came from after that.
        plan.trace = match &self.trace {
            Some(path) => Some(path::absolute(path).map_err(|error| Failure::file(path, error))?),
            None => None,
        };
        Ok(plan)
    }

    /// Returns the settings with the fingerprint of the data's files, and with a batch that the data have if the user
    /// chose none; with a note about the latter.
    #[must_use]
    pub fn with_data(mut self, data: &dyn Dataset, given: &Self) -> (Self, Option<String>) {
        self.data_files = data.notes().files;
        let parts = self.micro_batches.map_or(1, |parts| parts as usize);
        let note = if given.setup.batch.is_none() { self.setup.fit_batch(data, parts) } else { None };
        (self, note)
    }

    /// Returns the settings of a resume on these data, which must have the files of the training's start.
    ///
    /// # Errors
    /// Files that were added, removed, renamed or changed in size.
    pub fn with_same_data(mut self, data: &dyn Dataset) -> Result<Self, Failure> {
        let found = data.notes().files;
        if let (Some(begun), Some(found), Some(path)) = (self.data_files, found, &self.setup.data)
            && let Some(change) = begun.describe_change(&found)
        {
            let cause = format!("changed since this training began ({change}); restore the files");
            return Err(Failure::file(path, cause).hint("or start a new training from its weights with --weights"));
        }
        // Checkpoints of earlier versions do not have it.
        self.data_files = self.data_files.or(found);
        Ok(self)
    }

    /// Checks that the batch is divisible into the micro-batches and that each rank has one.
    fn check_parts(&self, ranks: usize) -> Result<(), Failure> {
        let Some(parts) = self.micro_batches.map(|parts| parts as usize) else { return Ok(()) };
        let at = |cause: String| Err(Failure::at(format_args!("--micro-batches {parts}"), cause));
        let batch = self.setup.batch();
        if parts < ranks {
            return at(format!("fewer than the {ranks} ranks; each rank needs at least one"));
        }
        if parts != ranks && self.batch_statistics() == BatchNormScope::World {
            let cause = format!("needs one micro-batch for each of {ranks} ranks, not {parts}");
            return Err(Failure::at("--batch-norm world", cause));
        }
        if !batch.is_multiple_of(parts) {
            return at(format!("a batch of {batch} is not divisible by that; choose a divisor"));
        }
        Ok(())
    }

    fn batch_statistics(&self) -> BatchNormScope {
        self.batch_norm.map_or_else(BatchNormScope::default, |Named(of)| of)
    }

    /// Returns the settings that must be equal on all ranks, by name. Threads may differ, and so may devices if the
    /// optimizer is sharded.
    pub fn common_settings(&self) -> Result<serde_json::Map<String, serde_json::Value>, Failure> {
        let device = self.setup.device.filter(|_| !self.shard_optimizer);
        let setup = Setup { device, ..self.setup.clone() };
        // Always included, so that a rank with the option is compared with one without it.
        let batch_norm = Some(Named(self.batch_statistics()));
        let mut settings = serde_json::to_value(Self { threads: None, trace: None, batch_norm, setup, ..self.clone() });
        let settings =
            settings.as_mut().map(serde_json::Value::take).map_err(|error| Failure::at("arguments", error))?;
        Ok(match settings {
            serde_json::Value::Object(settings) => settings,
            _ => serde_json::Map::new(),
        })
    }

    /// Returns the settings of the checkpoint, overridden by those given on the command line.
    ///
    /// # Errors
    /// Steps after the end of the learning rate's schedule.
    pub fn resumed(self, given: &Self) -> Result<Self, Failure> {
        let end = self.setup.updates.schedule.as_ref().and_then(Schedule::end);
        if let (Some(asked), Some(end)) = (given.iters, end)
            && asked > end.max(self.iters())
        {
            let cause = format!("the schedule's learning rate is 0 from step {end} on");
            return Err(Failure::at(format!("--iters {asked}"), cause)
                .hint("start a new training from its weights with --weights"));
        }
        let setup = Setup { device: given.setup.device.or(self.setup.device), ..self.setup };
        // The rule that it was begun with, whatever this version makes of the method's name.
        let method = if self.history == rule_versions::CURRENT_HISTORY {
            self.method
        } else {
            rule_versions::spelled(&self.method, &self.history)
        };
        let method = rule_versions::with_forward(&method, &self.forward);
        Ok(Self {
            setup,
            method,
            iters: given.iters.or(self.iters),
            checkpoint_every: given.checkpoint_every.or(self.checkpoint_every),
            threads: given.threads.or(self.threads),
            shard_optimizer: given.shard_optimizer,
            overlap: given.overlap,
            ..self
        })
    }

    /// Returns the number of training steps.
    pub fn iters(&self) -> u64 {
        self.iters.unwrap_or(ITERS)
    }

    /// Returns true if a checkpoint is due after a step.
    pub fn saves(&self, iteration: u64) -> bool {
        self.due(iteration, self.checkpoint_every())
    }

    /// Returns true if an evaluation is due after a step.
    pub fn evaluates(&self, iteration: u64) -> bool {
        self.eval_every != 0 && self.due(iteration, self.eval_every)
    }

    fn checkpoint_every(&self) -> u64 {
        self.checkpoint_every.unwrap_or(CHECKPOINT_EVERY)
    }

    fn due(&self, iteration: u64, every: u64) -> bool {
        iteration == self.iters() || every != 0 && iteration.is_multiple_of(every)
    }

    /// Creates the training of the plan, before its first step.
    pub fn open<'a>(
        &'a self, data: &'a dyn Dataset, weights: bool, group: &Group,
    ) -> Result<Box<dyn TrainingRun + 'a>, Failure> {
        let mut settings = self.setup.settings(self.pixels, self.iters())?;
        data.check(&settings)?;
        settings.batch /= self.micro_batches.map_or(1, |parts| parts as usize);
        open(
            data,
            TrainingConfig {
                device: self.setup.device(),
                threads: usize::from(self.threads.unwrap_or(0)),
                settings,
                method: self.method()?,
                seed: self.seed,
                weights: self.weights.as_deref().filter(|_| weights),
                perturbed: false,
                parts: self.micro_batches,
                together: DistributedOptions {
                    group: group.clone(),
                    exchange: self.exchange.map(|Named(exchange)| exchange),
                    overlap: self.overlap.map_or_else(Overlap::default, |Named(overlap)| overlap),
                    sharded: self.shard_optimizer,
                    batch_statistics: self.batch_statistics(),
                },
            },
        )
    }

    /// Returns the plan with the exchange that was measured as the faster one, if any.
    pub(super) fn with_exchange(self, exchange: Option<ReduceMode>) -> Self {
        Self { exchange: exchange.map(Named).or(self.exchange), ..self }
    }

    /// Returns the method with the mixed-precision settings applied.
    pub(crate) fn method(&self) -> Result<Method, Failure> {
        Ok(self.setup.amp.apply_to(self.scaling()?))
    }

    fn scaling(&self) -> Result<Method, Failure> {
        Method::for_steps(&self.method, self.iters()).map_err(|error| Failure::at("--method", error))
    }
}
