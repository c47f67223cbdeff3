//! Loops over parameters.

use super::kernels;

/// The numbers of one step of stochastic gradient descent.
#[derive(Clone, Copy, Debug)]
pub struct Sgd {
    pub lr: f32,
    pub momentum: f32,
    pub nesterov: bool,
    pub decay: f32,
    /// Greatest magnitude of a gradient, or ∞, and what it is multiplied by then.
    pub most: f32,
    pub coefficient: f32,
}

kernels! {
    /// core's `Rule::Sgd`.
    fn sgd[](weights: &mut [f32], gradients: &[f32], states: &mut [f32], step: Sgd) {
        for ((w, &g), v) in weights.iter_mut().zip(gradients).zip(states) {
            let g = g.clamp(-step.most, step.most) * step.coefficient + step.decay * *w;
            *v = step.momentum * *v + g;
            let d = if step.nesterov { g + step.momentum * *v } else { *v };
            *w -= step.lr * d;
        }
    }
}
