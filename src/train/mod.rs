//! Training: one device, all parameters, their optimizer and their sites.

mod async_api;
mod distributed;
mod execute;
mod model;
mod options;
mod state;
mod step;

pub use async_api::NonBlocking;
pub use distributed::measure_reduce_modes;
pub use execute::{Observation, Operands, Program, ProgramKind, Source, gradient_errors};
pub use model::Model;
pub use options::TrainerOptions;
pub use state::{CheckpointFile, EvaluationWeights, Inputs, Named, Prefetched, forward_sites, unused_restored_sites};
pub use step::{Attempt, ExponentsAfter, Gradients, Pass, Repeated, Skipped, StepOutcome, UnusableLoss};

use crate::{
    Difference, Error, Layers, Method, Parameters, Scaling, Shape,
    distributed::BatchNormScope,
    exec::Executor,
    graph::{Fixed, Operation, ParamTensor, STATES, StoreSpec, Value, cast},
    optim::{Optimizer, SharesKept},
    parameters::Role,
    sites::Sites,
};
use distributed::Ranks;
use gradscale_core::{
    amp::{AmpPolicy, Level, Precision},
    backend::{Backend, Control, DType, Data, Slot},
    stats::{Detail, Stats},
    step_outcome::SkipLimit,
};
use state::ParameterSet;
use std::{
    fmt,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};
use step::Update;

/// Default number of consecutive skipped steps after which training ends with an error. A loss scale that halves in
/// each of them has then lost 100 bits, more than the whole exponent range of FP16 (40 bits), so a scale cannot be the
/// cause.
const DEFAULT_MAX_SKIPS: u32 = 100;

static TRAINERS: AtomicU64 = AtomicU64::new(0);

/// Trains the parameters of one or more networks on one device.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{Linear, Module}, optim::Sgd};
///
/// let mut parameters = Parameters::seeded(0);
/// let net = Linear::new(&mut parameters.at("net"), 2, 2);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.5), Method::mixed())?;
/// let (x, labels) = ([1.0, 0.0, 0.0, 1.0], [0u8, 1]);
/// for _ in 0..10 {
///     let batch = [Input::f32([2, 2], &x), Input::u8([2], &labels)];
///     let gradients = trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels))?;
///     let outcome = trainer.step(gradients)?;
///     assert!(outcome.skipped.is_none());
/// }
/// let best = trainer.evaluate_integers([Input::f32([2, 2], &x)], |[x]| net.forward(x).argmax())?;
/// assert_eq!(best.data, [0, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Gradients are used up by the step. Stepping twice does not compile:
///
/// ```compile_fail,E0382
/// # use gradscale::{Cpu, Gradients, Trainer};
/// fn twice(trainer: &mut Trainer<Cpu>, gradients: Gradients) {
///     trainer.step(gradients).unwrap();
///     trainer.step(gradients).unwrap();
/// }
/// ```
///
/// Gradients that are still scaled cannot be clipped either. Only a parameter's gradient is unscaled when it is stored,
/// so only it has a clip method.
///
/// ```compile_fail,E0599
/// # use gradscale::{Gradients, Tensor, gradscale_core::scaled::Scaled};
/// fn clip(activation_gradient: Scaled<Tensor>) -> Gradients {
///     activation_gradient.clip_norm(1.0)
/// }
/// ```
pub struct Trainer<B: Backend> {
    exec: Executor<B>,
    settings: Settings,
    parameters: ParameterSet,
    optimizer: Optimizer,
    sites: Sites,
    counters: Counters,
    /// Number of steps that each parameter group of the optimizer took part in.
    steps: Vec<u64>,
    /// Learning rates and other hyperparameters of the optimizer for the step in progress.
    hyperparameters: Vec<f32>,
    /// Detail of the statistics rows that the step in progress collects.
    detail: Detail,
    /// Index of the program of the last backward pass, while its output buffers are valid.
    live_backward: Option<usize>,
    /// Index of the program that ran last, while its output buffers are valid.
    last_run: Option<usize>,
    /// True if master weights were written and their half copies are outdated.
    half_copies_stale: bool,
    /// Updates of the optimizer, each with the index of its operation list in the executor.
    updates: Vec<(Update, usize)>,
    /// Numbers of a custom optimizer rule, as they were last written to the device.
    numbers: Vec<f32>,
    generations: Generations,
    ranks: Ranks,
    /// Engine of products of the loaded checkpoint that the device does not use, see [`Trainer::replaced_engine`].
    replaced_engine: Option<Difference>,
    /// Operands from which the paper's rules would decide, by slot; `None` unless they are observed.
    observed: Option<Vec<(Slot, Operands)>>,
    /// Failed attempts of the last step, if operands are observed.
    attempts: Vec<Attempt>,
    /// Statistics rows of the last attempt; kept between steps, so that the list is not allocated again.
    rows: Vec<Stats>,
}

