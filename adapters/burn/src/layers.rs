//! Layers with FP16 operands, whose output gradients are stored as FP16.

use crate::{Error, Scaler, Site};
use burn::{
    module::Module,
    nn::{Linear, PaddingConfig2d, conv::Conv2d},
    tensor::{Tensor, assert_shape, module, ops::ConvOptions},
};

/// [`Linear`] layer with gradient scaling. Its product reads input and weight as FP16 and accumulates in f32. The
/// gradient of its output is stored as FP16 at its own scale. The gradients of weight and bias are f32 and unscaled.
#[derive(Module, Debug)]
pub struct ScaledLinear {
    /// Linear layer of burn, with its f32 parameters.
    pub linear: Linear,
    site: Site,
}

impl ScaledLinear {
    /// Wraps a linear layer of burn and adds a cast site with the given name to the scaler.
    ///
    /// # Errors
    /// [`Error::Name`] if the name exists already, [`Error::Sites`].
    pub fn new(linear: Linear, scaler: &Scaler, name: &str) -> Result<Self, Error> {
        Ok(Self { linear, site: Site::new(scaler, name)? })
    }

    /// Applies the linear layer in FP16: computes `[..., outputs]` from `[..., inputs]`.
    ///
    /// # Panics
    /// See [`Linear::forward`]: if the last axis is not that of the weight; also for tensors that are not f32.
    #[must_use]
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let weight = self.linear.weight.val();
        let [inputs, _] = weight.dims();
        assert_shape!(x, [.., inputs]);
        let bias = self.linear.bias.as_ref().map(|bias| bias.val());
        self.site.forward(module::linear(self.site.round(x), self.site.round(weight), bias))
    }

    /// Returns the cast site of the linear layer's output gradient.
    #[must_use]
    pub const fn site(&self) -> &Site {
        &self.site
    }
}

/// [`Conv2d`] layer with gradient scaling. Its product reads input and weight as FP16 and accumulates in f32. The
/// gradient of its output is stored as FP16 at its own scale. The gradients of weight and bias are f32 and unscaled.
#[derive(Module, Debug)]
pub struct ScaledConv2d {
    /// Convolution layer of burn, with its f32 parameters.
    pub conv: Conv2d,
    site: Site,
}

impl ScaledConv2d {
    /// Wraps a convolution layer of burn and adds a cast site with the given name to the scaler.
    ///
    /// # Errors
    /// [`Error::Name`] if the name exists already, [`Error::Sites`].
    pub fn new(conv: Conv2d, scaler: &Scaler, name: &str) -> Result<Self, Error> {
        Ok(Self { conv, site: Site::new(scaler, name)? })
    }

    /// Applies the convolution in FP16: `[batch, channels out, height, width]` from `[batch, channels in, height,
    /// width]`.
    ///
    /// # Panics
    /// See [`Conv2d::forward`]: for other channels than the weight's; also for tensors that are not f32.
    #[must_use]
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let Conv2d { stride, kernel_size, dilation, groups, .. } = self.conv;
        let [_, _, height, width] = x.dims();
        // Padding before and after for `same`, which burn computes in a private function.
        let same = |axis: usize, size: usize| {
            let outputs = size.div_ceil(stride[axis]);
            let total = (outputs.saturating_sub(1) * stride[axis] + kernel_size[axis]).saturating_sub(size);
            (total / 2, total - total / 2)
        };
        let padding = match self.conv.padding {
            PaddingConfig2d::Valid => [(0, 0); 2],
            PaddingConfig2d::Same => [same(0, height), same(1, width)],
            PaddingConfig2d::Explicit(top, left, bottom, right) => [(top, bottom), (left, right)],
        };
        let options = ConvOptions::new_with_padding(stride, padding, dilation, groups);
        let weight = self.site.round(self.conv.weight.val());
        let bias = self.conv.bias.as_ref().map(|bias| bias.val());
        self.site.forward(module::conv2d(self.site.round(x), weight, bias, options))
    }

    /// Returns the cast site of the convolution's output gradient.
    #[must_use]
    pub const fn site(&self) -> &Site {
        &self.site
    }
}
