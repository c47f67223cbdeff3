//! Images of another size: in f32 inside, and a site.

use super::{Buf, Compiler, Gradient, Operation, Rule, Target, forward::strides};
use crate::{
    TraceError,
    trace::{Node, Resample, sizes},
};
use gradscale_core::{
    backend::Slot,
    descriptor::{Dim, Gemm, Reduce, ReduceOp, ShapeError, Strided},
    rules::Flow,
};

/// One product of a resampling with a matrix, or one sum.
#[derive(Clone, Copy)]
enum Step {
    Product(Gemm, Buf),
    Sum(Reduce),
}

impl Step {
    const fn of(self, x: Buf, y: Target) -> Operation {
        match self {
            Self::Product(p, matrix) => Operation::Gemm { p, a: matrix, b: x, bias: None, y },
            Self::Sum(p) => Operation::Reduce { p, x, y },
        }
    }
}

impl Compiler<'_, '_> {
    pub(super) fn resample(&mut self, id: usize, node: &Node, p: &Resample) -> Result<(), TraceError> {
        let x = self.element_wise(id, node, 0)?;
        let steps = self.resampling(node, p, false)?;
        let Some((last, x)) = self.all_but_last(steps, x.buf, Slot::ONE) else { return Ok(()) };
        self.store(id, node, |y| last.of(x, y))
    }

    pub(super) fn resample_vjp(
        &mut self, id: usize, node: &Node, dy: Gradient, p: &Resample,
    ) -> Result<(), TraceError> {
        let steps = self.resampling(node, p, true)?;
        let Some((last, x)) = self.all_but_last(steps, dy.value.buf, dy.slot) else { return Ok(()) };
        self.contribute((id, 0), dy, Flow::Site, Rule::Cast, |y| last.of(x, y))
    }

    /// The products of a resampling, or of its transpose: along h, then along w; back in the other order.
    fn resampling(&mut self, node: &Node, p: &Resample, back: bool) -> Result<Vec<(Step, usize)>, TraceError> {
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
            steps.push((Step::Product(gemm.map_err(error)?, matrix), len));
        }
        if back {
            steps.reverse();
        }
        Ok(steps)
    }

    /// Emits all steps, each with the elements of its result, but the last, which stores: that one, and what it reads.
    /// None where there is none.
    fn all_but_last(&mut self, mut steps: Vec<(Step, usize)>, from: Buf, at: Slot) -> Option<(Step, Buf)> {
        let (last, _) = steps.pop()?;
        let all = steps.into_iter().fold(from, |x, (step, len)| self.inside(len, at, |y| step.of(x, y)));
        Some((last, all))
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
        self.store(id, node, |y| Operation::Copy { p, x: x.buf, y })
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
                steps.push((Step::Sum(p), len));
            }
        }
        let Some((last, x)) = self.all_but_last(steps, dy.value.buf, dy.slot) else { return Ok(()) };
        self.contribute((id, 0), dy, Flow::Site, Rule::Cast, |y| last.of(x, y))
    }
}
