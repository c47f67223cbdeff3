//! Batch normalisation of sequences, over the frames before their ends.

use super::{binary::like, sequence::places_left};
use crate::{
    Parameter, TraceError, Var,
    graph::{
        BufferId, Context, Gradient, Operation, Operator, ScaleRule, StoreSpec, SyncPayload, ValueCount, input,
        other_shape, unary,
    },
};
use gradscale_core::{
    amp::Precision,
    backend::{DType, NormSaved, Slot},
    ops::{Binary, BinaryOp, Broadcast, Dim, GradientFlow, Norm, NormOver, Op, Reduce, ReduceOp, Strided, Unary},
};

impl<'t> Var<'t> {
    /// Batch-normalises x `[n, t, w, c]`, frames of width w, with mean and variance over the frames before each
    /// sequence's end. Values after it have no influence, and no gradient. In evaluation it uses running statistics.
    pub(crate) fn norm_frames(
        self, name: &str, eps: f32, affine: [Self; 2], running: &Parameter, lengths: Self,
    ) -> Self {
        if !self.tape().training() {
            let norm = |shape| Norm::new(shape, NormOver::Batch, eps);
            return self.norm(name, Op::BatchNorm, norm, affine, Some(running));
        }
        self.try_record(|| {
            let sizes = self.sizes(name)?;
            let p = Norm::new(sizes, NormOver::Batch, eps).map_err(|error| input(name, error, self.shape()))?;
            let [scale, shift] = affine;
            if let Some(one) = affine.iter().find(|one| one.shape().len() != self.shape().channels()) {
                return Err(other_shape(name, "scale or shift", *one, [self.shape().channels()].into()));
            }
            if lengths.shape().len() != self.shape().sizes()[0] {
                return Err(other_shape(name, "lengths", lengths, [self.shape().sizes()[0]].into()));
            }
            self.tape().check(running);
            let running = self.tape().updates_running_stats().then_some(running.id);
            let norm = NormFrames { p: p.given(), running };
            Ok(self.record_named_op(name.to_owned(), Op::BatchNorm, norm, &[scale, shift, lengths], self.shape()))
        })
    }
}

/// Operator of the batch norm of sequences, with inputs x, scale, shift and lengths. Statistics are computed before and
/// passed to the normalisation.
#[derive(Clone, Copy, Debug, PartialEq)]
struct NormFrames {
    p: Norm,
    running: Option<usize>,
}

/// Values that both passes of the batch norm of sequences compute: frames before the ends.
struct Frames {
    /// Number of frames left until the end of the sequence: positive before it.
    left: BufferId,
    /// Number of values of a channel before the ends, a scalar.
    count: BufferId,
}

impl NormFrames {
    fn frames(&self, at: &mut Context<'_, '_, '_>) -> Result<Frames, TraceError> {
        let ([n, t, w, c], lengths) = (self.p.x(), at.operand(3).buf);
        let left = places_left(at, lengths, [n, 1, t, w * c])?;
        let numbers = at.emit_temporary(n as usize, Slot::ONE, |y| unary(Unary::Id, lengths, y));
        let p = Reduce::new(ReduceOp::Sum, 1, n, 1).map_err(|error| at.node.error(error))?;
        let frames = at.emit_temporary(1, Slot::ONE, |y| Operation::Reduce { p, x: numbers, y });
        #[expect(clippy::cast_precision_loss, reason = "a width")]
        let width = Unary::Affine { a: w as f32, b: 0.0 };
        let count = at.emit_temporary(1, Slot::ONE, |y| unary(width, frames, y));
        Ok(Frames { left, count })
    }

    /// Emits x before the ends of the sequences, and 0 after them.
    fn before(
        &self, at: &mut Context<'_, '_, '_>, frames: &Frames, x: BufferId, slot: Slot,
    ) -> Result<BufferId, TraceError> {
        let p = like(at.node, BinaryOp::Grad(Unary::Relu), Broadcast::All)?;
        let (a, len) = (frames.left, at.node.shape.len());
        Ok(at.emit_temporary(len, slot, |y| Operation::Binary { p, a, b: x, y }))
    }

