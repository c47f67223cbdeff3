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
    backend::{CrossEntropyArgs, DType, NormSaved, Slot},
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
                    let (p, pass, a, b) = (*p, Pass::Weight, operands[0].buf, dy_buf);
                    let weight = |y| Operation::Conv { p, pass, a, b, bias: None, y };
                    self.contribute((id, 1), dy, Flow::Site, Rule::Cast, weight)?;
                }
                self.bias_vjp(id, node, dy, rows, channels)?;
                if self.wants(id, 0) {
                    let terms = Terms::conv(p.terms_shape()).map_err(|error| TraceError::new(&node.name, error))?;
                    let rule = Rule::Product { dy, w: operands[1], terms };
                    let (p, pass, a, b) = (*p, Pass::Data, dy_buf, operands[1].buf);
                    self.contribute((id, 0), dy, flow, rule, |y| Operation::Conv { p, pass, a, b, bias: None, y })?;
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
                self.contribute((id, 0), dy, flow, Rule::Cast, |y| Operation::Copy { p, x: dy_buf, y })?;
            }
            Work::Rows(p) => {
                let (p, way, x, indices) = (*p, Way::Scatter, dy_buf, operands[1].buf);
                self.contribute((id, 0), dy, Flow::Site, Rule::Cast, |y| Operation::Rows { p, way, x, indices, y })?;
            }
            Work::Unary(function) => {
                let kept = match function.keeps() {
                    Kept::Nothing => dy.value,
                    Kept::Input => operands[0],
                    Kept::Output => self.values[id].unwrap_or(dy.value),
                };
                let p = binary(&node.name, BinaryOp::Grad(*function), rows, channels, Over::All)?;
                let (a, b) = (kept.buf, dy_buf);
                self.contribute((id, 0), dy, flow, Rule::Cast, |y| Operation::Binary { p, a, b, y })?;
            }
            Work::Binary(function, over) => self.binary_vjp(id, node, dy, *function, *over)?,
            Work::Pool(p) => {
                let (p, way, indices) = (*p, Way::Scatter, self.extra[id].map(|indices| indices.buf));
                self.contribute((id, 0), dy, flow, Rule::Cast, |y| Operation::Unpool {
                    p,
                    way,
                    x: dy_buf,
                    indices,
                    y,
                })?;
            }
            Work::Unpool(p, pooled) => {
                let (p, way, indices) = (*p, Way::Gather, self.extra[*pooled].map(|indices| indices.buf));
                self.contribute((id, 0), dy, flow, Rule::Cast, |y| Operation::Unpool {
                    p,
                    way,
                    x: dy_buf,
                    indices,
                    y,
                })?;
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
                let mut of_channels = |i: usize| {
                    if self.wants(id, i) {
                        return Ok(self.destination(id, i, dy, Flow::Site, Rule::None)?.0);
                    }
                    let unused = self.new_buffer(DType::F32, channels);
                    Ok(Target::keep(unused.buf, dy.slot))
                };
                let affine = Some([of_channels(1)?, of_channels(2)?]);
                let x = NormSaved { x: operands[0].buf, saved: saved.buf, weight: Some(operands[1].buf) };
                self.launches.push(Launch { rule, operation: Operation::NormVjp { p: *p, x, dy: dy_buf, dx, affine } });
            }
            Work::Concat(axis) => {
                let (mut start, whole) = (0, sizes(&node.name, node.shape)?);
                for (i, &input) in node.inputs.iter().enumerate() {
                    let shape = self.trace.nodes[input].shape;
                    if self.wants(id, i) {
                        let p = part(&node.name, whole, sizes(&node.name, shape)?, *axis, start, true)?;
                        self.contribute((id, i), dy, flow, Rule::Cast, |y| Operation::Copy { p, x: dy_buf, y })?;
                    }
                    start += shape.sizes()[*axis];
                }
            }
            Work::Slice { axis, start } => {
                // Zeros, and the part in its place: as f32 or half, whatever dy is; the cast behind it is the site.
                let shape = self.trace.nodes[node.inputs[0]].shape;
                let whole = self.new_buffer(dy.value.dtype, shape.len());
                let (p, x, y) =
                    (repeat(&node.name, shape.len())?, self.fixed.zero(), Target::keep(whole.buf, Slot::ONE));
                self.launches.push(Operation::Copy { p, x, y }.into());
                let p =
                    part(&node.name, sizes(&node.name, shape)?, sizes(&node.name, node.shape)?, *axis, *start, false)?;
                let y = Target::keep(whole.buf, dy.slot);
                self.launches.push(Operation::Copy { p, x: dy_buf, y }.into());
                self.hand_on(id, 0, Gradient { value: whole, slot: dy.slot })?;
            }
            Work::Reshape | Work::Split => self.hand_on(id, 0, dy)?,
            Work::Reduce(function) => {
                let len = self.trace.nodes[node.inputs[0]].shape.len();
                let mut g = dy;
                if *function == ReduceOp::Mean {
                    #[expect(clippy::cast_possible_truncation, reason = "rounded")]
                    let a = (1.0 / len as f64) as f32;
                    let op = Unary::Affine { a, b: 0.0 };
                    g = self.temporary(1, dy, |y| Operation::Unary { op, x: dy_buf, y });
                }
                let (p, x) = (repeat(&node.name, len)?, g.value.buf);
                self.contribute((id, 0), g, Flow::Site, Rule::Cast, |y| Operation::Copy { p, x, y })?;
            }
            Work::Xent(p) => {
                let Some(out) = self.extra[id] else { return Ok(()) };
                let weights = operands.get(2).map(|weights| weights.buf);
                let x = CrossEntropyArgs { logits: operands[0].buf, labels: operands[1].buf, weights };
                let (p, out) = (*p, out.buf);
                let vjp = |dx| Operation::CrossEntropyVjp { p, x, out, g: dy_buf, dx };
                self.contribute((id, 0), dy, Flow::Site, Rule::Softmax, vjp)?;
            }
        }
        Ok(())
    }

    /// Gradient of a bias: the sum over all rows.
    pub(super) fn bias_vjp(
        &mut self, id: usize, node: &Node, dy: Gradient, rows: usize, channels: usize,
    ) -> Result<(), TraceError> {
        if self.wants(id, 2) {
            let p = Reduce::new(ReduceOp::Sum, 1, size(&node.name, rows)?, size(&node.name, channels)?)
                .map_err(|error| TraceError::new(&node.name, error))?;
            let x = dy.value.buf;
            self.contribute((id, 2), dy, Flow::Site, Rule::Cast, |y| Operation::Reduce { p, x, y })?;
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
            let (a, b) = (dy.value.buf, operands[0].buf);
            self.contribute((id, 1), dy, Flow::Site, Rule::Cast, |y| Operation::Gemm { p, a, b, bias: None, y })?;
        }
        self.bias_vjp(id, node, dy, rows, out)?;
        if self.wants(id, 0) {
            let p = Gemm::new(m, k, n).map_err(error)?;
            let rule = Rule::Product { dy, w: operands[1], terms: Terms::linear(n) };
            let (a, b) = (dy.value.buf, operands[1].buf);
            self.contribute((id, 0), dy, Flow::Site, rule, |y| Operation::Gemm { p, a, b, bias: None, y })?;
        }
        Ok(())
    }

    fn binary_vjp(
        &mut self, id: usize, node: &Node, dy: Gradient, function: BinaryOp, over: Over,
    ) -> Result<(), TraceError> {
        let (rows, channels, name) = (node.shape.rows(), node.shape.channels(), &node.name);
        let operands = self.operands[id].clone();
        let (a, b, g) = (operands[0].buf, operands[1].buf, dy.value.buf);
        let of = |function: BinaryOp, over: Over| binary(name, function, rows, channels, over);
        if self.wants(id, 0) {
            match function {
                BinaryOp::Mul | BinaryOp::Div => {
                    let p = of(function, over)?;
                    self.contribute((id, 0), dy, Flow::Site, Rule::Cast, |y| Operation::Binary { p, a: g, b, y })?;
                }
                BinaryOp::Add | BinaryOp::Sub => self.hand_on(id, 0, dy)?,
                BinaryOp::Max | BinaryOp::Grad(_) => unreachable!("no network says these"),
            }
        }
        if !self.wants(id, 1) {
            return Ok(());
        }
        // The gradient of b before it is summed over what b was spread over; none where it is dy.
        let len = node.shape.len();
        let operation: Option<Box<dyn FnOnce(Target) -> Operation>> = match function {
            BinaryOp::Mul => {
                let p = of(BinaryOp::Mul, Over::All)?;
                Some(Box::new(move |y| Operation::Binary { p, a: g, b: a, y }))
            }
            BinaryOp::Div => {
                // −dy·y / b.
                let (mul, div) = (of(BinaryOp::Mul, Over::All)?, of(BinaryOp::Div, over)?);
                let result = self.values[id].map_or(g, |y| y.buf);
                let product = self.temporary(len, dy, |y| Operation::Binary { p: mul, a: g, b: result, y });
                let quotient = self.temporary(len, dy, |y| Operation::Binary { p: div, a: product.value.buf, b, y });
                Some(Box::new(move |y| Operation::Unary { op: Unary::Neg, x: quotient.value.buf, y }))
            }
            BinaryOp::Sub => Some(Box::new(move |y| Operation::Unary { op: Unary::Neg, x: g, y })),
            BinaryOp::Add | BinaryOp::Max | BinaryOp::Grad(_) => None,
        };
        if over == Over::All {
            return match operation {
                Some(operation) => {
                    let flow = if function == BinaryOp::Sub { Flow::Pass } else { Flow::Site };
                    self.contribute((id, 1), dy, flow, Rule::Cast, operation)
                }
                None => self.hand_on(id, 1, dy),
            };
        }
        let full = match operation {
            Some(operation) => self.temporary(len, dy, operation),
            None => dy,
        };
        let (outer, length, inner) = match over {
            Over::PerColumn => (1, rows, channels),
            Over::PerRow => (rows, channels, 1),
            Over::All | Over::One => (1, len, 1),
        };
        let p = Reduce::new(ReduceOp::Sum, size(name, outer)?, size(name, length)?, size(name, inner)?)
            .map_err(|error| TraceError::new(name, error))?;
        let x = full.value.buf;
        self.contribute((id, 1), full, Flow::Site, Rule::Cast, |y| Operation::Reduce { p, x, y })
    }
}

/// One number, `len` times.
fn repeat(name: &str, len: usize) -> Result<Strided, TraceError> {
    let dims = [Dim { len: size(name, len)?, x: 0, y: 1 }];
    Strided::new(&dims, 0, 0).map_err(|error| TraceError::new(name, error))
}
