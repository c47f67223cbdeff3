//! Convolutional layers over sequences.

use super::{Conv2d, Module};
use crate::{Init, Scope, Var};

/// Convolution over time, `[n, t, in]` to `[n, t, out]`; weight `[out, kernel, in / groups]`. The default padding keeps the
/// length at stride 1 with an odd kernel. PyTorch's `nn.Conv1d` has the channels before the time.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{Conv1d, Module}, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let mut scope = parameters.at("conv");
/// let conv = Conv1d::new(&mut scope, 4, 6, 5).stride(2).bias(&mut scope);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// let y = trainer.evaluate([Input::f32([3, 10, 4], &[0.5; 120])], |[x]| conv.forward(x))?;
/// assert_eq!(y.shape.sizes(), [3, 1, 5, 6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Conv1d(Conv2d);

impl Conv1d {
    /// Creates a convolution over time without bias. Weights are initialised uniformly in ±1/√(kernel·in), as in PyTorch
    /// ([`Init::FanIn`]), and so is a bias.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, outputs: usize, kernel: usize) -> Self {
        Self::grouped(scope, inputs, outputs, kernel, 1)
    }

    /// Creates a convolution over time whose channels are divided into groups, as [`Conv2d::grouped`].
    pub fn grouped(scope: &mut Scope<'_>, inputs: usize, outputs: usize, kernel: usize, groups: usize) -> Self {
        Self(Conv2d::of_groups(scope, inputs, outputs, [1, kernel], groups, Init::FanIn))
    }

    /// Creates a convolution over time of each channel by itself, without bias.
    pub fn depthwise(scope: &mut Scope<'_>, channels: usize, kernel: usize) -> Self {
        Self::grouped(scope, channels, channels, kernel, channels)
    }

    /// Adds a bias, one parameter for each output channel, to the convolution.
    #[must_use]
    pub fn bias(self, scope: &mut Scope<'_>) -> Self {
        Self(self.0.bias(scope))
    }

    /// Sets the stride of the convolution along the time.
    #[must_use]
    pub fn stride(self, stride: u32) -> Self {
        Self(self.0.strides([1, stride]))
    }

    /// Sets the dilation: the distance of adjacent taps in steps.
    #[must_use]
    pub fn dilation(self, dilation: u32) -> Self {
        Self(self.0.dilation(dilation))
    }

    /// Sets the number of zeros before the first and after the last step.
    #[must_use]
    pub fn pad(self, pad: u32) -> Self {
        Self(self.0.pad([0, pad]))
    }
}

impl Module for Conv1d {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.0.forward(x)
    }
}
