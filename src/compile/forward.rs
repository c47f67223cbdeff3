//! The forward pass.

use super::{Buf, Compiler, Fixed, Operation, Part, Purpose, Target, Value, cast};
use crate::{
    TraceError,
    error::TraceErrorKind,
    sites::SlotKind,
    trace::{Node, Work, size, sizes},
};
use gradscale_core::{
    amp::Precision,
    backend::{CrossEntropyArgs, DType, Slot},
    descriptor::{Binary, BinaryOp, Dim, Gemm, Over, Pass, PoolOp, Reduce, ReduceOp, Strided, Way},
    stats::Detail,
};

impl Compiler<'_, '_> {
    /// Emits all live nodes; returns the buffers of the inputs.
    pub(super) fn forward(&mut self) -> Result<Vec<Buf>, TraceError> {
        let trace = self.trace;
        let mut inputs = Vec::new();
        for (id, node) in trace.nodes.iter().enumerate() {
            if let Work::Input(dtype) = node.work {
                let value = self.new_buffer(dtype, node.shape.len());
                inputs.push(value.buf);
                self.values[id] = Some(value);
            }
        }
        for (id, node) in trace.nodes.iter().enumerate() {
            if self.live[id] {
                self.node(id, node)?;
                self.origins.resize(self.launches.len(), (id, false));
            }
        }
        Ok(inputs)
    }

