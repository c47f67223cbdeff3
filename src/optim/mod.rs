//! Optimizers: update rules on f32 master weights, parameter groups, clipping, learning-rate schedules.

mod adafactor;
mod adagrad;
mod custom;
mod lamb;
mod lion;
mod rmsprop;
mod rules;
mod saved;
mod schedule;
mod settings;

pub use adafactor::Adafactor;
pub use adagrad::Adagrad;
pub use custom::{CustomOptimizer, UpdateInput, UpdateOutput};
pub use lamb::Lamb;
pub use lion::Lion;
pub use rmsprop::RmsProp;
pub use rules::{Adam, AdamW, Sgd};
pub use schedule::Schedule;

use crate::{Error, Shape};
use gradscale_core::{
    backend::Hyperparameter,
    ops::{self, Optimizer as Descriptor, ShapeError},
};
use std::sync::Arc;

/// Maximum number of state tensors that an update rule has for each weight.
pub(crate) const MOST_STATES: usize = 4;

/// Layout of the hyperparameters on the device: the momentum of running statistics, two constants, the share of the
/// weights' average that is kept, then the learning rate of each group, then the two bias corrections of Adam for each
/// group.
const KEEP: Hyperparameter = Hyperparameter(0);
const ZERO: Hyperparameter = Hyperparameter(1);
const MINUS_ONE: Hyperparameter = Hyperparameter(2);
const AVERAGE_KEPT: Hyperparameter = Hyperparameter(3);
const RATES: usize = 4;

/// Shares of exponential moving averages that stay in a step, in [0, 1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharesKept {
    /// Share of batch norm's running statistics.
    pub statistics: f32,
    /// Share of the weights' average; 0 if there is none.
    pub average: f32,
}

/// Parameter group with its own learning rate and weight decay.
#[derive(Clone, Debug, PartialEq)]
struct Group {
    /// Name of a part of the network or of a parameter: the first components of its parameters' names.
    prefix: String,
    /// Learning rate of the group before the schedule's factor.
    lr: f64,
    /// Weight decay coefficient of the parameter group.
    decay: f32,
}

/// Checks that a learning rate is valid in f32, in which it is used.
fn check_rate(lr: f64) -> Result<(), ShapeError> {
    #[expect(clippy::cast_possible_truncation, reason = "as it will be used, and for a message")]
    let rounded = lr as f32;
    if lr >= 0.0 && rounded.is_finite() { Ok(()) } else { Err(ShapeError::Value(rounded)) }
}

/// Returns true if a prefix matches a parameter's name, by whole components; an empty prefix matches all.
fn claims(prefix: &str, name: &str) -> bool {
    let prefix = prefix.trim_end_matches('.');
    let rest = name.strip_prefix(prefix);
    rest.is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with('.'))
}

/// Update rule of an optimizer: SGD, Adam and AdamW, for which devices have a kernel, or one in operators of networks.
#[derive(Clone, Debug)]
pub(crate) enum OptimizerRule {
    Sgd(Sgd),
    Adam(Adam),
    AdamW(AdamW),
    Custom(Arc<dyn CustomOptimizer>),
}

/// Optimizer: an update rule with groups, clipping and schedule. Gradients are f32 and unscaled. A step whose gradients
/// are not finite changes nothing.
///
/// ```
/// use gradscale::optim::{Optimizer, Schedule, Sgd};
/// let optimizer = Optimizer::from(Sgd { momentum: 0.9, weight_decay: 5e-4, ..Sgd::new(0.1) })
///     .clip_norm(1.0)
///     .schedule(Schedule::Cosine { steps: 1000 })
///     .group("head", 0.01, 0.0)
///     .freeze("encoder");
/// # let _ = optimizer;
/// ```
///
/// A setting that the rule does not have does not compile:
///
/// ```compile_fail,E0560
/// let optimizer = gradscale::optim::Sgd { betas: [0.9, 0.999], ..Default::default() };
/// ```
#[derive(Clone, Debug)]
pub struct Optimizer {
    rule: OptimizerRule,
    max_norm: Option<f32>,
    max_value: Option<f32>,
    schedule: Schedule,
    groups: Vec<Group>,
    frozen: Vec<String>,
    /// Learning rates of all groups, if the caller has set one during training.
    set_rates: Option<Vec<f64>>,
}

