//! Connectionist temporal classification: likelihood of a target, given frames.

use crate::{
    Shape, TraceError, Var,
    error::TraceErrorKind,
    graph::{Context, Gradient, Operation, Operator, ScaleRule, input, mismatch, other_shape, size},
};
use gradscale_core::{
    backend::{CtcArgs, DType, Data},
    ops::{Binary, BinaryOp, Broadcast, Ctc, GradientFlow, Op, ReduceOp},
};
use std::ops::Range;

impl Var<'_> {
    /// Computes the mean of [`Var::ctc_losses`] over the sequences of the batch, independent of their lengths.
    /// (PyTorch's mean first divides each loss by the number of letters of its target: use `ctc_losses` times weights
    /// for that.)
    ///
    /// # Errors
    /// See [`Var::ctc_losses`].
    pub fn ctc_loss(
        self, targets: Self, input_lengths: Self, target_lengths: Self, blank: u32, zero_infinity: bool,
    ) -> Self {
        let losses = self.ctc_losses(targets, input_lengths, target_lengths, blank, zero_infinity);
        losses.reduce("ctc_loss", Op::CtcLoss, ReduceOp::Mean)
    }

    /// Computes −ln of the probability of each sequence's target, given its frames (Graves et al. 2006), `[n]`. It
    /// equals PyTorch's `ctc_loss` of a `log_softmax`, with `reduction="none"`. It reads logits `[n, 1, t, classes]`
    /// and computes in f32. Its gradient is probabilities minus shares of alignments; if the logits are half, its cast
    /// is a site like that after a softmax.
    ///
    /// Targets are words (u32) `[n, letters]`, lengths of inputs and of targets words `[n]`; values after an end are
    /// not read. With `zero_infinity` a target that needs more frames counts as 0 and has no gradient. Without it, as
    /// by PyTorch's default, its loss is ∞ and its gradient NaN, so the whole batch is skipped. [`Ctc::least_frames`]
    /// returns the frames that a target needs. A letter that is the blank or not a class makes the loss NaN. A length
    /// beyond the tensor is an error of the step if it comes directly from the host, else the loss is NaN.
    ///
    /// ```
    /// use gradscale::{Input, Cpu, Method, Parameters, Trainer, optim::Sgd};
    /// let mut trainer = Trainer::new(Cpu::new(1)?, Parameters::seeded(1), Sgd::new(0.1), Method::mixed())?;
    /// // Two frames of three equally likely classes: the alignments 1 1, 1 0 and 0 1, three of nine, produce "1".
    /// let batch = [Input::f32([1, 2, 3], &[0.5; 6]), Input::u32([1, 1], &[1]), Input::u32([1], &[2]), Input::u32([1], &[1])];
    /// let loss = trainer.evaluate(batch, |[x, targets, frames, letters]| x.ctc_losses(targets, frames, letters, 0, true))?;
    /// assert!((loss.data[0] - 3f32.ln()).abs() < 1e-6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Shapes that do not fit, or a blank that is not a class.
    pub fn ctc_losses(
        self, targets: Self, input_lengths: Self, target_lengths: Self, blank: u32, zero_infinity: bool,
    ) -> Self {
        self.try_record(|| {
            let name = "ctc_loss";
            let [batch, one, frames, classes] = self.sizes(name)?;
            let n = batch as usize;
            if one != 1 {
                return Err(mismatch(name, "logits", self, [None, Some(1), None, None]));
            }
            if let Some(lengths) = [input_lengths, target_lengths].iter().find(|lengths| lengths.shape().len() != n) {
                return Err(other_shape(name, "lengths", *lengths, [n].into()));
            }
            let letters = targets.shape().len().checked_div(n).unwrap_or(0);
            if targets.shape().len() != n * letters {
                return Err(mismatch(name, "targets", targets, [Some(n), Some(1), Some(1), None]));
            }
            let p = Ctc::new([batch, frames, classes], size(name, letters)?, blank);
            let p = p.map_err(|error| input(name, error, self.shape()))?.with_zero_infinity(zero_infinity);
            Ok(self.record_op(name, Op::CtcLoss, p, &[targets, input_lengths, target_lengths], Shape::from([n])))
        })
    }
}

/// Impl of the CTC loss operator, with inputs logits, targets, lengths of inputs and lengths of targets.
impl Operator for Ctc {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (p, [batch, ..]) = (*self, self.logits());
        let logits = at.read(0)?.buf;
        let [targets, input_lengths, target_lengths] =
            [(1, "targets"), (2, "lengths of inputs"), (3, "lengths of targets")]
                .map(|(i, what)| at.read_integers(i, what, &[DType::U32]).map(|value| value.buf));
        let x = CtcArgs { logits, targets: targets?, input_lengths: input_lengths?, target_lengths: target_lengths? };
        let losses = at.new_buffer(DType::F32, batch as usize);
        let gradient =
            (at.purpose().is_training() && at.needs_grad(0)).then(|| at.new_buffer(DType::F32, at.input(0).len()));
        at.emit(Operation::Ctc { p, x, losses: losses.buf, gradient: gradient.map(|gradient| gradient.buf) });
        if let Some(gradient) = gradient {
            at.save(gradient);
        }
        at.set_output(losses);
        Ok(())
    }

    fn integers(&self) -> Option<usize> {
        Some(1)
    }

    fn lengths(&self) -> Range<usize> {
        2..4
    }

    fn is_loss(&self) -> bool {
        true
    }

    fn check(&self, i: usize, data: Data<'_>) -> Result<(), TraceErrorKind> {
        let [_, frames, _] = self.logits();
        let (what, room) = match i {
            2 => ("frames", frames),
            3 => ("letters", self.letters()),
            _ => return Ok(()),
        };
        let Data::U32(all) = data else { return Ok(()) };
        let words =
            |i: usize| format!("sequence {i} of the batch has {} {what}, more than the {room} of its tensor", all[i]);
        all.iter().position(|&len| len > room).map_or(Ok(()), |i| Err(TraceErrorKind::Range(words(i))))
    }

    /// Multiplies the gradient of each sequence's loss, which the forward pass computed, by that of the result.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let Some(gradient) = at.saved() else { return Ok(()) };
        let [batch, frames, classes] = self.logits();
        let p = Binary::new(BinaryOp::Mul, batch, frames * classes, Broadcast::PerRow);
        let p = p.map_err(|error| at.node.error(error))?;
        let (a, b) = (gradient.buf, dy.value.buf);
        at.emit_gradient(0, dy, GradientFlow::Cast, ScaleRule::FromSoftmax, |y| Operation::Binary { p, a, b, y })
    }
}