/// Settings of a trainer that stay fixed during training.
#[derive(Debug)]
struct Settings {
    policy: AmpPolicy,
    layers: Layers,
    weight_gradients: Precision,
    /// Storage of gradients while a window of loss scales is measured.
    probed: Option<execute::Stores>,
    /// True if every buffer of a step is kept to its end.
    retain_buffers: bool,
    /// Share of batch norm's running statistics that stays in a step, in [0, 1].
    momentum: f32,
    /// True if running statistics follow each call of a layer separately, as in PyTorch.
    each_call: bool,
    /// Share of the weights' average that stays in a step, if one is kept.
    average_kept: Option<f32>,
    /// Weights that evaluations use.
    evaluation_weights: EvaluationWeights,
    /// Samples over which batch norm computes its statistics.
    batch_norm_scope: BatchNormScope,
    /// Minimum detail of the statistics rows that every step collects.
    least: Detail,
}

impl Settings {
    /// Returns the shares of moving averages that stay, with that of running statistics.
    fn shares_kept(&self, statistics: f32) -> SharesKept {
        SharesKept { statistics, average: self.average_kept.unwrap_or_default() }
    }
}

/// Counters that determine the progress of a training.
#[derive(Clone, Copy, Debug)]
struct Counters {
    /// Number of steps that updated the parameters.
    taken: u64,
    /// Number of micro-batches begun, which is the seed of dropout.
    seed: u64,
    /// Number of consecutive skipped steps, with its limit.
    skips: SkipLimit,
    /// Number of failed attempts at the coming step that the caller has to retry.
    failed: u32,
}

/// Generation counters that reject outdated [`Gradients`] and [`Prefetched`] batches.
#[derive(Debug)]
struct Generations {
    /// Identity of this trainer among all trainers of the process.
    trainer: u64,
    /// Generation of the gradients that [`Trainer::step`] accepts.
    gradients: u64,
    /// Number of prefetched batches so far, which identifies the latest.
    prefetched: u64,
}

impl<B: Backend> fmt::Debug for Trainer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Trainer");
        all.field("device", &self.exec.device().caps().name).field("parameters", &self.parameters.all.len());
        all.field("steps", &self.counters.taken).field("sites", self.sites.scaling()).finish_non_exhaustive()
    }
}

impl<B: Backend> Trainer<B> {
    /// Creates a trainer, and uploads the initial values of the parameters.
    ///
    /// # Errors
    /// Two parameters with one name; weight gradients in half under gradient scaling; invalid settings of the optimizer
    /// or the method; a parameter group without parameters; a device without enough memory, or one that refuses products
    /// in eight bits under a method with `products=fp8`.
    pub fn new(
        device: B, parameters: Parameters, optimizer: impl Into<Optimizer>, method: Method,
    ) -> Result<Self, Error<B::Error>> {
        let optimizer = optimizer.into();
        optimizer.check().map_err(Error::Optimizer)?;
        if let (Scaling::Gradient(_) | Scaling::Blocks(_), Precision::Half) = (&method.scaling, method.weight_gradients)
        {
            return Err(Error::WeightGradients);
        }
        let mut sites = Sites::new(method.scaling)?;
        if sites.multiplies_eight_bits() {
            device.check_eight_bit_products().map_err(Error::Device)?;
        }
        sites.enable_forward();
        let parameters = ParameterSet::new(parameters, &optimizer, &mut sites)?;
        let settings = Settings {
            policy: method.amp,
            layers: method.layers,
            weight_gradients: method.weight_gradients,
            probed: None,
            retain_buffers: false,
            momentum: 0.9,
            each_call: false,
            average_kept: None,
            evaluation_weights: EvaluationWeights::Trained,
            batch_norm_scope: BatchNormScope::Rank,
            least: Detail::Counts,
        };
        let steps = vec![0; optimizer.group_count()];
        let hyperparameters = optimizer.hyperparameters(&steps, settings.shares_kept(settings.momentum));
        let exec =
            Executor::new(device, parameters.fixed(), sites.len(), hyperparameters.len()).map_err(Error::Device)?;
        let ranks = Ranks::single(parameters.all.len());
        let mut trainer = Self {
            exec,
            settings,
            parameters,
            optimizer,
            sites,
            counters: Counters { taken: 0, seed: 0, skips: SkipLimit::new(DEFAULT_MAX_SKIPS), failed: 0 },
            steps,
            hyperparameters,
            detail: Detail::Counts,
            live_backward: None,
            last_run: None,
            half_copies_stale: false,
            updates: Vec::new(),
            numbers: Vec::new(),
            generations: Generations { trainer: TRAINERS.fetch_add(1, Ordering::Relaxed), gradients: 0, prefetched: 0 },
            ranks,
            replaced_engine: None,
            observed: None,
            attempts: Vec::new(),
            rows: Vec::new(),
        };
        trainer.allocate().map_err(Error::Device)?;
        Ok(trainer)
    }

    /// Sets the learning rate of the parameter group with that prefix, before the schedule is applied. Without a prefix
    /// it is that of all parameters that no group claims. Checkpoints contain it.
    ///
    /// # Errors
    /// A rate that is negative or not finite, a prefix that no group has.
    pub fn set_lr(&mut self, group: Option<&str>, lr: f64) -> Result<(), Error<B::Error>> {
        self.optimizer.set_lr(group, lr)
    }

