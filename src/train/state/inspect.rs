//! Inspection of a training: parameters, gradients, sites, plan and memory.

use crate::{
    Error, Input, MemoryReport, PlanRow, SiteReport, Tensor, TraceError, Var,
    error::TraceErrorKind,
    graph::{AuxOutput, Fixed, ParamTensor, Traced, plan},
    suggestion::suggestion,
    train::{Gradients, Trainer, state::DeviceOutput},
};
use gradscale_core::{
    backend::{Backend, Data},
    scaled::Scaled,
};
use pollster::block_on;

/// Gradient of an intermediate value, with the name of the operator that computed the value.
pub type Named = (String, Scaled<Tensor>);

/// Returns all forward stores of half values of a training, and its weights in 8 bits, in their state after the last step. Each has an exponent if
/// the method gives them one ([`crate::ForwardScaling`]), and counts flushed and overflowed activations.
///
/// ```
/// use gradscale::{Input, Cpu, Parameters, Trainer, forward_sites, nn::{Linear, Module}, optim::Sgd};
/// let mut parameters = Parameters::seeded(0);
/// let net = Linear::new(&mut parameters.at("net"), 2, 2);
/// let method: gradscale::Method = "gs:forward=repeat".parse()?;
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), method)?;
/// trainer.set_parameter("net.weight", &[1000.0, 0.0, 0.0, 1000.0])?;
/// // Logits of 1000 and of 10^6.
/// for (factor, alpha) in [(1.0, 0..=0), (1000.0, -10..=-4)] {
///     let x = [factor, 0.0, 0.0, factor];
///     let batch = [Input::f32([2, 2], &x), Input::u8([2], &[0, 0])];
///     let gradients = trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels))?;
///     assert!(trainer.step(gradients)?.skipped.is_none());
///     let logits = forward_sites(&trainer).find(|site| site.name == "net/forward").expect("a half");
///     assert!(alpha.contains(&logits.alpha), "{}", logits.alpha);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn forward_sites<B: Backend>(trainer: &Trainer<B>) -> impl Iterator<Item = SiteReport<'_>> {
    trainer.sites.forward_reports().chain(trainer.sites.weight_reports())
}

/// Returns the names of the sites whose exponents [`Trainer::load`] restored and to which no step has stored since. After
/// the first step, the network does not have these sites any more. A loss scale has no exponents of sites.
pub fn unused_restored_sites<B: Backend>(trainer: &Trainer<B>) -> impl Iterator<Item = &str> {
    trainer.sites.unused_restored_sites()
}

impl<B: Backend> Trainer<B> {
    /// Returns the device on which this trainer runs.
    pub const fn device(&self) -> &B {
        self.exec.device()
    }

    /// Returns the number of steps that updated the parameters; skipped steps do not count.
    pub const fn steps(&self) -> u64 {
        self.counters.taken
    }

    /// Returns the exponent of the current loss scale; 0 under gradient scaling.
    pub fn loss_scale(&self) -> i32 {
        self.sites.loss_scale()
    }

    /// Returns a warning about a dynamic loss scale after the last step: it has collapsed, or flushes gradients.
    pub fn loss_scale_warning(&self) -> Option<crate::sites::LossScaleWarning> {
        self.sites.loss_scale_warning()
    }

