//! Products beside linear layers and convolutions: transposed convolutions, and matrices that the network computes.

use super::{Compiler, Gradient, Operation, Rule};
use crate::{
    TraceError,
    trace::{Matrices, Node},
};
use gradscale_core::{
    descriptor::{Conv2d, Pass},
    model::terms::{ConvShape, Terms},
    rules::Flow,
};

impl Compiler<'_, '_> {
    /// The convolution whose data pass this is, run forward; its weight pass with both operands exchanged.
    pub(super) fn conv_transpose_vjp(
        &mut self, id: usize, node: &Node, dy: Gradient, p: &Conv2d,
    ) -> Result<(), TraceError> {
        let operands = self.operands[id].clone();
        let dy_buf = dy.value.buf;
        if self.wants(id, 1) {
            let (p, pass, a, b) = (*p, Pass::Weight, dy_buf, operands[0].buf);
            self.contribute((id, 1), dy, Flow::Site, Rule::Cast, |y| Operation::Conv { p, pass, a, b, bias: None, y })?;
        }
        self.bias_vjp(id, node, dy, node.shape.rows(), node.shape.channels())?;
        if self.wants(id, 0) {
            let shape = ConvShape { out_channels: p.x()[3], ..p.terms_shape() };
            let terms = Terms::conv_transpose(shape).map_err(|error| TraceError::new(&node.name, error))?;
            let rule = Rule::Product { dy, w: operands[1], terms };
            let (p, pass, a, b) = (*p, Pass::Forward, dy_buf, operands[1].buf);
            self.contribute((id, 0), dy, Flow::Site, rule, |y| Operation::Conv { p, pass, a, b, bias: None, y })?;
        }
        Ok(())
    }

    pub(super) fn matmul(&mut self, id: usize, node: &Node, transposed: bool) -> Result<(), TraceError> {
        let (a, b, bias) = self.products(id, node)?;
        let p = self.matrices(node)?.forward(transposed).map_err(|error| TraceError::new(&node.name, error))?;
        self.store(id, node, |y| Operation::Gemm { p, a, b, bias, y })
    }

    /// Both operands may have been computed: then both gradients are sites.
    pub(super) fn matmul_vjp(
        &mut self, id: usize, node: &Node, dy: Gradient, transposed: bool,
    ) -> Result<(), TraceError> {
        let operands = self.operands[id].clone();
        let (a, b, g) = (operands[0], operands[1], dy.value.buf);
        let matrices = self.matrices(node)?;
        let error = |error| TraceError::new(&node.name, error);
        if self.wants(id, 1) {
            let p = matrices.of_b(transposed).map_err(error)?;
            let rule = Rule::Product { dy, w: a, terms: Terms::linear(matrices.m) };
            let (a, b) = if transposed { (g, a.buf) } else { (a.buf, g) };
            self.contribute((id, 1), dy, Flow::Site, rule, |y| Operation::Gemm { p, a, b, bias: None, y })?;
        }
        if self.wants(id, 0) {
            let p = matrices.of_a(transposed).map_err(error)?;
            let rule = Rule::Product { dy, w: b, terms: Terms::linear(matrices.p) };
            let (a, b) = (g, b.buf);
            self.contribute((id, 0), dy, Flow::Site, rule, |y| Operation::Gemm { p, a, b, bias: None, y })?;
        }
        Ok(())
    }

    fn matrices(&self, node: &Node) -> Result<Matrices, TraceError> {
        Matrices::new(&node.name, self.trace.nodes[node.inputs[0]].shape, node.shape)
    }
}
