//! An optimizer's step that is only taken with gradients that are finite.

use crate::{End, Outcome, Scaler};
use candle_core::{Result, Tensor, Var, backprop::GradStore};

/// Stands between the backward pass and the optimizer: takes what all sites have seen, and lets the step be taken if all
/// gradients of parameters are finite.
#[derive(Clone, Debug)]
pub struct Guard {
    scaler: Scaler,
    parameters: Vec<Var>,
}

impl Guard {
    /// For a model whose sites belong to this scaler; its parameters are what a `VarMap` calls `all_vars`.
    #[must_use]
    pub fn new(scaler: &Scaler, parameters: Vec<Var>) -> Self {
        Self { scaler: scaler.clone(), parameters }
    }

    /// One step: runs the batch forward and backward, again if it does not fit FP16 at the exponents in force, and lets
    /// `update` take an optimizer's step. Where the batch is left out, `update` is not called. `loss` is called once for
    /// each pass; dropout draws anew.
    ///
    /// # Errors
    /// What `loss`, the backward pass and `update` say.
    pub fn step(
        &self, loss: impl Fn() -> Result<Tensor>, update: impl FnOnce(&GradStore) -> Result<()>,
    ) -> Result<Outcome> {
        let pass = || {
            let gradients = loss()?.backward()?;
            let found_inf = !self.finite(&gradients)?;
            Ok::<_, candle_core::Error>((gradients, found_inf))
        };
        let (gradients, outcome) = self.scaler.run(pass)?;
        gradients.as_ref().map_or(Ok(()), update)?;
        Ok(outcome)
    }

    /// For a loop that calls `backward` itself: what to do after it, or after the backward passes of several micro-batches
    /// whose gradients were added. Where `repeatable` says that the same batch can come again, one that does not fit is
    /// answered by [`End::Repeat`]; else it is left out, because of [`Cause::Again`](crate::Cause::Again).
    ///
    /// # Errors
    /// candle's.
    pub fn end(&self, gradients: &GradStore, repeatable: bool) -> Result<End> {
        Ok(self.scaler.end(!self.finite(gradients)?, repeatable))
    }

    /// Whether all gradients of parameters are finite.
    fn finite(&self, gradients: &GradStore) -> Result<bool> {
        for gradient in self.parameters.iter().filter_map(|var| gradients.get(var)) {
            // 0, or NaN if one of them is not finite.
            if (gradient * 0.0)?.sum_all()?.to_scalar::<f32>()? != 0.0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
