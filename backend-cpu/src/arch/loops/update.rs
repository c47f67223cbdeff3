//! Loops that update parameters.

use super::kernels;

/// Hyperparameters of one SGD step.
#[derive(Clone, Copy, Debug)]
pub struct Sgd {
    pub lr: f32,
    pub momentum: f32,
    pub nesterov: bool,
    pub decay: f32,
    /// Gradient clipping: largest magnitude of an element, or ∞, and the factor that is applied afterwards.
    pub max_grad: f32,
    pub grad_factor: f32,
}

/// Hyperparameters of one Adam step.
#[derive(Clone, Copy, Debug)]
pub struct Adam {
    pub lr: f32,
    pub beta: [f32; 2],
    pub eps: f32,
    /// Bias corrections 1 − β₁ᵗ and 1 − β₂ᵗ.
    pub correction: [f32; 2],
    /// Weight decay: of the gradient, or if `decoupled` of the weight itself.
    pub decay: f32,
    pub decoupled: bool,
    /// Gradient clipping, as in [`Sgd`]: largest magnitude of an element, and the factor that is applied afterwards.
    pub max_grad: f32,
    pub grad_factor: f32,
}

kernels! {
    /// Updates weights and momenta by SGD, as core's `Rule::Sgd` defines it.
    fn sgd[](weights: &mut [f32], gradients: &[f32], states: &mut [f32], step: Sgd) {
        for ((w, &g), v) in weights.iter_mut().zip(gradients).zip(states) {
            let g = g.clamp(-step.max_grad, step.max_grad) * step.grad_factor + step.decay * *w;
            *v = step.momentum * *v + g;
            let d = if step.nesterov { g + step.momentum * *v } else { *v };
            *w -= step.lr * d;
        }
    }
    /// Updates weights and both moments by Adam, as core's `Rule::Adam` defines it.
    fn adam[](weights: &mut [f32], gradients: &[f32], states: [&mut [f32]; 2], step: Adam) {
        let [first, second] = states;
        let [beta_1, beta_2] = step.beta;
        // Computed once, because a division takes as long as a dozen multiplications.
        let [first_inverse, second_inverse] = step.correction.map(|correction| 1.0 / correction);
        for (((w, &g), m), v) in weights.iter_mut().zip(gradients).zip(first).zip(second) {
            let g = g.clamp(-step.max_grad, step.max_grad) * step.grad_factor;
            let (before, g) = if step.decoupled {
                (*w - step.lr * step.decay * *w, g)
            } else {
                (*w, g + step.decay * *w)
            };
            *m = beta_1 * *m + (1.0 - beta_1) * g;
            *v = beta_2 * *v + (1.0 - beta_2) * g * g;
            let d = (*m * first_inverse) / ((*v * second_inverse).sqrt() + step.eps);
            *w = before - step.lr * d;
        }
    }

    /// Updates exponential moving averages of values, as core's `Rule::Ema` defines it.
    fn ema[](weights: &mut [f32], values: &[f32], keep: f32) {
        for (w, &v) in weights.iter_mut().zip(values) {
            *w = keep * *w + (1.0 - keep) * v;
        }
    }
}
