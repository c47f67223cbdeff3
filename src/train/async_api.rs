//! Non-blocking forms of the trainer's methods that wait for the device. They are needed where there is an event loop,
//! for example in a browser, because there a device answers only after the program has returned to the loop. Each
//! method has a blocking form of the same name in [`Trainer`].

use crate::{
    Error, Pass, Tensor, Var,
    graph::{Fixed, ParamTensor},
    parameters::Role,
    train::{Gradients, Inputs, Program, StepOutcome, Trainer, step::Failed},
};
use gradscale_core::{amp::Precision, backend::Backend};

/// Trainer whose methods return futures, see [`Trainer::non_blocking`].
#[derive(Debug)]
#[doc(alias = "async")]
pub struct NonBlocking<'t, B: Backend>(pub(in crate::train) &'t mut Trainer<B>);

impl<B: Backend> Trainer<B> {
    /// Returns a view of this trainer whose methods return futures instead of blocking on the device. They take the same
    /// arguments and do the same.
    ///
    /// On the CPU and on CUDA these futures are ready at their first poll. One that is dropped before its end leaves a step
    /// half done: go on from a checkpoint then. Training on several ranks ([`Trainer::step_micro_batches`]) and checkpoints
    /// block.
    ///
    /// ```
    /// # use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{Linear, Module}, optim::Sgd};
    /// # async fn in_a_browser() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut parameters = Parameters::seeded(0);
    /// # let net = Linear::new(&mut parameters.at("net"), 2, 2);
    /// # let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.5), Method::mixed())?;
    /// let batch = [Input::f32([2, 2], &[1.0, 0.0, 0.0, 1.0]), Input::u8([2], &[0, 1])];
    /// let mut trainer = trainer.non_blocking();
    /// let gradients = trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels)).await?;
    /// let outcome = trainer.step(gradients).await?;
    /// assert!(outcome.skipped.is_none());
    /// # Ok(())
    /// # }
    /// # pollster::block_on(in_a_browser()).unwrap();
    /// ```
    pub const fn non_blocking(&mut self) -> NonBlocking<'_, B> {
        NonBlocking(self)
    }
}

