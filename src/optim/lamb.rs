//! LAMB.

use super::{CustomOptimizer, UpdateInput, UpdateOutput, settings};
use crate::Var;
use gradscale_core::ops::ShapeError;

/// Settings of LAMB (You et al. 2020), for large batches: u = m̂/(√v̂ + eps) + decay·w as in [`AdamW`](super::AdamW), and
/// w ← w − lr·‖w‖/‖u‖·u for each weight tensor. The ratio of norms is 1 if one of them is 0.
///
/// It is written with the operators of networks, like a custom rule: it runs on every device, with a launch for each
/// operator and weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lamb {
    /// Learning rate of LAMB, before the schedule's factor.
    pub lr: f64,
    /// Decay rates β₁ and β₂ of LAMB's two moments, in [0, 1).
    pub betas: [f32; 2],
    /// Constant ε in LAMB's denominator, at least 10^-17.
    pub eps: f32,
    /// Weight decay of LAMB, which is part of u.
    pub weight_decay: f32,
}

impl Lamb {
    /// Creates LAMB with β 0.9 and 0.999, eps 1e-6, weight decay 0.01.
    #[must_use]
    pub const fn new(lr: f64) -> Self {
        Self { lr, betas: [0.9, 0.999], eps: 1e-6, weight_decay: 0.01 }
    }
}

impl Default for Lamb {
    /// Returns LAMB with a learning rate of 0.001.
    fn default() -> Self {
        Self::new(1e-3)
    }
}

impl CustomOptimizer for Lamb {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn decay(&self) -> f32 {
        self.weight_decay
    }

    fn states(&self) -> usize {
        2
    }

    fn check(&self) -> Result<(), ShapeError> {
        settings::check_shares(&self.betas)?;
        settings::check_eps(self.eps)
    }

    /// Returns the reciprocal bias corrections 1/(1 − β₁ᵗ) and 1/(1 − β₂ᵗ).
    #[expect(clippy::cast_possible_truncation, reason = "rounded")]
    fn numbers(&self, step: u64) -> Vec<f32> {
        let t = i32::try_from(step.saturating_add(1)).unwrap_or(i32::MAX);
        self.betas.iter().map(|&beta| (1.0 / (1.0 - f64::from(beta).powi(t))) as f32).collect()
    }

    fn update<'t>(&self, of: UpdateInput<'t>) -> UpdateOutput<'t> {
        let [beta1, beta2] = self.betas;
        let m = of.states[0] * beta1 + of.gradient * (1.0 - beta1);
        let v = of.states[1] * beta2 + of.gradient.square() * (1.0 - beta2);
        let mut update = m * of.numbers[0] / ((v * of.numbers[1]).pow(0.5) + self.eps);
        if of.decay != 0.0 {
            update = update + of.weight * of.decay;
        }
        let rate = norm_ratio(of.weight, update) * of.lr;
        UpdateOutput { weight: of.weight - update * rate, states: vec![m, v] }
    }
}

/// Returns ‖a‖/‖b‖, or 1 if one of them is 0: a scalar.
fn norm_ratio<'t>(a: Var<'t>, b: Var<'t>) -> Var<'t> {
    let [a, b] = [a, b].map(|x| x.square().sum().pow(0.5));
    // 0 if one of the norms is 0, otherwise 1.
    let both = a.sign() * b.sign();
    let neither = both.affine(-1.0, 1.0);
    both * a / (b + neither) + neither
}
