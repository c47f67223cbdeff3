//! Element-wise functions of two values.

use super::expand::together;
#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{
    Shape, TraceError, Var,
    graph::{Context, Gradient, Node, Operation, Operator, ScaleRule, StoreSpec, other_shape, size, unary},
};
use gradscale_core::ops::{ActivationFlow, Binary, BinaryOp, Broadcast, GradientFlow, Op, Reduce, ReduceOp, Unary};
use gradscale_core::scaled::Scaled;
use std::ops;

impl<'t> Var<'t> {
    /// Computes the square x² of each element, in f32.
    ///
    /// # Errors
    /// More than 2^32 − 1 elements.
    pub fn square(self) -> Self {
        self.binary("square", Op::Pow, BinaryOp::Mul, self)
    }

    /// Applies a function to this value and `b`, repeating sizes of 1 to a common shape.
    fn broadcast(self, kind: &'static str, op: Op, function: BinaryOp, b: Self) -> Self {
        self.try_record(|| {
            let (shape, with) = (self.shape(), b.shape());
            if over(shape, with).is_some() {
                return Ok(self.binary(kind, op, function, b));
            }
            let all = together(shape, with).ok_or_else(|| other_shape(kind, "right operand", b, shape))?;
            let a = self.expand(all);
            // One value per channel, or a single value, needs no repetition.
            let b = if over(all, with).is_some() { b } else { b.expand(all) };
            Ok(a.binary(kind, op, function, b))
        })
    }

    /// Applies a function to this value and `b`, which has the same shape, one value per channel, or a single value.
    pub(super) fn binary(self, kind: &'static str, op: Op, function: BinaryOp, b: Self) -> Self {
        self.try_record(|| {
            let (shape, with) = (self.shape(), b.shape());
            let over = over(shape, with).ok_or_else(|| other_shape(kind, "right operand", b, shape))?;
            self.sizes(kind)?;
            let p = Binary::new(function, size(kind, shape.rows())?, size(kind, shape.channels())?, over)
                .map_err(|error| TraceError::new(kind, error))?;
            Ok(self.record_op(kind, op, p, &[b], shape))
        })
    }
}

// Sums, differences, products and quotients of two values, or of a value and a number. If shapes differ, sizes of 1 are
// repeated along their axis, as in numpy; b may also be one value per channel, in any shape. Shapes that do not fit are
// an error of the step.
macro_rules! operators {
    ($($operator:ident, $method:ident, $kind:literal, $with:expr;)*) => { $(
        impl ops::$operator for Var<'_> {
            type Output = Self;

            fn $method(self, b: Self) -> Self {
                self.broadcast($kind, Op::$operator, BinaryOp::$operator, b)
            }
        }

        impl ops::$operator<f32> for Var<'_> {
            type Output = Self;

            fn $method(self, number: f32) -> Self {
                let [a, b] = $with(number);
                self.affine(a, b)
            }
        }
    )* };
}

operators! {
    Add, add, "add", |number: f32| [1.0, number];
    Sub, sub, "sub", |number: f32| [1.0, -number];
    Mul, mul, "mul", |number: f32| [number, 0.0];
    // Division by a number is multiplication by its reciprocal.
    Div, div, "div", |number: f32| [1.0 / number, 0.0];
}

impl<'t> ops::Sub<Var<'t>> for f32 {
    type Output = Var<'t>;

    fn sub(self, x: Var<'t>) -> Var<'t> {
        x.affine(-1.0, self)
    }
}

impl<'t> ops::Mul<Var<'t>> for f32 {
    type Output = Var<'t>;

    fn mul(self, x: Var<'t>) -> Var<'t> {
        x * self
    }
}

impl ops::Neg for Var<'_> {
    type Output = Self;