    fn node(&mut self, id: usize, node: &Node) -> Result<(), TraceError> {
        let (rows, channels) = (node.shape.rows(), node.shape.channels());
        match &node.work {
            Work::Input(_) => {
                // Half data under O2 and O3.
                if let (Some(Precision::Half), Some(value)) = (self.precision[id], self.values[id])
                    && value.dtype == DType::F32
                {
                    let half = self.cast(id, DType::F16)?;
                    self.values[id] = Some(half);
                }
            }
            Work::Parameter(p) => {
                self.values[id] = Some(Value { buf: Fixed::part(*p, Part::Master), dtype: DType::F32 })
            }
            Work::Linear => {
                let (a, b, bias) = self.products(id, node)?;
                let depth = self.trace.nodes[node.inputs[0]].shape.channels();
                let name = &node.name;
                let p = Gemm::new(size(name, rows)?, size(name, channels)?, size(name, depth)?)
                    .and_then(Gemm::transpose_b)
                    .map_err(|error| TraceError::new(name, error))?;
                self.store(id, node, |y| Operation::Gemm { p, a, b, bias, y })?;
            }
            Work::Conv(p) => {
                let ((p, pass), (a, b, bias)) = ((*p, Pass::Forward), self.products(id, node)?);
                self.store(id, node, |y| Operation::Conv { p, pass, a, b, bias, y })?;
            }
            Work::ConvTranspose(p) => {
                let ((p, pass), (a, b, bias)) = ((*p, Pass::Data), self.products(id, node)?);
                self.store(id, node, |y| Operation::Conv { p, pass, a, b, bias, y })?;
            }
            Work::Matmul { transposed } => self.matmul(id, node, *transposed)?,
            Work::Softplus => self.softplus(id, node)?,
            Work::Huber(beta) => self.huber(id, node, *beta)?,
            Work::Softmax { causal } => self.softmax(id, node, *causal)?,
            Work::Resample(p) => self.resample(id, node, p)?,
            Work::Repeat(factor) => self.repeat(id, node, *factor)?,
            Work::Unary(op) => {
                let x = self.element_wise(id, node, 0)?.buf;
                self.store(id, node, |y| Operation::Unary { op: *op, x, y })?;
            }
            Work::Binary(function, over) => {
                let (a, b) = (self.element_wise(id, node, 0)?.buf, self.element_wise(id, node, 1)?.buf);
                let p = binary(&node.name, *function, rows, channels, *over)?;
                self.store(id, node, |y| Operation::Binary { p, a, b, y })?;
            }
            Work::Pool(p) => {
                let x = self.element_wise(id, node, 0)?.buf;
                self.extra[id] = (p.op() == PoolOp::Max).then(|| self.new_buffer(DType::U8, node.shape.len()));
                let indices = self.extra[id].map(|indices| indices.buf);
                self.store(id, node, |y| Operation::Pool { p: *p, x, indices, y })?;
            }
            Work::Unpool(p, pooled) => {
                let x = self.element_wise(id, node, 0)?.buf;
                let indices = self.extra[*pooled].map(|indices| indices.buf);
                self.store(id, node, |y| Operation::Unpool { p: *p, way: Way::Scatter, x, indices, y })?;
            }
            Work::Norm(p, running) => self.norm(id, node, p, *running)?,
            Work::Concat(axis) => self.concat(id, node, *axis)?,
            Work::Slice { axis, start } => {
                let x = self.element_wise(id, node, 0)?.buf;
                let whole = self.trace.nodes[node.inputs[0]].shape;
                let p =
                    part(&node.name, sizes(&node.name, whole)?, sizes(&node.name, node.shape)?, *axis, *start, true)?;
                self.store(id, node, |y| Operation::Copy { p, x, y })?;
            }
            Work::Permute(order) => {
                let x = self.element_wise(id, node, 0)?.buf;
                let whole = sizes(&node.name, self.trace.nodes[node.inputs[0]].shape)?;
                let p = permutation(&node.name, whole, *order)?;
                self.store(id, node, |y| Operation::Copy { p, x, y })?;
            }
            Work::Rows(p) => {
                let table = self.operand(node.inputs[0], self.precision[id])?;
                let indices = self.operand(node.inputs[1], None)?;
                if indices.dtype != DType::U32 {
                    let kind = TraceErrorKind::Type { what: "indices", takes: vec![DType::U32], got: indices.dtype };
                    return Err(TraceError::new(&node.name, kind));
                }
                self.operands[id] = vec![table, indices];
                let (x, indices) = (table.buf, indices.buf);
                self.store(id, node, |y| Operation::Rows { p: *p, way: Way::Gather, x, indices, y })?;
            }
            Work::Reshape | Work::Detach | Work::Split => {
                // The same memory under another shape, unless a list asks for another type.
                let x = self.element_wise(id, node, 0)?;
                match (x.dtype, self.precision[id]) {
                    (DType::F16, Some(Precision::Single)) | (DType::F32, Some(Precision::Half)) => {
                        self.store(id, node, |y| cast(x.buf, y))?;
                    }
                    _ => self.values[id] = Some(x),
                }
            }
            Work::Reduce(function) => {
                let x = self.element_wise(id, node, 0)?.buf;
                let len = size(&node.name, self.trace.nodes[node.inputs[0]].shape.len())?;
                let p = Reduce::new(*function, 1, len, 1).map_err(|error| TraceError::new(&node.name, error))?;
                self.store(id, node, |y| Operation::Reduce { p, x, y })?;
            }
            Work::ArgMax => {
                let x = self.operand(node.inputs[0], None)?;
                let shape = self.trace.nodes[node.inputs[0]].shape;
                let p = Reduce::new(
                    ReduceOp::ArgMax,
                    size(&node.name, shape.rows())?,
                    size(&node.name, shape.channels())?,
                    1,
                )
                .map_err(|error| TraceError::new(&node.name, error))?;
                let y = self.new_buffer(DType::U32, node.shape.len());
                let target = Target::keep(y.buf, Slot::ONE);
                self.launches.push(Operation::Reduce { p, x: x.buf, y: target }.into());
                self.values[id] = Some(y);
            }
            Work::Xent(p) => {
                let logits = self.operand(node.inputs[0], self.precision[id])?;
                let labels = self.operand(node.inputs[1], None)?;
                if !matches!(labels.dtype, DType::U8 | DType::U32) {
                    let takes = vec![DType::U8, DType::U32];
                    let kind = TraceErrorKind::Type { what: "labels", takes, got: labels.dtype };
                    return Err(TraceError::new(&node.name, kind));
                }
                let weights = match node.inputs.get(2) {
                    Some(&weights) => Some(self.operand(weights, Some(Precision::Single))?),
                    None => None,
                };
                let out = self.new_buffer(DType::F32, 2 + p.shape()[0] as usize);
                self.operands[id] = [Some(logits), Some(labels), weights].into_iter().flatten().collect();
                let x = CrossEntropyArgs { logits, labels, weights }.map(|value| value.buf);
                self.launches.push(Operation::CrossEntropy { p: *p, x, out: out.buf }.into());
                self.extra[id] = Some(out);
                let loss = self.new_buffer(DType::F32, 1);
                let first = Strided::new(&[], 0, 0).map_err(|error| TraceError::new(&node.name, error))?;
                let target = Target::keep(loss.buf, Slot::ONE);
                self.launches.push(Operation::Copy { p: first, x: out.buf, y: target }.into());
                self.values[id] = Some(loss);
            }
        }
        Ok(())
    }

