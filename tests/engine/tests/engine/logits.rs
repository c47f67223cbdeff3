//! Losses of several operators at nearly perfect predictions, in mixed precision. Their gradient is a small difference
//! of large terms, so its digits must exist before it is stored as half.

use crate::corners::trainer;
use gradscale::{Init, Input, Parameters, Var, nn::Linear, nn::Module};

/// dL/dw of two equal logits w = `logit` with target 1.
fn slope(logit: f32, method: &str, loss: impl for<'t> Fn(Var<'t>, Var<'t>) -> Var<'t>) -> f64 {
    let mut parameters = Parameters::seeded(1);
    let layer = Linear::with_init(&mut parameters.at("layer"), 1, 1, Init::FanIn);
    let mut trainer = trainer(parameters, method);
    trainer.set_parameter("layer.weight", &[logit]).expect("a parameter");
    let batch = [Input::f32([2, 1], &[1.0; 2]), Input::f32([2, 1], &[1.0; 2])];
    let gradients = trainer.backward(batch, |[x, target]| loss(layer.forward(x), target)).expect("it fits");
    let gradient = trainer.gradient(&gradients, "layer.weight").expect("a parameter").expect("its gradient");
    f64::from(gradient.data[0])
}

#[test]
fn a_right_answer_keeps_its_digits() {
    for logit in [2.0f32, 4.0, 8.0] {
        let x = f64::from(logit);
        let q = 1.0 / (1.0 + x.exp());
        // d/dx of −ln p, and of −¼·(1 − p)²·ln p.
        let right = [-q, -0.25 * (q.powi(3) - 2.0 * q * q * (1.0 - q) * (1.0 - q).ln())];
        let found = [
            slope(logit, "gs:exact", |x, t| x.bce_with_logits(t)),
            slope(logit, "gs:exact", |x, t| x.focal_loss(t, 0.25, 2.0)),
        ];
        for (found, right) in found.into_iter().zip(right) {
            // One store as half, and f32's σ − 1, which has lost log2 e^8 = 11.5 of its 24 bits.
            let error = (found - right).abs() / right.abs();
            assert!(error < 2f64.powi(-10), "{logit}: {found:e} instead of {right:e}");
        }
    }
}

/// No logit is too large: losses and gradients stay numbers.
#[test]
fn logits_without_limit() {
    let bce = |logit| slope(logit, "fp32", |x, t| x.bce_with_logits(t));
    let focal = |logit, gamma| slope(logit, "fp32", move |x, t| x.focal_loss(t, 0.5, gamma));
    for logit in [100.0, 1e4, 1e30] {
        assert!(bce(logit).abs() < 1e-40);
        assert!((bce(-logit) + 1.0).abs() < 1e-6);
        for gamma in [0.0, 0.5, 2.0] {
            assert!(focal(logit, gamma).abs() < 1e-40, "{logit} {gamma}");
            assert!((focal(-logit, gamma) + 0.5).abs() < 1e-6, "{logit} {gamma}: {}", focal(-logit, gamma));
        }
    }
}
