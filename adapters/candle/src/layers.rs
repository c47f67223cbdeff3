//! Layers with FP16 operands, whose output gradients are stored as FP16.

use crate::{Error, Scaler, Site};
use candle_core::{Module, Result, Tensor};
use candle_nn::{Conv2d, Linear};

/// [`Linear`] layer with gradient scaling. Its product reads input and weight as FP16 and accumulates in f32. The
/// gradient of its output is stored as FP16 at its own scale. The gradients of weight and bias are f32 and unscaled.
#[derive(Clone, Debug)]
pub struct ScaledLinear {
    /// Linear layer of candle, with its f32 parameters.
    pub linear: Linear,
    site: Site,
}

impl ScaledLinear {
    /// Wraps a linear layer of candle and adds a cast site with the given name to the scaler.
    ///
    /// # Errors
    /// [`Error::Name`] if the name exists already, [`Error::Sites`].
    pub fn new(linear: Linear, scaler: &Scaler, name: &str) -> std::result::Result<Self, Error> {
        Ok(Self { linear, site: Site::new(scaler, name)? })
    }

    /// Returns the cast site of the linear layer's output gradient.
    #[must_use]
    pub const fn site(&self) -> &Site {
        &self.site
    }
}

/// Impl of candle's `Module`: computes `(…, outputs)` from `(…, inputs)`, with candle's errors for other shapes.
impl Module for ScaledLinear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let halves = Linear::new(self.site.round(self.linear.weight())?, self.linear.bias().cloned());
        self.site.forward(&halves.forward(&self.site.round(x)?)?)
    }
}

/// [`Conv2d`] layer with gradient scaling. Its product reads input and weight as FP16 and accumulates in f32. The
/// gradient of its output is stored as FP16 at its own scale. The gradients of weight and bias are f32 and unscaled.
#[derive(Clone, Debug)]
pub struct ScaledConv2d {
    /// Convolution layer of candle, with its f32 parameters.
    pub conv: Conv2d,
    site: Site,
}

impl ScaledConv2d {
    /// Wraps a convolution layer of candle and adds a cast site with the given name to the scaler.
    ///
    /// # Errors
    /// [`Error::Name`] if the name exists already, [`Error::Sites`].
    pub fn new(conv: Conv2d, scaler: &Scaler, name: &str) -> std::result::Result<Self, Error> {
        Ok(Self { conv, site: Site::new(scaler, name)? })
    }

    /// Returns the cast site of the convolution's output gradient.
    #[must_use]
    pub const fn site(&self) -> &Site {
        &self.site
    }
}

/// Computes `(batch, channels out, height, width)` from `(batch, channels in, height, width)`, with candle's errors for
/// other shapes.
impl Module for ScaledConv2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let weight = self.site.round(self.conv.weight())?;
        let halves = Conv2d::new(weight, self.conv.bias().cloned(), *self.conv.config());
        self.site.forward(&halves.forward(&self.site.round(x)?)?)
    }
}
