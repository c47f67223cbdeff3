//! An optimizer's step that is only taken with gradients that are finite.

use crate::{End, Outcome, Scaler};
use burn::{
    module::{Module, ModuleVisitor, Param},
    optim::GradientsParams,
    tensor::Tensor,
};
use std::convert::Infallible;

/// Stands between the backward pass and the optimizer: takes what all sites have seen, and lets the step be taken if all
/// gradients of parameters are finite.
#[derive(Clone, Debug)]
pub struct Guard {
    scaler: Scaler,
}

impl Guard {
    /// For a model whose sites belong to this scaler.
    #[must_use]
    pub fn new(scaler: &Scaler) -> Self {
        Self { scaler: scaler.clone() }
    }

    /// One step: runs the batch forward and backward, again if it does not fit FP16 at the exponents in force, and lets
    /// `update` take an optimizer's step. Where the batch is left out, the model comes back as it was and `update` is not
    /// called. `loss` is called once for each pass; dropout draws anew.
    pub fn step<M: Module>(
        &self, model: M, loss: impl Fn(&M) -> Tensor<1>, update: impl FnOnce(M, GradientsParams) -> M,
    ) -> (M, Outcome) {
        let pass = || {
            let gradients = GradientsParams::from_grads(loss(&model).backward(), &model);
            let found_inf = !finite(&model, &gradients);
            Ok::<_, Infallible>((gradients, found_inf))
        };
        let Ok((gradients, outcome)) = self.scaler.run(pass);
        let model = match gradients {
            Some(gradients) => update(model, gradients),
            None => model,
        };
        (model, outcome)
    }

    /// For a loop that calls `backward` itself: what to do after it, or after the backward passes of several micro-batches
    /// whose gradients were added. Where `repeatable` says that the same batch can come again, one that does not fit is
    /// answered by [`End::Repeat`]; else it is left out, because of [`Cause::Again`](crate::Cause::Again).
    pub fn end<M: Module>(&self, model: &M, gradients: &GradientsParams, repeatable: bool) -> End {
        self.scaler.end(!finite(model, gradients), repeatable)
    }
}

/// Whether all gradients of a model's parameters are finite.
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
    /// On the host: a shader may take it that there are neither NaN nor infinities.
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