    /// Emits a sum over the values of each channel.
    fn sum(&self, at: &mut Context<'_, '_, '_>, op: ReduceOp, x: BufferId, slot: Slot) -> Result<BufferId, TraceError> {
        let (rows, channels) = (at.node.size(at.node.shape.rows())?, self.p.x()[3]);
        let p = Reduce::new(op, 1, rows, channels).map_err(|error| at.node.error(error))?;
        Ok(at.emit_temporary(channels as usize, slot, |y| Operation::Reduce { p, x, y }))
    }

    /// Emits the sum over the values of each channel, divided by a scalar.
    fn mean(
        &self, at: &mut Context<'_, '_, '_>, op: ReduceOp, x: BufferId, count: BufferId, slot: Slot,
    ) -> Result<BufferId, TraceError> {
        let (sum, channels) = (self.sum(at, op, x, slot)?, self.p.x()[3]);
        let p = Binary::new(BinaryOp::Div, 1, channels, Broadcast::One).map_err(|error| at.node.error(error))?;
        Ok(at.emit_temporary(channels as usize, slot, |y| Operation::Binary { p, a: sum, b: count, y }))
    }

    /// Emits a function of each value of x and one value of its channel.
    fn by_channel(
        &self, at: &mut Context<'_, '_, '_>, op: BinaryOp, [a, b]: [BufferId; 2], slot: Slot,
    ) -> Result<BufferId, TraceError> {
        let (p, len) = (like(at.node, op, Broadcast::PerColumn)?, at.node.shape.len());
        Ok(at.emit_temporary(len, slot, |y| Operation::Binary { p, a, b, y }))
    }

    /// Concatenates means and variances to one tensor of the program.
    fn both(&self, at: &mut Context<'_, '_, '_>, parts: [BufferId; 2]) -> Result<crate::graph::Value, TraceError> {
        let channels = self.p.x()[3];
        let both = at.new_buffer(DType::F32, 2 * channels as usize);
        for (x, start) in parts.into_iter().zip([0, channels]) {
            let p = Strided::new(&[Dim { len: channels, x: 1, y: 1 }], 0, start);
            let p = p.map_err(|error| at.node.error(error))?;
            at.emit(Operation::Copy { p, x, y: StoreSpec::passthrough(both, Slot::ONE) });
        }
        Ok(both)
    }
}

