//! Pooling and unpooling.

use super::{Var, Work, mismatch};
use crate::{Shape, TraceError};
use gradscale_core::{
    descriptor::{Pool, PoolOp, ShapeError},
    op::Op,
};

impl<'t> Var<'t> {
    /// The largest value of windows side by side. Sizes that the window does not divide round up.
    ///
    /// # Errors
    /// A window that does not fit.
    pub fn max_pool(self, window: [u32; 2]) -> Result<Self, TraceError> {
        self.pool("max_pool", |x| Pool::new(PoolOp::Max, x, window)?.ceil())
    }

    /// The mean of windows side by side.
    ///
    /// # Errors
    /// A window that does not fit.
    pub fn average_pool(self, window: [u32; 2]) -> Result<Self, TraceError> {
        self.pool("average_pool", |x| Pool::new(PoolOp::Average, x, window))
    }

    /// Pooling as `pool` describes it for the shape of x.
    ///
    /// # Errors
    /// A window that does not fit.
    pub fn pool(
        self, kind: &'static str, pool: impl FnOnce([u32; 4]) -> Result<Pool, ShapeError>,
    ) -> Result<Self, TraceError> {
        let p = pool(self.sizes(kind)?).map_err(|error| super::input(kind, error, self.shape()))?;
        let op = match (p.op(), p.overlaps()) {
            (PoolOp::Average, _) => Op::AveragePool,
            (PoolOp::Max, true) => Op::MaxPoolOverlapping,
            (PoolOp::Max, false) => Op::MaxPool,
        };
        Ok(self.then(kind, op, Work::Pool(p), &[], Shape::from(p.y().map(|size| size as usize))))
    }

    /// Puts every value at the place that the max-pooling `pooled` took its value from; zeros elsewhere. The result
    /// has the shape that was pooled.
    ///
    /// # Errors
    /// `pooled` is no max-pooling, or of another shape.
    pub fn unpool(self, pooled: Self) -> Result<Self, TraceError> {
        let work = self.tape.trace.borrow().nodes[pooled.id].work.clone();
        match work {
            Work::Pool(p) if p.op() == PoolOp::Max && pooled.shape() == self.shape() => {
                let shape = Shape::from(p.x().map(|size| size as usize));
                Ok(self.then("unpool", Op::Unpool, Work::Unpool(p, pooled.id), &[], shape))
            }
            _ => Err(mismatch("unpool", self.shape(), pooled.shape())),
        }
    }
}
