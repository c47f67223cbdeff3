//! Softmax over channels, in f32.

use super::{Buf, Compiler, Gradient, Operation, Rule, Target, forward::binary};
use crate::{
    TraceError,
    trace::{Node, size},
};
use gradscale_core::{
    backend::Slot,
    descriptor::{BinaryOp, Over, Reduce, ReduceOp, Unary},
    rules::Flow,
};

/// What is added where a query must not look: its e^x is 0, whatever the scores are. Finite, for devices without ∞.
const HIDDEN: f32 = -1e30;

impl Compiler<'_, '_> {
    /// y = e^(x − max) / Σ e^(x − max).
    pub(super) fn softmax(&mut self, id: usize, node: &Node, causal: bool) -> Result<(), TraceError> {
        let x = self.element_wise(id, node, 0)?;
        let (rows, channels, len) = (node.shape.rows(), node.shape.channels(), node.shape.len());
        let scores = if causal { self.hide(node, x.buf)? } else { x.buf };
        let most = self.of_rows(node, ReduceOp::Max, scores, Slot::ONE)?;
        let p = binary(&node.name, BinaryOp::Sub, rows, channels, Over::PerRow)?;
        let below = self.inside(len, Slot::ONE, |y| Operation::Binary { p, a: scores, b: most, y });
        let exp = self.inside(len, Slot::ONE, |y| Operation::Unary { op: Unary::Exp, x: below, y });
        let sum = self.of_rows(node, ReduceOp::Sum, exp, Slot::ONE)?;
        let p = binary(&node.name, BinaryOp::Div, rows, channels, Over::PerRow)?;
        self.store(id, node, |y| Operation::Binary { p, a: exp, b: sum, y })
    }

    /// dx = y·(dy − Σ dy·y).
    pub(super) fn softmax_vjp(&mut self, id: usize, node: &Node, dy: Gradient) -> Result<(), TraceError> {
        let (rows, channels, len) = (node.shape.rows(), node.shape.channels(), node.shape.len());
        let Some(y) = self.values[id] else { return Ok(()) };
        let mul = binary(&node.name, BinaryOp::Mul, rows, channels, Over::All)?;
        let product = |a: Buf| move |to: Target| Operation::Binary { p: mul, a, b: y.buf, y: to };
        let weighted = self.inside(len, dy.slot, product(dy.value.buf));
        let sum = self.of_rows(node, ReduceOp::Sum, weighted, dy.slot)?;
        let p = binary(&node.name, BinaryOp::Sub, rows, channels, Over::PerRow)?;
        let rest = self.inside(len, dy.slot, |y| Operation::Binary { p, a: dy.value.buf, b: sum, y });
        self.contribute((id, 0), dy, Flow::Site, Rule::Softmax, product(rest))
    }

    /// One number for each row.
    fn of_rows(&mut self, node: &Node, op: ReduceOp, x: Buf, at: Slot) -> Result<Buf, TraceError> {
        let rows = node.shape.rows();
        let p = Reduce::new(op, size(&node.name, rows)?, size(&node.name, node.shape.channels())?, 1)
            .map_err(|error| TraceError::new(&node.name, error))?;
        Ok(self.inside(rows, at, |y| Operation::Reduce { p, x, y }))
    }

    /// Adds [`HIDDEN`] above the diagonal of each matrix.
    fn hide(&mut self, node: &Node, x: Buf) -> Result<Buf, TraceError> {
        let [n, h, w, c] = node.shape.sizes();
        let mask = (0..w * c).map(|i| if i % c > i / c { HIDDEN } else { 0.0 }).collect();
        let mask = self.constant(mask);
        let p = binary(&node.name, BinaryOp::Add, n * h, w * c, Over::PerColumn)?;
        Ok(self.inside(node.shape.len(), Slot::ONE, |y| Operation::Binary { p, a: x, b: mask, y }))
    }
}