    /// x, weights and bias of a product, in its precision.
    pub(super) fn products(&mut self, id: usize, node: &Node) -> Result<(Buf, Buf, Option<Buf>), TraceError> {
        let mut read = |input: usize| {
            let value = self.operand(input, self.precision[id])?;
            self.operands[id].push(value);
            Ok(value.buf)
        };
        let (a, b) = (read(node.inputs[0])?, read(node.inputs[1])?);
        let bias = node.inputs.get(2).map(|&bias| read(bias)).transpose()?;
        Ok((a, b, bias))
    }

    /// Input `i` as its type is where operators of any type may read it.
    pub(super) fn element_wise(&mut self, id: usize, node: &Node, i: usize) -> Result<Value, TraceError> {
        let input = node.inputs[i];
        let integers = matches!(self.values[input].map(|value| value.dtype), Some(DType::U8 | DType::U32));
        let takes_integers = matches!(
            node.work,
            Work::Unary(_)
                | Work::Slice { .. }
                | Work::Concat(_)
                | Work::Permute(_)
                | Work::Reshape
                | Work::Detach
                | Work::Split
        );
        let want = if integers && takes_integers { None } else { self.precision[id] };
        // What only moves keeps its type.
        let want = if matches!(node.work, Work::Reshape | Work::Detach | Work::Split) { None } else { want };
        let value = self.operand(input, want)?;
        self.operands[id].push(value);
        Ok(value)
    }

    /// A node's value to be read in a precision. Half is read as it is where f32 is wanted: the cast is exact, and
    /// the site behind it lies where its gradient is stored.
    pub(super) fn operand(&mut self, node: usize, want: Option<Precision>) -> Result<Value, TraceError> {
        if let (Work::Parameter(p), Some(Precision::Half)) = (&self.trace.nodes[node].work, want) {
            if !self.halves.contains(p) {
                self.halves.push(*p);
            }
            return Ok(Value { buf: Fixed::part(*p, Part::Half), dtype: DType::F16 });
        }
        let missing = || missing(&self.trace.nodes[node].name);
        let value = self.values[node].ok_or_else(missing)?;
        match (value.dtype, want) {
            (DType::F32, Some(Precision::Half)) => self.cast(node, DType::F16),
            (DType::U8 | DType::U32, Some(Precision::Half)) => self.cast(node, DType::F16),
            (DType::U8 | DType::U32, Some(Precision::Single)) => self.cast(node, DType::F32),
            _ => Ok(value),
        }
    }

    fn cast(&mut self, node: usize, to: DType) -> Result<Value, TraceError> {
        if let Some(&value) = self.casts.get(&(node, to)) {
            return Ok(value);
        }
        let missing = || missing(&self.trace.nodes[node].name);
        let from = self.values[node].ok_or_else(missing)?;
        let y = self.new_buffer(to, self.trace.nodes[node].shape.len());
        let name = format!("{}/cast/forward", self.trace.nodes[node].name);
        let target = self.observed(&name, y)?;
        self.launches.push(cast(from.buf, target).into());
        self.casts.insert((node, to), y);
        Ok(y)
    }

    /// A store of the forward pass: not scaled; halves are counted, so that what overflows has a name.
    fn observed(&mut self, name: &str, y: Value) -> Result<Target, TraceError> {
        if y.dtype == DType::F16 && matches!(self.purpose, Purpose::Train { .. }) {
            let to = self.slot(name, SlotKind::Forward)?;
            return Ok(Target { y: y.buf, from: Slot::ONE, to, detail: Detail::Counts, add: false });
        }
        Ok(Target::keep(y.buf, Slot::ONE))
    }

    /// Emits the launch of a node and its result.
    pub(super) fn store(
        &mut self, id: usize, node: &Node, operation: impl FnOnce(Target) -> Operation,
    ) -> Result<(), TraceError> {
        let half = self.precision[id] == Some(Precision::Half) && node.shape.len() != 1;
        let y = self.new_buffer(if half { DType::F16 } else { DType::F32 }, node.shape.len());
        let target = self.observed(&format!("{}/forward", node.name), y)?;
        self.launches.push(operation(target).into());
        self.values[id] = Some(y);
        Ok(())
    }

