//! Guard of an optimizer's step: it is only taken if all gradients are finite.

use crate::{NextAction, Outcome, Scaler};
use burn::{
    module::{Module, ModuleVisitor, Param},
    optim::GradientsParams,
    tensor::Tensor,
};
use std::convert::Infallible;

/// Step guard between the backward pass and the optimizer. It collects the statistics of all sites, and lets the
/// optimizer step if all gradients of parameters are finite.
#[derive(Clone, Debug)]
pub struct StepGuard {
    scaler: Scaler,
}

impl StepGuard {
    /// Creates a guard for a model whose cast sites belong to this scaler.
    #[must_use]
    pub fn new(scaler: &Scaler) -> Self {
        Self { scaler: scaler.clone() }
    }

    /// Runs one training step: runs the batch forward and backward, again if it overflows FP16 at the exponents in
    /// force, and calls `update` for the optimizer's step. If the batch is skipped, the model is returned unchanged and
    /// `update` is not called. `loss` is called once for each pass; dropout draws again.
    pub fn step<M: Module>(
        &self, model: M, loss: impl Fn(&M) -> Tensor<1>, update: impl FnOnce(M, GradientsParams) -> M,
    ) -> (M, Outcome) {
        let pass = || {
            let gradients = GradientsParams::from_grads(loss(&model).backward(), &model);
            let found_inf = !finite(&model, &gradients);
            Ok::<_, Infallible>((gradients, found_inf))
        };
        let Ok((gradients, outcome)) = self.scaler.run_batch(pass);
        let model = match gradients {
            Some(gradients) => update(model, gradients),
            None => model,
        };
        (model, outcome)
    }

    /// Ends a pass of a loop that calls `backward` itself, or the passes of several micro-batches whose gradients were
    /// added. If a batch overflows and `repeatable` is true, because the caller can run it again, it returns
    /// [`NextAction::Repeat`]. Otherwise the batch is skipped, because of
    /// [`SkipCause::Again`](crate::SkipCause::Again).
    pub fn end_pass<M: Module>(&self, model: &M, gradients: &GradientsParams, repeatable: bool) -> NextAction {
        self.scaler.end_pass(!finite(model, gradients), repeatable)
    }
}

/// Returns true if all gradients of a model's parameters are finite.
fn finite<M: Module>(model: &M, gradients: &GradientsParams) -> bool {
    let mut all = Finite { gradients, finite: true };
    model.visit(&mut all);
    all.finite
}

struct Finite<'a> {
    gradients: &'a GradientsParams,
    finite: bool,
}

impl ModuleVisitor for Finite<'_> {
    /// Computed on the host, because a shader may assume that there are neither NaN nor infinities.
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id).filter(|_| self.finite) {
            let data = gradient.into_data();
            self.finite = match data.as_slice::<f32>() {
                Ok(values) => values.iter().all(|value| value.is_finite()),
                Err(_) => data.iter::<f64>().all(f64::is_finite),
            };
        }
    }
}
