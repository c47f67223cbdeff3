//! Training: one device, all parameters, their optimizer and their sites.

mod async_api;
mod distributed;
mod execute;
mod options;
mod state;
mod step;

pub use async_api::NonBlocking;
pub use execute::{Observation, Operands, Program, ProgramKind, Source};
pub use options::TrainerOptions;
pub use state::{Inputs, Named, Prefetched};
pub use step::{Attempt, ExponentsAfter, Gradients, Pass, Repeated, Skipped, StepOutcome, UnusableLoss};

use crate::{
    Difference, Error, Layers, Method, Parameters, Scaling,
    distributed::BatchNormScope,
    exec::Executor,
    graph::{Fixed, Operation, Part, STATES, Target, Value, cast},
    optim::Optimizer,
    parameters::Role,
    sites::Sites,
};
use distributed::Ranks;
use gradscale_core::{
    amp::{AmpPolicy, Level, Precision},
    backend::{Backend, Control, DType, Data, Slot},
    stats::{Detail, Stats},
    step::SkipLimit,
};
use state::ParameterSet;
use std::{
    fmt,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};
use step::Update;

/// Skips in a row that end a training unless told.
const SKIPS: u32 = 100;

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
/// Nor does clipping what is still scaled: only a parameter's gradient, which is unscaled at birth, can be clipped.
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
    /// Steps that each group of the optimizer took part in.
    steps: Vec<u64>,
    /// Hyperparameters of the step in progress.
    hyperparameters: Vec<f32>,
    /// What the rows of the step in progress hold.
    detail: Detail,
    /// That program, as long as its outputs stand in memory.
    stands: Option<usize>,
    /// The program that ran last, as long as its outputs stand in memory.
    ran: Option<usize>,
    /// Whether weights were written whose half copies were not.
    halves_are_behind: bool,
    /// Updates, each with the number of its list in the executor.
    updates: Vec<(Update, usize)>,
    /// Numbers of a rule of one's own that are on the device.
    numbers: Vec<f32>,
    tickets: Tickets,
    ranks: Ranks,
    /// See [`Trainer::replaced_engine`].
    replaced_engine: Option<Difference>,
    /// What the paper's rules would decide from, if that is observed.
    observed: Option<Vec<(Slot, Operands)>>,
    /// Attempts before the last of the last step, if operands are observed.
    attempts: Vec<Attempt>,
    /// Where rows are read to.
    rows: Vec<Stats>,
}

/// What a training is told once.
#[derive(Debug)]
struct Settings {
    policy: AmpPolicy,
    layers: Layers,
    weight_gradients: Precision,
    /// How gradients are stored while a window is measured.
    probed: Option<execute::Stores>,
    /// Whether every buffer of a step stays to its end.
    keep: bool,
    /// Share of running statistics that stays.
    momentum: f32,
    /// Whether they follow each call of a layer by itself.
    each_call: bool,
    /// Samples over which batch norm computes its statistics.
    batch_norm_scope: BatchNormScope,
    /// The least that every step observes.
    least: Detail,
}

/// How far a training is.
#[derive(Clone, Copy, Debug)]
struct Counters {
    /// Steps taken.
    taken: u64,
    /// Micro-batches begun: the seed of dropout.
    seed: u64,
    /// Skips in a row, and how many end a training.
    skips: SkipLimit,
    /// Attempts at the coming step that failed and were left to the caller to repeat.
    failed: u32,
}

/// What gradients and batches that were sent ahead are held against.
#[derive(Debug)]
struct Tickets {
    /// Of this trainer.
    id: u64,
    /// Of the gradients that can be stepped with.
    serial: u64,
    /// Batches sent ahead so far.
    ahead: u64,
}

impl<B: Backend> fmt::Debug for Trainer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Trainer");
        all.field("device", &self.exec.device().caps().name).field("parameters", &self.parameters.all.len());
        all.field("steps", &self.counters.taken).field("sites", self.sites.scaling()).finish_non_exhaustive()
    }
}

