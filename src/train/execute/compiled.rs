//! Programs that are compiled once and run any number of times, without tracing a closure again.

use crate::{
    Error, InputType, Inputs, Pass, Tensor, Var,
    graph::{Purpose, Trace},
    train::{Gradients, Trainer, state::DeviceOutput, step::fits},
};
use gradscale_core::backend::Backend;
use pollster::block_on;
use std::sync::Arc;

/// A network over inputs of known shapes and types, as a trainer has compiled it. It takes part in training and
/// evaluation as a closure does; nothing is traced when it runs. A clone is the same program.
///
/// A trainer caches as many programs as [`TrainerOptions::with_programs`](crate::TrainerOptions::with_programs) allows. An
/// evicted one is compiled again when it next runs.
#[derive(Clone, Debug)]
pub struct Program<const N: usize> {
    trainer: u64,
    pub(in crate::train) trace: Arc<Trace>,
    /// Name of the loss; none of a program for evaluation.
    loss: Option<String>,
}

/// Kind of pass that [`Trainer::compile`] compiles a program for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind<'a> {
    /// Forward and backward pass, for [`Trainer::backward_compiled`].
    Training,
    /// The same for one of several losses: each has scales of its own, under its name.
    TrainingOf(&'a str),
    /// Forward pass in evaluation mode, for [`Trainer::evaluate_compiled`].
    Evaluation,
}

impl<B: Backend> Trainer<B> {
    /// Traces and compiles a network for inputs of these shapes and types, for [`Trainer::backward_compiled`] or
    /// [`Trainer::evaluate_compiled`]. Tracing happens once instead of in each step, so the host has less work, and
    /// errors of the network are found here.
    ///
    /// Compile for training between steps, because gradients that no step has used yet become invalid.
    ///
    /// ```
    /// use gradscale::{
    ///     Cpu, Input, InputType, Method, Parameters, ProgramKind, Trainer, nn::{Linear, Module}, optim::Sgd,
    /// };
    /// let mut parameters = Parameters::seeded(0);
    /// let net = Linear::new(&mut parameters.at("net"), 2, 2);
    /// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.5), Method::mixed())?;
    /// let kinds = [InputType::f32([2, 2]), InputType::u8([2])];
    /// let training = trainer.compile(ProgramKind::Training, kinds, |[x, labels]| net.forward(x).cross_entropy(labels))?;
    /// let answer = trainer.compile(ProgramKind::Evaluation, [kinds[0]], |[x]| net.forward(x).softmax())?;
    /// let (x, labels) = ([1.0, 0.0, 0.0, 1.0], [0, 1]);
    /// for _ in 0..10 {
    ///     let gradients = trainer.backward_compiled(&training, [Input::f32([2, 2], &x), Input::u8([2], &labels)])?;
    ///     trainer.step(gradients)?;
    /// }
    /// let share = trainer.evaluate_compiled(&answer, [Input::f32([2, 2], &x)])?.data;
    /// assert!(share[0] > 0.5 && share[3] > 0.5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A network that does not fit the inputs, or the device's.
    pub fn compile<const N: usize>(
        &mut self, kind: ProgramKind<'_>, inputs: [impl Into<InputType>; N],
        net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Program<N>, Error<B::Error>> {
        let loss = match kind {
            ProgramKind::Training => Some(""),
            ProgramKind::TrainingOf(loss) => Some(loss),
            ProgramKind::Evaluation => None,
        };
        let trace = self.trace(self.input_types(inputs)?, loss.is_some(), net)?;
        match loss {
            Some(loss) => {
                // A new program may take the table and the places of a step in progress.
                self.generations.gradients += 1;
                self.program(&trace, Purpose::Train { later: false }, loss)?;
            }
            None => {
                self.program(&trace, self.evaluation_purpose(), "")?;
            }
        }
        Ok(Program { trainer: self.generations.trainer, trace, loss: loss.map(str::to_owned) })
    }

    /// Runs a training pass with a program of [`Trainer::compile`] instead of a closure, as [`Trainer::backward`] does.
    /// With [`Pass::accumulate`] it must be the program with which the step began, or another one of the same loss for
    /// micro-batches of another shape.
    ///
    /// # Errors
    /// A program of another trainer, of another loss or for evaluation; a batch of other shapes or types, or a
    /// prefetched one that is outdated; gradients that are not this trainer's latest; or the device's.
    pub fn backward_compiled<'a, const N: usize>(
        &mut self, program: &Program<N>, pass: impl Into<Pass<'a, N>>,
    ) -> Result<Gradients, Error<B::Error>> {
        block_on(self.non_blocking().backward_compiled(program, pass))
    }

    /// Evaluates a program for [`ProgramKind::Evaluation`] instead of a closure, as [`Trainer::evaluate`] does.
    ///
    /// # Errors
    /// A program of another trainer or for training, a result of another type, a batch of other shapes or types, a
    /// prefetched one that is outdated, or the device's.
    pub fn evaluate_compiled<'a, const N: usize>(
        &mut self, program: &Program<N>, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<Tensor, Error<B::Error>> {
        block_on(self.non_blocking().evaluate_compiled(program, batch))
    }

    /// [`Trainer::evaluate_integers`] by a program for [`ProgramKind::Evaluation`].
    ///
    /// # Errors
    /// As [`Trainer::evaluate_compiled`].
    pub fn evaluate_compiled_integers<'a, const N: usize>(
        &mut self, program: &Program<N>, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<Tensor<u32>, Error<B::Error>> {
        block_on(self.non_blocking().evaluate_compiled_integers(program, batch))
    }

    pub(in crate::train) async fn evaluated<'a, const N: usize>(
        &mut self, program: &Program<N>, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<DeviceOutput, Error<B::Error>> {
        self.own(program)?;
        if program.loss.is_some() {
            return Err(Error::Program("compiled for training; compile it with ProgramKind::Evaluation to evaluate"));
        }
        let batch = self.fitting(program, batch)?;
        self.evaluate_of(&program.trace, &batch).await
    }

    fn input_types<const N: usize>(
        &self, inputs: [impl Into<InputType>; N],
    ) -> Result<[InputType; N], Error<B::Error>> {
        let inputs = inputs.map(Into::into);
        for (i, input) in inputs.iter().enumerate() {
            crate::graph::sizes(&format!("input{i}"), input.shape)?;
        }
        Ok(inputs)
    }

    fn own<const N: usize>(&self, program: &Program<N>) -> Result<(), Error<B::Error>> {
        if program.trainer == self.generations.trainer {
            Ok(())
        } else {
            Err(Error::Program("compiled by another trainer; compile it with this one"))
        }
    }

    /// Returns the name of a training program's loss.
    pub(in crate::train) fn training<'p, const N: usize>(
        &self, program: &'p Program<N>,
    ) -> Result<&'p str, Error<B::Error>> {
        self.own(program)?;
        program
            .loss
            .as_deref()
            .ok_or(Error::Program("compiled for evaluation; compile it with ProgramKind::Training to train"))
    }

    pub(in crate::train) fn fitting<'a, const N: usize>(
        &self, program: &Program<N>, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<Inputs<'a, N>, Error<B::Error>> {
        let batch = self.checked(batch)?;
        fits(&program.trace, batch.kinds())?;
        Ok(batch)
    }
}
