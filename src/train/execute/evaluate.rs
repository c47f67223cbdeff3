//! Forward passes: evaluation, and statistics of batch norm.

use crate::{
    Error, Inputs, Tensor, Var,
    graph::{Purpose, Trace},
    train::{Trainer, execute::ExecutionMode, state::DeviceOutput},
};
use gradscale_core::{
    backend::{Backend, UpdateGuard},
    stats::Detail,
};
use pollster::block_on;
use std::sync::Arc;

impl<B: Backend> Trainer<B> {
    /// Runs a network in evaluation mode, and returns its result as f32 values, converted from halves if needed.
    ///
    /// # Errors
    /// A network that does not fit the batch or returns integers, a prefetched batch that is outdated, or the device's.
    pub fn evaluate<'a, const N: usize>(
        &mut self, batch: impl Into<Inputs<'a, N>>, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Tensor, Error<B::Error>> {
        block_on(self.non_blocking().evaluate(batch, net))
    }

    /// Runs a network that returns integers in evaluation mode, for example the classes of [`Var::argmax`].
    ///
    /// ```
    /// # use gradscale::{Input, Cpu, Method, Parameters, Trainer, optim::Sgd};
    /// # let mut trainer = Trainer::new(Cpu::new(1)?, Parameters::seeded(0), Sgd::new(0.5), Method::mixed())?;
    /// let scores = [0.1, 0.7, 0.2, 0.5, 0.4, 0.1];
    /// let classes = trainer.evaluate_integers([Input::f32([2, 3], &scores)], |[x]| x.argmax())?;
    /// assert_eq!(classes.data, [1, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A network that does not fit the batch or returns f32 or halves, a prefetched batch that is outdated, or the
    /// device's.
    pub fn evaluate_integers<'a, const N: usize>(
        &mut self, batch: impl Into<Inputs<'a, N>>, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Tensor<u32>, Error<B::Error>> {
        block_on(self.non_blocking().evaluate_integers(batch, net))
    }

    /// Runs the program of a trace in evaluation mode. Its result stays on the device.
    pub(in crate::train) async fn evaluate_of<const N: usize>(
        &mut self, trace: &Arc<Trace>, batch: &Inputs<'_, N>,
    ) -> Result<DeviceOutput, Error<B::Error>> {
        let output = &trace.nodes[trace.output];
        let program = self.program(trace, self.evaluation_purpose(), "")?;
        self.round_averages(program).map_err(Error::Device)?;
        self.execute(program, Some(batch), ExecutionMode::Continue).await?;
        Ok(DeviceOutput { name: output.name.clone(), value: self.exec.program(program).output, shape: output.shape })
    }

    /// Runs a network in training mode only to update its running statistics. They keep the share `keep`, and take the
    /// rest from this batch. With keep = i / (i + 1) for i = 0, 1, 2 … they become the mean over all batches. Do that
    /// before an evaluation if the weights have changed quickly.
    ///
    /// # Errors
    /// A network that does not fit the batch, a prefetched batch that is outdated, or the device's.
    pub fn update_statistics<'a, const N: usize>(
        &mut self, keep: f32, batch: impl Into<Inputs<'a, N>>, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<(), Error<B::Error>> {
        block_on(self.non_blocking().update_statistics(keep, batch, net))
    }

    /// Runs a trace in training mode, and updates the running statistics of batch norm from it.
    pub(in crate::train) async fn statistics_of<const N: usize>(
        &mut self, keep: f32, trace: &Arc<Trace>, batch: &Inputs<'_, N>,
    ) -> Result<(), Error<B::Error>> {
        let program = self.program(trace, Purpose::Statistics, "")?;
        let (hyperparameters, detail) =
            (self.optimizer.hyperparameters(&self.steps, self.settings.shares_kept(keep)), Detail::None);
        let (hyperparameters, detail) = (
            std::mem::replace(&mut self.hyperparameters, hyperparameters),
            std::mem::replace(&mut self.detail, detail),
        );
        let statistics = self.exec.program(program).statistics.clone();
        let waiting = Purpose::Statistics.statistics();
        let ran = self.execute(program, Some(batch), ExecutionMode::Continue).await;
        let updated = ran.and_then(|()| {
            let operations = self.statistics(&statistics, waiting, UpdateGuard::default()).map_err(Error::Device)?;
            operations.iter().try_for_each(|operation| self.exec.run(operation)).map_err(Error::Device)
        });
        // The hyperparameters of a step in progress must not change.
        (self.hyperparameters, self.detail) = (hyperparameters, detail);
        updated.and_then(|()| self.upload_control(0..0).map_err(Error::Device))
    }
}
