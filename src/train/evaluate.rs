//! Forward passes: evaluation, and statistics of batch norm.

use super::Trainer;
use crate::{
    Error, Inputs, Tensor, Var,
    graph::{Purpose, Trace},
};
use gradscale_core::{
    backend::{Backend, Slot},
    stats::Detail,
};
use std::sync::Arc;

impl<B: Backend> Trainer<B> {
    /// Runs a network in evaluation mode and reads what it returns.
    ///
    /// # Errors
    /// A network that does not fit the batch, a batch that is not ahead any more, or the device's.
    pub fn evaluate<'a, const N: usize>(
        &mut self, batch: impl Into<Inputs<'a, N>>, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Tensor, Error<B::Error>> {
        let batch = self.checked(batch)?;
        let trace = self.trace(batch.kinds(), false, net)?;
        self.evaluate_of(&trace, &batch)
    }

    /// The evaluation of a trace.
    pub(super) fn evaluate_of<const N: usize>(
        &mut self, trace: &Arc<Trace>, batch: &Inputs<'_, N>,
    ) -> Result<Tensor, Error<B::Error>> {
        let shape = trace.nodes[trace.output].shape;
        let program = self.program(trace, Purpose::Evaluate, "")?;
        self.run_program(program, batch, 0..0)?;
        let output = self.exec.program(program).output;
        let data = self.exec.read(output.buf, output.dtype, shape.len()).map_err(Error::Device)?;
        Ok(Tensor { shape, data })
    }

    /// Runs a network in training mode for the sake of its running statistics alone: they keep the share `keep` and
    /// take the rest from this batch. With keep = i / (i + 1) for i = 0, 1, 2 … they become the mean over all batches:
    /// do that before an evaluation whose weights have moved quickly.
    ///
    /// # Errors
    /// A network that does not fit the batch, a batch that is not ahead any more, or the device's.
    pub fn update_statistics<'a, const N: usize>(
        &mut self, keep: f32, batch: impl Into<Inputs<'a, N>>, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<(), Error<B::Error>> {
        let batch = self.checked(batch)?;
        let trace = self.trace(batch.kinds(), true, net)?;
        let program = self.program(&trace, Purpose::Statistics, "")?;
        let (hyperparameters, detail) = (self.optimizer.hyperparameters(self.counters.taken, keep), Detail::None);
        let (hyperparameters, detail) = (
            std::mem::replace(&mut self.hyperparameters, hyperparameters),
            std::mem::replace(&mut self.detail, detail),
        );
        let statistics = self.exec.program(program).statistics.clone();
        let waiting = Purpose::Statistics.statistics();
        let ran = self.run_program(program, &batch, 0..0);
        let none = Slot::FIRST.0..Slot::FIRST.0;
        let updated = ran.and_then(|()| {
            let operations = self.statistics(&statistics, waiting, none).map_err(Error::Device)?;
            operations.iter().try_for_each(|operation| self.exec.run(operation)).map_err(Error::Device)
        });
        // A step in progress finds its hyperparameters as it left them.
        (self.hyperparameters, self.detail) = (hyperparameters, detail);
        updated.and_then(|()| self.send(0..0).map_err(Error::Device))
    }
}
