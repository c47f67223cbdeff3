//! Connectionist temporal classification: how likely frames say a target.

use crate::{
    Shape, TraceError, Var,
    error::TraceErrorKind,
    graph::{Context, Gradient, Operation, Operator, Rule, input, mismatch, size},
};
use gradscale_core::{
    backend::{CtcArgs, DType, Data},
    ops::{Binary, BinaryOp, Broadcast, Ctc, Flow, Op, ReduceOp},
};
use std::ops::Range;

impl Var<'_> {
    /// The mean of [`Var::ctc_losses`] over the sequences of the batch, however long they are. (PyTorch's mean divides each
    /// loss by the letters of its target before: `ctc_losses` times weights does that.)
    ///
    /// # Errors
    /// Those of [`Var::ctc_losses`].
    pub fn ctc_loss(
        self, targets: Self, input_lengths: Self, target_lengths: Self, blank: u32, zero_infinity: bool,
    ) -> Self {
        let losses = self.ctc_losses(targets, input_lengths, target_lengths, blank, zero_infinity);
        losses.reduce("ctc_loss", Op::CtcLoss, ReduceOp::Mean)
    }

    /// −ln of the probability that the frames of each sequence say its target (Graves et al. 2006), `[n]`: PyTorch's
    /// `ctc_loss` of a `log_softmax`, with `reduction="none"`. It begins here, at logits `[n, 1, t, classes]`, and in f32; its gradient is probabilities less shares of alignments, and where logits are half a cast
    /// site behind a softmax.
    ///
    /// Targets are words (u32) `[n, letters]`, lengths of inputs and of targets words `[n]`; what stands behind an end is
    /// not looked at. With `zero_infinity` a target that needs more frames counts as 0 and has no gradient. Without it, as
    /// by PyTorch's default, its loss is ∞ and its gradient NaN, so the whole batch is skipped. [`Ctc::least_frames`] returns
    /// the frames that a target needs. A letter that is the blank or no class makes the loss NaN. A length beyond the tensor is an error of
    /// the step if it came from the host as it is, else the loss is NaN.
    ///
    /// ```
    /// use gradscale::{Input, Cpu, Method, Parameters, Trainer, optim::Sgd};
    /// let mut trainer = Trainer::new(Cpu::new(1)?, Parameters::seeded(1), Sgd::new(0.1), Method::mixed())?;
    /// // Two frames of three classes, all alike: "1" is said by 1 1, 1 0 and 0 1, three alignments of nine.
    /// let batch = [Input::f32([1, 2, 3], &[0.5; 6]), Input::u32([1, 1], &[1]), Input::u32([1], &[2]), Input::u32([1], &[1])];
    /// let loss = trainer.evaluate(batch, |[x, targets, frames, letters]| x.ctc_losses(targets, frames, letters, 0, true))?;
    /// assert!((loss.data[0] - 3f32.ln()).abs() < 1e-6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Shapes that do not fit, a blank that is no class.
    pub fn ctc_losses(
        self, targets: Self, input_lengths: Self, target_lengths: Self, blank: u32, zero_infinity: bool,
    ) -> Self {
        self.traced(|| {
            let name = "ctc_loss";
            let [batch, one, frames, classes] = self.sizes(name)?;
            let n = batch as usize;
            if one != 1 {
                return Err(mismatch(name, self.shape(), targets.shape()));
            }
            if let Some(lengths) = [input_lengths, target_lengths].iter().find(|lengths| lengths.shape().len() != n) {
                return Err(mismatch(name, lengths.shape(), self.shape()));
            }
            let letters = targets.shape().len().checked_div(n).unwrap_or(0);
            if targets.shape().len() != n * letters {
                return Err(mismatch(name, targets.shape(), self.shape()));
            }
            let p = Ctc::new([batch, frames, classes], size(name, letters)?, blank);
            let p = p.map_err(|error| input(name, error, self.shape()))?.with_zero_infinity(zero_infinity);
            Ok(self.then(name, Op::CtcLoss, p, &[targets, input_lengths, target_lengths], Shape::from([n])))
        })
    }
}

/// Logits, targets, lengths of inputs, lengths of targets.
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
            (at.purpose().is_training() && at.wants(0)).then(|| at.new_buffer(DType::F32, at.input(0).len()));
        at.emit(Operation::Ctc { p, x, losses: losses.buf, gradient: gradient.map(|gradient| gradient.buf) });
        if let Some(gradient) = gradient {
            at.save(gradient);
        }
        at.give(losses);
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
        let words = |i: usize| format!("sequence {i} of the batch has {} {what}, and there is room for {room}", all[i]);
        all.iter().position(|&len| len > room).map_or(Ok(()), |i| Err(TraceErrorKind::Range(words(i))))
    }

    /// The gradient of each sequence's loss, which is there, times that of the whole.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let Some(gradient) = at.saved() else { return Ok(()) };
        let [batch, frames, classes] = self.logits();
        let p = Binary::new(BinaryOp::Mul, batch, frames * classes, Broadcast::PerRow);
        let p = p.map_err(|error| at.node.error(error))?;
        let (a, b) = (gradient.buf, dy.value.buf);
        at.emit_gradient(0, dy, Flow::Site, Rule::Softmax, |y| Operation::Binary { p, a, b, y })
    }
}
