//! Tensors for tests.

use candle_core::{Device, Shape, Tensor, Var};

pub fn tensor<S: Into<Shape>>(shape: S, value: impl Fn() -> f32) -> Tensor {
    let shape = shape.into();
    let values = (0..shape.elem_count()).map(|_| value()).collect::<Vec<f32>>();
    Tensor::from_vec(values, shape, &Device::Cpu).expect("a tensor")
}

pub fn var<S: Into<Shape>>(shape: S, value: impl Fn() -> f32) -> Var {
    Var::from_tensor(&tensor(shape, value)).expect("a parameter")
}

pub fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().and_then(|flat| flat.to_vec1()).expect("f32")
}