impl<B: Backend> Trainer<B> {
    /// Uploads the parameters' first values.
    ///
    /// # Errors
    /// Two parameters of one name, weight gradients in half under gradient scaling, numbers of the optimizer or of the method that make no sense, a group of the
    /// optimizer that no parameter belongs to, a device without memory.
    pub fn new(
        device: B, parameters: Parameters, optimizer: impl Into<Optimizer>, method: Method,
    ) -> Result<Self, Error<B::Error>> {
        let optimizer = optimizer.into();
        optimizer.check().map_err(Error::Optimizer)?;
        if let (Scaling::Gradient(_), Precision::Half) = (&method.scaling, method.weight_gradients) {
            return Err(Error::WeightGradients);
        }
        let mut sites = Sites::new(method.scaling)?;
        let parameters = ParameterSet::new(parameters, &optimizer, &mut sites)?;
        let settings = Settings {
            policy: method.amp,
            layers: method.layers,
            weight_gradients: method.weight_gradients,
            probed: None,
            keep: false,
            momentum: 0.9,
            each_call: false,
            batch_norm_scope: BatchNormScope::Rank,
            least: Detail::Counts,
        };
        let steps = vec![0; optimizer.group_count()];
        let hyperparameters = optimizer.hyperparameters(&steps, settings.momentum);
        let exec =
            Executor::new(device, parameters.fixed(), sites.len(), hyperparameters.len()).map_err(Error::Device)?;
        let ranks = Ranks::single(parameters.all.len());
        let mut trainer = Self {
            exec,
            settings,
            parameters,
            optimizer,
            sites,
            counters: Counters { taken: 0, seed: 0, skips: SkipLimit::new(SKIPS), failed: 0 },
            steps,
            hyperparameters,
            detail: Detail::Counts,
            stands: None,
            ran: None,
            halves_are_behind: false,
            updates: Vec::new(),
            numbers: Vec::new(),
            tickets: Tickets { id: TRAINERS.fetch_add(1, Ordering::Relaxed), serial: 0, ahead: 0 },
            ranks,
            replaced_engine: None,
            observed: None,
            attempts: Vec::new(),
            rows: Vec::new(),
        };
        trainer.allocate().map_err(Error::Device)?;
        Ok(trainer)
    }

    /// From now on this is the learning rate of the group that begins with that prefix, or, without one, of all
    /// parameters that no group claims; before the schedule. A checkpoint keeps it.
    ///
    /// # Errors
    /// A rate that is negative or not finite, a prefix that no group has.
    pub fn set_lr(&mut self, group: Option<&str>, lr: f64) -> Result<(), Error<B::Error>> {
        self.optimizer.set_lr(group, lr)
    }

    /// Masters, gradients, state of the optimizer, and the four numbers.
    fn allocate(&mut self) -> Result<(), B::Error> {
        let all: Vec<usize> = (0..self.parameters.all.len()).collect();
        let of_role = |may: fn(Role) -> bool| -> Vec<usize> {
            all.iter().copied().filter(|&id| may(self.parameters.infos[id].role)).collect()
        };
        let (updated, weights) = (of_role(|role| role != Role::Constant), of_role(|role| role == Role::Weight));
        self.allocate_parts(Part::Master, &all)?;
        self.allocate_parts(Part::Gradient, &updated)?;
        for (id, definition) in self.parameters.all.iter().enumerate() {
            self.exec.write(Fixed::part(id, Part::Master), Data::F32(&definition.values))?;
        }
        for part in STATES.into_iter().take(self.optimizer.states()) {
            self.allocate_parts(part, &weights)?;
            for &id in &weights {
                self.exec.clear(Fixed::part(id, part), self.parameters.len(id))?;
            }
        }
        let fixed = self.parameters.fixed();
        for (buf, value) in [(fixed.zero(), 0.0), (fixed.one(), 1.0), (fixed.norm(), 0.0), (fixed.loss(), 0.0)] {
            self.exec.allocate(buf, DType::F32, 1)?;
            self.exec.write(buf, Data::F32(&[value]))?;
        }
        Ok(())
    }

    /// Allocates a part of some parameters, side by side where a device needs that to update them in one launch.
    fn allocate_parts(&mut self, part: Part, ids: &[usize]) -> Result<(), B::Error> {
        let all: Vec<_> = ids.iter().map(|&id| (Fixed::part(id, part), self.parameters.len(id))).collect();
        self.exec.allocate_together(part.dtype(), &all)
    }

    /// The level of the policy.
    const fn level(&self) -> Level {
        self.settings.policy.level()
    }

    /// Uploads exponents, hyperparameters and seed as they are now, and empties rows.
    fn send(&mut self, clear: Range<u16>) -> Result<(), B::Error> {
        let (exponents, hyperparameters, seed) = (self.sites.exponents(), &self.hyperparameters, self.counters.seed);
        self.exec.upload(&Control { exponents, hyperparameters, seed, detail: self.detail }, clear)
    }

    /// Copies a part of a parameter into another of another type.
    fn convert(&mut self, id: usize, from: Part, to: Part) -> Result<(), B::Error> {
        self.exec.run(&converted(id, self.parameters.len(id), from, to))
    }
}

/// The operation that copies a part of a parameter into another of another type.
fn converted(id: usize, len: usize, from: Part, to: Part) -> Operation {
    cast(Fixed::part(id, from), Target::keep(Value { buf: Fixed::part(id, to), dtype: to.dtype(), len }, Slot::ONE))
}

/// As launches count them: sizes of parameters were checked.
fn elements(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