impl<B: Backend> NonBlocking<'_, B> {
    /// [`Trainer::backward`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::backward`].
    pub async fn backward<'a, const N: usize>(
        &mut self, pass: impl Into<Pass<'a, N>>, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Gradients, Error<B::Error>> {
        let Pass { batch, loss, gradients } = pass.into();
        if let Some(gradients) = &gradients {
            self.0.check_accumulation(gradients, loss)?;
        }
        let batch = self.0.checked(batch)?;
        let trace = self.0.trace(batch.kinds(), true, net)?;
        let pass = self.0.prepare(&trace, loss.unwrap_or_default(), gradients)?;
        let executed = self.0.execute(pass.program, Some(&batch), pass.mode).await;
        self.0.finish_pass(pass, executed)
    }

    /// [`Trainer::backward_compiled`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::backward_compiled`].
    pub async fn backward_compiled<'a, const N: usize>(
        &mut self, program: &Program<N>, pass: impl Into<Pass<'a, N>>,
    ) -> Result<Gradients, Error<B::Error>> {
        let Pass { batch, loss, gradients } = pass.into();
        let own = self.0.training(program)?;
        if loss.is_some_and(|loss| loss != own) {
            return Err(Error::Program("compiled for another loss than the pass names"));
        }
        if let Some(gradients) = &gradients {
            self.0.check_accumulation(gradients, Some(own))?;
        }
        let batch = self.0.fitting(program, batch)?;
        let pass = self.0.prepare(&program.trace, own, gradients)?;
        let executed = self.0.execute(pass.program, Some(&batch), pass.mode).await;
        self.0.finish_pass(pass, executed)
    }

    /// [`Trainer::step`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::step`].
    pub async fn step(&mut self, mut gradients: Gradients) -> Result<StepOutcome, Error<B::Error>> {
        let trainer = &mut *self.0;
        trainer.check_gradients(&gradients)?;
        trainer.attempts.clear();
        let mut failed = Failed::default();
        loop {
            let repeatable = gradients.micro == 1;
            if let Some(outcome) = trainer.attempt(&gradients, repeatable, &mut failed).await? {
                return Ok(outcome);
            }
            trainer.scale_forward(&mut gradients).await?;
            let executed = match trainer.begin_attempt(gradients.program) {
                Ok(mode) => trainer.execute(gradients.program, None::<&Inputs<'_, 0>>, mode).await,
                Err(error) => Err(error),
            };
            // The retry has the same dropout seed. If it fails, the caller tries again with that seed.
            executed.inspect_err(|_| trainer.counters.seed -= 1)?;
        }
    }

    /// [`Trainer::step_with`] without blocking.
    ///
    /// # Errors
    /// Those of `attempt` and of [`Trainer::step`].
    pub async fn step_with(
        &mut self, mut attempt: impl AsyncFnMut(&mut Trainer<B>) -> Result<Gradients, Error<B::Error>>,
    ) -> Result<StepOutcome, Error<B::Error>> {
        let trainer = &mut *self.0;
        trainer.attempts.clear();
        let (seed, mut failed) = (trainer.counters.seed, Failed::default());
        loop {
            let gradients = attempt(trainer).await?;
            trainer.check_gradients(&gradients)?;
            if let Some(outcome) = trainer.attempt(&gradients, true, &mut failed).await? {
                return Ok(outcome);
            }
            trainer.counters.seed = seed;
        }
    }

    /// [`Trainer::evaluate`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::evaluate`].
    pub async fn evaluate<'a, const N: usize>(
        &mut self, batch: impl Into<Inputs<'a, N>>, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Tensor, Error<B::Error>> {
        let batch = self.0.checked(batch)?;
        let trace = self.0.trace(batch.kinds(), false, net)?;
        let left = self.0.evaluate_of(&trace, &batch).await?;
        self.0.numbers(&left).await
    }

    /// [`Trainer::evaluate_integers`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::evaluate_integers`].
    pub async fn evaluate_integers<'a, const N: usize>(
        &mut self, batch: impl Into<Inputs<'a, N>>, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Tensor<u32>, Error<B::Error>> {
        let batch = self.0.checked(batch)?;
        let trace = self.0.trace(batch.kinds(), false, net)?;
        let left = self.0.evaluate_of(&trace, &batch).await?;
        self.0.integers(&left).await
    }

    /// [`Trainer::evaluate_compiled`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::evaluate_compiled`].
    pub async fn evaluate_compiled<'a, const N: usize>(
        &mut self, program: &Program<N>, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<Tensor, Error<B::Error>> {
        let left = self.0.evaluated(program, batch).await?;
        self.0.numbers(&left).await
    }

    /// [`Trainer::evaluate_compiled_integers`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::evaluate_compiled`].
    pub async fn evaluate_compiled_integers<'a, const N: usize>(
        &mut self, program: &Program<N>, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<Tensor<u32>, Error<B::Error>> {
        let left = self.0.evaluated(program, batch).await?;
        self.0.integers(&left).await
    }

    /// [`Trainer::update_statistics`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::update_statistics`].
    pub async fn update_statistics<'a, const N: usize>(
        &mut self, keep: f32, batch: impl Into<Inputs<'a, N>>, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<(), Error<B::Error>> {
        let batch = self.0.checked(batch)?;
        let trace = self.0.trace(batch.kinds(), true, net)?;
        self.0.statistics_of(keep, &trace, &batch).await
    }

    /// [`Trainer::parameters`] without blocking.
    ///
    /// # Errors
    /// The device's.
    pub async fn parameters(&self) -> Result<Vec<(String, Tensor)>, Error<B::Error>> {
        self.0.read_parameters().await
    }

    /// [`Trainer::parameter`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::parameter`].
    pub async fn parameter(&self, name: &str) -> Result<Tensor, Error<B::Error>> {
        self.0.read_parameter(name).await
    }

    /// [`Trainer::gradient`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::gradient`].
    pub async fn gradient(&self, gradients: &Gradients, name: &str) -> Result<Option<Tensor>, Error<B::Error>> {
        self.0.read_named_gradient(gradients, name).await
    }

    /// [`Trainer::output`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::output`].
    pub async fn output(&self, name: &str) -> Result<Tensor, Error<B::Error>> {
        self.0.numbers(&self.0.left(name)?).await
    }

    /// [`Trainer::output_integers`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::output_integers`].
    pub async fn output_integers(&self, name: &str) -> Result<Tensor<u32>, Error<B::Error>> {
        self.0.integers(&self.0.left(name)?).await
    }
}

impl<B: Backend> Trainer<B> {
    /// Reads all trainable parameters and running statistics.
    pub(in crate::train) async fn read_parameters(&self) -> Result<Vec<(String, Tensor)>, Error<B::Error>> {
        let mut all = Vec::new();
        for one in self.parameters.all.iter().filter(|one| one.role != Role::Constant) {
            all.push((one.name.clone(), self.read_parameter(&one.name).await?));
        }
        Ok(all)
    }

    /// Reads the master values of the parameter with that name.
    pub(in crate::train) async fn read_parameter(&self, name: &str) -> Result<Tensor, Error<B::Error>> {
        let id = self.parameters.find(name)?;
        self.part(id, ParamTensor::Master).await
    }

    /// Reads the gradient of a parameter, if the loss depends on it.
    pub(in crate::train) async fn read_named_gradient(
        &self, gradients: &Gradients, name: &str,
    ) -> Result<Option<Tensor>, Error<B::Error>> {
        self.check_gradients(gradients)?;
        let id = self.parameters.find(name)?;
        if !gradients.contributes.contains(&id) {
            return Ok(None);
        }
        self.part(id, ParamTensor::Gradient).await.map(Some)
    }

    async fn part(&self, id: usize, part: ParamTensor) -> Result<Tensor, Error<B::Error>> {
        let shape = self.parameters.shape(id);
        let read = self.exec.read(Fixed::tensor(id, part), Precision::Single, shape.len());
        Ok(Tensor { shape, data: read.await.map_err(Error::Device)? })
    }
}
