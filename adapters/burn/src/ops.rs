//! Two operators for burn's autodiff: the store of a gradient, and the rounding of a product's operands.

use burn::backend::{
    Autodiff, Backend, TensorMetadata,
    autodiff::{
        checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
        grads::Gradients,
        ops::{Backward, Ops, OpsKind, unary},
    },
    backend_extension,
    tensor::FloatTensor,
};
use burn::tensor::{DType, TensorData};
use gradscale_adapters::{Scaler, Site};

/// Operators that a backend must implement. Both work in host memory, so any backend can.
#[backend_extension(Autodiff, Flex: cfg(feature = "flex"), Cube: cfg(feature = "wgpu"))]
pub trait StoreOps: Backend {
    /// Returns the values unchanged; in the backward pass, their gradient is stored at the site.
    fn store_gradient(x: FloatTensor<Self>, site: Site) -> FloatTensor<Self> {
        // Without autodiff there is no gradient.
        let _ = site;
        x
    }

    /// Returns the values rounded to FP16; in the backward pass, their gradient is unchanged.
    fn round_to_half(x: FloatTensor<Self>, scaler: Scaler) -> FloatTensor<Self> {
        on_host::<Self>(x, |values| scaler.round_to_f16(values))
    }
}

#[cfg(feature = "flex")]
impl StoreOps for burn::backend::Flex {}
#[cfg(feature = "wgpu")]
impl StoreOps for burn::backend::Cube {}

/// Applies `change` to the f32 values of a tensor in host memory, and returns the changed tensor.
fn on_host<B: Backend>(x: FloatTensor<B>, change: impl FnOnce(&mut [f32])) -> FloatTensor<B> {
    let (device, shape, dtype) = (x.device(), x.shape(), x.dtype());
    assert!(dtype == DType::F32, "gradscale rounds f32 tensors to FP16, but this one is {dtype:?}");
    let data = burn::tensor::read_sync(B::float_into_data(x)).expect("the device gives its values");
    let mut values = data.try_into_vec::<f32>().expect("the values are f32");
    change(&mut values);
    B::float_from_data(TensorData::new(values, shape), &device)
}

#[derive(Debug)]
struct StoreGradient;

impl<B: Backend> Backward<B, 1> for StoreGradient {
    type State = Site;

    fn backward(self, ops: Ops<Site, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let Ops { parents, node, state: site } = ops;
        unary::<B, _>(parents, node, grads, |gradient| on_host::<B>(gradient, |values| site.store(values)));
    }
}

#[derive(Debug)]
struct RoundToHalf;

impl<B: Backend> Backward<B, 1> for RoundToHalf {
    type State = ();

    fn backward(self, ops: Ops<(), 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        unary::<B, _>(ops.parents, ops.node, grads, |gradient| gradient);
    }
}

impl<B: StoreOps, C: CheckpointStrategy> StoreOps for Autodiff<B, C> {
    fn store_gradient(x: FloatTensor<Self>, site: Site) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        match StoreGradient.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(site, x),
            OpsKind::UnTracked(prep) => prep.finish(x),
        }
    }

    fn round_to_half(x: FloatTensor<Self>, scaler: Scaler) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        RoundToHalf.prepare::<C>([node]).compute_bound().stateless(B::round_to_half(x, scaler))
    }
}
