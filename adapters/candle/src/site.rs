//! A cast site as a module.

use crate::{
    Error, Scaler,
    ops::{RoundToHalf, StoreGradient},
};
use candle_core::{Module, Result, Tensor};

/// A place where the gradient is stored as FP16, at an exponent of its own. Forward it changes nothing.
///
/// Every [`crate::ScaledLinear`] and [`crate::ScaledConv2d`] has one for the gradient of its output. One more belongs where
/// a value is read several times (a branch, a residual connection), since the sum of its gradients is f32, and behind
/// layers of candle's own whose gradient is to be FP16: norms, activations that multiply, softmax.
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
    /// A new site.
    ///
    /// # Errors
    /// [`Error::Name`] for a name that is there already, [`Error::Sites`].
    pub fn new(scaler: &Scaler, name: &str) -> std::result::Result<Self, Error> {
        Ok(Self { inner: scaler.site(name)? })
    }

    /// As the model calls it.
    #[must_use]
    pub fn name(&self) -> String {
        self.inner.name()
    }

    /// The exponent in force: gradients are stored times 2^exponent.
    #[must_use]
    pub fn exponent(&self) -> i32 {
        self.inner.exponent()
    }

    /// The values rounded to FP16, as a product reads them.
    pub(crate) fn round(&self, x: &Tensor) -> Result<Tensor> {
        x.contiguous()?.apply_op1(RoundToHalf(self.inner.scaler().clone()))
    }
}

/// The values as they are, in a tensor of any rank; on the way back, the sum of their gradients is stored. An error for
/// tensors that are not f32, or not on the CPU.
impl Module for Site {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.contiguous()?.apply_op1(StoreGradient(self.inner.clone()))
    }
}
