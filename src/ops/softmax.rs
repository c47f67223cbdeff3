//! Softmax over channels, in f32.

#[cfg(feature = "onnx")]
use super::sequence::before_end;
use super::{expand::together, sequence::within_steps};
#[cfg(feature = "onnx")]
use crate::onnx::{Is, Writer};
use crate::{
    TraceError, Var,
    error::TraceErrorKind,
    graph::{Context, Gradient, Node, Operation, Operator, ScaleRule, other_shape},
};
use gradscale_core::{
    backend::{DType, Data},
    ops::{GradientFlow, Op, ShapeError, Softmax, SoftmaxColumns},
};

/// Mask value that is added to hidden scores in ONNX models: the resulting e^x is 0, whatever the scores are. It is
/// finite, because some runtimes have no ∞.
#[cfg(feature = "onnx")]
const HIDDEN: f32 = -1e30;

impl<'t> Var<'t> {
    /// Computes the softmax e^x / Σ e^x over channels, in f32.
    ///
    /// # Errors
    /// No channels, or too many elements.
    pub fn softmax(self) -> Self {
        self.try_record(|| self.weights_of(SoftmaxColumns::All, &[]))
    }

    /// Computes a [`Var::softmax`] in which row i of each `[w, c]` matrix reads its first i + 1 columns only; the
    /// others are 0.
    ///
    /// # Errors
    /// No channels, or too many elements.
    pub fn causal_softmax(self) -> Self {
        self.try_record(|| self.weights_of(SoftmaxColumns::Causal, &[]))
    }

    /// Computes a [`Var::softmax`] in which all rows of sequence i read its first `lengths[i]` columns only; the
    /// others, and their gradients, are 0, whatever the scores are there. Lengths are integers `[n]`.
    ///
    /// ```
    /// use gradscale::{Input, Cpu, Method, Parameters, Trainer, optim::Sgd};
    /// let mut trainer = Trainer::new(Cpu::new(1)?, Parameters::seeded(1), Sgd::new(0.1), Method::mixed())?;
    /// // Weights of one query of each of two sequences over three positions, of which the second sequence has two.
    /// let batch = [Input::f32([2, 1, 1, 3], &[0.0; 6]), Input::u32([2], &[3, 2])];
    /// let weights = trainer.evaluate(batch, |[scores, lengths]| scores.softmax_within(lengths))?;
    /// assert_eq!(weights.data[3..], [0.5, 0.5, 0.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// No channels, too many elements, or another number of lengths than sequences. A length beyond the columns is an
    /// error of the step if it comes directly from the host.
    pub fn softmax_within(self, lengths: Self) -> Self {
        self.try_record(|| {
            if lengths.shape().len() != self.shape().sizes()[0] {
                return Err(other_shape("softmax", "lengths", lengths, [self.shape().sizes()[0]].into()));
            }
            self.weights_of(SoftmaxColumns::Within, &[lengths])
        })
    }

    /// Computes a [`Var::softmax`] over the columns at which the mask is above 0; the others, and their gradients, are 0,
    /// whatever the scores are there. The mask has integers or numbers, usually 0 and 1, in the shape of x; sizes of 1
    /// are repeated. A row without any such column is 0, as in torch's `scaled_dot_product_attention`.
    ///
    /// ```
    /// use gradscale::{Input, Cpu, Method, Parameters, Trainer, optim::Sgd};
    /// let mut trainer = Trainer::new(Cpu::new(1)?, Parameters::seeded(1), Sgd::new(0.1), Method::mixed())?;
    /// let batch = [Input::f32([2, 3], &[0.0; 6]), Input::u8([2, 3], &[1, 0, 1, 0, 0, 0])];
    /// let weights = trainer.evaluate(batch, |[scores, mask]| scores.softmax_where(mask))?;
    /// assert_eq!(weights.data, [0.5, 0.0, 0.5, 0.0, 0.0, 0.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// No channels, a mask of another shape, or too many elements.
    pub fn softmax_where(self, mask: Self) -> Self {
        self.try_record(|| {
            if together(self.shape(), mask.shape()) != Some(self.shape()) {
                return Err(other_shape("softmax", "mask", mask, self.shape()));
            }
            self.weights_of(SoftmaxColumns::Masked, &[mask.expand(self.shape())])
        })
    }

    /// Computes the logarithm of [`Var::softmax`] in f32, without overflow for any logit.
    ///
    /// # Errors
    /// No channels, or too many elements.
    pub fn log_softmax(self) -> Self {
        self.try_record(|| {
            self.sizes("log_softmax")?;
            if self.shape().channels() == 0 {
                return Err(TraceError::new("log_softmax", ShapeError::Empty));
            }
            Ok(self.record_op("log_softmax", Op::LogSoftmax, LogSoftmax, &[], self.shape()))
        })
    }

