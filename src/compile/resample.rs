//! Images of another size: in f32 inside, and a site.

use super::{Buf, Compiler, Gradient, Operation, Rule, Value, forward::strides};
use crate::{
    TraceError,
    trace::{Node, Resample, sizes},
};
use gradscale_core::{
    backend::Slot,
    descriptor::{Dim, Gemm, Reduce, ReduceOp, ShapeError, Strided},
    rules::Flow,
};

/// One product of a resampling, or one sum.
struct Step {
    operation: Operation,
    /// What is read before the values.
    matrix: Option<Buf>,
    /// Elements of the result.
    len: usize,
}

impl Step {
    fn reads(&self, x: Buf) -> Vec<Buf> {
        self.matrix.into_iter().chain([x]).collect()
    }
}

impl Compiler<'_, '_> {
    pub(super) fn resample(&mut self, id: usize, node: &Node, p: &Resample) -> Result<(), TraceError> {
        let x = self.element_wise(id, node, 0)?;
        let steps = self.resampling(node, p, false)?;
        let Some((operation, reads)) = self.all_but_last(steps, x.buf, Slot::ONE) else { return Ok(()) };
        let reads: Vec<Option<Value>> = reads.into_iter().map(|buf| Some(Value { buf, ..x })).collect();
        self.store(id, node, operation, &reads, None)
    }

    pub(super) fn resample_vjp(
        &mut self, id: usize, node: &Node, dy: Gradient, p: &Resample,
    ) -> Result<(), TraceError> {
        let steps = self.resampling(node, p, true)?;
        let Some((operation, reads)) = self.all_but_last(steps, dy.value.buf, dy.slot) else { return Ok(()) };
        self.contribute((id, 0), operation, &reads, dy, Flow::Site, Rule::Cast)
    }

    /// The products of a resampling, or of its transpose: along h, then along w; back in the other order.
    fn resampling(&mut self, node: &Node, p: &Resample, back: bool) -> Result<Vec<Step>, TraceError> {
        let error = |error: ShapeError| TraceError::new(&node.name, error);
        let [n, .., c] = sizes(&node.name, node.shape)?;
        let mut steps = Vec::new();
        for axis in [0, 1] {
            let Some(matrix) = p.matrix(axis) else { continue };
            let matrix = self.constant(matrix);
            // One product for each image, or for each row of each image that has its new height.
            let (batch, inner) = if axis == 0 { (n, p.from[1] * c) } else { (n * p.to[0], c) };
            let (to, from) = (p.to[axis], p.from[axis]);
            let gemm = if back {
                Gemm::new(from, inner, to)
                    .and_then(|gemm| gemm.batched(batch, [0, to * inner, from * inner]))
                    .and_then(Gemm::transpose_a)
            } else {
                Gemm::new(to, inner, from).and_then(|gemm| gemm.batched(batch, [0, from * inner, to * inner]))
            };
            let len = batch as usize * inner as usize * if back { from } else { to } as usize;
            steps.push(Step { operation: Operation::Gemm(gemm.map_err(error)?), matrix: Some(matrix), len });
        }
        if back {
            steps.reverse();
        }
        Ok(steps)
    }

    /// Emits all steps but the last, which stores: that one, and what it reads. None where there is none.
    fn all_but_last(&mut self, mut steps: Vec<Step>, from: Buf, at: Slot) -> Option<(Operation, Vec<Buf>)> {
        let last = steps.pop()?;
        let mut x = from;
        for step in steps {
            let reads = step.reads(x);
            x = self.inside(step.operation, &reads, step.len, at);
        }
        let reads = last.reads(x);
        Some((last.operation, reads))
    }

    /// Each pixel so often along h and w: a copy.
    pub(super) fn repeat(&mut self, id: usize, node: &Node, [down, right]: [u32; 2]) -> Result<(), TraceError> {
        let x = self.element_wise(id, node, 0)?;
        let from = sizes(&node.name, self.trace.nodes[node.inputs[0]].shape)?;
        let ([n, h, w, c], of_x) = (from, strides(from));
        let of_y = strides(sizes(&node.name, node.shape)?);
        let dims = [
            Dim { len: n, x: of_x[0], y: of_y[0] },
            Dim { len: h, x: of_x[1], y: of_y[1] * i64::from(down) },
            Dim { len: down, x: 0, y: of_y[1] },
            Dim { len: w, x: of_x[2], y: of_y[2] * i64::from(right) },
            Dim { len: right, x: 0, y: of_y[2] },
            Dim { len: c, x: 1, y: 1 },
        ];
        let p = Strided::new(&dims, 0, 0).map_err(|error| TraceError::new(&node.name, error))?;
        self.store(id, node, Operation::Copy(p), &[Some(x)], None)
    }

    /// The sum over the copies of each pixel.
    pub(super) fn repeat_vjp(
        &mut self, id: usize, node: &Node, dy: Gradient, [down, right]: [u32; 2],
    ) -> Result<(), TraceError> {
        let [n, h, w, c] = sizes(&node.name, self.trace.nodes[node.inputs[0]].shape)?;
        let mut steps = Vec::new();
        for (factor, outer, inner) in [(down, n * h, w * right * c), (right, n * h * w, c)] {
            if factor != 1 {
                let p = Reduce::new(ReduceOp::Sum, outer, factor, inner);
                let p = p.map_err(|error| TraceError::new(&node.name, error))?;
                let len = outer as usize * inner as usize;
                steps.push(Step { operation: Operation::Reduce(p), matrix: None, len });
            }
        }
        let Some((operation, reads)) = self.all_but_last(steps, dy.value.buf, dy.slot) else { return Ok(()) };
        self.contribute((id, 0), operation, &reads, dy, Flow::Site, Rule::Cast)
    }
}