    fn neg(self) -> Self {
        self.unary(Unary::Neg)
    }
}

impl Operator for Binary {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        match (self.op(), self.over()) {
            (BinaryOp::Mul, _) | (BinaryOp::Add, Broadcast::All) => op.activation_flow(),
            (BinaryOp::Add, Broadcast::One | Broadcast::PerColumn | Broadcast::PerRow)
            | (BinaryOp::Sub | BinaryOp::Div | BinaryOp::Max | BinaryOp::Grad(_), _) => ActivationFlow::TrueValues,
        }
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (p, a, b) = (*self, at.read(0)?.buf, at.read(1)?.buf);
        let slots = [at.activation_slot(0), at.activation_slot(1)];
        if p.op() == BinaryOp::Add && slots[0] != slots[1] {
            let terms = vec![Scaled::new(a, slots[0]), Scaled::new(b, slots[1])];
            return at.store(|y| Operation::Sum { len: y.y.elements(), terms, y });
        }
        at.store(|y| Operation::Binary { p, a, b, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let kind = match self.op() {
            BinaryOp::Add => "Add",
            BinaryOp::Sub => "Sub",
            BinaryOp::Mul => "Mul",
            BinaryOp::Div => "Div",
            BinaryOp::Max => "Max",
            BinaryOp::Grad(_) => return Err(at.unsupported("a derivative")),
        };
        let ([n, h, w, c], (a, first)) = (at.node().shape.sizes(), at.any(0)?);
        let b = match (self.over(), first) {
            (Broadcast::All, true) => at.first(1)?,
            (Broadcast::All, false) => at.x(1)?,
            (Broadcast::One, _) => at.shaped(1, &[1])?,
            (Broadcast::PerColumn, true) => at.shaped(1, &[1, c, 1, 1])?,
            (Broadcast::PerColumn, false) => at.shaped(1, &[c])?,
            (Broadcast::PerRow, true) => at.shaped(1, &[n, 1, h, w])?,
            (Broadcast::PerRow, false) => at.shaped(1, &[n, h, w, 1])?,
        };
        let y = at.emit(kind, &[&a, &b], &[]);
        at.give_any(y, first);
        Ok(())
    }

    /// Returns true for the functions with a gradient: addition, subtraction, multiplication and division.
    fn is_differentiable(&self) -> bool {
        matches!(self.op(), BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div)
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        if at.needs_grad(0) {
            vjp_of_a(self, at, dy)?;
        }
        if at.needs_grad(1) { vjp_of_b(self, at, dy) } else { Ok(()) }
    }
}

/// Returns the broadcast of values of one shape over those of another, if there is one.
fn over(shape: Shape, with: Shape) -> Option<Broadcast> {
    let channels = shape.channels();
    if with == shape {
        Some(Broadcast::All)
    } else if with.len() == 1 {
        Some(Broadcast::One)
    } else if with.len() == channels && (with.channels() == channels || with.rows() == channels) {
        Some(Broadcast::PerColumn)
    } else {
        None
    }
}

/// Computes the gradient of a: dy itself for a sum or difference, the same function of dy for a product or quotient.
fn vjp_of_a(p: &Binary, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
    match p.op() {
        BinaryOp::Mul | BinaryOp::Div => {
            let (p, a, b) = (*p, dy.value.buf, at.operand(1).buf);
            let dy = if p.op() == BinaryOp::Mul { at.gradient_times(dy, 1)? } else { dy };
            at.emit_gradient(0, dy, GradientFlow::Cast, ScaleRule::FromValues, |y| Operation::Binary { p, a, b, y })
        }
        BinaryOp::Add | BinaryOp::Sub => at.forward_grad(0, dy),
        BinaryOp::Max | BinaryOp::Grad(_) => Ok(()),
    }
}

/// Computes the gradient of b: with the shape of the result, then summed over the broadcast.
fn vjp_of_b(p: &Binary, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
    let dy = if p.op() == BinaryOp::Mul { at.gradient_times(dy, 0)? } else { dy };
    let (node, over) = (at.node, p.over());
    let (a, b, g) = (at.operand(0).buf, at.operand(1).buf, dy.value.buf);
    let len = node.shape.len();
    // None if it is dy.
    let operation: Option<Box<dyn FnOnce(StoreSpec) -> Operation>> = match p.op() {
        BinaryOp::Mul => {
            let p = like(node, BinaryOp::Mul, Broadcast::All)?;
            Some(Box::new(move |y| Operation::Binary { p, a: g, b: a, y }))
        }
        BinaryOp::Div => {
            // −dy·y / b.
            let (mul, div) = (like(node, BinaryOp::Mul, Broadcast::All)?, like(node, BinaryOp::Div, over)?);
            let result = at.result().map_or(g, |y| y.buf);
            let product = at.emit_temporary(len, dy.slot, |y| Operation::Binary { p: mul, a: g, b: result, y });
            let quotient = at.emit_temporary(len, dy.slot, |y| Operation::Binary { p: div, a: product, b, y });
            Some(Box::new(move |y| unary(Unary::Neg, quotient, y)))
        }
        BinaryOp::Sub => Some(Box::new(move |y| unary(Unary::Neg, g, y))),
        BinaryOp::Add | BinaryOp::Max | BinaryOp::Grad(_) => None,
    };
    if over == Broadcast::All {
        let flow = if p.op() == BinaryOp::Sub { GradientFlow::PassThrough } else { GradientFlow::Cast };
        return match operation {
            Some(operation) => at.emit_gradient(1, dy, flow, ScaleRule::FromValues, operation),
            None => at.forward_grad(1, dy),
        };
    }
    let full = match operation {
        Some(operation) => at.temporary_gradient(len, dy, operation),
        None => dy,
    };
    let [rows, cols] = p.shape();
    let (outer, len, inner) = match over {
        Broadcast::PerColumn => (1, rows, cols),
        Broadcast::PerRow => (rows, cols, 1),
        Broadcast::All | Broadcast::One => (1, rows * cols, 1),
    };
    let p = Reduce::new(ReduceOp::Sum, outer, len, inner).map_err(|error| node.error(error))?;
    let x = full.value.buf;
    at.emit_gradient(1, full, GradientFlow::Cast, ScaleRule::FromValues, |y| Operation::Reduce { p, x, y })
}

/// Creates the descriptor of a function of two values over a node's shape.
pub(super) fn like(node: &Node, op: BinaryOp, over: Broadcast) -> Result<Binary, TraceError> {
    let (rows, cols) = (node.size(node.shape.rows())?, node.size(node.shape.channels())?);
    Binary::new(op, rows, cols, over).map_err(|error| node.error(error))
}
