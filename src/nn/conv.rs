//! Convolutional layers.

use super::{Module, sizes};
use crate::{Init, Parameter, Scope, Var};
use gradscale_core::ops::Conv2d as Descriptor;

/// Convolution over `[n, h, w, in]`; weight `[out, kernel, kernel, in / groups]`, or `[out, rows, columns, in]`. The default
/// padding keeps the size at stride 1 with an odd kernel.
///
/// ```
/// use gradscale::{Fan, Init, Parameters, nn::Conv2d};
/// let mut parameters = Parameters::seeded(1);
/// let mut scope = parameters.at("conv");
/// let init = Init::KaimingUniform { fan: Fan::Out, gain: 2f32.sqrt() };
/// let conv = Conv2d::with_init(&mut scope, 3, 16, 5, init).stride(2).bias(&mut scope);
/// let wide = Conv2d::rectangular(&mut parameters.at("wide"), 16, 16, [1, 7], init).strides([2, 1]).pad([0, 3]);
/// let depthwise = Conv2d::depthwise(&mut parameters.at("depthwise"), 16, 3);
/// let names = ["conv.weight", "conv.bias", "wide.weight", "depthwise.weight"];
/// assert_eq!(parameters.names().collect::<Vec<_>>(), names);
/// # let _ = (conv, wide, depthwise);
/// ```
#[derive(Clone, Debug)]
pub struct Conv2d {
    name: String,
    weight: Parameter,
    bias: Option<Parameter>,
    bias_init: Init,
    outputs: usize,
    kernel: [usize; 2],
    groups: usize,
    stride: [u32; 2],
    dilation: [u32; 2],
    /// Padding of the convolution; `None` keeps height and width at stride 1.
    pad: Option<[u32; 2]>,
}

impl Conv2d {
    /// Creates a convolution layer without bias, for example before a normalisation. Weights are initialised uniformly
    /// in ±1/√(kernel²·in), as in PyTorch ([`Init::FanIn`]), and so is a bias.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, outputs: usize, kernel: usize) -> Self {
        Self::grouped(scope, inputs, outputs, kernel, 1)
    }

    /// Creates a convolution layer without bias whose channels are divided into groups: each group of outputs reads the
    /// inputs of its own group only. Initialisation is that of [`Conv2d::new`] for in / groups inputs. Groups that do not
    /// divide both inputs and outputs are an error of the step.
    pub fn grouped(scope: &mut Scope<'_>, inputs: usize, outputs: usize, kernel: usize, groups: usize) -> Self {
        Self::of_groups(scope, inputs, outputs, [kernel; 2], groups, Init::FanIn)
    }

    /// Creates a convolution layer of each channel by itself, without bias: as many groups as channels.
    pub fn depthwise(scope: &mut Scope<'_>, channels: usize, kernel: usize) -> Self {
        Self::grouped(scope, channels, channels, kernel, channels)
    }

    /// Creates a convolution layer without bias with another initialisation, for example [`Init::HeNormal`] before a
    /// ReLU. A bias starts at 0.
    pub fn with_init(scope: &mut Scope<'_>, inputs: usize, outputs: usize, kernel: usize, init: Init) -> Self {
        Self::rectangular(scope, inputs, outputs, [kernel; 2], init)
    }

    /// Creates a convolution layer like [`Conv2d::with_init`], with a rectangular kernel: rows, columns.
    pub fn rectangular(scope: &mut Scope<'_>, inputs: usize, outputs: usize, kernel: [usize; 2], init: Init) -> Self {
        Self { bias_init: Init::Constant(0.0), ..Self::of_groups(scope, inputs, outputs, kernel, 1, init) }
    }

    /// Creates a convolution layer with groups, and a bias, if one is added, as PyTorch initialises it.
    pub(super) fn of_groups(
        scope: &mut Scope<'_>, inputs: usize, outputs: usize, kernel: [usize; 2], groups: usize, init: Init,
    ) -> Self {
        let inputs = inputs.checked_div(groups).unwrap_or(inputs);
        let weight = scope.weight("weight", [outputs, kernel[0], kernel[1], inputs], init);
        let (name, bias_init) = (scope.path().to_owned(), Init::within_root(kernel[0] * kernel[1] * inputs));
        let (stride, dilation) = ([1; 2], [1; 2]);
        Self { name, weight, bias: None, bias_init, outputs, kernel, groups, stride, dilation, pad: None }
    }

    /// Adds a bias, one parameter for each output channel, to the convolution.
    #[must_use]
    pub fn bias(mut self, scope: &mut Scope<'_>) -> Self {
        self.bias = Some(scope.weight("bias", [self.outputs], self.bias_init));
        self
    }

    /// Sets the stride of the convolution along both axes.
    #[must_use]
    pub const fn stride(self, stride: u32) -> Self {
        self.strides([stride; 2])
    }

    /// Sets the strides of the convolution along height and width.
    #[must_use]
    pub const fn strides(mut self, strides: [u32; 2]) -> Self {
        self.stride = strides;
        self
    }

    /// Sets the dilation: the distance of adjacent taps in pixels, along both axes.
    #[must_use]
    pub const fn dilation(mut self, dilation: u32) -> Self {
        self.dilation = [dilation; 2];
        self
    }

    /// Sets the padding of the convolution: zeros above and below, and on the left and right.
    #[must_use]
    pub const fn pad(mut self, pad: [u32; 2]) -> Self {
        self.pad = Some(pad);
        self
    }
}

impl Module for Conv2d {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let tape = x.tape();
        let descriptor = |x| {
            let [outputs, rows, columns, groups] = sizes([self.outputs, self.kernel[0], self.kernel[1], self.groups])?;
            let kernel = [rows, columns];
            let [down, right] = [0, 1].map(|i| kernel[i].saturating_sub(1).saturating_mul(self.dilation[i]) / 2);
            let pad = self.pad.unwrap_or([down, right]);
            // Padding first, because the dilated kernel must fit the padded image.
            Descriptor::padded(x, outputs, kernel, pad)?.dilation(self.dilation)?.stride(self.stride)?.groups(groups)
        };
        let bias = self.bias.as_ref().map(|bias| tape.parameter(bias));
        x.conv(&self.name, descriptor, tape.parameter(&self.weight), bias)
    }
}
