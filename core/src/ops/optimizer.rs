//! Optimizer update rules.

use super::ShapeError;
use crate::backend::Hyperparameter;

/// Update rule of an optimizer. A value that a schedule changes is a [`Hyperparameter`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// SGD: v ← momentum·v + g; w ← w − lr·v, or with Nesterov w ← w − lr·(g + momentum·v). One state, v, starting at
    /// 0; no state without momentum.
    Sgd {
        /// Momentum coefficient of SGD, in [0, 1).
        momentum: f32,
        /// True if SGD uses Nesterov momentum instead of plain momentum.
        nesterov: bool,
    },
    /// Adam: m ← β₁m + (1 − β₁)g; v ← β₂v + (1 − β₂)g²; w ← w − lr·(m/c₁)/(√(v/c₂) + eps). Two states, starting at 0.
    Adam {
        /// Decay rates β₁ and β₂ of Adam's two moments, in [0, 1).
        beta: [f32; 2],
        /// Constant ε in Adam's denominator, at least 10^-17. On devices that flush f32 subnormals v becomes 0, and
        /// with a smaller ε the update would explode.
        eps: f32,
        /// Bias corrections of Adam, c₁ = 1 − β₁ᵗ and c₂ = 1 − β₂ᵗ.
        correction: [Hyperparameter; 2],
        /// True for AdamW: weight decay acts on the weight and not on the gradient.
        decoupled: bool,
    },
    /// Exponential moving average w ← keep·w + (1 − keep)·g, for running statistics, whose "gradient" is the batch's
    /// statistic. No state, learning rate, decay or clipping.
    Ema {
        /// Fraction of the old moving average that is kept.
        keep: Hyperparameter,
    },
}

crate::codes!(Rule {
    Self::Sgd { .. } => 0 "RULE_SGD",
    Self::Adam { .. } => 1 "RULE_ADAM",
    Self::Ema { .. } => 2 "RULE_EMA",
});

/// Descriptor of one optimizer launch over all parameters of a group: clip, decay, update, in this order
/// (`docs/specification.md`, section 10).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimizer {
    rule: Rule,
    lr: Hyperparameter,
    decay: f32,
    max_value: Option<f32>,
    max_norm: Option<f32>,
}

impl Optimizer {
    /// Creates an optimizer's update without weight decay and clipping.
    ///
    /// # Errors
    /// [`ShapeError::Value`] for a momentum or β outside [0, 1), or an eps below 10^-17.
    pub fn new(rule: Rule, lr: Hyperparameter) -> Result<Self, ShapeError> {
        let share = |x: f32| if (0.0..1.0).contains(&x) { Ok(()) } else { Err(ShapeError::Value(x)) };
        match rule {
            Rule::Sgd { momentum, .. } => share(momentum)?,
            Rule::Adam { beta, eps, .. } => {
                share(beta[0])?;
                share(beta[1])?;
                if !(eps >= 1e-17 && eps.is_finite()) {
                    return Err(ShapeError::Value(eps));
                }
            }
            Rule::Ema { .. } => {}
        }
        Ok(Self { rule, lr, decay: 0.0, max_value: None, max_norm: None })
    }

    /// Creates the update of batch-norm running statistics, of which the fraction `keep` remains.
    #[must_use]
    pub const fn running_statistics(keep: Hyperparameter) -> Self {
        Self { rule: Rule::Ema { keep }, lr: keep, decay: 0.0, max_value: None, max_norm: None }
    }

    /// Sets the weight decay of the optimizer's update.
    ///
    /// # Errors
    /// [`ShapeError::Value`] if it is negative or not finite.
    pub fn decay(self, decay: f32) -> Result<Self, ShapeError> {
        if decay >= 0.0 && decay.is_finite() { Ok(Self { decay, ..self }) } else { Err(ShapeError::Value(decay)) }
    }

    /// Makes the optimizer clip every element of the gradients to ±`most`.
    ///
    /// # Errors
    /// [`ShapeError::Value`] if it is not positive.
    pub fn max_value(self, most: f32) -> Result<Self, ShapeError> {
        if most > 0.0 { Ok(Self { max_value: Some(most), ..self }) } else { Err(ShapeError::Value(most)) }
    }

