//! Forward and backward pass, from a batch to gradients.

use crate::{
    Error, InputType, Pass, TraceError, Var,
    error::{OperandMismatch, TraceErrorKind},
    graph::{Fixed, NodeKind, ParamTensor, Purpose, Tape, Trace},
    train::{Gradients, Trainer, distributed::MicroBatch, execute::ExecutionMode},
};
use gradscale_core::{backend::Backend, ops::ShapeError, stats::Detail};
use pollster::block_on;
use std::sync::Arc;

/// Pass over a batch that is traced, compiled and checked, and can be executed.
#[derive(Debug)]
pub(in crate::train) struct PreparedPass {
    pub program: usize,
    pub mode: ExecutionMode,
    /// Name of the loss, if there are several; otherwise empty.
    loss: String,
    /// Gradients of the earlier micro-batches of the step, if there are any.
    gradients: Option<Gradients>,
}

impl<B: Backend> Trainer<B> {
    /// Runs a network forward and backward over a batch, or over a [`Pass`] with options. The closure is traced each
    /// time, and compiled if its trace is new.
    ///
    /// # Errors
    /// A network that does not fit the batch, a prefetched batch that is outdated, or the device's. With
    /// [`Pass::accumulate`], gradients that are not this trainer's latest, or of another loss.
    pub fn backward<'a, const N: usize>(
        &mut self, pass: impl Into<Pass<'a, N>>, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Gradients, Error<B::Error>> {
        block_on(self.non_blocking().backward(pass, net))
    }

    /// Prepares a pass: its program, and the detail that the step observes. With `gradients` it adds a micro-batch to
    /// them.
    pub(in crate::train) fn prepare(
        &mut self, trace: &Arc<Trace>, loss: &str, mut gradients: Option<Gradients>,
    ) -> Result<PreparedPass, Error<B::Error>> {
        if gradients.is_none() && self.ranks.micro_batch != MicroBatch::Subsequent && self.sites.forward_active() {
            self.compile_scaled_programs()?;
        }
        let slots = self.sites.len();
        let loss = gradients.as_ref().map_or(loss, |gradients| &gradients.loss).to_owned();
        let program = self.program(trace, Purpose::Train { later: gradients.is_some() }, &loss)?;
        let mode = match &mut gradients {
            Some(gradients) => {
                if self.sites.len() != slots {
                    // A table cannot grow inside a step.
                    return Err(TraceError::new("backward", TraceErrorKind::NewSites).into());
                }
                self.extend_gradients(gradients, program)?;
                ExecutionMode::Continue
            }
            None => {
                let continues_step = self.ranks.micro_batch == MicroBatch::Subsequent;
                if continues_step && self.sites.len() != slots {
                    return Err(TraceError::new("step_micro_batches", TraceErrorKind::NewSites).into());
                }
                self.exec.begin(program);
                self.generations.gradients += 1;
                if continues_step { ExecutionMode::Continue } else { self.begin_attempt(program)? }
            }
        };
        self.counters.seed += 1;
        Ok(PreparedPass { program, mode, loss, gradients })
    }

    /// Returns the gradients of an executed pass.
    pub(in crate::train) fn finish_pass(
        &mut self, pass: PreparedPass, executed: Result<(), Error<B::Error>>,
    ) -> Result<Gradients, Error<B::Error>> {
        // A failed pass may be tried again, with the same dropout seed.
        executed.inspect_err(|_| self.counters.seed -= 1)?;
        let PreparedPass { program, loss, gradients, .. } = pass;
        if let Some(gradients) = gradients {
            return Ok(Gradients { micro: gradients.micro + 1, program, ..gradients });
        }
        self.live_backward = Some(program);
        let order = self.exec.program(program).order.clone();
        let contributes = self.exec.program(program).contributes.clone();
        let statistics = self.exec.program(program).statistics.clone();
        let (trainer, serial) = (self.generations.trainer, self.generations.gradients);
        Ok(Gradients { trainer, serial, program, micro: 1, contributes, statistics, loss, order, clip: None })
    }

    /// Sets hyperparameters and observed detail of an attempt at a step. Returns its execution mode.
    pub(in crate::train) fn begin_attempt(&mut self, program: usize) -> Result<ExecutionMode, Error<B::Error>> {
        let order = &self.exec.program(program).order;
        let at_once = order.iter().any(|&slot| self.sites.at_once(slot));
        self.detail = if at_once { Detail::Moments } else { self.sites.detail(order).max(self.settings.least) };
        let hyperparameters =
            self.optimizer.hyperparameters(&self.steps, self.settings.shares_kept(self.settings.momentum));
        if let Some(&wrong) =
            self.optimizer.rates_of(&hyperparameters).iter().find(|rate| !(**rate >= 0.0 && rate.is_finite()))
        {
            return Err(Error::Optimizer(ShapeError::Value(wrong)));
        }
        self.hyperparameters = hyperparameters;
        Ok(self.execution_mode(program))
    }

    /// Extends the gradients of earlier micro-batches with the parameters, running statistics and rows of another
    /// program.
    fn extend_gradients(&mut self, gradients: &mut Gradients, program: usize) -> Result<(), Error<B::Error>> {
        // A parameter that has had no gradient in this step starts from zeros.
        for id in self.exec.program(program).contributes.clone() {
            if !gradients.contributes.contains(&id) {
                self.clear_gradient(id).map_err(Error::Device)?;
                gradients.contributes.push(id);
            }
        }
        for (id, calls) in self.exec.program(program).statistics.clone() {
            match gradients.statistics.iter_mut().find(|(known, _)| *known == id) {
                Some((_, all)) => *all += calls,
                None => {
                    // With "each call" the running statistics start from their current values; otherwise their sums
                    // start from zeros.
                    let begun = if self.settings.each_call {
                        self.convert(id, ParamTensor::Master, ParamTensor::Gradient)
                    } else {
                        self.clear_gradient(id)
                    };
                    begun.map_err(Error::Device)?;
                    gradients.statistics.push((id, calls));
                }
            }
        }
        for slot in self.exec.program(program).order.clone() {
            if !gradients.order.contains(&slot) {
                gradients.order.push(slot);
            }
        }
        Ok(())
    }

    fn clear_gradient(&mut self, id: usize) -> Result<(), B::Error> {
        self.exec.clear(Fixed::tensor(id, ParamTensor::Gradient), self.parameters.len(id))
    }

    pub(in crate::train) fn check_gradients(&self, gradients: &Gradients) -> Result<(), Error<B::Error>> {
        let fits = gradients.trainer == self.generations.trainer && gradients.serial == self.generations.gradients;
        if fits { Ok(()) } else { Err(Error::Gradients) }
    }

    /// Checks that a pass can add to these gradients; `loss` is its loss, if it names one.
    pub(in crate::train) fn check_accumulation(
        &self, gradients: &Gradients, loss: Option<&str>,
    ) -> Result<(), Error<B::Error>> {
        self.check_gradients(gradients)?;
        match loss {
            Some(loss) if loss != gradients.loss => {
                Err(Error::Program("compiled for another loss than the earlier passes of this step"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Traces a network over inputs of these types.
    pub(in crate::train) fn trace<const N: usize>(
        &self, inputs: [InputType; N], training: bool, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Arc<Trace>, TraceError> {
        let tape = Tape::new(training, self.parameters.owner, self.parameters.all.len());
        let mut index = 0;
        let inputs = inputs.map(|InputType { shape, dtype }| {
            index += 1;
            tape.input(index - 1, shape, dtype)
        });
        let output = net(inputs).id();
        tape.finish(output).map(Arc::new)
    }
}

/// Checks that a batch has the shapes and types of the inputs that were traced.
pub(in crate::train) fn fits<const N: usize>(trace: &Trace, batch: [InputType; N]) -> Result<(), TraceError> {
    let inputs = trace.nodes.iter().take_while(|node| matches!(node.work, NodeKind::Input(_)));
    for (i, (InputType { shape, dtype }, node)) in batch.into_iter().zip(inputs.clone()).enumerate() {
        let wrong = |kind: TraceErrorKind| Err(TraceError::new(&format!("input{i}"), kind));
        if shape != node.shape {
            let expected = node.shape.sizes().map(Some);
            let mismatch = OperandMismatch { layer: None, operand: "batch", got: shape, integers: None, expected };
            return wrong(TraceErrorKind::Mismatch(Box::new(mismatch)));
        }
        if let NodeKind::Input(takes) = &node.work
            && *takes != dtype
        {
            let (what, takes) = ("the batch of the compiled step", vec![*takes]);
            return wrong(TraceErrorKind::Type { what, takes, got: dtype });
        }
    }
    let inputs = inputs.count();
    if inputs == N {
        Ok(())
    } else {
        Err(TraceError::new("backward_compiled", TraceErrorKind::Inputs { got: N, with: inputs }))
    }
}