impl From<Sgd> for Optimizer {
    fn from(rule: Sgd) -> Self {
        Self::new(OptimizerRule::Sgd(rule))
    }
}

impl From<Adam> for Optimizer {
    fn from(rule: Adam) -> Self {
        Self::new(OptimizerRule::Adam(rule))
    }
}

impl From<AdamW> for Optimizer {
    fn from(rule: AdamW) -> Self {
        Self::new(OptimizerRule::AdamW(rule))
    }
}

/// Every rule that is written in operators is an optimizer, as with [`Optimizer::custom`].
impl<R: CustomOptimizer> From<R> for Optimizer {
    fn from(rule: R) -> Self {
        Self::custom(rule)
    }
}

impl Optimizer {
    const fn new(rule: OptimizerRule) -> Self {
        let schedule = Schedule::Constant;
        Self {
            rule,
            max_norm: None,
            max_value: None,
            schedule,
            groups: Vec::new(),
            frozen: Vec::new(),
            set_rates: None,
        }
    }

    /// Creates an optimizer with a custom update rule.
    #[must_use]
    pub fn custom(rule: impl CustomOptimizer) -> Self {
        Self::new(OptimizerRule::Custom(Arc::new(rule)))
    }

    /// Makes the optimizer scale all gradients down together to the norm `most` if they exceed it.
    #[must_use]
    #[doc(alias = "clip_grad_norm")]
    pub const fn clip_norm(mut self, most: f32) -> Self {
        self.max_norm = Some(most);
        self
    }

    /// Makes the optimizer clip every element of the gradients to ±`most`.
    #[must_use]
    #[doc(alias = "clip_grad_value")]
    pub const fn clip_value(mut self, most: f32) -> Self {
        self.max_value = Some(most);
        self
    }

    /// Sets the learning-rate schedule. It advances with steps that are not skipped.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// Adds a group with its own learning rate and weight decay, for the parameters of the part of the network named
    /// `prefix`, or that one parameter. For example, `block1` matches `block1.weight`, but not `block10.weight`. The
    /// first matching group counts. A group without parameters is an error of [`Trainer::new`](crate::Trainer::new).
    /// Adam's bias corrections and the schedule depend on the steps in which a group participates: those whose loss
    /// depends on one of its parameters.
    #[must_use]
    pub fn group(mut self, prefix: &str, lr: f64, decay: f32) -> Self {
        self.groups.push(Group { prefix: prefix.to_owned(), lr, decay });
        self
    }

    /// Freezes the parameters of the part of the network named `prefix`, or that one parameter: they get no gradient
    /// and have no optimizer state. Running statistics are still updated. A name without parameters is an error of
    /// [`Trainer::new`](crate::Trainer::new).
    #[must_use]
    pub fn freeze(mut self, prefix: &str) -> Self {
        self.frozen.push(prefix.to_owned());
        self
    }

    /// Sets the learning rate of a group, or of the remaining parameters.
    pub(crate) fn set_lr<E>(&mut self, prefix: Option<&str>, lr: f64) -> Result<(), Error<E>> {
        check_rate(lr).map_err(Error::Optimizer)?;
        let group = self.find_group(prefix)?;
        let rates: Vec<f64> = (0..self.group_count()).map(|group| self.rates(group).0).collect();
        self.set_rates.get_or_insert(rates)[group] = lr;
        Ok(())
    }

    /// Returns the learning rate of a group in the next step; `steps` is the number of previous steps of each group.
    pub(crate) fn lr<E>(&self, prefix: Option<&str>, steps: &[u64]) -> Result<f64, Error<E>> {
        let group = self.find_group(prefix)?;
        Ok(self.rates(group).0 * self.schedule.factor(steps[group]))
    }

    /// Finds the group with a prefix; without one, the group of the remaining parameters.
    fn find_group<E>(&self, prefix: Option<&str>) -> Result<usize, Error<E>> {
        let Some(prefix) = prefix else { return Ok(self.groups.len()) };
        self.groups.iter().position(|group| group.prefix == prefix).ok_or_else(|| {
            let parts = self.groups.iter().map(|group| group.prefix.as_str()).collect::<Vec<_>>().join(", ");
            Error::Group { prefix: prefix.to_owned(), parts }
        })
    }

