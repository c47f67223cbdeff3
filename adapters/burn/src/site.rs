//! Cast site as a module.

use crate::{Error, Scaler, ops::StoreOps};
use burn::{backend::Dispatch, module::Module, tensor::Tensor};

/// Cast site: the gradient of its value is stored as FP16, at its own exponent. The forward pass is the identity.
///
/// Every [`crate::ScaledLinear`] and [`crate::ScaledConv2d`] has one for the gradient of its output. Add one where a
/// value has several consumers (a branch, a residual connection), because the sum of their gradients is f32. Also add
/// one after layers of burn whose gradient is to be FP16: norms, activations that multiply, softmax.
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
    /// Creates a cast site with the given name in a scaler.
    ///
    /// # Errors
    /// [`Error::Name`] if the name exists already, [`Error::Sites`].
    pub fn new(scaler: &Scaler, name: &str) -> Result<Self, Error> {
        Ok(Self { inner: scaler.site(name)? })
    }

    /// Returns the values unchanged, for a tensor of any rank; in the backward pass, the sum of their gradients is
    /// stored.
    ///
    /// # Panics
    /// In the backward pass, for gradients that are not f32.
    #[must_use]
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        Tensor::from_dispatch(Dispatch::store_gradient(x.into_dispatch(), self.inner.clone()))
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
    pub(crate) fn round<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        Tensor::from_dispatch(Dispatch::round_to_half(x.into_dispatch(), self.inner.scaler().clone()))
    }
}
