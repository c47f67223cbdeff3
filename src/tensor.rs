//! Host tensors: inputs and outputs of a step.

use crate::Shape;
use gradscale_core::backend::{DType, Data};
use half::f16;

/// Host data for one input of a step. It is copied to the device when the step starts, or earlier by
/// [`crate::Trainer::prefetch`].
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub(crate) shape: Shape,
    pub(crate) data: Data<'a>,
}

impl<'a> Input<'a> {
    /// Returns the shape of the input n, h, w, c.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the values of an input of f32; `None` for other types.
    #[must_use]
    pub const fn as_f32(&self) -> Option<&'a [f32]> {
        if let Data::F32(values) = self.data { Some(values) } else { None }
    }

    /// Returns the values of an input of halves; `None` for other types.
    #[must_use]
    pub const fn as_f16(&self) -> Option<&'a [f16]> {
        if let Data::F16(values) = self.data { Some(values) } else { None }
    }

    /// Returns the values of an input of bytes; `None` for other types.
    #[must_use]
    pub const fn as_u8(&self) -> Option<&'a [u8]> {
        if let Data::U8(values) = self.data { Some(values) } else { None }
    }

    /// Returns the values of an input of 32-bit words; `None` for other types.
    #[must_use]
    pub const fn as_u32(&self) -> Option<&'a [u32]> {
        if let Data::U32(values) = self.data { Some(values) } else { None }
    }

    /// Returns the labels of a batch, of bytes or words, in the type that [`crate::metrics`] and
    /// [`evaluate_integers`](crate::Trainer::evaluate_integers) use; `None` for f32 and halves.
    ///
    /// ```
    /// use gradscale::{Cpu, Input, Method, Model, Parameters, data::in_order, metrics::Accuracy};
    /// let mut model = Model::new(Cpu::new(1)?, Parameters::seeded(0), Method::fp32())?;
    /// let whole = [Input::f32([3, 2], &[0.0, 5.0, 1.0, 0.5, 2.0, 3.0]), Input::u8([3], &[1, 0, 0])];
    /// let mut accuracy = Accuracy::default();
    /// for [x, labels] in in_order(whole, 2)? {
    ///     let classes = model.evaluate_integers([x], |[x]| x.argmax())?;
    ///     accuracy.add(&labels.to_integers().unwrap_or_default(), &classes.data, None)?;
    /// }
    /// assert_eq!(accuracy.share(), 2.0 / 3.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn to_integers(&self) -> Option<Vec<u32>> {
        match self.data {
            Data::U8(values) => Some(values.iter().copied().map(u32::from).collect()),
            Data::U32(values) => Some(values.to_vec()),
            Data::F32(_) | Data::F16(_) => None,
        }
    }

    /// Creates an input of a step from f32 values; c varies fastest.
    pub fn f32(shape: impl Into<Shape>, data: &'a [f32]) -> Self {
        Self { shape: shape.into(), data: Data::F32(data) }
    }

    /// Creates an input of a step from binary16 values.
    pub fn f16(shape: impl Into<Shape>, data: &'a [f16]) -> Self {
        Self { shape: shape.into(), data: Data::F16(data) }
    }

    /// Creates an input of bytes, for example unscaled images (0 … 255) or labels.
    pub fn u8(shape: impl Into<Shape>, data: &'a [u8]) -> Self {
        Self { shape: shape.into(), data: Data::U8(data) }
    }

    /// Creates an input of a step from 32-bit words, for example labels beyond 255.
    pub fn u32(shape: impl Into<Shape>, data: &'a [u32]) -> Self {
        Self { shape: shape.into(), data: Data::U32(data) }
    }
}

/// Shape and type of one input of a step, for [`crate::Trainer::compile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InputType {
    /// Shape of one input, with the batch size.
    pub shape: Shape,
    /// Element type of one input.
    pub dtype: DType,
}

impl InputType {
    /// Creates the type of an input with f32 values.
    pub fn f32(shape: impl Into<Shape>) -> Self {
        Self { shape: shape.into(), dtype: DType::F32 }
    }

    /// Creates the type of an input with binary16 values.
    pub fn f16(shape: impl Into<Shape>) -> Self {
        Self { shape: shape.into(), dtype: DType::F16 }
    }

    /// Creates the type of an input with bytes.
    pub fn u8(shape: impl Into<Shape>) -> Self {
        Self { shape: shape.into(), dtype: DType::U8 }
    }

    /// Creates the type of an input with 32-bit words.
    pub fn u32(shape: impl Into<Shape>) -> Self {
        Self { shape: shape.into(), dtype: DType::U32 }
    }
}

/// Impl that takes shape and type from a batch like those to come.
impl From<Input<'_>> for InputType {
    fn from(batch: Input<'_>) -> Self {
        Self { shape: batch.shape, dtype: batch.data.dtype() }
    }
}

/// Values on the host: f32, also for values that are half on the device. Integers are `Tensor<u32>`, also for bytes on
/// the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor<T = f32> {
    /// Shape of the tensor, n, h, w, c.
    pub shape: Shape,
    /// Elements of the tensor; c varies fastest.
    pub data: Vec<T>,
}
