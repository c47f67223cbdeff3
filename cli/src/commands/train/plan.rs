//! The settings of a training: all of them are in every checkpoint, so that a resume needs none.

use crate::{
    Failure,
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

/// What a training is, and what its checkpoints say that it is. Options have a value once it has begun.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub(crate) struct Plan {
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) setup: Setup,
    /// Precision and scaling; `gradscale compare --help` lists the methods.
    #[arg(long, value_name = "METHOD", default_value = "gs")]
    pub(super) method: String,
    /// What the method remembers where it does not say.
    #[arg(skip = rule_versions::CURRENT_HISTORY.to_owned())]
    #[serde(default = "before")]
    history: String,
    /// What the sum of losses is divided by: a number of pixels or images (learning rate, weight decay and --clip make
    /// up for it, so that training in f32 stays the same; they are said for a mean), or `batch` for those of the batch
    /// that have a label.
    #[arg(long, value_name = "N|batch", default_value = "batch")]
    pub(super) pixels: LossDivisor,
    /// Decides first weights, order and flips.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(super) seed: u64,
    /// Scores of images for validation after so many steps: a part called val beside test, else every tenth training
    /// image, which is then kept from training. The last scores are of the test set. 0: these only.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) eval_every: u64,
    /// Cuts every step into so many parts of its batch, whose gradients are added as halves, exactly: with so many parts
    /// results do not depend on the number of ranks, `mpirun -n 4 gradscale train` [default: one for each rank]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_MICRO_BATCHES)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) micro_batches: Option<u32>,
    /// How the gradients of ranks are added: exact, as halves, the same bits for any number of ranks; or fast, in f32 by
    /// the sum of MPI or NCCL [default: exact with --micro-batches, else what takes less time when the training begins]
    #[arg(long, value_name = "exact|fast")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exchange: Option<Named<ReduceMode>>,
    /// When gradients travel between ranks: on, while the backward pass of a rank's last part goes on, as they come; a
    /// number, the same, with so many weights at a time; or off, when it is over. Results are the same.
    #[arg(long, value_name = "on|off|N")]
    #[serde(skip)]
    pub(super) overlap: Option<Named<Overlap>>,
    /// Of which images batch norm takes mean and variance where several ranks train: rank, of each part of a step by itself;
    /// or world, of those of all ranks, each of which then takes one part, and results depend on their number [default:
    /// rank]
    #[arg(long, value_name = "rank|world")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) batch_norm: Option<Named<BatchNormScope>>,
    /// Divides the optimizer among the ranks (ZeRO, stage 1): each keeps the state of some weights only. Results and
    /// checkpoints are the same, and more bytes travel.
    #[arg(long)]
    #[serde(skip)]
    pub(super) shard_optimizer: bool,
    /// Training steps, those before a resume included [default: 400]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) iters: Option<u64>,
    /// A checkpoint after so many steps; 0: at the end only [default: 100]
    #[arg(long, value_name = "N")]
    pub(super) checkpoint_every: Option<u64>,
    /// Threads of the CPU; 0: one for each core. Results do not depend on it. [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=4096))]
    pub(super) threads: Option<u16>,
    /// First weights from a checkpoint of the same network, or from a PyTorch model: a safetensors file of its
    /// state_dict, whose modules are called as the layers that `gradscale plan` lists, without the network's name
    /// (encoder.conv1.weight). Layers that such a model lacks start as always.
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub(super) weights: Option<PathBuf>,
    /// Records what every cast site saw in every step into a new file, for `gradscale replay`. Steps take longer.
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub(super) trace: Option<PathBuf>,
}

/// A choice of the engine's, by its name.
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

/// Older checkpoints do not say.
fn before() -> String {
    rule_versions::LEGACY_HISTORY.to_owned()
}

/// Steps, unless told.
const ITERS: u64 = 400;
/// Steps from one checkpoint to the next, unless told.
const CHECKPOINT_EVERY: u64 = 100;

impl Plan {
    /// Of a training that begins: scores before the last are of images for validation. One that goes on has them of what
    /// it had.
    pub fn fresh(&self) -> Self {
        let mut plan = self.clone();
        plan.setup.reading.validation = plan.eval_every != 0;
        plan
    }

