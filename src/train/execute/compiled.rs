//! Steps that are compiled once and run as often as wanted, without a closure.

use crate::{
    Error, InputType, Inputs, Tensor, Var,
    graph::{Purpose, Trace},
    train::{Gradients, Trainer, state::Left, step::fits},
};
use gradscale_core::backend::Backend;
use pollster::block_on;
use std::sync::Arc;

/// A network over inputs of known shapes and types, as a trainer has compiled it. It takes part in training and
/// evaluation as a closure does; nothing is traced when it runs. A clone is the same program.
///
/// A trainer keeps as many compiled steps as [`Trainer::with_programs`] says. One that had to go is compiled again when
/// it next runs.
#[derive(Clone, Debug)]
pub struct Program<const N: usize> {
    trainer: u64,
    pub(in crate::train) trace: Arc<Trace>,
    /// Name of the loss; none of a program for evaluation.
    loss: Option<String>,
}

impl<B: Backend> Trainer<B> {
    /// Traces and compiles a training step for inputs of these shapes and types, for [`Trainer::backward_with`]. What a
    /// closure would say in each step is said once: the host has less to do, and what does not fit is found here.
    ///
    /// Compile between steps: gradients that no step has taken yet are not valid any more.
    ///
    /// ```
    /// use gradscale::{Input, Cpu, InputType, Method, Parameters, Trainer, nn::{Linear, Module}, optim::Sgd};
    /// let mut parameters = Parameters::seeded(0);
    /// let net = Linear::new(&mut parameters.at("net"), 2, 2);
    /// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.5), Method::mixed())?;
    /// let kinds = [InputType::f32([2, 2]), InputType::u8([2])];
    /// let training = trainer.compile(kinds, |[x, labels]| net.forward(x).cross_entropy(labels))?;
    /// let answer = trainer.compile_evaluation([kinds[0]], |[x]| net.forward(x).softmax())?;
    /// let (x, labels) = ([1.0, 0.0, 0.0, 1.0], [0, 1]);
    /// for _ in 0..10 {
    ///     let gradients = trainer.backward_with(&training, [Input::f32([2, 2], &x), Input::u8([2], &labels)])?;
    ///     trainer.step(gradients)?;
    /// }
    /// let share = trainer.evaluate_with(&answer, [Input::f32([2, 2], &x)])?.data;
    /// assert!(share[0] > 0.5 && share[3] > 0.5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A network that does not fit the inputs, or the device's.
    pub fn compile<const N: usize>(
        &mut self, inputs: [impl Into<InputType>; N], net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Program<N>, Error<B::Error>> {
        self.compile_of("", inputs, net)
    }

    /// As [`Trainer::compile`], for one of several losses: each has scales of its own, under its name.
    ///
    /// # Errors
    /// As [`Trainer::compile`].
    pub fn compile_of<const N: usize>(
        &mut self, loss: &str, inputs: [impl Into<InputType>; N], net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Program<N>, Error<B::Error>> {
        let trace = self.trace(self.input_types(inputs)?, true, net)?;
        // A new program may take the table and the places of a step in progress.
        self.tickets.serial += 1;
        self.program(&trace, Purpose::Train { later: false }, loss)?;
        Ok(Program { trainer: self.tickets.id, trace, loss: Some(loss.to_owned()) })
    }

    /// Traces and compiles a forward pass in evaluation mode, for [`Trainer::evaluate_with`].
    ///
    /// # Errors
    /// A network that does not fit the inputs, or the device's.
    pub fn compile_evaluation<const N: usize>(
        &mut self, inputs: [impl Into<InputType>; N], net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Program<N>, Error<B::Error>> {
        let trace = self.trace(self.input_types(inputs)?, false, net)?;
        self.program(&trace, Purpose::Evaluate, "")?;
        Ok(Program { trainer: self.tickets.id, trace, loss: None })
    }

    /// [`Trainer::backward`] by a program of [`Trainer::compile`].
    ///
    /// # Errors
    /// A program of another trainer or for evaluation, a batch of other shapes or types, or one that is not ahead any
    /// more, or the device's.
    pub fn backward_with<'a, const N: usize>(
        &mut self, program: &Program<N>, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<Gradients, Error<B::Error>> {
        block_on(self.backward_with_async(program, batch))
    }

    /// [`Trainer::backward_more`] by a program of [`Trainer::compile`]: the one that the step began with, or another for
    /// micro-batches of another shape.
    ///
    /// # Errors
    /// As [`Trainer::backward_with`], and gradients that are not this trainer's latest.
    pub fn backward_more_with<'a, const N: usize>(
        &mut self, gradients: Gradients, program: &Program<N>, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<Gradients, Error<B::Error>> {
        block_on(self.backward_more_with_async(gradients, program, batch))
    }

    /// [`Trainer::evaluate`] by a program of [`Trainer::compile_evaluation`].
    ///
    /// # Errors
    /// A program of another trainer or for training, a result of another type, a batch of other shapes or types, or one
    /// that is not ahead any more, or the device's.
    pub fn evaluate_with<'a, const N: usize>(
        &mut self, program: &Program<N>, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<Tensor, Error<B::Error>> {
        block_on(self.evaluate_with_async(program, batch))
    }

    /// [`Trainer::evaluate_integers`] by a program of [`Trainer::compile_evaluation`].
    ///
    /// # Errors
    /// As [`Trainer::evaluate_with`].
    pub fn evaluate_integers_with<'a, const N: usize>(
        &mut self, program: &Program<N>, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<Tensor<u32>, Error<B::Error>> {
        block_on(self.evaluate_integers_with_async(program, batch))
    }

    pub(in crate::train) async fn evaluated<'a, const N: usize>(
        &mut self, program: &Program<N>, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<Left, Error<B::Error>> {
        self.own(program)?;
        if program.loss.is_some() {
            return Err(Error::Program("for training; compile_evaluation makes one to evaluate"));
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
        if program.trainer == self.tickets.id { Ok(()) } else { Err(Error::Program("of another trainer")) }
    }

    /// The name of a training program's loss.
    pub(in crate::train) fn training<'p, const N: usize>(
        &self, program: &'p Program<N>,
    ) -> Result<&'p str, Error<B::Error>> {
        self.own(program)?;
        program.loss.as_deref().ok_or(Error::Program("for evaluation; compile makes one to train"))
    }

    pub(in crate::train) fn fitting<'a, const N: usize>(
        &self, program: &Program<N>, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<Inputs<'a, N>, Error<B::Error>> {
        let batch = self.checked(batch)?;
        fits(&program.trace, batch.kinds())?;
        Ok(batch)
    }
}