    /// Returns the learning rate of the parameter group with that prefix in the next step: the rate of the optimizer or of
    /// [`Trainer::set_lr`], times the factor of the schedule. Without a prefix it is that of all parameters that no group
    /// claims.
    ///
    /// ```
    /// use gradscale::{Cpu, Method, Parameters, Trainer, nn::Linear, optim::{Optimizer, Schedule, Sgd}};
    /// let mut parameters = Parameters::seeded(0);
    /// Linear::new(&mut parameters.at("head"), 2, 2);
    /// let optimizer = Optimizer::from(Sgd::new(0.5)).group("head", 0.25, 0.0).schedule(Schedule::own(|_| 0.5));
    /// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, optimizer, Method::mixed())?;
    /// assert_eq!((trainer.lr(None)?, trainer.lr(Some("head"))?), (0.25, 0.125));
    /// trainer.set_lr(None, 1.0)?;
    /// assert_eq!(trainer.lr(None)?, 0.5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A prefix that no group has.
    pub fn lr(&self, group: Option<&str>) -> Result<f64, Error<B::Error>> {
        self.optimizer.lr(group, &self.steps)
    }

    /// Allocates masters, gradients, optimizer states and the four scalars (0, 1, norm and loss).
    fn allocate(&mut self) -> Result<(), B::Error> {
        let all: Vec<usize> = (0..self.parameters.all.len()).collect();
        let of_role = |may: fn(Role) -> bool| -> Vec<usize> {
            all.iter().copied().filter(|&id| may(self.parameters.infos[id].role)).collect()
        };
        let (updated, weights) = (of_role(|role| role != Role::Constant), of_role(|role| role == Role::Weight));
        self.allocate_tensors(ParamTensor::Master, &all)?;
        self.allocate_tensors(ParamTensor::Gradient, &updated)?;
        for (id, definition) in self.parameters.all.iter().enumerate() {
            self.exec.write(Fixed::tensor(id, ParamTensor::Master), Data::F32(&definition.values))?;
        }
        for part in STATES.into_iter().take(self.optimizer.states()) {
            self.allocate_tensors(part, &weights)?;
            for &id in &weights {
                self.exec.clear(Fixed::tensor(id, part), self.part_shape(id, part).len())?;
            }
        }
        let fixed = self.parameters.fixed();
        for (buf, value) in
            [(fixed.scalar_zero(), 0.0), (fixed.scalar_one(), 1.0), (fixed.norm(), 0.0), (fixed.loss(), 0.0)]
        {
            self.exec.allocate(buf, DType::F32, 1)?;
            self.exec.write(buf, Data::F32(&[value]))?;
        }
        Ok(())
    }

    /// Allocates a part of some parameters, contiguously where a device needs that to update them in one launch.
    fn allocate_tensors(&mut self, part: ParamTensor, ids: &[usize]) -> Result<(), B::Error> {
        let all: Vec<_> = ids.iter().map(|&id| (Fixed::tensor(id, part), self.part_shape(id, part).len())).collect();
        self.exec.allocate_together(part.dtype(), &all)
    }

    /// Returns the shape of a part of a parameter: its own, but for states of a weight whose rule chooses another.
    fn part_shape(&self, id: usize, part: ParamTensor) -> Shape {
        let shape = self.parameters.shape(id);
        let state = STATES.iter().position(|&state| state == part);
        match (state, self.parameters.infos[id].role) {
            (Some(state), Role::Weight) => self.optimizer.state_shape(state, shape),
            (Some(_), Role::Statistics | Role::Constant) | (None, _) => shape,
        }
    }

    /// Returns the level of the autocast policy.
    const fn level(&self) -> Level {
        self.settings.policy.level()
    }

    /// Uploads the current exponents, hyperparameters and dropout seed, and clears the given statistics rows.
    fn upload_control(&mut self, clear: Range<u16>) -> Result<(), B::Error> {
        let (exponents, hyperparameters, seed) = (self.sites.exponents(), &self.hyperparameters, self.counters.seed);
        self.exec.upload(&Control { exponents, hyperparameters, seed, detail: self.detail }, clear)
    }

    /// Copies one part of a parameter to another part with another element type, for example a master to its half copy.
    fn convert(&mut self, id: usize, from: ParamTensor, to: ParamTensor) -> Result<(), B::Error> {
        self.exec.run(&converted(id, self.parameters.len(id), from, to))
    }
}

/// Returns the operation that copies one part of a parameter to another part with another element type.
fn converted(id: usize, len: usize, from: ParamTensor, to: ParamTensor) -> Operation {
    cast(
        Fixed::tensor(id, from),
        StoreSpec::passthrough(Value { buf: Fixed::tensor(id, to), dtype: to.dtype(), len }, Slot::ONE),
    )
}

/// Converts a length to `u32`, the type in which launches count. Sizes of parameters were checked before.
fn elements(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
