//! Transposed convolutional layers.

use super::{Module, sizes};
use crate::{Init, Parameter, Scope, Var};
use gradscale_core::ops::{Conv2d, ShapeError};

/// Transposed convolution, `[n, h, w, in]` to `[n, (h − 1)·stride + kernel − 2·pad + extra, …, out]`: the data gradient
/// of a convolution with that stride and padding. Weight `[in, kernel, kernel, out]`.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{ConvTranspose2d, Module}, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let mut scope = parameters.at("up");
/// let up = ConvTranspose2d::new(&mut scope, 3, 2, 4).stride(2).pad(1).bias(&mut scope);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// let y = trainer.evaluate([Input::f32([1, 5, 6, 3], &[0.5; 90])], |[x]| up.forward(x))?;
/// assert_eq!(y.shape.sizes(), [1, 10, 12, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ConvTranspose2d {
    name: String,
    weight: Parameter,
    bias: Option<Parameter>,
    bias_init: Init,
    outputs: usize,
    kernel: usize,
    stride: u32,
    pad: u32,
    extra: u32,
}

impl ConvTranspose2d {
    /// Creates the transposed convolution with stride 1, no padding and no bias. Weights are initialised uniformly in
    /// ±1/√(kernel²·out), as in PyTorch, whose fan_in is that of the transposed convolution; so is a bias.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, outputs: usize, kernel: usize) -> Self {
        let bias_init = Init::within_root(kernel * kernel * outputs);
        Self { bias_init, ..Self::with_init(scope, inputs, outputs, kernel, Init::FanIn) }
    }

    /// Creates the transposed convolution with another initialisation. Inputs are the first size, so the fan over all
    /// inputs is [`Fan::Out`](crate::Fan::Out). A bias starts at 0.
    pub fn with_init(scope: &mut Scope<'_>, inputs: usize, outputs: usize, kernel: usize, init: Init) -> Self {
        let weight = scope.weight("weight", [inputs, kernel, kernel, outputs], init);
        let (name, bias_init) = (scope.path().to_owned(), Init::Constant(0.0));
        Self { name, weight, bias: None, bias_init, outputs, kernel, stride: 1, pad: 0, extra: 0 }
    }

    /// Adds a bias, one parameter for each output channel, to the transposed convolution.
    #[must_use]
    pub fn bias(mut self, scope: &mut Scope<'_>) -> Self {
        self.bias = Some(scope.weight("bias", [self.outputs], self.bias_init));
        self
    }

    /// Sets the stride of the transposed convolution: the distance of the inputs in the result.
    #[must_use]
    pub const fn stride(mut self, stride: u32) -> Self {
        self.stride = stride;
        self
    }

    /// Sets the padding of the transposed convolution: rows and columns that are removed on each side of the result.
    #[must_use]
    pub const fn pad(mut self, pad: u32) -> Self {
        self.pad = pad;
        self
    }

    /// Sets the number of additional rows and columns at the end of the result, less than the stride: PyTorch's
    /// `output_padding`.
    #[must_use]
    pub const fn extra(mut self, extra: u32) -> Self {
        self.extra = extra;
        self
    }
}

impl Module for ConvTranspose2d {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let tape = x.tape();
        let descriptor = |[n, h, w, c]: [u32; 4]| {
            let [outputs, kernel] = sizes([self.outputs, self.kernel])?;
            let size = |inputs: u32| {
                let last = u64::from(inputs.checked_sub(1)?) * u64::from(self.stride);
                let full = last + u64::from(kernel) + u64::from(self.extra);
                u32::try_from(full.checked_sub(2 * u64::from(self.pad))?).ok()
            };
            let (h, w) = size(h).zip(size(w)).ok_or(ShapeError::Window)?;
            Conv2d::padded([n, h, w, outputs], c, [kernel; 2], [self.pad; 2])?.stride([self.stride; 2])
        };
        let bias = self.bias.as_ref().map(|bias| tape.parameter(bias));
        x.conv_transpose(&self.name, descriptor, tape.parameter(&self.weight), bias)
    }
}
