//! The way in and out: host data with a shape.

use crate::Shape;
use gradscale_core::backend::{DType, Data};
use half::f16;

/// Data for one input of a step. It is copied to the device when the step begins, or before, by
/// [`crate::Trainer::prefetch`].
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub(crate) shape: Shape,
    pub(crate) data: Data<'a>,
}

impl<'a> Input<'a> {
    /// Sizes.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// f32 values, c running fastest.
    pub fn f32(shape: impl Into<Shape>, data: &'a [f32]) -> Self {
        Self { shape: shape.into(), data: Data::F32(data) }
    }

    /// binary16 values.
    pub fn f16(shape: impl Into<Shape>, data: &'a [f16]) -> Self {
        Self { shape: shape.into(), data: Data::F16(data) }
    }

    /// Bytes: images as they are (0 … 255), labels.
    pub fn u8(shape: impl Into<Shape>, data: &'a [u8]) -> Self {
        Self { shape: shape.into(), data: Data::U8(data) }
    }

    /// Words: labels beyond 255.
    pub fn u32(shape: impl Into<Shape>, data: &'a [u32]) -> Self {
        Self { shape: shape.into(), data: Data::U32(data) }
    }
}

/// Shape and type of one input of a step, for [`crate::Trainer::compile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InputType {
    /// Sizes.
    pub shape: Shape,
    /// What each element is.
    pub dtype: DType,
}

impl InputType {
    /// f32 values.
    pub fn f32(shape: impl Into<Shape>) -> Self {
        Self { shape: shape.into(), dtype: DType::F32 }
    }

    /// binary16 values.
    pub fn f16(shape: impl Into<Shape>) -> Self {
        Self { shape: shape.into(), dtype: DType::F16 }
    }

    /// Bytes.
    pub fn u8(shape: impl Into<Shape>) -> Self {
        Self { shape: shape.into(), dtype: DType::U8 }
    }

    /// Words.
    pub fn u32(shape: impl Into<Shape>) -> Self {
        Self { shape: shape.into(), dtype: DType::U32 }
    }
}

/// That of a batch like those to come.
impl From<Input<'_>> for InputType {
    fn from(batch: Input<'_>) -> Self {
        Self { shape: batch.shape, dtype: batch.data.dtype() }
    }
}

/// Values on the host: f32, also those that are half on the device, or integers, as `Tensor<u32>`, also those that are
/// bytes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor<T = f32> {
    /// Sizes.
    pub shape: Shape,
    /// Elements, c running fastest.
    pub data: Vec<T>,
}
