//! Cast site as a module.

use crate::{
    Error, Scaler,
    ops::{RoundToHalf, StoreGradient},
};
use candle_core::{Module, Result, Tensor};

/// Cast site: the gradient of its value is stored as FP16, at its own exponent. The forward pass is the identity.
///
/// Every [`crate::ScaledLinear`] and [`crate::ScaledConv2d`] has one for the gradient of its output. Add one where a
/// value has several consumers (a branch, a residual connection), because the sum of their gradients is f32. Also add
/// one after layers of candle whose gradient is to be FP16: norms, activations that multiply, softmax.
///
/// ```
/// use candle_core::{Device, Module, Var};
/// use gradscale_candle::{Scaler, Site};
///
/// let scaler = Scaler::new("gs")?;
/// let branch = Site::new(&scaler, "branch")?;
/// let x = Var::new(&[1f32, 2.0], &Device::Cpu)?;
/// let h = branch.forward(&x)?;
/// let loss = ((&h * 3e-9)? + (h * 5e-9)?)?.sum_all()?;
/// let gradient = loss.backward()?.get(&x).expect("a gradient").to_vec1::<f32>()?;
/// // 8e-9 is far below 2^-25, where plain FP16 has zeros.
/// assert!((gradient[0] / 8e-9 - 1.0).abs() < 5e-4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Site {
    inner: gradscale_adapters::Site,
}

impl Site {
    /// Creates a cast site with the given name in a scaler.
    ///
    /// # Errors
    /// [`Error::Name`] if the name exists already, [`Error::Sites`].
    pub fn new(scaler: &Scaler, name: &str) -> std::result::Result<Self, Error> {
        Ok(Self { inner: scaler.site(name)? })
    }

    /// Returns the name of the cast site in the model.
    #[must_use]
    pub fn name(&self) -> String {
        self.inner.name()
    }

    /// Returns the exponent of the site in force: gradients are stored times 2^exponent.
    #[must_use]
    pub fn exponent(&self) -> i32 {
        self.inner.exponent()
    }

    /// Returns the tensor with its values rounded to FP16, as a product reads them.
    pub(crate) fn round(&self, x: &Tensor) -> Result<Tensor> {
        x.contiguous()?.apply_op1(RoundToHalf(self.inner.scaler().clone()))
    }
}

/// Returns the values unchanged, for a tensor of any rank; in the backward pass, the sum of their gradients is stored.
/// Tensors that are not f32 or not on the CPU are an error.
impl Module for Site {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.contiguous()?.apply_op1(StoreGradient(self.inner.clone()))
    }
}
