//! Reshape and detach: the same values, without a launch if the type is unchanged.

#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{
    Shape, TraceError, Var,
    error::TraceErrorKind,
    graph::{Context, Gradient, Operator, cast},
};
use gradscale_core::{
    amp::Precision,
    backend::DType,
    ops::{ActivationFlow, Op},
};

impl<'t> Var<'t> {
    /// Changes the shape of x and keeps its values.
    ///
    /// # Errors
    /// A shape of another length.
    pub fn reshape(self, shape: impl Into<Shape>) -> Self {
        self.try_record(|| {
            let shape = shape.into();
            if shape.len() != self.shape().len() {
                let got = self.shape().len();
                return Err(TraceError::new("reshape", TraceErrorKind::Length { got, shape }));
            }
            Ok(self.record_op("reshape", Op::Reshape, Reshape, &[], shape))
        })
    }

    /// Reshapes x from `[n, h, w, c]` to `[n, h·w·c]`.
    ///
    /// # Errors
    /// None; the section is kept for consistency with other operators.
    pub fn flatten(self) -> Self {
        let [n, h, w, c] = self.shape().sizes();
        self.reshape([n, h * w * c])
    }

    /// Returns the values of x without a gradient, so that none flows back to it.
    pub fn detach(self) -> Self {
        self.record_op("detach", Op::Reshape, Detach, &[], self.shape())
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Reshape;

impl Operator for Reshape {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        same_memory(at)
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let sizes = at.node().shape.sizes();
        let y = at.shaped(0, &sizes)?;
        at.set_output(y);
        Ok(())
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        at.forward_grad(0, dy)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Detach;

impl Operator for Detach {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        same_memory(at)
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        at.give_input()
    }

    fn is_differentiable(&self) -> bool {
        false
    }

    fn vjp(&self, _: &mut Context<'_, '_, '_>, _: Gradient) -> Result<(), TraceError> {
        Ok(())
    }
}

/// Sets the node's result to the memory of its input, unless a list requires another type.
pub(super) fn same_memory(at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
    let x = at.read_in(0, None)?;
    match (x.dtype, at.precision()) {
        (DType::F16, Some(Precision::Single)) | (DType::F32, Some(Precision::Half)) => at.store(|y| cast(x.buf, y)),
        _ => {
            at.set_output(x);
            Ok(())
        }
    }
}
