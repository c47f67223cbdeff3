//! The derivative of each operator.

use super::{
    Compiler, Gradient, Launch, Operation, Rule, Target, Value,
    forward::{binary, part, permutation},
};
use crate::{
    TraceError,
    trace::{Node, Work, size, sizes},
};
use gradscale_core::{
    backend::{DType, Slot},
    descriptor::{BinaryOp, Dim, Gemm, Kept, Over, Pass, Reduce, ReduceOp, Strided, Unary, Way},
    model::terms::Terms,
    rules::{Flow, data_gradient},
};

impl Compiler<'_, '_> {
    /// Emits the gradients of all inputs of a node from its own.
    pub(super) fn vjp(&mut self, id: usize, node: &Node, dy: Gradient) -> Result<(), TraceError> {
        let (rows, channels) = (node.shape.rows(), node.shape.channels());
        let flow = data_gradient(node.op);
        let operands = self.operands[id].clone();
        let dy_buf = dy.value.buf;
        match &node.work {
            Work::Input(_) | Work::Parameter(_) | Work::Detach | Work::ArgMax => {}
            Work::Linear => self.linear_vjp(id, node, dy, &operands)?,
            Work::Conv(p) => {
                if self.wants(id, 1) {
                    let reads = [operands[0].buf, dy_buf];
                    self.contribute((id, 1), Operation::Conv(*p, Pass::Weight), &reads, dy, Flow::Site, Rule::Cast)?;
                }
                self.bias_vjp(id, node, dy, rows, channels)?;
                if self.wants(id, 0) {
                    let terms = Terms::conv(p.terms_shape()).map_err(|error| TraceError::new(&node.name, error))?;
                    let rule = Rule::Product { dy, w: operands[1], terms };
                    let reads = [dy_buf, operands[1].buf];
                    self.contribute((id, 0), Operation::Conv(*p, Pass::Data), &reads, dy, flow, rule)?;
                }
            }
            Work::ConvTranspose(p) => self.conv_transpose_vjp(id, node, dy, p)?,
            Work::Matmul { transposed } => self.matmul_vjp(id, node, dy, *transposed)?,
            Work::Softplus => self.softplus_vjp(id, node, dy)?,
            Work::Huber(beta) => self.huber_vjp(id, node, dy, *beta)?,
            Work::Softmax { .. } => self.softmax_vjp(id, node, dy)?,
            Work::Resample(p) => self.resample_vjp(id, node, dy, p)?,
            Work::Repeat(factor) => self.repeat_vjp(id, node, dy, *factor)?,
            Work::Permute(order) => {
                let mut back = [0; 4];
                order.iter().enumerate().for_each(|(i, &axis)| back[axis] = i);
                let p = permutation(&node.name, sizes(&node.name, node.shape)?, back)?;
                self.contribute((id, 0), Operation::Copy(p), &[dy_buf], dy, flow, Rule::Cast)?;
            }
            Work::Rows(p) => {
                let reads = [dy_buf, operands[1].buf];
                self.contribute((id, 0), Operation::Rows(*p, Way::Scatter), &reads, dy, Flow::Site, Rule::Cast)?;
            }
            Work::Unary(function) => {
                let kept = match function.keeps() {
                    Kept::Nothing => dy.value,
                    Kept::Input => operands[0],
                    Kept::Output => self.values[id].unwrap_or(dy.value),
                };
                let p = binary(&node.name, BinaryOp::Grad(*function), rows, channels, Over::All)?;
                self.contribute((id, 0), Operation::Binary(p), &[kept.buf, dy_buf], dy, flow, Rule::Cast)?;
            }
            Work::Binary(function, over) => self.binary_vjp(id, node, dy, *function, *over)?,
            Work::Pool(p) => {
                let at = self.extra[id];
                self.window(id, Operation::Unpool(*p, Way::Scatter), at, dy, flow)?;
            }
            Work::Unpool(p, pooled) => {
                let at = self.extra[*pooled];
                self.window(id, Operation::Unpool(*p, Way::Gather), at, dy, flow)?;
            }
            Work::Norm(p, _) => {
                let Some(saved) = self.extra[id] else { return Ok(()) };
                // All three come from one launch; what nobody wants goes to memory that nobody reads.
                let (dx, rule) = if self.wants(id, 0) {
                    self.destination(id, 0, dy, flow, Rule::Cast)?
                } else {
                    let unused = self.new_buffer(operands[0].dtype, node.shape.len());
                    (Target::keep(unused.buf, dy.slot), Rule::None)
                };
                let mut targets = vec![dx];
                for i in [1, 2] {
                    targets.push(if self.wants(id, i) {
                        self.destination(id, i, dy, Flow::Site, Rule::None)?.0
                    } else {
                        let unused = self.new_buffer(DType::F32, channels);
                        Target::keep(unused.buf, dy.slot)
                    });
                }
                let reads = [operands[0].buf, saved.buf, operands[1].buf, dy_buf];
                let launch = Launch::new(Operation::NormVjp(*p), &reads, targets[0]);
                self.launches.push(Launch { targets, rule, ..launch });
            }
            Work::Concat(axis) => {
                let (mut start, whole) = (0, sizes(&node.name, node.shape)?);
                for (i, &input) in node.inputs.iter().enumerate() {
                    let shape = self.trace.nodes[input].shape;
                    if self.wants(id, i) {
                        let p = part(&node.name, whole, sizes(&node.name, shape)?, *axis, start, true)?;
                        self.contribute((id, i), Operation::Copy(p), &[dy_buf], dy, flow, Rule::Cast)?;
                    }
                    start += shape.sizes()[*axis];
                }
            }
            Work::Slice { axis, start } => {
                // Zeros, and the part in its place: as f32 or half, whatever dy is; the cast behind it is the site.
                let shape = self.trace.nodes[node.inputs[0]].shape;
                let whole = self.new_buffer(dy.value.dtype, shape.len());
                let zeros = Operation::Copy(repeat(&node.name, shape.len())?);
                self.launches.push(Launch::new(zeros, &[self.fixed.zero()], Target::keep(whole.buf, Slot::ONE)));
                let p =
                    part(&node.name, sizes(&node.name, shape)?, sizes(&node.name, node.shape)?, *axis, *start, false)?;
                self.launches.push(Launch::new(Operation::Copy(p), &[dy_buf], Target::keep(whole.buf, dy.slot)));
                self.hand_on(id, 0, Gradient { value: whole, slot: dy.slot })?;
            }
            Work::Reshape | Work::Split => self.hand_on(id, 0, dy)?,
            Work::Reduce(function) => {
                let len = self.trace.nodes[node.inputs[0]].shape.len();
                let mut g = dy;
                if *function == ReduceOp::Mean {
                    #[expect(clippy::cast_possible_truncation, reason = "rounded")]
                    let a = (1.0 / len as f64) as f32;
                    g = self.temporary(Operation::Unary(Unary::Affine { a, b: 0.0 }), &[dy_buf], 1, dy);
                }
                let spread = Operation::Copy(repeat(&node.name, len)?);
                self.contribute((id, 0), spread, &[g.value.buf], g, Flow::Site, Rule::Cast)?;
            }
            Work::Xent(p) => {
                let Some(out) = self.extra[id] else { return Ok(()) };
                let (target, rule) = self.destination(id, 0, dy, Flow::Site, Rule::Softmax)?;
                let weights = operands.get(2).map(|weights| weights.buf);
                self.launches.push(Launch {
                    operation: Operation::XentVjp(*p),
                    reads: vec![Some(operands[0].buf), Some(operands[1].buf), weights, Some(out.buf), Some(dy_buf)],
                    writes: None,
                    targets: vec![target],
                    rule,
                });
            }
        }
        Ok(())
    }

