//! Tensors for tests.

use burn::tensor::{Device, Shape, Tensor, TensorData};

/// Returns the CPU, or with the feature `wgpu` the GPU.
pub fn device() -> Device {
    #[cfg(feature = "wgpu")]
    return Device::wgpu(burn::tensor::DeviceKind::DefaultDevice).autodiff();
    #[cfg(not(feature = "wgpu"))]
    Device::flex().autodiff()
}

pub fn tensor<const D: usize>(shape: [usize; D], value: impl Fn() -> f32) -> Tensor<D> {
    let values = (0..shape.iter().product()).map(|_| value()).collect::<Vec<f32>>();
    Tensor::from_data(TensorData::new(values, Shape::from(shape)), &device())
}

pub fn values<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
    tensor.to_data().try_into_vec().expect("f32")
}
