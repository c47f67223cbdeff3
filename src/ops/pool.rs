//! Pooling and unpooling.

#[cfg(feature = "onnx")]
use crate::onnx::{Is, Writer};
use crate::{
    Shape, TraceError, Var,
    error::TraceErrorKind,
    graph::{Context, Gradient, Operation, Operator, ScaleRule, input, other_shape},
};
use gradscale_core::{
    backend::DType,
    ops::{ActivationFlow, GatherScatter, Op, Pool, PoolOp, ShapeError},
};
use std::any::Any;

impl<'t> Var<'t> {
    /// Applies max pooling with adjacent windows. Sizes that the window does not divide are rounded up.
    ///
    /// # Errors
    /// A window that does not fit.
    pub fn max_pool(self, window: [u32; 2]) -> Self {
        self.pool("max_pool", |x| Pool::new(PoolOp::Max, x, window)?.ceil())
    }

    /// Applies average pooling to x, with adjacent windows.
    ///
    /// # Errors
    /// A window that does not fit.
    pub fn average_pool(self, window: [u32; 2]) -> Self {
        self.pool("average_pool", |x| Pool::new(PoolOp::Average, x, window))
    }

    /// Applies the pooling that `pool` describes, given the shape of x.
    ///
    /// # Errors
    /// A window that does not fit.
    pub fn pool(self, kind: &'static str, pool: impl FnOnce([u32; 4]) -> Result<Pool, ShapeError>) -> Self {
        self.try_record(|| {
            let p = pool(self.sizes(kind)?).map_err(|error| input(kind, error, self.shape()))?;
            let op = match (p.op(), p.overlaps()) {
                (PoolOp::Average, _) => Op::AveragePool,
                (PoolOp::Max, true) => Op::MaxPoolOverlapping,
                (PoolOp::Max, false) => Op::MaxPool,
            };
            Ok(self.record_op(kind, op, p, &[], Shape::from(p.y().map(|size| size as usize))))
        })
    }

    /// Stores every value at the position of the maximum that the max-pooling `pooled` found, and zeros elsewhere. The
    /// result has the shape of the pooling's input.
    ///
    /// # Errors
    /// `pooled` is not a max-pooling, or has another shape.
    pub fn unpool(self, pooled: Self) -> Self {
        self.try_record(|| {
            let operator = pooled.operator();
            let pool = operator.as_deref().and_then(|operator| (operator as &dyn Any).downcast_ref::<Pool>());
            match pool {
                Some(&p) if p.op() == PoolOp::Max && pooled.shape() == self.shape() => {
                    let shape = Shape::from(p.x().map(|size| size as usize));
                    Ok(self.record_op("unpool", Op::Unpool, Unpool { p, pooled: pooled.id() }, &[], shape))
                }
                Some(p) if p.op() == PoolOp::Max => Err(other_shape("unpool", "input", self, pooled.shape())),
                Some(_) | None => {
                    let words = "its second operand must be the result of a max-pooling".to_owned();
                    Err(TraceError::new("unpool", TraceErrorKind::Range(words)))
                }
            }
        })
    }
}

/// Returns how far the last windows along rows or columns extend beyond the end.
#[cfg(feature = "onnx")]
fn end(p: &Pool, i: usize) -> u32 {
    let reach = p.y()[1 + i].saturating_sub(1) * p.strides()[i] + p.window()[i];
    reach.saturating_sub(p.x()[1 + i] + p.padding()[i])
}

impl Operator for Pool {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (p, x) = (*self, at.read(0)?.buf);
        let indices = (p.op() == PoolOp::Max).then(|| at.new_buffer(DType::U8, at.node.shape.len()));
        indices.into_iter().for_each(|indices| at.save(indices));
        let indices = indices.map(|indices| indices.buf);
        at.store(|y| Operation::Pool { p, x, indices, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (window, strides, pad) = (self.window(), self.strides(), self.padding());
        let end = [0, 1].map(|i| if self.op() == PoolOp::Max { end(self, i) } else { end(self, i).max(pad[i]) });
        let [window, strides] = [window, strides].map(|sizes| sizes.map(i64::from));
        let pads = [pad[0], pad[1], end[0], end[1]].map(i64::from);
        let mut attributes =
            vec![("kernel_shape", Is::Ints(&window)), ("strides", Is::Ints(&strides)), ("pads", Is::Ints(&pads))];
        let x = at.first(0)?;
        let y = match self.op() {
            PoolOp::Max => {
                let [y, places] = at.emit_many("MaxPool", &[&x], &attributes);
                at.save(places);
                y
            }
            PoolOp::Average => {
                attributes.push(("count_include_pad", Is::Int(1)));
                at.emit("AveragePool", &[&x], &attributes)
            }
        };
        at.set_first_output(y);
        Ok(())
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (p, way, x, indices) = (*self, GatherScatter::Scatter, dy.value.buf, at.saved().map(|indices| indices.buf));
        at.emit_gradient(0, dy, at.flow(), ScaleRule::FromValues, |y| Operation::Unpool { p, way, x, indices, y })
    }
}

/// Operator of unpooling, with input x; the offsets are those of the pooling node.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Unpool {
    p: Pool,
    pooled: usize,
}

impl Operator for Unpool {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (p, way, x) = (self.p, GatherScatter::Scatter, at.read(0)?.buf);
        let indices = at.saved_of(self.pooled).map(|indices| indices.buf);
        at.store(|y| Operation::Unpool { p, way, x, indices, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (window, strides) = (self.p.window().map(i64::from), self.p.strides().map(i64::from));
        let (x, [n, h, w, c]) = (at.first(0)?, at.node().shape.sizes());
        let places = at.saved(self.pooled).ok_or_else(|| at.unsupported("this pooling kept no positions"))?;
        let size = at.sizes(&[n, c, h, w]);
        let (pad, end) = (self.p.padding(), [0, 1].map(|i| end(&self.p, i)));
        let pads = [pad[0], pad[1], end[0], end[1]].map(i64::from);
        let attributes =
            [("kernel_shape", Is::Ints(&window)), ("strides", Is::Ints(&strides)), ("pads", Is::Ints(&pads))];
        let y = at.emit("MaxUnpool", &[&x, &places, &size], &attributes);
        at.set_first_output(y);
        Ok(())
    }

    fn reads_saved(&self) -> Option<usize> {
        Some(self.pooled)
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (p, way, x) = (self.p, GatherScatter::Gather, dy.value.buf);
        let indices = at.saved_of(self.pooled).map(|indices| indices.buf);
        at.emit_gradient(0, dy, at.flow(), ScaleRule::FromValues, |y| Operation::Unpool { p, way, x, indices, y })
    }
}
