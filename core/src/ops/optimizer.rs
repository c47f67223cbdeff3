//! Updates of parameters.

use super::ShapeError;
use crate::backend::Hyperparameter;

/// An update rule. What a schedule moves is a [`Hyperparameter`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// v ← momentum·v + g; w ← w − lr·v, with Nesterov's w ← w − lr·(g + momentum·v). One state: v, from 0; none
    /// without momentum.
    Sgd {
        /// In [0, 1).
        momentum: f32,
        /// Whether to look ahead.
        nesterov: bool,
    },
    /// m ← β₁m + (1 − β₁)g; v ← β₂v + (1 − β₂)g²; w ← w − lr·(m/c₁)/(√(v/c₂) + eps). Two states, from 0.
    Adam {
        /// β₁ and β₂, in [0, 1).
        beta: [f32; 2],
        /// At least 10^-17: where devices flush f32 subnormals, v vanishes and a smaller one lets the update explode.
        eps: f32,
        /// c₁ = 1 − β₁ᵗ and c₂ = 1 − β₂ᵗ.
        correction: [Hyperparameter; 2],
        /// AdamW: weight decay acts on the weight, not on the gradient.
        decoupled: bool,
    },
    /// w ← keep·w + (1 − keep)·g: running statistics, whose "gradient" is the batch's. No state; no learning rate,
    /// decay or clipping.
    Ema {
        /// Share that stays.
        keep: Hyperparameter,
    },
}

crate::codes!(Rule {
    Self::Sgd { .. } => 0 "RULE_SGD",
    Self::Adam { .. } => 1 "RULE_ADAM",
    Self::Ema { .. } => 2 "RULE_EMA",
});

/// One launch over all parameters of a group: clip, decay, update, in this order (spec, section 10).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimizer {
    rule: Rule,
    lr: Hyperparameter,
    decay: f32,
    max_value: Option<f32>,
    max_norm: Option<f32>,
}

impl Optimizer {
    /// No decay, no clipping.
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

    /// Running statistics, of which `keep` stays.
    #[must_use]
    pub const fn running_statistics(keep: Hyperparameter) -> Self {
        Self { rule: Rule::Ema { keep }, lr: keep, decay: 0.0, max_value: None, max_norm: None }
    }

    /// With weight decay.
    ///
    /// # Errors
    /// [`ShapeError::Value`] if it is negative or not finite.
    pub fn decay(self, decay: f32) -> Result<Self, ShapeError> {
        if decay >= 0.0 && decay.is_finite() { Ok(Self { decay, ..self }) } else { Err(ShapeError::Value(decay)) }
    }

    /// With every gradient clipped to ±`most`.
    ///
    /// # Errors
    /// [`ShapeError::Value`] if it is not positive.
    pub fn max_value(self, most: f32) -> Result<Self, ShapeError> {
        if most > 0.0 { Ok(Self { max_value: Some(most), ..self }) } else { Err(ShapeError::Value(most)) }
    }

    /// With all gradients scaled down together to the norm `most`.
    ///
    /// # Errors
    /// [`ShapeError::Value`] if it is not positive.
    pub fn max_norm(self, most: f32) -> Result<Self, ShapeError> {
        if most > 0.0 { Ok(Self { max_norm: Some(most), ..self }) } else { Err(ShapeError::Value(most)) }
    }

    /// The rule.
    #[must_use]
    pub const fn rule(&self) -> Rule {
        self.rule
    }

    /// The learning rate.
    #[must_use]
    pub const fn lr(&self) -> Hyperparameter {
        self.lr
    }

    /// Weight decay.
    #[must_use]
    pub const fn weight_decay(&self) -> f32 {
        self.decay
    }

    /// Greatest magnitude and greatest norm of gradients.
    #[must_use]
    pub const fn limits(&self) -> [Option<f32>; 2] {
        [self.max_value, self.max_norm]
    }

    /// States that the rule keeps for each parameter.
    #[must_use]
    pub fn states(&self) -> usize {
        match self.rule {
            Rule::Sgd { momentum, .. } => usize::from(momentum != 0.0),
            Rule::Adam { .. } => 2,
            Rule::Ema { .. } => 0,
        }
    }

    /// The update with this step's hyperparameters, and the norm of all gradients where it clips by that.
    #[must_use]
    pub fn step(&self, hyperparameter: impl Fn(Hyperparameter) -> f32, norm: Option<f32>) -> Step {
        let coefficient = match (self.max_norm, norm) {
            // No epsilon: a norm below the limit gives exactly 1.
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

/// The scalar meaning of one update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    optimizer: Optimizer,
    lr: f32,
    coefficient: f32,
    /// Adam: corrections. Ema: the share that stays.
    numbers: [f32; 2],
}

impl Step {
    /// The learning rate, the clipping coefficient, and the rule's numbers of this step, for kernels.
    #[must_use]
    pub const fn numbers(&self) -> [f32; 4] {
        [self.lr, self.coefficient, self.numbers[0], self.numbers[1]]
    }

    /// The new weight and states, from weight, gradient and states.
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
