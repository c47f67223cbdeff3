//! Reductions: sum, mean, argmax.

use super::slice::within;
#[cfg(feature = "onnx")]
use crate::onnx::{Is, Writer};
use crate::{
    Shape, TraceError, Var,
    graph::{Context, Gradient, Operation, Operator, ScaleRule, StoreSpec, size, unary},
};
use gradscale_core::{
    backend::{DType, Slot},
    ops::{ActivationFlow, Dim, GradientFlow, Op, Reduce, ReduceOp, Strided, Unary},
};

impl<'t> Var<'t> {
    /// Computes the sum of all elements of x, in f32: a scalar.
    ///
    /// # Errors
    /// More than 2^32 − 1 elements.
    pub fn sum(self) -> Self {
        self.reduce("sum", Op::Sum, ReduceOp::Sum)
    }

    /// Computes the mean of all elements of x, in f32: a scalar.
    ///
    /// # Errors
    /// More than 2^32 − 1 elements, or none.
    pub fn mean(self) -> Self {
        self.reduce("mean", Op::Mean, ReduceOp::Mean)
    }

    /// Computes the sum along an axis (0 n, 1 h, 2 w, 3 c), in f32; its size becomes 1.
    ///
    /// # Errors
    /// An axis beyond 3, or too many elements.
    pub fn sum_axis(self, axis: usize) -> Self {
        self.reduce_axis("sum", Op::Sum, ReduceOp::Sum, axis)
    }

    /// Computes the mean along an axis (0 n, 1 h, 2 w, 3 c), in f32; its size becomes 1.
    ///
    /// # Errors
    /// An axis beyond 3 or of size 0, or too many elements.
    pub fn mean_axis(self, axis: usize) -> Self {
        self.reduce_axis("mean", Op::Mean, ReduceOp::Mean, axis)
    }

    fn reduce_axis(self, kind: &'static str, op: Op, function: ReduceOp, axis: usize) -> Self {
        self.try_record(|| {
            within(kind, axis)?;
            let sizes = self.sizes(kind)?;
            let product = |sizes: &[u32]| sizes.iter().product();
            let p = Reduce::new(function, product(&sizes[..axis]), sizes[axis], product(&sizes[axis + 1..]));
            let mut shape = self.shape().sizes();
            shape[axis] = 1;
            let p = p.map_err(|error| TraceError::new(kind, error))?;
            Ok(self.record_op(kind, op, p, &[], Shape::from(shape)))
        })
    }

    pub(super) fn reduce(self, kind: &'static str, op: Op, function: ReduceOp) -> Self {
        self.try_record(|| {
            self.sizes(kind)?;
            let p = Reduce::new(function, 1, size(kind, self.shape().len())?, 1);
            let p = p.map_err(|error| TraceError::new(kind, error))?;
            Ok(self.record_op(kind, op, p, &[], Shape::SCALAR))
        })
    }

    /// Computes the index of the largest channel of each pixel, `[n, h, w, 1]`. There is no gradient.
    ///
    /// # Errors
    /// No channels, or too many elements.
    pub fn argmax(self) -> Self {
        self.try_record(|| {
            let [n, h, w, c] = self.shape().sizes();
            self.sizes("argmax")?;
            let p = Reduce::new(ReduceOp::ArgMax, size("argmax", self.shape().rows())?, size("argmax", c)?, 1);
            let p = p.map_err(|error| TraceError::new("argmax", error))?;
            Ok(self.record_op("argmax", Op::ArgMax, p, &[], Shape::from([n, h, w, 1])))
        })
    }
}

impl Operator for Reduce {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        match self.op() {
            ReduceOp::Sum | ReduceOp::Mean => op.activation_flow(),
            // Squares and positions are not homogeneous; a maximum is part of a softmax or loss.
            ReduceOp::Max | ReduceOp::SumSquares | ReduceOp::ArgMax => ActivationFlow::TrueValues,
        }
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let p = *self;
        if self.gives_integers() {
            let x = at.read_in(0, None)?.buf;
            let y = at.new_buffer(DType::U32, at.node.shape.len());
            at.emit(Operation::Reduce { p, x, y: StoreSpec::passthrough(y, Slot::ONE) });
            at.set_output(y);
            return Ok(());
        }
        let x = at.read(0)?.buf;
        at.store(|y| Operation::Reduce { p, x, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let ([outer, len, inner], sizes) = (self.shape().map(|size| size as usize), at.node().shape.sizes());
        let x = at.shaped(0, &[outer, len, inner])?;
        let kind = match self.op() {
            ReduceOp::Sum => "ReduceSum",
            ReduceOp::Mean => "ReduceMean",
            ReduceOp::Max => "ReduceMax",
            ReduceOp::SumSquares => "ReduceSumSquare",
            ReduceOp::ArgMax => {
                let best = at.emit("ArgMax", &[&x], &[("axis", Is::Int(1))]);
                let best = at.reshape(&best, &sizes);
                at.give_integers(best);
                return Ok(());
            }
        };
        let axis = at.ints(&[1]);
        let y = at.emit(kind, &[&x, &axis], &[]);
        let y = at.reshape(&y, &sizes);
        at.set_output(y);
        Ok(())
    }

    fn gives_integers(&self) -> bool {
        self.op() == ReduceOp::ArgMax
    }

    /// Returns true for the reductions with a gradient: sum and mean.
    fn is_differentiable(&self) -> bool {
        matches!(self.op(), ReduceOp::Sum | ReduceOp::Mean)
    }

    /// Emits dy, repeated for each term; for a mean divided by their number.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let [outer, len, inner] = self.shape();
        let mut g = dy;
        if self.op() == ReduceOp::Mean {
            #[expect(clippy::cast_possible_truncation, reason = "rounded")]
            let a = (1.0 / f64::from(len)) as f32;
            let op = Unary::Affine { a, b: 0.0 };
            g = at.temporary_gradient(at.node.shape.len(), dy, |y| unary(op, dy.value.buf, y));
        }
        let [of_outer, of_inner] = [i64::from(len) * i64::from(inner), i64::from(inner)];
        let dims = [
            Dim { len: outer, x: of_inner, y: of_outer },
            Dim { len, x: 0, y: of_inner },
            Dim { len: inner, x: 1, y: 1 },
        ];
        let p = Strided::new(&dims, 0, 0).map_err(|error| at.node.error(error))?;
        let x = g.value.buf;
        at.emit_gradient(0, g, GradientFlow::Cast, ScaleRule::FromValues, |y| Operation::Copy { p, x, y })
    }
}
