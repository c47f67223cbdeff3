//! Functions for losses whose derivatives must be accurate at branch points and in the tails. They are composed of
//! device operators, and differentiated by hand.

use super::binary;
#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{
    TraceError,
    graph::{BufferId, Context, Gradient, Operation, Operator, ScaleRule, unary},
};
use gradscale_core::{
    backend::Slot,
    ops::{BinaryOp, Broadcast, GradientFlow, Unary},
};

/// Operator of softplus: y = max(x, 0) + ln(1 + e^−|x|), of which no part overflows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Softplus;

impl Operator for Softplus {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let x = at.read(0)?.buf;
        let negative = chain(at, x, &[Unary::Abs, Unary::Neg, Unary::Exp]);
        let log = chain(at, negative, &[Unary::Affine { a: 1.0, b: 1.0 }, Unary::Ln]);
        let positive = chain(at, x, &[Unary::Relu]);
        store_binary(at, BinaryOp::Add, [positive, log])
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (x, first) = at.any(0)?;
        let y = at.emit("Softplus", &[&x], &[]);
        at.give_any(y, first);
        Ok(())
    }

    /// Emits the gradient dx = dy·sigmoid(x), which is accurate also at 0, where the formula above changes its branch,
    /// and for very negative x, where its terms cancel.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let x = at.operand(0).buf;
        let slope = chain(at, x, &[Unary::Sigmoid]);
        times(at, dy, slope)
    }
}

/// Operator of the Huber function: y = m·(|x| − m/2)/β with m = min(|x|, β).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Huber(pub f32);

impl Operator for Huber {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let x = at.read(0)?.buf;
        let size = chain(at, x, &[Unary::Abs]);
        let most = clamp(at, size, self.0)?;
        let half = chain(at, most, &[Unary::Affine { a: 0.5, b: 0.0 }]);
        let p = binary::like(at.node, BinaryOp::Sub, Broadcast::All)?;
        let rest = at.emit_temporary(at.node.shape.len(), Slot::ONE, |y| Operation::Binary { p, a: size, b: half, y });
        let share = chain(at, most, &[Unary::Affine { a: 1.0 / self.0, b: 0.0 }]);
        store_binary(at, BinaryOp::Mul, [rest, share])
    }

    /// Emits the gradient dx = dy·x/β, clamped to ±dy.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let x = at.operand(0).buf;
        let share = chain(at, x, &[Unary::Affine { a: 1.0 / self.0, b: 0.0 }]);
        let slope = clamp(at, share, 1.0)?;
        times(at, dy, slope)
    }
}

/// Emits unary functions of x, applied one after the other, and returns the last result.
pub(super) fn chain(at: &mut Context<'_, '_, '_>, x: BufferId, functions: &[Unary]) -> BufferId {
    let len = at.node.shape.len();
    functions.iter().fold(x, |x, &op| at.emit_temporary(len, Slot::ONE, |y| unary(op, x, y)))
}

/// Emits the values of x clamped to ±`most`.
fn clamp(at: &mut Context<'_, '_, '_>, x: BufferId, most: f32) -> Result<BufferId, TraceError> {
    let least = at.constant(vec![-most]);
    let p = binary::like(at.node, BinaryOp::Max, Broadcast::One)?;
    let mut x = x;
    for _ in 0..2 {
        let above = at.emit_temporary(at.node.shape.len(), Slot::ONE, |y| Operation::Binary { p, a: x, b: least, y });
        x = chain(at, above, &[Unary::Neg]);
    }
    Ok(x)
}

fn store_binary(at: &mut Context<'_, '_, '_>, op: BinaryOp, [a, b]: [BufferId; 2]) -> Result<(), TraceError> {
    let p = binary::like(at.node, op, Broadcast::All)?;
    at.store(|y| Operation::Binary { p, a, b, y })
}

/// Emits the gradient dx = dy·slope of an element-wise function.
fn times(at: &mut Context<'_, '_, '_>, dy: Gradient, slope: BufferId) -> Result<(), TraceError> {
    let p = binary::like(at.node, BinaryOp::Mul, Broadcast::All)?;
    let (a, b) = (dy.value.buf, slope);
    at.emit_gradient(0, dy, GradientFlow::Cast, ScaleRule::FromValues, |y| Operation::Binary { p, a, b, y })
}
