//! Functions of which losses are made, whose derivatives must keep their digits where two branches meet and in the
//! tails: composed of operators of the contract, differentiated by hand.

use super::{Buf, Compiler, Gradient, Operation, Rule, forward::binary};
use crate::{TraceError, trace::Node};
use gradscale_core::{
    backend::Slot,
    descriptor::{BinaryOp, Over, Unary},
    rules::Flow,
};

impl Compiler<'_, '_> {
    /// y = max(x, 0) + ln(1 + e^−|x|), of which no part overflows.
    pub(super) fn softplus(&mut self, id: usize, node: &Node) -> Result<(), TraceError> {
        let x = self.element_wise(id, node, 0)?.buf;
        let negative = self.chain(node, x, &[Unary::Abs, Unary::Neg, Unary::Exp]);
        let log = self.chain(node, negative, &[Unary::Affine { a: 1.0, b: 1.0 }, Unary::Ln]);
        let positive = self.chain(node, x, &[Unary::Relu]);
        self.store_binary(id, node, BinaryOp::Add, [positive, log])
    }

    /// dx = dy·sigmoid(x): at 0, where the branches of the formula above meet, and far below, where they cancel, too.
    pub(super) fn softplus_vjp(&mut self, id: usize, node: &Node, dy: Gradient) -> Result<(), TraceError> {
        let x = self.operands[id][0].buf;
        let slope = self.chain(node, x, &[Unary::Sigmoid]);
        self.times(id, node, dy, slope)
    }

    /// y = m·(|x| − m/2)/β with m = min(|x|, β).
    pub(super) fn huber(&mut self, id: usize, node: &Node, beta: f32) -> Result<(), TraceError> {
        let x = self.element_wise(id, node, 0)?.buf;
        let size = self.chain(node, x, &[Unary::Abs]);
        let most = self.clamp(node, size, beta)?;
        let half = self.chain(node, most, &[Unary::Affine { a: 0.5, b: 0.0 }]);
        let rest = self.both(node, BinaryOp::Sub, [size, half])?;
        let share = self.chain(node, most, &[Unary::Affine { a: 1.0 / beta, b: 0.0 }]);
        self.store_binary(id, node, BinaryOp::Mul, [rest, share])
    }

    /// dx = dy·x/β, within ±dy.
    pub(super) fn huber_vjp(&mut self, id: usize, node: &Node, dy: Gradient, beta: f32) -> Result<(), TraceError> {
        let x = self.operands[id][0].buf;
        let share = self.chain(node, x, &[Unary::Affine { a: 1.0 / beta, b: 0.0 }]);
        let slope = self.clamp(node, share, 1.0)?;
        self.times(id, node, dy, slope)
    }

    /// One function after the other.
    fn chain(&mut self, node: &Node, x: Buf, functions: &[Unary]) -> Buf {
        let len = node.shape.len();
        functions.iter().fold(x, |x, &op| self.inside(len, Slot::ONE, |y| Operation::Unary { op, x, y }))
    }

    /// x, at least −`most` and at most `most`.
    fn clamp(&mut self, node: &Node, x: Buf, most: f32) -> Result<Buf, TraceError> {
        let least = self.constant(vec![-most]);
        let (rows, channels) = (node.shape.rows(), node.shape.channels());
        let p = binary(&node.name, BinaryOp::Max, rows, channels, Over::One)?;
        let mut x = x;
        for _ in 0..2 {
            let above = self.inside(node.shape.len(), Slot::ONE, |y| Operation::Binary { p, a: x, b: least, y });
            x = self.chain(node, above, &[Unary::Neg]);
        }
        Ok(x)
    }

    fn both(&mut self, node: &Node, op: BinaryOp, [a, b]: [Buf; 2]) -> Result<Buf, TraceError> {
        let p = binary(&node.name, op, node.shape.rows(), node.shape.channels(), Over::All)?;
        Ok(self.inside(node.shape.len(), Slot::ONE, |y| Operation::Binary { p, a, b, y }))
    }

    fn store_binary(&mut self, id: usize, node: &Node, op: BinaryOp, [a, b]: [Buf; 2]) -> Result<(), TraceError> {
        let p = binary(&node.name, op, node.shape.rows(), node.shape.channels(), Over::All)?;
        self.store(id, node, |y| Operation::Binary { p, a, b, y })
    }

    /// dx = dy·slope.
    fn times(&mut self, id: usize, node: &Node, dy: Gradient, slope: Buf) -> Result<(), TraceError> {
        let p = binary(&node.name, BinaryOp::Mul, node.shape.rows(), node.shape.channels(), Over::All)?;
        let (a, b) = (dy.value.buf, slope);
        self.contribute((id, 0), dy, Flow::Site, Rule::Cast, |y| Operation::Binary { p, a, b, y })
    }
}
