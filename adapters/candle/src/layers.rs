//! Layers whose products read halves, and whose outputs' gradients are halves.

use crate::{Error, Scaler, Site};
use candle_core::{Module, Result, Tensor};
use candle_nn::{Conv2d, Linear};

/// A [`Linear`] whose product reads input and weight as FP16 and adds in f32, and whose output's gradient is stored as FP16
/// at a scale of its own. The gradients of weight and bias are f32 and unscaled.
#[derive(Clone, Debug)]
pub struct ScaledLinear {
    /// candle's layer, with its f32 parameters.
    pub linear: Linear,
    site: Site,
}

impl ScaledLinear {
    /// That layer, with a site of that name.
    ///
    /// # Errors
    /// [`Error::Name`] for a name that is there already, [`Error::Sites`].
    pub fn new(linear: Linear, scaler: &Scaler, name: &str) -> std::result::Result<Self, Error> {
        Ok(Self { linear, site: Site::new(scaler, name)? })
    }

    /// Where its output's gradient is stored.
    #[must_use]
    pub const fn site(&self) -> &Site {
        &self.site
    }
}

/// `(…, inputs)` to `(…, outputs)`, with candle's errors for other shapes.
impl Module for ScaledLinear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let halves = Linear::new(self.site.round(self.linear.weight())?, self.linear.bias().cloned());
        self.site.forward(&halves.forward(&self.site.round(x)?)?)
    }
}

/// A [`Conv2d`] whose product reads input and weight as FP16 and adds in f32, and whose output's gradient is stored as FP16
/// at a scale of its own. The gradients of weight and bias are f32 and unscaled.
#[derive(Clone, Debug)]
pub struct ScaledConv2d {
    /// candle's layer, with its f32 parameters.
    pub conv: Conv2d,
    site: Site,
}

impl ScaledConv2d {
    /// That layer, with a site of that name.
    ///
    /// # Errors
    /// [`Error::Name`] for a name that is there already, [`Error::Sites`].
    pub fn new(conv: Conv2d, scaler: &Scaler, name: &str) -> std::result::Result<Self, Error> {
        Ok(Self { conv, site: Site::new(scaler, name)? })
    }

    /// Where its output's gradient is stored.
    #[must_use]
    pub const fn site(&self) -> &Site {
        &self.site
    }
}

/// `(batch, channels in, height, width)` to `(batch, channels out, height, width)`, with candle's errors for other shapes.
impl Module for ScaledConv2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let weight = self.site.round(self.conv.weight())?;
        let halves = Conv2d::new(weight, self.conv.bias().cloned(), *self.conv.config());
        self.site.forward(&halves.forward(&self.site.round(x)?)?)
    }
}
