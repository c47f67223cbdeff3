//! Pooling and unpooling.

use crate::{
    Shape, TraceError, Var,
    graph::{Context, Gradient, Operation, Operator, Rule, input, mismatch},
};
use gradscale_core::{
    backend::DType,
    ops::{GatherScatter, Op, Pool, PoolOp, ShapeError},
};
use std::any::Any;

impl<'t> Var<'t> {
    /// The largest value of windows side by side. Sizes that the window does not divide round up.
    ///
    /// # Errors
    /// A window that does not fit.
    pub fn max_pool(self, window: [u32; 2]) -> Self {
        self.pool("max_pool", |x| Pool::new(PoolOp::Max, x, window)?.ceil())
    }

    /// The mean of windows side by side.
    ///
    /// # Errors
    /// A window that does not fit.
    pub fn average_pool(self, window: [u32; 2]) -> Self {
        self.pool("average_pool", |x| Pool::new(PoolOp::Average, x, window))
    }

    /// Pooling as `pool` describes it for the shape of x.
    ///
    /// # Errors
    /// A window that does not fit.
    pub fn pool(self, kind: &'static str, pool: impl FnOnce([u32; 4]) -> Result<Pool, ShapeError>) -> Self {
        self.traced(|| {
            let p = pool(self.sizes(kind)?).map_err(|error| input(kind, error, self.shape()))?;
            let op = match (p.op(), p.overlaps()) {
                (PoolOp::Average, _) => Op::AveragePool,
                (PoolOp::Max, true) => Op::MaxPoolOverlapping,
                (PoolOp::Max, false) => Op::MaxPool,
            };
            Ok(self.then(kind, op, p, &[], Shape::from(p.y().map(|size| size as usize))))
        })
    }

    /// Puts every value at the place that the max-pooling `pooled` took its value from; zeros elsewhere. The result
    /// has the shape that was pooled.
    ///
    /// # Errors
    /// `pooled` is no max-pooling, or of another shape.
    pub fn unpool(self, pooled: Self) -> Self {
        self.traced(|| {
            let operator = pooled.operator();
            let pool = operator.as_deref().and_then(|operator| (operator as &dyn Any).downcast_ref::<Pool>());
            match pool {
                Some(&p) if p.op() == PoolOp::Max && pooled.shape() == self.shape() => {
                    let shape = Shape::from(p.x().map(|size| size as usize));
                    Ok(self.then("unpool", Op::Unpool, Unpool { p, pooled: pooled.id() }, &[], shape))
                }
                _ => Err(mismatch("unpool", self.shape(), pooled.shape())),
            }
        })
    }
}

impl Operator for Pool {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (p, x) = (*self, at.read(0)?.buf);
        let indices = (p.op() == PoolOp::Max).then(|| at.new_buffer(DType::U8, at.node.shape.len()));
        indices.into_iter().for_each(|indices| at.save(indices));
        let indices = indices.map(|indices| indices.buf);
        at.store(|y| Operation::Pool { p, x, indices, y })
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (p, way, x, indices) = (*self, GatherScatter::Scatter, dy.value.buf, at.saved().map(|indices| indices.buf));
        at.emit_gradient(0, dy, at.flow(), Rule::Cast, |y| Operation::Unpool { p, way, x, indices, y })
    }
}

/// x; the offsets are those of the pooling node named.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Unpool {
    p: Pool,
    pooled: usize,
}

impl Operator for Unpool {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (p, way, x) = (self.p, GatherScatter::Scatter, at.read(0)?.buf);
        let indices = at.saved_of(self.pooled).map(|indices| indices.buf);
        at.store(|y| Operation::Unpool { p, way, x, indices, y })
    }

    fn reads_saved(&self) -> Option<usize> {
        Some(self.pooled)
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (p, way, x) = (self.p, GatherScatter::Gather, dy.value.buf);
        let indices = at.saved_of(self.pooled).map(|indices| indices.buf);
        at.emit_gradient(0, dy, at.flow(), Rule::Cast, |y| Operation::Unpool { p, way, x, indices, y })
    }
}
