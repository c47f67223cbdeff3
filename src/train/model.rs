//! Networks that are applied and not trained.

use crate::{
    Error, Inputs, MemoryReport, Method, Parameters, Program, ProgramKind, Tensor, Var,
    optim::{Optimizer, Sgd},
    parameters::Role,
    tensor::InputType,
    train::Trainer,
};
use gradscale_core::backend::Backend;

/// Applies networks to inputs, without gradients, optimizer states or sites: for services and tools that use a trained
/// network. It needs the memory of the weights and of one forward pass.
///
/// ```
/// use gradscale::{AnyDevice, Input, Method, Model, Parameters, nn::{Linear, Module}};
///
/// let mut parameters = Parameters::seeded(0);
/// let net = Linear::new(&mut parameters.at("net"), 3, 2);
/// // CheckpointFile::new("model.safetensors").load_parameters(&mut parameters)?;
/// let mut model = Model::new(AnyDevice::open("cpu".parse()?)?, parameters, Method::fp32())?;
/// let images = [1.0, 2.0, 3.0, 0.5, 0.0, -0.5];
/// let classes = model.evaluate_integers([Input::f32([2, 3], &images)], |[x]| net.forward(x).argmax())?;
/// assert_eq!(classes.data.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Networks run in evaluation mode: dropout does nothing, and batch norm uses its running statistics. Results have the
/// bits of [`Trainer::evaluate`] with the same weights, method and device.
#[derive(Debug)]
#[doc(alias = "inference")]
#[doc(alias = "no_grad")]
pub struct Model<B: Backend>(Trainer<B>);

impl<B: Backend> Model<B> {
    /// Uploads the parameters to the device. Of the method only the precision of operators counts:
    /// [`Method::fp32`] for f32, [`Method::mixed`] for FP16 with the default lists.
    ///
    /// # Errors
    /// Two parameters with one name, a number of values that differs from a shape, a device without enough memory.
    pub fn new(device: B, parameters: Parameters, method: Method) -> Result<Self, Error<B::Error>> {
        let mut optimizer = Optimizer::from(Sgd::new(0.0));
        if parameters.all.iter().any(|one| one.role == Role::Weight) {
            // Frozen weights have no gradients and no states.
            optimizer = optimizer.freeze("");
        }
        Trainer::new(device, parameters, optimizer, method).map(Self)
    }

    /// Runs a network, and returns its result as f32 values, converted from halves if needed.
    ///
    /// # Errors
    /// A network that does not fit the inputs or returns integers, or the device's.
    pub fn evaluate<'a, const N: usize>(
        &mut self, inputs: impl Into<Inputs<'a, N>>, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Tensor, Error<B::Error>> {
        self.0.evaluate(inputs, net)
    }

    /// Runs a network that returns integers, for example the classes of [`Var::argmax`].
    ///
    /// # Errors
    /// A network that does not fit the inputs or returns f32 or halves, or the device's.
    pub fn evaluate_integers<'a, const N: usize>(
        &mut self, inputs: impl Into<Inputs<'a, N>>, net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Tensor<u32>, Error<B::Error>> {
        self.0.evaluate_integers(inputs, net)
    }

    /// Compiles a network for inputs of these types ahead of the first call, which is then as fast as the others.
    ///
    /// # Errors
    /// A network that does not fit the inputs, or the device's.
    pub fn compile<const N: usize>(
        &mut self, inputs: [impl Into<InputType>; N], net: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
    ) -> Result<Program<N>, Error<B::Error>> {
        self.0.compile(ProgramKind::Evaluation, inputs, net)
    }

    /// Runs a program of [`Model::compile`], as [`Model::evaluate`] does.
    ///
    /// # Errors
    /// A program of another model, a result of another type, inputs of other shapes or types, or the device's.
    pub fn evaluate_compiled<'a, const N: usize>(
        &mut self, program: &Program<N>, inputs: impl Into<Inputs<'a, N>>,
    ) -> Result<Tensor, Error<B::Error>> {
        self.0.evaluate_compiled(program, inputs)
    }

    /// Returns a named value of the last run ([`Var::output`]) as f32.
    ///
    /// # Errors
    /// No value of that name, integers, or the device's.
    pub fn output(&self, name: &str) -> Result<Tensor, Error<B::Error>> {
        self.0.output(name)
    }

    /// Returns the device on which this model runs.
    pub const fn device(&self) -> &B {
        self.0.device()
    }

    /// Returns the device memory that this model uses, by purpose.
    pub fn memory(&self) -> MemoryReport {
        self.0.memory()
    }
}
