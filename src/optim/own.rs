//! Optimizers of one's own.

use crate::Var;
use std::fmt;

/// A rule of one's own: what becomes of a weight, written with the operators of networks. It runs in f32, is recorded
/// with the step, and does nothing where a gradient is not finite, as the rules that are built in; those are one launch
/// for all weights, this is a launch for each operator and weight.
///
/// A checkpoint holds what `Debug` writes of a rule, and is refused where that is not the same: derive it, and all
/// numbers of the rule are compared.
///
/// ```
/// use gradscale::{Cpu, Method, Parameters, Trainer, Var, nn::Linear, optim::{Given, Next, Optimizer, Own}};
///
/// /// Sign of the momentum (Bernstein et al. 2018).
/// #[derive(Debug)]
/// struct Signum { lr: f64, beta: f32 }
///
/// impl Own for Signum {
///     fn lr(&self) -> f64 { self.lr }
///     fn states(&self) -> usize { 1 }
///     fn update<'t>(&self, of: Given<'t>) -> Next<'t> {
///         let momentum = of.states[0] * self.beta + of.gradient * (1.0 - self.beta);
///         Next { weight: of.weight - momentum.sign() * of.lr, states: vec![momentum] }
///     }
/// }
///
/// let mut parameters = Parameters::seeded(0);
/// let net = Linear::new(&mut parameters.at("net"), 2, 2);
/// let optimizer = Optimizer::own(Signum { lr: 0.01, beta: 0.9 }).clip_norm(1.0);
/// let trainer = Trainer::new(Cpu::new(1)?, parameters, optimizer, Method::mixed())?;
/// # let _ = (net, trainer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Own: fmt::Debug + Send + Sync + 'static {
    /// Learning rate, before the schedule.
    fn lr(&self) -> f64;

    /// Weight decay of weights that no group claims. What it does is up to [`Own::update`].
    fn decay(&self) -> f32 {
        0.0
    }

    /// Tensors that are kept for each weight, of its shape, from 0; at most 4.
    fn states(&self) -> usize {
        0
    }

    /// Numbers that change from step to step (corrections of a bias), for the step that comes after `step` others.
    fn numbers(&self, step: u64) -> Vec<f32> {
        let _ = step;
        Vec::new()
    }

    /// The weight and its states after a step, as many states as before. An update is written once for each weight, so
    /// nothing here can look at values; what changes from step to step comes as `lr` and `numbers`.
    fn update<'t>(&self, of: Given<'t>) -> Next<'t>;
}

/// What an update is made from.
#[derive(Clone, Debug)]
pub struct Given<'t> {
    /// The weight, in its shape.
    pub weight: Var<'t>,
    /// Its gradient: f32, unscaled, clipped as the optimizer says.
    pub gradient: Var<'t>,
    /// What was kept of it.
    pub states: Vec<Var<'t>>,
    /// The learning rate of its group in this step: one number.
    pub lr: Var<'t>,
    /// [`Own::numbers`], one value each.
    pub numbers: Vec<Var<'t>>,
    /// Weight decay of its group.
    pub decay: f32,
}

/// What an update gives.
#[derive(Clone, Debug)]
pub struct Next<'t> {
    /// The new weight, in its shape.
    pub weight: Var<'t>,
    /// What is kept of it, as many as were given.
    pub states: Vec<Var<'t>>,
}
