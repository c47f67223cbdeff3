//! Softmax over channels, in f32.

use super::binary;
use crate::{
    TraceError, Var,
    graph::{Buf, Context, Gradient, Operation, Operator, Rule, Target, unary},
};
use gradscale_core::{
    backend::Slot,
    ops::{Binary, BinaryOp, Broadcast, Flow, Op, Reduce, ReduceOp, ShapeError, Unary},
};

/// What is added where a query must not look: its e^x is 0, whatever the scores are. Finite, for devices without ∞.
const HIDDEN: f32 = -1e30;

impl<'t> Var<'t> {
    /// e^x / Σ e^x over channels, in f32.
    ///
    /// # Errors
    /// No channels, or too many elements.
    pub fn softmax(self) -> Self {
        self.weights(false)
    }

    /// [`Var::softmax`] in which row i of each `[w, c]` matrix sees its first i + 1 columns only; the others are 0.
    ///
    /// # Errors
    /// No channels, or too many elements.
    pub fn causal_softmax(self) -> Self {
        self.weights(true)
    }

    /// Logarithm of [`Var::softmax`], which no logit makes overflow, in f32.
    ///
    /// # Errors
    /// No channels, or too many elements.
    pub fn log_softmax(self) -> Self {
        self.traced(|| {
            self.sizes("log_softmax")?;
            if self.shape().channels() == 0 {
                return Err(TraceError::new("log_softmax", ShapeError::Empty));
            }
            Ok(self.then("log_softmax", Op::LogSoftmax, LogSoftmax, &[], self.shape()))
        })
    }

    pub(super) fn weights(self, causal: bool) -> Self {
        self.traced(|| {
            self.sizes("softmax")?;
            if self.shape().channels() == 0 {
                return Err(TraceError::new("softmax", ShapeError::Empty));
            }
            Ok(self.then("softmax", Op::Softmax, Softmax { causal }, &[], self.shape()))
        })
    }
}

/// y = e^(x − max) / Σ e^(x − max); causal: row i of a matrix sees the first i + 1 columns.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Softmax {
    causal: bool,
}

impl Operator for Softmax {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let x = at.read(0)?.buf;
        let len = at.node.shape.len();
        let scores = if self.causal { hide(at, x)? } else { x };
        let most = of_rows(at, ReduceOp::Max, scores, Slot::ONE)?;
        let p = binary::like(at.node, BinaryOp::Sub, Broadcast::PerRow)?;
        let below = at.emit_temporary(len, Slot::ONE, |y| Operation::Binary { p, a: scores, b: most, y });
        let exp = at.emit_temporary(len, Slot::ONE, |y| unary(Unary::Exp, below, y));
        let sum = of_rows(at, ReduceOp::Sum, exp, Slot::ONE)?;
        let p = binary::like(at.node, BinaryOp::Div, Broadcast::PerRow)?;
        at.store(|y| Operation::Binary { p, a: exp, b: sum, y })
    }

    /// dx = y·(dy − Σ dy·y).
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let Some(y) = at.result() else { return Ok(()) };
        let len = at.node.shape.len();
        let mul = binary::like(at.node, BinaryOp::Mul, Broadcast::All)?;
        let product = |a: Buf| move |to: Target| Operation::Binary { p: mul, a, b: y.buf, y: to };
        let weighted = at.emit_temporary(len, dy.slot, product(dy.value.buf));
        let sum = of_rows(at, ReduceOp::Sum, weighted, dy.slot)?;
        let p = binary::like(at.node, BinaryOp::Sub, Broadcast::PerRow)?;
        let rest = at.emit_temporary(len, dy.slot, |y| Operation::Binary { p, a: dy.value.buf, b: sum, y });
        at.emit_gradient(0, dy, Flow::Site, Rule::Softmax, product(rest))
    }
}

/// y = x − max − ln Σ e^(x − max).
#[derive(Clone, Copy, Debug, PartialEq)]
struct LogSoftmax;

impl Operator for LogSoftmax {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let x = at.read(0)?.buf;
        let (len, rows) = (at.node.shape.len(), at.node.shape.rows());
        let most = of_rows(at, ReduceOp::Max, x, Slot::ONE)?;
        let p = binary::like(at.node, BinaryOp::Sub, Broadcast::PerRow)?;
        let below = at.emit_temporary(len, Slot::ONE, |y| Operation::Binary { p, a: x, b: most, y });
        let exp = at.emit_temporary(len, Slot::ONE, |y| unary(Unary::Exp, below, y));
        let sum = of_rows(at, ReduceOp::Sum, exp, Slot::ONE)?;
        let log = at.emit_temporary(rows, Slot::ONE, |y| unary(Unary::Ln, sum, y));
        at.store(|y| Operation::Binary { p, a: below, b: log, y })
    }

    /// dx = dy − e^y·Σ dy.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let Some(y) = at.result() else { return Ok(()) };
        let len = at.node.shape.len();
        let sum = of_rows(at, ReduceOp::Sum, dy.value.buf, dy.slot)?;
        let exp = at.emit_temporary(len, Slot::ONE, |to| unary(Unary::Exp, y.buf, to));
        let p = binary::like(at.node, BinaryOp::Mul, Broadcast::PerRow)?;
        let share = at.emit_temporary(len, dy.slot, |y| Operation::Binary { p, a: exp, b: sum, y });
        let p = binary::like(at.node, BinaryOp::Sub, Broadcast::All)?;
        let a = dy.value.buf;
        at.emit_gradient(0, dy, Flow::Site, Rule::Softmax, |y| Operation::Binary { p, a, b: share, y })
    }
}

/// One number for each row.
fn of_rows(at: &mut Context<'_, '_, '_>, op: ReduceOp, x: Buf, slot: Slot) -> Result<Buf, TraceError> {
    let (rows, node) = (at.node.shape.rows(), at.node);
    let p = Reduce::new(op, node.size(rows)?, node.size(node.shape.channels())?, 1);
    let p = p.map_err(|error| node.error(error))?;
    Ok(at.emit_temporary(rows, slot, |y| Operation::Reduce { p, x, y }))
}

/// Adds [`HIDDEN`] above the diagonal of each matrix.
fn hide(at: &mut Context<'_, '_, '_>, x: Buf) -> Result<Buf, TraceError> {
    let node = at.node;
    let [n, h, w, c] = node.shape.sizes();
    let mask = (0..w * c).map(|i| if i % c > i / c { HIDDEN } else { 0.0 }).collect();
    let mask = at.constant(mask);
    let p = Binary::new(BinaryOp::Add, node.size(n * h)?, node.size(w * c)?, Broadcast::PerColumn);
    let p = p.map_err(|error| node.error(error))?;
    Ok(at.emit_temporary(node.shape.len(), Slot::ONE, |y| Operation::Binary { p, a: x, b: mask, y }))
}
