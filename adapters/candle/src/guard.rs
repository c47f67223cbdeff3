//! Guard of an optimizer's step: it is only taken if all gradients are finite.

use crate::{NextAction, Outcome, Scaler};
use candle_core::{Result, Tensor, Var, backprop::GradStore};

/// Step guard between the backward pass and the optimizer. It collects the statistics of all sites, and lets the
/// optimizer step if all gradients of parameters are finite.
#[derive(Clone, Debug)]
pub struct StepGuard {
    scaler: Scaler,
    parameters: Vec<Var>,
}

impl StepGuard {
    /// Creates a guard for a model whose sites belong to this scaler; `parameters` are those of `all_vars` of a
    /// `VarMap`.
    #[must_use]
    pub fn new(scaler: &Scaler, parameters: Vec<Var>) -> Self {
        Self { scaler: scaler.clone(), parameters }
    }

    /// Runs one training step: runs the batch forward and backward, again if it overflows FP16 at the exponents in
    /// force, and calls `update` for the optimizer's step. If the batch is skipped, `update` is not called. `loss` is
    /// called once for each pass; dropout draws again.
    ///
    /// # Errors
    /// Errors of `loss`, of the backward pass and of `update`.
    pub fn step(
        &self, loss: impl Fn() -> Result<Tensor>, update: impl FnOnce(&GradStore) -> Result<()>,
    ) -> Result<Outcome> {
        let pass = || {
            let gradients = loss()?.backward()?;
            let found_inf = !self.finite(&gradients)?;
            Ok::<_, candle_core::Error>((gradients, found_inf))
        };
        let (gradients, outcome) = self.scaler.run_batch(pass)?;
        gradients.as_ref().map_or(Ok(()), update)?;
        Ok(outcome)
    }

    /// Ends a pass of a loop that calls `backward` itself, or the passes of several micro-batches whose gradients were
    /// added. If a batch overflows and `repeatable` is true, because the caller can run it again, it returns
    /// [`NextAction::Repeat`]. Otherwise the batch is skipped, because of
    /// [`SkipCause::Again`](crate::SkipCause::Again).
    ///
    /// # Errors
    /// Errors of candle.
    pub fn end_pass(&self, gradients: &GradStore, repeatable: bool) -> Result<NextAction> {
        Ok(self.scaler.end_pass(!self.finite(gradients)?, repeatable))
    }

    /// Returns true if all gradients of parameters are finite.
    fn finite(&self, gradients: &GradStore) -> Result<bool> {
        for gradient in self.parameters.iter().filter_map(|var| gradients.get(var)) {
            // The product is 0, or NaN for a value that is not finite.
            if (gradient * 0.0)?.sum_all()?.to_scalar::<f32>()? != 0.0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
