//! Clipped ReLU.

use super::{binary::like, smooth::chain};
#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{
    TraceError, Var,
    graph::{Context, Gradient, Operation, Operator, ScaleRule, unary},
};
use gradscale_core::{
    backend::Slot,
    ops::{BinaryOp, Broadcast, Op, ShapeError, Unary},
};

impl Var<'_> {
    /// Computes min(max(x, 0), `most`): PyTorch's `hardtanh(x, 0, most)`. The gradient passes where 0 < x < `most`.
    ///
    /// # Errors
    /// A `most` that is not positive.
    pub fn clipped_relu(self, most: f32) -> Self {
        self.try_record(|| {
            let name = "clipped_relu";
            if !(most > 0.0 && most.is_finite()) {
                return Err(TraceError::new(name, ShapeError::Value(most)));
            }
            Ok(self.record_op(name, Op::Relu, Clip(most), &[], self.shape()))
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Clip(f32);

impl Operator for Clip {
    /// Emits the clipped ReLU: −max(−max(x, 0), −most).
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let x = at.read(0)?.buf;
        let (negative, end) = (chain(at, x, &[Unary::Relu, Unary::Neg]), at.constant(vec![-self.0]));
        let p = like(at.node, BinaryOp::Max, Broadcast::One)?;
        let len = at.node.shape.len();
        let within = at.emit_temporary(len, Slot::ONE, |y| Operation::Binary { p, a: negative, b: end, y });
        at.store(|y| unary(Unary::Neg, within, y))
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (x, first) = at.any(0)?;
        let (least, most) = (at.number(0.0), at.number(self.0));
        let y = at.emit("Clip", &[&x, &least, &most], &[]);
        at.give_any(y, first);
        Ok(())
    }

    /// Emits the gradient: the derivative of ReLU, which selects, is applied twice, for x and for most − x.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (x, p) = (at.operand(0).buf, like(at.node, BinaryOp::Grad(Unary::Relu), Broadcast::All)?);
        let below = chain(at, x, &[Unary::Affine { a: -1.0, b: self.0 }]);
        let (b, len) = (dy.value.buf, at.node.shape.len());
        let positive = at.emit_temporary(len, dy.slot, |y| Operation::Binary { p, a: x, b, y });
        at.emit_gradient(0, dy, at.flow(), ScaleRule::FromValues, |y| Operation::Binary { p, a: below, b: positive, y })
    }
}
