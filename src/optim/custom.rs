//! Custom optimizers.

use crate::{Shape, Var};
use gradscale_core::ops::ShapeError;
use std::fmt;

/// Trait of a custom update rule, written with the operators of networks. It runs in f32, is recorded with the step,
/// and does nothing if a gradient is not finite. [`Sgd`](super::Sgd), [`Adam`](super::Adam) and
/// [`AdamW`](super::AdamW) are one launch for all weights; a custom rule needs a launch for each operator and weight.
///
/// A checkpoint stores the `Debug` output of a rule, and loading it fails if that differs. Derive `Debug`, so that all
/// settings of the rule are compared.
///
/// ```
/// use gradscale::{Cpu, Method, Parameters, Trainer, Var, nn::Linear, optim::{UpdateInput, UpdateOutput, Optimizer, CustomOptimizer}};
///
/// /// Sign of the momentum (Bernstein et al. 2018).
/// #[derive(Debug)]
/// struct Signum { lr: f64, beta: f32 }
///
/// impl CustomOptimizer for Signum {
///     fn lr(&self) -> f64 { self.lr }
///     fn states(&self) -> usize { 1 }
///     fn update<'t>(&self, of: UpdateInput<'t>) -> UpdateOutput<'t> {
///         let momentum = of.states[0] * self.beta + of.gradient * (1.0 - self.beta);
///         UpdateOutput { weight: of.weight - momentum.sign() * of.lr, states: vec![momentum] }
///     }
/// }
///
/// let mut parameters = Parameters::seeded(0);
/// let net = Linear::new(&mut parameters.at("net"), 2, 2);
/// let optimizer = Optimizer::custom(Signum { lr: 0.01, beta: 0.9 }).clip_norm(1.0);
/// let trainer = Trainer::new(Cpu::new(1)?, parameters, optimizer, Method::mixed())?;
/// # let _ = (net, trainer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait CustomOptimizer: fmt::Debug + Send + Sync + 'static {
    /// Returns the learning rate of the rule, before the schedule's factor.
    fn lr(&self) -> f64;

    /// Returns the weight decay of weights outside of all groups. [`CustomOptimizer::update`] must apply it.
    fn decay(&self) -> f32 {
        0.0
    }

    /// Returns the number of state tensors for each weight, which start at 0; at most 4.
    fn states(&self) -> usize {
        0
    }

    /// Returns the shape of state number `state` of a weight with the shape `weight`; by default it is the same. For
    /// example, [`Adafactor`](super::Adafactor) keeps one number for each row and each column. A weight's states must
    /// always have the same shapes.
    fn state_shape(&self, state: usize, weight: Shape) -> Shape {
        let _ = state;
        weight
    }

    /// Checks the rule's settings. [`Trainer::new`](crate::Trainer::new) calls it, and fails with the number that is out
    /// of range.
    ///
    /// # Errors
    /// A coefficient that is out of range: [`ShapeError::Value`].
    fn check(&self) -> Result<(), ShapeError> {
        Ok(())
    }

    /// Returns numbers that change from step to step (for example bias corrections), for the step after `step` others.
    fn numbers(&self, step: u64) -> Vec<f32> {
        let _ = step;
        Vec::new()
    }

    /// Computes the weight and its states after a step, as many states as before. An update is traced once for each
    /// weight, so it cannot depend on values; values that change from step to step are passed as `lr` and `numbers`.
    fn update<'t>(&self, of: UpdateInput<'t>) -> UpdateOutput<'t>;
}

/// Inputs of a custom optimizer's update of one weight.
#[derive(Clone, Debug)]
pub struct UpdateInput<'t> {
    /// Weight before the update, in its shape.
    pub weight: Var<'t>,
    /// Gradient of the weight: f32, unscaled, clipped by the optimizer's settings.
    pub gradient: Var<'t>,
    /// Optimizer states of the weight before the update.
    pub states: Vec<Var<'t>>,
    /// Learning rate of the weight's group in this step, a scalar.
    pub lr: Var<'t>,
    /// Numbers of this step from [`CustomOptimizer::numbers`], a scalar each.
    pub numbers: Vec<Var<'t>>,
    /// Weight decay coefficient of the parameter group that the weight is in.
    pub decay: f32,
}

impl<'t> UpdateInput<'t> {
    /// Returns the gradient with weight decay added to it: g + decay·w.
    pub fn decayed_gradient(&self) -> Var<'t> {
        if self.decay == 0.0 { self.gradient } else { self.gradient + self.weight * self.decay }
    }
}

/// Results of a custom optimizer's update of one weight.
#[derive(Clone, Debug)]
pub struct UpdateOutput<'t> {
    /// Weight after the update, in its shape.
    pub weight: Var<'t>,
    /// Optimizer states after the update, as many as before.
    pub states: Vec<Var<'t>>,
}
