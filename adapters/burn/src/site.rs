//! A cast site as a module.

use crate::{Error, Scaler, ops::StoreOps};
use burn::{backend::Dispatch, module::Module, tensor::Tensor};

/// A place where the gradient is stored as FP16, at an exponent of its own. Forward it changes nothing.
///
/// Every [`crate::ScaledLinear`] and [`crate::ScaledConv2d`] has one for the gradient of its output. One more belongs where
/// a value is read several times (a branch, a residual connection), since the sum of its gradients is f32, and behind
/// layers of burn's own whose gradient is to be FP16: norms, activations that multiply, softmax.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use gradscale_burn::{Scaler, Site};
///
/// let (scaler, device) = (Scaler::new("gs")?, Device::flex().autodiff());
/// let branch = Site::new(&scaler, "branch")?;
/// let x = Tensor::<1>::from_floats([1.0, 2.0], &device).require_grad();
/// let h = branch.forward(x.clone());
/// let loss = (h.clone() * 3e-9 + h * 5e-9).sum();
/// let gradient = x.grad(&loss.backward()).expect("a gradient").into_data();
/// // 8e-9 is far below 2^-25, where plain FP16 has zeros.
/// assert!((gradient.as_slice::<f32>().expect("f32")[0] / 8e-9 - 1.0).abs() < 5e-4);
/// assert_eq!(scaler.report().len(), 0, "no step has ended yet");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Module, Debug)]
pub struct Site {
    #[module(skip)]
    inner: gradscale_adapters::Site,
}

impl Site {
    /// A new site.
    ///
    /// # Errors
    /// [`Error::Name`] for a name that is there already, [`Error::Sites`].
    pub fn new(scaler: &Scaler, name: &str) -> Result<Self, Error> {
        Ok(Self { inner: scaler.site(name)? })
    }

    /// The values as they are, in a tensor of any rank; on the way back, the sum of their gradients is stored.
    ///
    /// # Panics
    /// In the backward pass, for gradients that are not f32.
    #[must_use]
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        Tensor::from_dispatch(Dispatch::store_gradient(x.into_dispatch(), self.inner.clone()))
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
    pub(crate) fn round<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        Tensor::from_dispatch(Dispatch::round_to_half(x.into_dispatch(), self.inner.scaler().clone()))
    }
}
