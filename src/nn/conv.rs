//! Convolutional layers.

use super::{Module, sizes};
use crate::{Init, Parameter, Scope, Var};
use gradscale_core::ops::Conv2d as Descriptor;

/// A convolution over `[n, h, w, in]`; weight `[out, kernel, kernel, in]`. Pads so that, at stride 1 and with an odd
/// kernel, the size stays.
///
/// ```
/// use gradscale::{Fan, Init, Parameters, nn::Conv2d};
/// let mut parameters = Parameters::seeded(1);
/// let mut scope = parameters.at("conv");
/// let init = Init::KaimingUniform { fan: Fan::Out, gain: 2f32.sqrt() };
/// let conv = Conv2d::with_init(&mut scope, 3, 16, 5, init).stride(2).bias(&mut scope);
/// assert_eq!(parameters.names().collect::<Vec<_>>(), ["conv.weight", "conv.bias"]);
/// # let _ = conv;
/// ```
#[derive(Clone, Debug)]
pub struct Conv2d {
    name: String,
    weight: Parameter,
    bias: Option<Parameter>,
    bias_init: Init,
    outputs: usize,
    kernel: usize,
    stride: u32,
}

impl Conv2d {
    /// Without a bias: for layers before a normalisation. Weights start uniform in ±1/√(kernel²·in), as PyTorch's
    /// ([`Init::FanIn`]), and so does a bias.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, outputs: usize, kernel: usize) -> Self {
        let bias_init = Init::within_root(kernel * kernel * inputs);
        Self { bias_init, ..Self::with_init(scope, inputs, outputs, kernel, Init::FanIn) }
    }

    /// Without a bias, from other weights: [`Init::HeNormal`] for those of He et al. before a ReLU. A bias starts from 0.
    pub fn with_init(scope: &mut Scope<'_>, inputs: usize, outputs: usize, kernel: usize, init: Init) -> Self {
        let weight = scope.weight("weight", [outputs, kernel, kernel, inputs], init);
        let bias_init = Init::Constant(0.0);
        Self { name: scope.path().to_owned(), weight, bias: None, bias_init, outputs, kernel, stride: 1 }
    }

    /// With a bias.
    #[must_use]
    pub fn bias(mut self, scope: &mut Scope<'_>) -> Self {
        self.bias = Some(scope.weight("bias", [self.outputs], self.bias_init));
        self
    }

    /// With a stride.
    #[must_use]
    pub const fn stride(mut self, stride: u32) -> Self {
        self.stride = stride;
        self
    }
}

impl Module for Conv2d {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let tape = x.tape();
        let descriptor = |x| {
            let [outputs, kernel] = sizes([self.outputs, self.kernel])?;
            let pad = kernel.saturating_sub(1) / 2;
            Descriptor::padded(x, outputs, [kernel; 2], [pad; 2])?.stride([self.stride; 2])
        };
        let bias = self.bias.as_ref().map(|bias| tape.parameter(bias));
        x.conv(&self.name, descriptor, tape.parameter(&self.weight), bias)
    }
}