    /// Returns all cast sites that have been used, in their state after the last step.
    pub fn sites(&self) -> impl Iterator<Item = SiteReport<'_>> {
        self.sites.reports()
    }

    /// Returns the device memory that this trainer uses, by purpose.
    pub fn memory(&self) -> MemoryReport {
        self.exec.memory()
    }

    /// Returns names and values of all trainable parameters and running statistics.
    ///
    /// # Errors
    /// The device's.
    pub fn parameters(&self) -> Result<Vec<(String, Tensor)>, Error<B::Error>> {
        block_on(self.read_parameters())
    }

    /// Returns the f32 master values of a parameter.
    ///
    /// # Errors
    /// No parameter of that name, or the device's.
    pub fn parameter(&self, name: &str) -> Result<Tensor, Error<B::Error>> {
        block_on(self.read_parameter(name))
    }

    /// Sets the values of a parameter.
    ///
    /// # Errors
    /// No parameter of that name and length, or the device's.
    pub fn set_parameter(&mut self, name: &str, values: &[f32]) -> Result<(), Error<B::Error>> {
        let id = self.parameters.find(name)?;
        self.parameters.check_len(id, values.len())?;
        self.exec.write(Fixed::tensor(id, ParamTensor::Master), Data::F32(values)).map_err(Error::Device)?;
        self.refresh_halves().map_err(Error::Device)
    }

    /// Returns the gradient of a parameter as unscaled f32 values. `None` if the loss does not depend on it.
    ///
    /// # Errors
    /// No parameter of that name, gradients of another step, or the device's.
    pub fn gradient(&self, gradients: &Gradients, name: &str) -> Result<Option<Tensor>, Error<B::Error>> {
        block_on(self.read_named_gradient(gradients, name))
    }

    /// Returns a named value of the last pass ([`Var::output`](crate::Var::output)) as f32. Values of a training step
    /// are readable until the next step begins, values of an evaluation until anything else runs.
    ///
    /// ```
    /// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{GruCell, Linear, Module}, optim::Sgd};
    /// let mut parameters = Parameters::seeded(1);
    /// let cell = GruCell::new(&mut parameters.at("cell"), 2, 3);
    /// let head = Linear::new(&mut parameters.at("head"), 3, 2);
    /// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
    /// // Truncated backpropagation: each step begins with the hidden state that the last one ended with.
    /// let mut state = vec![0.0; 3];
    /// for _ in 0..3 {
    ///     let batch = [Input::f32([1, 2], &[1.0, -1.0]), Input::f32([1, 3], &state), Input::u8([1], &[1])];
    ///     let gradients = trainer.backward(batch, |[x, state, label]| {
    ///         head.forward(cell.forward(x, state).output("state")).cross_entropy(label)
    ///     })?;
    ///     trainer.step(gradients)?;
    ///     state = trainer.output("state")?.data;
    /// }
    /// assert!(state.iter().all(|value| *value != 0.0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// No value of that name, integers, or the device's.
    pub fn output(&self, name: &str) -> Result<Tensor, Error<B::Error>> {
        block_on(self.numbers(&self.left(name)?))
    }

    /// Returns a named integer value of the last pass, as [`Trainer::output`] does for f32.
    ///
    /// # Errors
    /// No value of that name, f32 or halves, or the device's.
    pub fn output_integers(&self, name: &str) -> Result<Tensor<u32>, Error<B::Error>> {
        block_on(self.integers(&self.left(name)?))
    }

    /// Finds a named value that the last pass has stored on the device.
    pub(in crate::train) fn left(&self, name: &str) -> Result<DeviceOutput, TraceError> {
        // First the program that ran last, then the last training step, whose values no other program overwrites.
        let programs = self.last_run.into_iter().chain(self.live_backward);
        let all: Vec<&AuxOutput> = programs.flat_map(|index| &self.exec.program(index).aux_outputs).collect();
        let Some(&found) = all.iter().find(|beside| beside.name == name) else {
            let similar = suggestion(name, all.iter().map(|beside| beside.name.as_str()));
            let kind = TraceErrorKind::Range(format!("is not an output of the last pass{similar}"));
            return Err(TraceError::new(name, kind));
        };
        let AuxOutput { name, value, shape } = found.clone();
        Ok(DeviceOutput { name, value, shape })
    }

    /// Returns the gradient of every intermediate value as it is stored, with its exponent, in backward order: `true =
    /// data · 2^-alpha`. It needs [`TrainerOptions::with_all_kept`](crate::TrainerOptions::with_all_kept), because
    /// otherwise the memory of these gradients is reused within the step.
    ///
    /// # Errors
    /// Gradients of another step, or the device's.
    pub fn scaled_gradients(&self, gradients: &Gradients) -> Result<Vec<Named>, Error<B::Error>> {
        self.check_gradients(gradients)?;
        if !self.settings.retain_buffers {
            return Ok(Vec::new());
        }
        let traced = self.exec.program(gradients.program).gradients.iter();
        let read = |traced: &Traced| {
            let Traced { name, gradient, shape } = traced.clone();
            let tensor = block_on(self.numbers(&DeviceOutput { name: name.clone(), value: gradient.value, shape }))?;
            Ok((name, Scaled::new(tensor, self.sites.exponent(gradient.slot))))
        };
        traced.map(read).collect()
    }

    /// Returns the precisions that the autocast policy assigns to a network's operators, without running it.
    ///
    /// # Errors
    /// A network that does not fit the batch.
    pub fn plan<const N: usize>(
        &self, batch: [Input<'_>; N], net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Vec<PlanRow>, Error<B::Error>> {
        crate::train::state::check(&batch)?;
        let trace = self.trace(batch.map(Into::into), true, net)?;
        Ok(plan(&self.settings.policy, &self.settings.layers, &trace)?.0)
    }

    /// Returns the operators that the last backward pass ran, with the element types of their results.
    ///
    /// # Errors
    /// Gradients of another step.
    pub fn ran(&self, gradients: &Gradients) -> Result<&[PlanRow], Error<B::Error>> {
        self.check_gradients(gradients)?;
        Ok(&self.exec.program(gradients.program).plan)
    }
}