    /// Returns the number of parameter groups, the remaining parameters included.
    pub(crate) const fn group_count(&self) -> usize {
        self.groups.len() + 1
    }

    /// Returns the group of a parameter; the last one is for the remaining parameters.
    pub(crate) fn group_of(&self, name: &str) -> usize {
        self.groups.iter().position(|group| claims(&group.prefix, name)).unwrap_or(self.groups.len())
    }

    /// Returns true if the optimizer freezes the parameter with this name.
    pub(crate) fn freezes(&self, name: &str) -> bool {
        self.frozen.iter().any(|prefix| claims(prefix, name))
    }

    /// Returns the prefix of a group, or of a frozen part, that matches none of these parameters; `None` if all match.
    pub(crate) fn idle_prefix<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Option<&str> {
        let mut prefixes = self.groups.iter().map(|group| &group.prefix).chain(&self.frozen);
        let idle = prefixes.find(|prefix| !names.clone().any(|name| claims(prefix, name)));
        idle.map(String::as_str)
    }

    /// Returns ε of Adam as it is in force; 0 for other rules.
    pub(crate) const fn eps_in_force(&self) -> f32 {
        match &self.rule {
            OptimizerRule::Adam(Adam { eps, .. }) | OptimizerRule::AdamW(AdamW { eps, .. }) => *eps,
            OptimizerRule::Sgd(_) | OptimizerRule::Custom(_) => 0.0,
        }
    }

    pub(crate) const fn clips_norm(&self) -> bool {
        self.max_norm.is_some()
    }

    /// Returns the number of states that the update rule keeps for each weight.
    pub(crate) fn states(&self) -> usize {
        match &self.rule {
            OptimizerRule::Sgd(rule) => usize::from(rule.momentum != 0.0),
            OptimizerRule::Adam(_) | OptimizerRule::AdamW(_) => 2,
            OptimizerRule::Custom(rule) => rule.states(),
        }
    }

    /// Returns the shape of a state of a weight with this shape.
    pub(crate) fn state_shape(&self, state: usize, weight: Shape) -> Shape {
        self.custom_rule().map_or(weight, |rule| rule.state_shape(state, weight))
    }

    /// Returns the custom update rule; `None` for the built-in ones.
    pub(crate) fn custom_rule(&self) -> Option<&Arc<dyn CustomOptimizer>> {
        match &self.rule {
            OptimizerRule::Custom(rule) => Some(rule),
            OptimizerRule::Sgd(_) | OptimizerRule::Adam(_) | OptimizerRule::AdamW(_) => None,
        }
    }

    /// Returns the learning rate and weight decay of a group, before the schedule's factor.
    pub(crate) fn rates(&self, group: usize) -> (f64, f32) {
        let (lr, decay) = match (self.groups.get(group), &self.rule) {
            (Some(group), _) => (group.lr, group.decay),
            (None, OptimizerRule::Sgd(Sgd { lr, weight_decay: decay, .. }))
            | (None, OptimizerRule::Adam(Adam { lr, weight_decay: decay, .. }))
            | (None, OptimizerRule::AdamW(AdamW { lr, weight_decay: decay, .. })) => (*lr, *decay),
            (None, OptimizerRule::Custom(rule)) => (rule.lr(), rule.decay()),
        };
        (self.set_rates.as_ref().map_or(lr, |rates| rates[group]), decay)
    }

    /// Returns the learning rates that were set during training, as bits, for a checkpoint; empty if none was set.
    pub(crate) fn saved_rates(&self) -> Vec<u64> {
        self.set_rates.iter().flatten().map(|rate| rate.to_bits()).collect()
    }

    /// Restores the learning rates of a checkpoint: one for each group, or none.
    pub(crate) fn restore_rates(&mut self, saved: &[u64]) {
        self.set_rates = (!saved.is_empty()).then(|| saved.iter().copied().map(f64::from_bits).collect());
    }

