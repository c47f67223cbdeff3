//! Two operators for candle's autograd: the store of a gradient, and the rounding of a product's operands.

use candle_core::{CpuStorage, CustomOp1, DType, Layout, Result, Shape, Tensor, bail};
use gradscale_adapters::{Scaler, Site};

/// Operator that returns the values unchanged and stores their gradient in the backward pass.
pub struct StoreGradient(pub Site);

/// Operator that returns the values rounded to FP16 and passes their gradient through unchanged. candle's own casts
/// there and back are not used, because in the backward pass they cast the gradient as well, so values below 2^-25
/// become zero.
pub struct RoundToHalf(pub Scaler);

/// Returns the f32 values of a contiguous tensor in host memory.
fn values<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(all), Some((start, end))) => Ok(&all[start..end]),
        (_, None) => bail!("the tensor must be contiguous; call contiguous() first"),
        (other, Some(_)) => {
            use candle_core::backend::BackendStorage;
            bail!("gradscale rounds f32 tensors to FP16, but this one is {:?}", other.dtype())
        }
    }
}

impl CustomOp1 for StoreGradient {
    fn name(&self) -> &'static str {
        "gradscale-store-gradient"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((CpuStorage::F32(values(storage, layout)?.to_vec()), layout.shape().clone()))
    }

    fn bwd(&self, _x: &Tensor, _y: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        if gradient.dtype() != DType::F32 {
            bail!("gradscale stores gradients of f32, but this one is {:?}", gradient.dtype());
        }
        let mut values = gradient.flatten_all()?.to_vec1::<f32>()?;
        self.0.store(&mut values);
        Tensor::from_vec(values, gradient.shape(), gradient.device()).map(Some)
    }
}

impl CustomOp1 for RoundToHalf {
    fn name(&self) -> &'static str {
        "gradscale-round-to-half"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let mut values = values(storage, layout)?.to_vec();
        self.0.round_to_f16(&mut values);
        Ok((CpuStorage::F32(values), layout.shape().clone()))
    }

    fn bwd(&self, _x: &Tensor, _y: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(gradient.clone()))
    }
}