    fn window(
        &mut self, id: usize, operation: Operation, at: Option<Value>, dy: Gradient, flow: Flow,
    ) -> Result<(), TraceError> {
        let (target, rule) = self.destination(id, 0, dy, flow, Rule::Cast)?;
        let reads = vec![Some(dy.value.buf), at.map(|at| at.buf)];
        self.launches.push(Launch { operation, reads, writes: None, targets: vec![target], rule });
        Ok(())
    }

    /// Gradient of a bias: the sum over all rows.
    pub(super) fn bias_vjp(
        &mut self, id: usize, node: &Node, dy: Gradient, rows: usize, channels: usize,
    ) -> Result<(), TraceError> {
        if self.wants(id, 2) {
            let p = Reduce::new(ReduceOp::Sum, 1, size(&node.name, rows)?, size(&node.name, channels)?)
                .map_err(|error| TraceError::new(&node.name, error))?;
            self.contribute((id, 2), Operation::Reduce(p), &[dy.value.buf], dy, Flow::Site, Rule::Cast)?;
        }
        Ok(())
    }

    fn linear_vjp(&mut self, id: usize, node: &Node, dy: Gradient, operands: &[Value]) -> Result<(), TraceError> {
        let (rows, out) = (node.shape.rows(), node.shape.channels());
        let name = &node.name;
        let depth = self.trace.nodes[node.inputs[0]].shape.channels();
        let [m, n, k] = [size(name, rows)?, size(name, out)?, size(name, depth)?];
        let error = |error| TraceError::new(name, error);
        if self.wants(id, 1) {
            let p = Gemm::new(n, k, m).and_then(Gemm::transpose_a).map_err(error)?;
            let reads = [dy.value.buf, operands[0].buf];
            self.contribute((id, 1), Operation::Gemm(p), &reads, dy, Flow::Site, Rule::Cast)?;
        }
        self.bias_vjp(id, node, dy, rows, out)?;
        if self.wants(id, 0) {
            let p = Gemm::new(m, k, n).map_err(error)?;
            let rule = Rule::Product { dy, w: operands[1], terms: Terms::linear(n) };
            let reads = [dy.value.buf, operands[1].buf];
            self.contribute((id, 0), Operation::Gemm(p), &reads, dy, Flow::Site, rule)?;
        }
        Ok(())
    }