impl Operator for NormFrames {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let p = self.p;
        let x = at.read(0)?.buf;
        let [scale, shift] = [at.read_in(1, Some(Precision::Single))?.buf, at.read_in(2, Some(Precision::Single))?.buf];
        at.read_integers(3, "lengths", &[DType::U8, DType::U32])?;
        let frames = self.frames(at)?;
        let x = self.before(at, &frames, x, Slot::ONE)?;
        let mean = self.mean(at, ReduceOp::Sum, x, frames.count, Slot::ONE)?;
        let centred = self.by_channel(at, BinaryOp::Sub, [x, mean], Slot::ONE)?;
        let centred = self.before(at, &frames, centred, Slot::ONE)?;
        let variance = self.mean(at, ReduceOp::SumSquares, centred, frames.count, Slot::ONE)?;
        let saved = self.both(at, [mean, variance])?;
        at.save(saved);
        let running = self.running.filter(|_| at.purpose().is_training());
        let world = at.syncs_batch_norm().then(|| at.new_buffer(DType::F32, saved.len));
        if let Some(unbiased) = world {
            let payload = SyncPayload::Moments { biased: saved.buf, unbiased: running.map(|_| unbiased.buf) };
            at.sync_batch_stats(p.x()[3] as usize, ValueCount::OnDevice(frames.count), payload);
        }
        at.store(|y| Operation::Norm { p, x, affine: Some([scale, shift]), saved: saved.buf, y })?;
        if let (Some(running), Some(unbiased)) = (running, world) {
            at.update_running_stats(running, unbiased.len, |y| unary(Unary::Id, unbiased.buf, y));
        } else if let Some(running) = running {
            // The running variance is unbiased, as in PyTorch: divided by n − 1, and by 1 for one value.
            let (fewer, one) = (Unary::Affine { a: 1.0, b: -1.0 }, at.constant(vec![1.0]));
            let fewer = at.emit_temporary(1, Slot::ONE, |y| unary(fewer, frames.count, y));
            let most = Binary::new(BinaryOp::Max, 1, 1, Broadcast::One).map_err(|error| at.node.error(error))?;
            let count = at.emit_temporary(1, Slot::ONE, |y| Operation::Binary { p: most, a: fewer, b: one, y });
            let unbiased = self.mean(at, ReduceOp::SumSquares, centred, count, Slot::ONE)?;
            let both = self.both(at, [mean, unbiased])?;
            at.update_running_stats(running, both.len, |y| unary(Unary::Id, both.buf, y));
        }
        Ok(())
    }

    fn integers(&self) -> Option<usize> {
        Some(3)
    }

    /// Computes dx = g − mean g − x̂·mean(g·x̂), with g the gradient for provided statistics and x̂ the normalised
    /// values.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let Some(saved) = at.saved() else { return Ok(()) };
        let (p, weight, len, slot) = (self.p, at.operand(1).buf, at.node.shape.len(), dy.slot);
        let frames = self.frames(at)?;
        let x = self.before(at, &frames, at.operand(0).buf, Slot::ONE)?;
        let dy_before = self.before(at, &frames, dy.value.buf, slot)?;
        let plain = at.new_buffer(DType::F32, len);
        let mut of_channels = |i: usize| {
            if at.needs_grad(i) {
                return Ok(at.destination(i, dy, GradientFlow::Cast, ScaleRule::None)?.0);
            }
            let unused = at.new_buffer(DType::F32, at.node.shape.channels());
            Ok(StoreSpec::passthrough(unused, slot))
        };
        let affine = Some([of_channels(1)?, of_channels(2)?]);
        let args = NormSaved { x, saved: saved.buf, weight: Some(weight) };
        at.emit(Operation::NormVjp { p, x: args, dy: dy_before, dx: StoreSpec::passthrough(plain, slot), affine });
        if !at.needs_grad(0) {
            return Ok(());
        }
        let normal = at.emit_temporary(len, Slot::ONE, |y| Operation::Norm { p, x, affine: None, saved: saved.buf, y });
        let all = like(at.node, BinaryOp::Mul, Broadcast::All)?;
        let weighted = at.emit_temporary(len, slot, |y| Operation::Binary { p: all, a: plain.buf, b: normal, y });
        // With several ranks, the negated means over all ranks are received.
        let (means, less) = if at.syncs_batch_norm() {
            let first = self.sum(at, ReduceOp::Sum, plain.buf, slot)?;
            let sums = [first, self.sum(at, ReduceOp::Sum, weighted, slot)?];
            at.sync_batch_stats(p.x()[3] as usize, ValueCount::OnDevice(frames.count), SyncPayload::Sums(sums));
            (sums, BinaryOp::Add)
        } else {
            let mean = self.mean(at, ReduceOp::Sum, plain.buf, frames.count, slot)?;
            ([mean, self.mean(at, ReduceOp::Sum, weighted, frames.count, slot)?], BinaryOp::Sub)
        };
        let [mean, slope] = means;
        let all = like(at.node, less, Broadcast::All)?;
        let less = self.by_channel(at, less, [plain.buf, mean], slot)?;
        let part = self.by_channel(at, BinaryOp::Mul, [normal, slope], slot)?;
        let dx = at.emit_temporary(len, slot, |y| Operation::Binary { p: all, a: less, b: part, y });
        let select = like(at.node, BinaryOp::Grad(Unary::Relu), Broadcast::All)?;
        let a = frames.left;
        at.emit_gradient(0, dy, at.flow(), ScaleRule::FromValues, |y| Operation::Binary { p: select, a, b: dx, y })
    }
}
