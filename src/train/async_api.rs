//! What waits for the device, without blocking: where there is an event loop, as in a browser, a device answers only once
//! the program has returned to it. Every method here does what its namesake does, which blocks on it.
//!
//! On the CPU and on CUDA these futures are ready at their first poll. One that is dropped before its end leaves a step half
//! done: go on from a checkpoint then. Training on several ranks ([`Trainer::step_micro_batches`]) and checkpoints block.

use crate::{
    Error, Tensor, Var,
    graph::{Fixed, Part},
    parameters::Role,
    train::{
        Gradients, Inputs, Program, StepOutcome, Trainer,
        step::{Failed, fits},
    },
};
use gradscale_core::{amp::Precision, backend::Backend};

impl<B: Backend> Trainer<B> {
    /// [`Trainer::backward`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::backward`].
    pub async fn backward_async<'a, const N: usize>(
        &mut self, batch: impl Into<Inputs<'a, N>>, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Gradients, Error<B::Error>> {
        self.backward_of_async("", batch, net).await
    }

    /// [`Trainer::backward_of`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::backward`].
    pub async fn backward_of_async<'a, const N: usize>(
        &mut self, loss: &str, batch: impl Into<Inputs<'a, N>>, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Gradients, Error<B::Error>> {
        let batch = self.checked(batch)?;
        let trace = self.trace(batch.kinds(), true, net)?;
        self.first_of(&trace, &batch, loss).await
    }

    /// [`Trainer::backward_with`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::backward_with`].
    pub async fn backward_with_async<'a, const N: usize>(
        &mut self, program: &Program<N>, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<Gradients, Error<B::Error>> {
        let loss = self.training(program)?;
        let batch = self.fitting(program, batch)?;
        self.first_of(&program.trace, &batch, loss).await
    }

    /// [`Trainer::repeat`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::repeat`].
    pub async fn repeat_async<'a, const N: usize>(
        &mut self, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<Gradients, Error<B::Error>> {
        let Some((index, loss)) = self.last.clone() else { return Err(Error::Gradients) };
        let batch = self.checked(batch)?;
        fits(&self.exec.program(index).trace, batch.kinds())?;
        self.first(index, &batch, &loss).await
    }

    /// [`Trainer::backward_more`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::backward_more`].
    pub async fn backward_more_async<'a, const N: usize>(
        &mut self, gradients: Gradients, batch: impl Into<Inputs<'a, N>>,
        net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Gradients, Error<B::Error>> {
        self.check_gradients(&gradients)?;
        let batch = self.checked(batch)?;
        let trace = self.trace(batch.kinds(), true, net)?;
        self.more_of(gradients, &trace, &batch).await
    }

    /// [`Trainer::backward_more_with`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::backward_more_with`].
    pub async fn backward_more_with_async<'a, const N: usize>(
        &mut self, gradients: Gradients, program: &Program<N>, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<Gradients, Error<B::Error>> {
        self.check_gradients(&gradients)?;
        if self.training(program)? != gradients.loss {
            return Err(Error::Program("of another loss than the step began with"));
        }
        let batch = self.fitting(program, batch)?;
        self.more_of(gradients, &program.trace, &batch).await
    }

    /// [`Trainer::step`] without blocking.
    ///
    /// ```
    /// # use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{Linear, Module}, optim::Sgd};
    /// # async fn in_a_browser() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut parameters = Parameters::seeded(0);
    /// # let net = Linear::new(&mut parameters.at("net"), 2, 2);
    /// # let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.5), Method::mixed())?;
    /// let batch = [Input::f32([2, 2], &[1.0, 0.0, 0.0, 1.0]), Input::u8([2], &[0, 1])];
    /// let gradients = trainer.backward_async(batch, |[x, labels]| net.forward(x).cross_entropy(labels)).await?;
    /// let outcome = trainer.step_async(gradients).await?;
    /// assert!(outcome.skipped.is_none());
    /// # Ok(())
    /// # }
    /// # pollster::block_on(in_a_browser()).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Trainer::step`].
    pub async fn step_async(&mut self, gradients: Gradients) -> Result<StepOutcome, Error<B::Error>> {
        self.check_gradients(&gradients)?;
        self.attempts.clear();
        let mut failed = Failed::default();
        loop {
            let repeatable = gradients.micro == 1;
            if let Some(outcome) = self.attempt(&gradients, repeatable, &mut failed).await? {
                return Ok(outcome);
            }
            // The same seed of dropout.
            self.counters.seed -= 1;
            self.begin(gradients.program)?;
            self.run_again(gradients.program).await?;
        }
    }

    /// [`Trainer::step_with`] without blocking.
    ///
    /// # Errors
    /// Those of `attempt` and of [`Trainer::step`].
    pub async fn step_with_async(
        &mut self, mut attempt: impl AsyncFnMut(&mut Self) -> Result<Gradients, Error<B::Error>>,
    ) -> Result<StepOutcome, Error<B::Error>> {
        self.attempts.clear();
        let (seed, mut failed) = (self.counters.seed, Failed::default());
        loop {
            let gradients = attempt(self).await?;
            self.check_gradients(&gradients)?;
            if let Some(outcome) = self.attempt(&gradients, true, &mut failed).await? {
                return Ok(outcome);
            }
            self.counters.seed = seed;
        }
    }

    /// [`Trainer::evaluate`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::evaluate`].
    pub async fn evaluate_async<'a, const N: usize>(
        &mut self, batch: impl Into<Inputs<'a, N>>, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Tensor, Error<B::Error>> {
        let batch = self.checked(batch)?;
        let trace = self.trace(batch.kinds(), false, net)?;
        let left = self.evaluate_of(&trace, &batch).await?;
        self.numbers(&left).await
    }

    /// [`Trainer::evaluate_integers`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::evaluate_integers`].
    pub async fn evaluate_integers_async<'a, const N: usize>(
        &mut self, batch: impl Into<Inputs<'a, N>>, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Tensor<u32>, Error<B::Error>> {
        let batch = self.checked(batch)?;
        let trace = self.trace(batch.kinds(), false, net)?;
        let left = self.evaluate_of(&trace, &batch).await?;
        self.integers(&left).await
    }

    /// [`Trainer::evaluate_with`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::evaluate_with`].
    pub async fn evaluate_with_async<'a, const N: usize>(
        &mut self, program: &Program<N>, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<Tensor, Error<B::Error>> {
        let left = self.evaluated(program, batch).await?;
        self.numbers(&left).await
    }

    /// [`Trainer::evaluate_integers_with`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::evaluate_with`].
    pub async fn evaluate_integers_with_async<'a, const N: usize>(
        &mut self, program: &Program<N>, batch: impl Into<Inputs<'a, N>>,
    ) -> Result<Tensor<u32>, Error<B::Error>> {
        let left = self.evaluated(program, batch).await?;
        self.integers(&left).await
    }

    /// [`Trainer::update_statistics`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::update_statistics`].
    pub async fn update_statistics_async<'a, const N: usize>(
        &mut self, keep: f32, batch: impl Into<Inputs<'a, N>>, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<(), Error<B::Error>> {
        let batch = self.checked(batch)?;
        let trace = self.trace(batch.kinds(), true, net)?;
        self.statistics_of(keep, &trace, &batch).await
    }

    /// [`Trainer::parameters`] without blocking.
    ///
    /// # Errors
    /// The device's.
    pub async fn parameters_async(&self) -> Result<Vec<(String, Tensor)>, Error<B::Error>> {
        let mut all = Vec::new();
        for one in self.parameters.all.iter().filter(|one| one.role != Role::Constant) {
            all.push((one.name.clone(), self.parameter_async(&one.name).await?));
        }
        Ok(all)
    }

    /// [`Trainer::parameter`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::parameter`].
    pub async fn parameter_async(&self, name: &str) -> Result<Tensor, Error<B::Error>> {
        let id = self.parameters.find(name)?;
        self.part(id, Part::Master).await
    }

    /// [`Trainer::gradient`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::gradient`].
    pub async fn gradient_async(&self, gradients: &Gradients, name: &str) -> Result<Option<Tensor>, Error<B::Error>> {
        self.check_gradients(gradients)?;
        let id = self.parameters.find(name)?;
        if !gradients.contributes.contains(&id) {
            return Ok(None);
        }
        self.part(id, Part::Gradient).await.map(Some)
    }

    async fn part(&self, id: usize, part: Part) -> Result<Tensor, Error<B::Error>> {
        let shape = self.parameters.shape(id);
        let read = self.exec.read(Fixed::part(id, part), Precision::Single, shape.len());
        Ok(Tensor { shape, data: read.await.map_err(Error::Device)? })
    }

    /// [`Trainer::output`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::output`].
    pub async fn output_async(&self, name: &str) -> Result<Tensor, Error<B::Error>> {
        self.numbers(&self.left(name)?).await
    }

    /// [`Trainer::output_integers`] without blocking.
    ///
    /// # Errors
    /// As [`Trainer::output_integers`].
    pub async fn output_integers_async(&self, name: &str) -> Result<Tensor<u32>, Error<B::Error>> {
        self.integers(&self.left(name)?).await
    }
}