    /// With a value for everything, and paths that hold wherever a resume is started.
    pub fn begun(&self, group: &Group) -> Result<Self, Failure> {
        let mut plan = self.clone();
        if self.micro_batches.is_some() {
            // Whoever says how steps are cut wants results that do not depend on the number of ranks.
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
        amp.only(self.scaling()?)?;
        amp.check(self.setup.chosen.network()?)?;
        plan.setup = self.setup.resolved()?;
        plan.setup.updates = self.setup.recipe(self.iters())?.said();
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

    /// That a batch can be cut, and that each rank has a part.
    fn check_parts(&self, ranks: usize) -> Result<(), Failure> {
        let Some(parts) = self.micro_batches.map(|parts| parts as usize) else { return Ok(()) };
        let at = |cause: String| Err(Failure::at(format_args!("--micro-batches {parts}"), cause));
        let batch = self.setup.batch();
        if parts < ranks {
            return at(format!("{ranks} ranks, and each takes at least one"));
        }
        if parts != ranks && self.batch_statistics() == BatchNormScope::World {
            let cause = format!("{parts} micro-batches, and it takes as many as there are ranks, {ranks}");
            return Err(Failure::at("--batch-norm world", cause));
        }
        if !batch.is_multiple_of(parts) {
            return at(format!("a batch of {batch} cannot be cut into so many equal parts"));
        }
        Ok(())
    }

    fn batch_statistics(&self) -> BatchNormScope {
        self.batch_norm.map_or_else(BatchNormScope::default, |Named(of)| of)
    }

    /// What all ranks must have been told alike, by name; each may have threads of its own, and another device where the
    /// optimizer is divided.
    pub fn told(&self) -> Result<serde_json::Map<String, serde_json::Value>, Failure> {
        let device = self.setup.device.filter(|_| !self.shard_optimizer);
        let setup = Setup { device, ..self.setup.clone() };
        // Said in any case, so that what one rank was told stands beside what another was not.
        let batch_norm = Some(Named(self.batch_statistics()));
        let mut told = serde_json::to_value(Self { threads: None, trace: None, batch_norm, setup, ..self.clone() });
        let told = told.as_mut().map(serde_json::Value::take).map_err(|error| Failure::at("arguments", error))?;
        Ok(match told {
            serde_json::Value::Object(told) => told,
            _ => serde_json::Map::new(),
        })
    }

    /// As it was begun, but for what is given anew.
    ///
    /// # Errors
    /// Steps behind the end of the learning rate's schedule.
    pub fn resumed(self, given: &Self) -> Result<Self, Failure> {
        let end = self.setup.updates.schedule.as_ref().and_then(Schedule::end);
        if let (Some(asked), Some(end)) = (given.iters, end)
            && asked > end.max(self.iters())
        {
            let cause = format!("the learning rate of this training is 0 from step {end} on");
            return Err(Failure::at(format!("--iters {asked}"), cause)
                .hint("begin another with --weights to go on from what it has learned"));
        }
        let setup = Setup { device: given.setup.device.or(self.setup.device), ..self.setup };
        // The rule that it was begun with, whatever this version makes of the method's name.
        let method = if self.history == rule_versions::CURRENT_HISTORY {
            self.method
        } else {
            rule_versions::spelled(&self.method, &self.history)
        };
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

    /// Steps.
    pub fn iters(&self) -> u64 {
        self.iters.unwrap_or(ITERS)
    }

    /// Whether a checkpoint is due after a step.
    pub fn saves(&self, iteration: u64) -> bool {
        self.due(iteration, self.checkpoint_every())
    }

    /// Whether scores are, as a point of a curve.
    pub fn evaluates(&self, iteration: u64) -> bool {
        self.eval_every != 0 && self.due(iteration, self.eval_every)
    }

    fn checkpoint_every(&self) -> u64 {
        self.checkpoint_every.unwrap_or(CHECKPOINT_EVERY)
    }

    fn due(&self, iteration: u64, every: u64) -> bool {
        iteration == self.iters() || every != 0 && iteration.is_multiple_of(every)
    }

    /// The training before its first step.
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

    /// With the exchange that was measured to be the faster one, if it was.
    pub(super) fn with_exchange(self, exchange: Option<ReduceMode>) -> Self {
        Self { exchange: exchange.map(Named).or(self.exchange), ..self }
    }

    /// With the precision that goes with it.
    pub(crate) fn method(&self) -> Result<Method, Failure> {
        Ok(self.setup.amp.apply_to(self.scaling()?))
    }

    fn scaling(&self) -> Result<Method, Failure> {
        Method::for_steps(&self.method, self.iters()).map_err(|error| Failure::at("--method", error))
    }
}