    /// Makes the optimizer scale all gradients down together to the norm `most` if they exceed it.
    ///
    /// # Errors
    /// [`ShapeError::Value`] if it is not positive.
    pub fn max_norm(self, most: f32) -> Result<Self, ShapeError> {
        if most > 0.0 { Ok(Self { max_norm: Some(most), ..self }) } else { Err(ShapeError::Value(most)) }
    }

    /// Returns the optimizer's update rule.
    #[must_use]
    pub const fn rule(&self) -> Rule {
        self.rule
    }

    /// Returns the index of the learning rate among the hyperparameters.
    #[must_use]
    pub const fn lr(&self) -> Hyperparameter {
        self.lr
    }

    /// Returns the optimizer's weight decay.
    #[must_use]
    pub const fn weight_decay(&self) -> f32 {
        self.decay
    }

    /// Returns the clipping limits of gradients: maximum magnitude and maximum norm.
    #[must_use]
    pub const fn limits(&self) -> [Option<f32>; 2] {
        [self.max_value, self.max_norm]
    }

    /// Returns the number of states that the rule keeps for each parameter.
    #[must_use]
    pub fn states(&self) -> usize {
        match self.rule {
            Rule::Sgd { momentum, .. } => usize::from(momentum != 0.0),
            Rule::Adam { .. } => 2,
            Rule::Ema { .. } => 0,
        }
    }

    /// Returns the update with this step's hyperparameters, and with the norm of all gradients if it clips by norm.
    #[must_use]
    pub fn step(&self, hyperparameter: impl Fn(Hyperparameter) -> f32, norm: Option<f32>) -> Step {
        let coefficient = match (self.max_norm, norm) {
            // Without an epsilon, so that a norm below the limit gives exactly 1.
            (Some(most), Some(norm)) if norm > most => most / norm,
            _ => 1.0,
        };
        let numbers = match self.rule {
            Rule::Sgd { .. } => [0.0; 2],
            Rule::Adam { correction, .. } => correction.map(&hyperparameter),
            Rule::Ema { keep } => [hyperparameter(keep), 0.0],
        };
        Step { optimizer: *self, lr: hyperparameter(self.lr), coefficient, numbers }
    }
}

/// Scalar definition of one optimizer update, with the hyperparameter values of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    optimizer: Optimizer,
    lr: f32,
    coefficient: f32,
    /// Rule's numbers in this step. Adam: bias corrections. Ema: fraction that is kept.
    numbers: [f32; 2],
}

impl Step {
    /// Returns the numbers of this optimizer step for kernels: the learning rate, the clipping coefficient, and those
    /// of the rule.
    #[must_use]
    pub const fn numbers(&self) -> [f32; 4] {
        [self.lr, self.coefficient, self.numbers[0], self.numbers[1]]
    }

    /// Computes the new weight and states of one parameter element from weight, gradient and states.
    #[must_use]
    pub fn update(&self, w: f32, g: f32, state: [f32; 2]) -> (f32, [f32; 2]) {
        let (optimizer, lr) = (&self.optimizer, self.lr);
        if let Rule::Ema { .. } = optimizer.rule {
            let keep = self.numbers[0];
            return (keep * w + (1.0 - keep) * g, state);
        }
        let clipped = optimizer.max_value.map_or(g, |most| g.clamp(-most, most)) * self.coefficient;
        match optimizer.rule {
            Rule::Sgd { momentum, nesterov } => {
                let g = clipped + optimizer.decay * w;
                let v = momentum * state[0] + g;
                let d = if nesterov { g + momentum * v } else { v };
                (w - lr * d, [v, state[1]])
            }
            Rule::Adam { beta, eps, decoupled, .. } => {
                let (w, g) = if decoupled {
                    (w - lr * optimizer.decay * w, clipped)
                } else {
                    (w, clipped + optimizer.decay * w)
                };
                let m = beta[0] * state[0] + (1.0 - beta[0]) * g;
                let v = beta[1] * state[1] + (1.0 - beta[1]) * g * g;
                let d = (m / self.numbers[0]) / (libm::sqrtf(v / self.numbers[1]) + eps);
                (w - lr * d, [m, v])
            }
            Rule::Ema { .. } => (w, state),
        }
    }
}
