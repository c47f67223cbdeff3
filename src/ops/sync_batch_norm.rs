//! Synchronised batch normalisation (`SyncBatchNorm` in PyTorch): statistics are those of the batches of all ranks.
//!
//! Each rank computes mean and variance of its own batch, and the ranks combine them. Then each normalises by the
//! combined statistics, as in evaluation. The two sums of the backward pass are combined in the same way.

use super::norm::Normalise;
use crate::{
    TraceError,
    graph::{
        BufferId, Context, Gradient, Operation, ScaleRule, StoreSpec, SyncPayload, Value, ValueCount, cast, unary,
    },
};
use gradscale_core::{
    amp::Precision,
    backend::{DType, NormSaved, Slot},
    ops::{GradientFlow, Unary},
};

impl Normalise {
    pub(super) fn forward_synced(
        &self, at: &mut Context<'_, '_, '_>, [x, scale, shift]: [BufferId; 3],
    ) -> Result<(), TraceError> {
        let (p, channels, len) = (self.p, at.node.shape.channels(), at.node.shape.len());
        let biased = at.new_buffer(DType::F32, 2 * channels);
        // The kernel that computes a batch's statistics also normalises; that result is stored in a temporary buffer.
        let half = at.precision() == Some(Precision::Half);
        let unused = at.new_buffer(if half { DType::F16 } else { DType::F32 }, len);
        let unused = StoreSpec::passthrough(unused, Slot::ONE);
        at.emit(Operation::Norm { p, x, affine: None, saved: biased.buf, y: unused });
        let running = self.running.map(|running| (running, at.new_buffer(DType::F32, 2 * channels)));
        let unbiased = running.map(|(_, unbiased)| unbiased.buf);
        at.sync_batch_stats(
            channels,
            ValueCount::Static(p.size()),
            SyncPayload::Moments { biased: biased.buf, unbiased },
        );
        at.save(biased);
        let p = p.given();
        at.store(|y| Operation::Norm { p, x, affine: Some([scale, shift]), saved: biased.buf, y })?;
        if let Some((running, unbiased)) = running {
            at.update_running_stats(running, 2 * channels, |y| unary(Unary::Id, unbiased.buf, y));
        }
        Ok(())
    }

    /// Emits the gradient. With m the mean over the values of all ranks, dx is the gradient for provided statistics of
    /// dy − m(dy) − x̂ · m(dy · x̂).
    pub(super) fn vjp_synced(
        &self, at: &mut Context<'_, '_, '_>, dy: Gradient, saved: BufferId,
    ) -> Result<(), TraceError> {
        let (p, channels, len) = (self.p.given(), at.node.shape.channels(), at.node.shape.len());
        let (x, weight) = (at.operand(0), at.operand(1).buf);
        let by = NormSaved { x: x.buf, saved, weight: Some(weight) };
        let sums = [at.new_buffer(DType::F32, channels), at.new_buffer(DType::F32, channels)];
        let unused = at.new_buffer(x.dtype, len);
        let affine = Some(sums.map(|sum| StoreSpec::passthrough(sum, dy.slot)));
        at.emit(Operation::NormVjp { p, x: by, dy: dy.value.buf, dx: StoreSpec::passthrough(unused, dy.slot), affine });
        for (i, sum) in [1, 2].into_iter().zip(sums) {
            if at.needs_grad(i) {
                at.emit_gradient(i, dy, GradientFlow::Cast, ScaleRule::None, |y| cast(sum.buf, y))?;
            }
        }
        if !at.needs_grad(0) {
            return Ok(());
        }
        let sums = sums.map(|sum| sum.buf);
        at.sync_batch_stats(channels, ValueCount::Static(p.size()), SyncPayload::Sums(sums));
        let rest = at.emit_temporary(len, dy.slot, |y| cast(dy.value.buf, y));
        let less = StoreSpec { add: true, ..StoreSpec::passthrough(Value::f32(rest, len), dy.slot) };
        at.emit(Operation::Norm { p, x: x.buf, affine: Some(sums), saved, y: less });
        let (dx, rule) = at.destination(0, dy, at.flow(), ScaleRule::FromValues)?;
        at.emit_with_scale_rule(rule, Operation::NormVjp { p, x: by, dy: rest, dx, affine: None });
        Ok(())
    }
}