    fn weights_of(self, read: SoftmaxColumns, others: &[Self]) -> Result<Self, TraceError> {
        self.sizes("softmax")?;
        if self.shape().channels() == 0 {
            return Err(TraceError::new("softmax", ShapeError::Empty));
        }
        Ok(self.record_op(
            "softmax",
            Op::Softmax,
            Weights { read, columns: self.shape().channels() },
            others,
            self.shape(),
        ))
    }
}

/// Emits the gradient of a softmax, or of its logarithm, from its result.
fn emit_vjp(at: &mut Context<'_, '_, '_>, p: Softmax, dy: Gradient) -> Result<(), TraceError> {
    let Some(y) = at.result() else { return Ok(()) };
    at.emit_gradient(0, dy, GradientFlow::Cast, ScaleRule::FromSoftmax, |dx| Operation::SoftmaxVjp {
        p,
        y: y.buf,
        dy: dy.value.buf,
        dx,
    })
}

/// Operator of the softmax y = e^(x − max) / Σ e^(x − max), over the columns that a row reads. The second input has the
/// lengths or the mask of those that need one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Weights {
    read: SoftmaxColumns,
    columns: usize,
}

impl Weights {
    fn descriptor(self, node: &Node) -> Result<Softmax, TraceError> {
        let [n, h, w, c] = node.sizes()?;
        let shape = match self.read {
            SoftmaxColumns::All | SoftmaxColumns::Masked => [1, n * h * w, c],
            SoftmaxColumns::Causal => [n * h, w, c],
            SoftmaxColumns::Within => [n, h * w, c],
        };
        Softmax::new(shape, self.read).map_err(|error| node.error(error))
    }
}

impl Operator for Weights {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (p, x) = (self.descriptor(at.node)?, at.read(0)?.buf);
        let selection = match self.read {
            SoftmaxColumns::All | SoftmaxColumns::Causal => None,
            SoftmaxColumns::Within => Some(at.read_integers(1, "lengths", &[DType::U8, DType::U32])?.buf),
            SoftmaxColumns::Masked => Some(at.read_in(1, None)?.buf),
        };
        at.store(|y| Operation::Softmax { p, x, selection, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (mut x, [_, _, w, c]) = (at.x(0)?, at.node().shape.sizes());
        match self.read {
            SoftmaxColumns::All => {}
            SoftmaxColumns::Causal => {
                let mask: Vec<f32> = (0..w * c).map(|i| if i % c > i / c { HIDDEN } else { 0.0 }).collect();
                let mask = at.constant(&[1, 1, w, c], &mask);
                x = at.emit("Add", &[&x, &mask], &[]);
            }
            SoftmaxColumns::Within => {
                let before = before_end(at, 1, [1, 1, 1, c])?;
                let hidden = at.number(HIDDEN);
                let below = at.emit("Add", &[&x, &hidden], &[]);
                x = at.emit("Where", &[&before, &x, &below], &[]);
            }
            SoftmaxColumns::Masked => {
                let (mask, zero, hidden) = (at.x(1)?, at.number(0.0), at.number(HIDDEN));
                let is_set = at.emit("Greater", &[&mask, &zero], &[]);
                x = at.emit("Where", &[&is_set, &x, &hidden], &[]);
                let y = at.emit("Softmax", &[&x], &[("axis", Is::Int(-1))]);
                let y = at.emit("Where", &[&is_set, &y, &zero], &[]);
                at.set_output(y);
                return Ok(());
            }
        }
        let y = at.emit("Softmax", &[&x], &[("axis", Is::Int(-1))]);
        at.set_output(y);
        Ok(())
    }

    fn integers(&self) -> Option<usize> {
        matches!(self.read, SoftmaxColumns::Within | SoftmaxColumns::Masked).then_some(1)
    }

    fn check(&self, i: usize, data: Data<'_>) -> Result<(), TraceErrorKind> {
        if self.read == SoftmaxColumns::Within && i == 1 { within_steps(self.columns, data) } else { Ok(()) }
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        emit_vjp(at, self.descriptor(at.node)?, dy)
    }
}

/// Operator of the logarithm of softmax, y = x − max − ln Σ e^(x − max).
#[derive(Clone, Copy, Debug, PartialEq)]
struct LogSoftmax;

impl LogSoftmax {
    fn descriptor(node: &Node) -> Result<Softmax, TraceError> {
        let [n, h, w, c] = node.sizes()?;
        Softmax::logarithm(n * h * w, c).map_err(|error| node.error(error))
    }
}

impl Operator for LogSoftmax {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (p, x) = (Self::descriptor(at.node)?, at.read(0)?.buf);
        at.store(|y| Operation::Softmax { p, x, selection: None, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let x = at.x(0)?;
        let y = at.emit("LogSoftmax", &[&x], &[("axis", Is::Int(-1))]);
        at.set_output(y);
        Ok(())
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        emit_vjp(at, Self::descriptor(at.node)?, dy)
    }
}