    fn norm(
        &mut self, id: usize, node: &Node, p: &gradscale_core::descriptor::Norm, running: Option<usize>,
    ) -> Result<(), TraceError> {
        let x = self.operand(node.inputs[0], self.precision[id])?;
        let scale = self.operand(node.inputs[1], Some(Precision::Single))?;
        let shift = match node.inputs.get(2) {
            Some(&shift) => self.operand(shift, Some(Precision::Single))?,
            None => Value { buf: self.constant(vec![0.0; node.shape.channels()]), dtype: DType::F32 },
        };
        self.operands[id] = vec![x, scale, shift];
        let groups = p.groups() as usize;
        let saved = match running {
            Some(running) if p.is_given() => Value { buf: Fixed::part(running, Part::Master), dtype: DType::F32 },
            _ => self.new_buffer(DType::F32, 2 * groups),
        };
        self.extra[id] = Some(saved);
        let (x, affine) = (x.buf, Some([scale.buf, shift.buf]));
        self.store(id, node, |y| Operation::Norm { p: *p, x, affine, saved: saved.buf, y })?;
        if let Some(running) = running.filter(|_| self.purpose.is_training() && !p.is_given()) {
            // The running variance is the unbiased one: times n / (n − 1), as PyTorch's.
            let n = f64::from(p.size());
            #[expect(clippy::cast_possible_truncation, reason = "rounded")]
            let unbiased = if n > 1.0 { (n / (n - 1.0)) as f32 } else { 1.0 };
            let factors = [vec![1.0; groups], vec![unbiased; groups]].concat();
            let factors = self.constant(factors);
            let p = binary(&node.name, BinaryOp::Mul, 1, 2 * groups, Over::All)?;
            let known = self.statistics.iter_mut().find(|(id, _)| *id == running);
            let add = known.is_some() || self.purpose == Purpose::Train { later: true };
            match known {
                Some((_, calls)) => *calls += 1,
                None => self.statistics.push((running, 1)),
            }
            let target = Target { add, ..Target::keep(Fixed::part(running, self.purpose.statistics()), Slot::ONE) };
            self.launches.push(Operation::Binary { p, a: saved.buf, b: factors, y: target }.into());
        }
        Ok(())
    }

    fn concat(&mut self, id: usize, node: &Node, axis: usize) -> Result<(), TraceError> {
        let half = self.precision[id] == Some(Precision::Half);
        let y = self.new_buffer(if half { DType::F16 } else { DType::F32 }, node.shape.len());
        let mut start = 0;
        for i in 0..node.inputs.len() {
            let x = self.element_wise(id, node, i)?;
            let shape = self.trace.nodes[node.inputs[i]].shape;
            let p = part(&node.name, sizes(&node.name, node.shape)?, sizes(&node.name, shape)?, axis, start, false)?;
            start += shape.sizes()[axis];
            let target = Target::keep(y.buf, Slot::ONE);
            self.launches.push(Operation::Copy { p, x: x.buf, y: target }.into());
        }
        self.values[id] = Some(y);
        Ok(())
    }
}

fn missing(name: &str) -> TraceError {
    TraceError::new(name, TraceErrorKind::Range("is read before it is computed".to_owned()))
}

pub(super) fn binary(name: &str, op: BinaryOp, rows: usize, cols: usize, over: Over) -> Result<Binary, TraceError> {
    Binary::new(op, size(name, rows)?, size(name, cols)?, over).map_err(|error| TraceError::new(name, error))
}

/// A copy between a whole tensor and a dense part of it, along one axis; `out` of the whole or into it.
pub(super) fn part(
    name: &str, whole: [u32; 4], piece: [u32; 4], axis: usize, start: usize, out: bool,
) -> Result<Strided, TraceError> {
    let (of_whole, of_piece) = (strides(whole), strides(piece));
    let dims = [0, 1, 2, 3].map(|i| {
        let (x, y) = if out { (of_whole[i], of_piece[i]) } else { (of_piece[i], of_whole[i]) };
        Dim { len: piece[i], x, y }
    });
    let first = size(name, start)?.saturating_mul(u32::try_from(of_whole[axis]).unwrap_or(u32::MAX));
    let (x0, y0) = if out { (first, 0) } else { (0, first) };
    Strided::new(&dims, x0, y0).map_err(|error| TraceError::new(name, error))
}

/// A copy in which axis `i` of the result is axis `order[i]` of x.
pub(super) fn permutation(name: &str, x: [u32; 4], order: [usize; 4]) -> Result<Strided, TraceError> {
    let (of_x, of_y) = (strides(x), strides(order.map(|axis| x[axis])));
    let dims = [0, 1, 2, 3].map(|i| Dim { len: x[order[i]], x: of_x[order[i]], y: of_y[i] });
    Strided::new(&dims, 0, 0).map_err(|error| TraceError::new(name, error))
}

/// Elements from one step along each axis to the next.
pub(super) fn strides(sizes: [u32; 4]) -> [i64; 4] {
    let [_, h, w, c] = sizes.map(i64::from);
    [h * w * c, w * c, c, 1]
}