    fn binary_vjp(
        &mut self, id: usize, node: &Node, dy: Gradient, function: BinaryOp, over: Over,
    ) -> Result<(), TraceError> {
        let (rows, channels, name) = (node.shape.rows(), node.shape.channels(), &node.name);
        let operands = self.operands[id].clone();
        let (a, b, g) = (operands[0].buf, operands[1].buf, dy.value.buf);
        let of = |function: BinaryOp, over: Over| -> Result<Operation, TraceError> {
            Ok(Operation::Binary(binary(name, function, rows, channels, over)?))
        };
        if self.wants(id, 0) {
            match function {
                BinaryOp::Mul => {
                    self.contribute((id, 0), of(BinaryOp::Mul, over)?, &[g, b], dy, Flow::Site, Rule::Cast)?
                }
                BinaryOp::Div => {
                    self.contribute((id, 0), of(BinaryOp::Div, over)?, &[g, b], dy, Flow::Site, Rule::Cast)?
                }
                _ => self.hand_on(id, 0, dy)?,
            }
        }
        if !self.wants(id, 1) {
            return Ok(());
        }
        // The gradient of b before it is summed over what b was spread over.
        let len = node.shape.len();
        let (operation, reads) = match function {
            BinaryOp::Mul => (Some(of(BinaryOp::Mul, Over::All)?), vec![g, a]),
            BinaryOp::Div => {
                // −dy·y / b.
                let y = self.values[id].map_or(g, |y| y.buf);
                let product = self.temporary(of(BinaryOp::Mul, Over::All)?, &[g, y], len, dy);
                let quotient = self.temporary(of(BinaryOp::Div, over)?, &[product.value.buf, b], len, dy);
                (Some(Operation::Unary(Unary::Neg)), vec![quotient.value.buf])
            }
            BinaryOp::Sub => (Some(Operation::Unary(Unary::Neg)), vec![g]),
            _ => (None, vec![g]),
        };
        if over == Over::All {
            return match operation {
                Some(operation) => {
                    let flow = if function == BinaryOp::Sub { Flow::Pass } else { Flow::Site };
                    self.contribute((id, 1), operation, &reads, dy, flow, Rule::Cast)
                }
                None => self.hand_on(id, 1, dy),
            };
        }
        let full = match operation {
            Some(operation) => self.temporary(operation, &reads, len, dy),
            None => dy,
        };
        let (outer, length, inner) = match over {
            Over::PerColumn => (1, rows, channels),
            Over::PerRow => (rows, channels, 1),
            _ => (1, len, 1),
        };
        let p = Reduce::new(ReduceOp::Sum, size(name, outer)?, size(name, length)?, size(name, inner)?)
            .map_err(|error| TraceError::new(name, error))?;
        self.contribute((id, 1), Operation::Reduce(p), &[full.value.buf], full, Flow::Site, Rule::Cast)
    }
}

/// One number, `len` times.
fn repeat(name: &str, len: usize) -> Result<Strided, TraceError> {
    let dims = [Dim { len: size(name, len)?, x: 0, y: 1 }];
    Strided::new(&dims, 0, 0).map_err(|error| TraceError::new(name, error))
}