    /// Computes the hyperparameters of the next step; `steps` is the number of previous steps of each group. The
    /// schedule is called once for groups with equal step counts.
    #[expect(clippy::cast_possible_truncation, reason = "rounded")]
    pub(crate) fn hyperparameters(&self, steps: &[u64], kept: SharesKept) -> Vec<f32> {
        let mut hyperparameters = vec![kept.statistics, 0.0, -1.0, kept.average];
        let mut asked: Vec<(u64, f64)> = Vec::new();
        for (group, &step) in steps.iter().enumerate() {
            let factor = asked.iter().find(|(known, _)| *known == step).map(|(_, factor)| *factor);
            let factor = factor.unwrap_or_else(|| {
                let factor = self.schedule.factor(step);
                asked.push((step, factor));
                factor
            });
            hyperparameters.push((self.rates(group).0 * factor) as f32);
        }
        if let OptimizerRule::Adam(Adam { betas, .. }) | OptimizerRule::AdamW(AdamW { betas, .. }) = self.rule {
            for &step in steps {
                let t = i32::try_from(step.saturating_add(1)).unwrap_or(i32::MAX);
                hyperparameters.extend(betas.map(|beta| (1.0 - f64::from(beta).powi(t)) as f32));
            }
        }
        hyperparameters
    }

    /// Returns the learning rates of all groups among the hyperparameters.
    pub(crate) fn rates_of<'a>(&self, hyperparameters: &'a [f32]) -> &'a [f32] {
        &hyperparameters[RATES..RATES + self.group_count()]
    }

    /// Checks that all settings of the optimizer are valid.
    pub(crate) fn check(&self) -> Result<(), ShapeError> {
        for group in 0..self.group_count() {
            let (lr, decay) = self.rates(group);
            check_rate(lr)?;
            if !decay.is_finite() {
                return Err(ShapeError::Value(decay));
            }
            self.descriptor(group)?;
        }
        if let Some(rule) = self.custom_rule() {
            rule.check()?;
        }
        self.clipping()?;
        if self.states() > MOST_STATES { Err(ShapeError::TooLarge) } else { Ok(()) }
    }

    /// Returns the descriptor of a parameter group's launch; `None` for a custom rule.
    pub(crate) fn descriptor(&self, group: usize) -> Result<Option<Descriptor>, ShapeError> {
        let number = |at: usize| u16::try_from(RATES + at).map(Hyperparameter).map_err(|_| ShapeError::TooLarge);
        let (lr, corrections) = (number(group)?, self.group_count() + 2 * group);
        let correction = [number(corrections)?, number(corrections + 1)?];
        let adam = |beta: [f32; 2], eps: f32, decoupled: bool| ops::Rule::Adam { beta, eps, correction, decoupled };
        let rule = match self.rule {
            OptimizerRule::Sgd(Sgd { momentum, nesterov, .. }) => ops::Rule::Sgd { momentum, nesterov },
            OptimizerRule::Adam(Adam { betas, eps, .. }) => adam(betas, eps, false),
            OptimizerRule::AdamW(AdamW { betas, eps, .. }) => adam(betas, eps, true),
            OptimizerRule::Custom(_) => return Ok(None),
        };
        let p = Descriptor::new(rule, lr)?.decay(self.rates(group).1)?;
        self.clipped(p).map(Some)
    }

    /// Returns the launch that computes the clipped gradient from a zero: 0 − (−1)·g.
    pub(crate) fn clipping(&self) -> Result<Descriptor, ShapeError> {
        let sgd = ops::Rule::Sgd { momentum: 0.0, nesterov: false };
        self.clipped(Descriptor::new(sgd, MINUS_ONE)?)
    }

    /// Returns true if the optimizer clips gradients element by element.
    pub(crate) const fn clips_values(&self) -> bool {
        self.max_value.is_some()
    }

    fn clipped(&self, mut p: Descriptor) -> Result<Descriptor, ShapeError> {
        if let Some(most) = self.max_value {
            p = p.max_value(most)?;
        }
        if let Some(most) = self.max_norm {
            p = p.max_norm(most)?;
        }
        Ok(p)
    }

    /// Returns the descriptor of the launch that updates running statistics.
    pub(crate) const fn statistics() -> Descriptor {
        Descriptor::running_statistics(KEEP)
    }

    /// Returns the descriptor of the launch that updates the weights' average.
    pub(crate) const fn average() -> Descriptor {
        Descriptor::running_statistics(AVERAGE_KEPT)
    }

    /// Returns the descriptor of the launch that replaces a value completely.
    pub(crate) const fn replacing() -> Descriptor {
        Descriptor::running_statistics(ZERO)
    }
}
