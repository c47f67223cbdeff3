//! Softmax over channels, in f32.

#[cfg(feature = "onnx")]
use super::sequence::before_end;
use super::{
    binary,
    expand::together,
    sequence::{places_left, within_steps},
    where_cond::conditions,
};
#[cfg(feature = "onnx")]
use crate::onnx::{Is, Writer};
use crate::{
    TraceError, Var,
    error::TraceErrorKind,
    graph::{BufferId, Context, Gradient, Operation, Operator, ScaleRule, StoreSpec, other_shape, unary},
};
use gradscale_core::{
    backend::{DType, Data, Slot},
    ops::{Binary, BinaryOp, Broadcast, Dim, GradientFlow, Op, Reduce, ReduceOp, ShapeError, Strided, Unary},
};

/// Mask value that is added to hidden scores: the resulting e^x is 0, whatever the scores are. It is finite, because
/// some devices have no ∞.
const HIDDEN: f32 = -1e30;

impl<'t> Var<'t> {
    /// Computes the softmax e^x / Σ e^x over channels, in f32.
    ///
    /// # Errors
    /// No channels, or too many elements.
    pub fn softmax(self) -> Self {
        self.try_record(|| self.weights_of(Seen::All, &[]))
    }

    /// Computes a [`Var::softmax`] in which row i of each `[w, c]` matrix reads its first i + 1 columns only; the
    /// others are 0.
    ///
    /// # Errors
    /// No channels, or too many elements.
    pub fn causal_softmax(self) -> Self {
        self.try_record(|| self.weights_of(Seen::Causal, &[]))
    }

    /// Computes a [`Var::softmax`] in which all rows of sequence i read its first `lengths[i]` columns only; the
    /// others, and their gradients, are 0. Lengths are integers `[n]`, at least 1; values in hidden columns must be
    /// finite.
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
            self.weights_of(Seen::Within, &[lengths])
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
            self.weights_of(Seen::Where, &[mask.expand(self.shape())])
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

    fn weights_of(self, seen: Seen, others: &[Self]) -> Result<Self, TraceError> {
        self.sizes("softmax")?;
        if self.shape().channels() == 0 {
            return Err(TraceError::new("softmax", ShapeError::Empty));
        }
        Ok(self.record_op(
            "softmax",
            Op::Softmax,
            Softmax { seen, columns: self.shape().channels() },
            others,
            self.shape(),
        ))
    }
}

/// Columns of a matrix over which the softmax of a row is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    /// All columns: no attention mask.
    All,
    /// First i + 1 columns, for row i.
    Causal,
    /// Columns before the end of the row's sequence: the second input has the lengths.
    Within,
    /// Columns at which the second input is above 0.
    Where,
}

/// Operator of the softmax y = e^(x − max) / Σ e^(x − max), over the columns that a row reads.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Softmax {
    seen: Seen,
    columns: usize,
}

impl Operator for Softmax {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let x = at.read(0)?.buf;
        let scores = match self.seen {
            Seen::All => x,
            Seen::Causal => hide(at, x)?,
            Seen::Within => hide_behind(at, x)?,
            Seen::Where => return masked(at, x),
        };
        let exp = exponentials(at, scores)?;
        let sum = of_rows(at, ReduceOp::Sum, exp, Slot::ONE)?;
        let p = binary::like(at.node, BinaryOp::Div, Broadcast::PerRow)?;
        at.store(|y| Operation::Binary { p, a: exp, b: sum, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (mut x, [_, _, w, c]) = (at.x(0)?, at.node().shape.sizes());
        match self.seen {
            Seen::All => {}
            Seen::Causal => {
                let mask: Vec<f32> = (0..w * c).map(|i| if i % c > i / c { HIDDEN } else { 0.0 }).collect();
                let mask = at.constant(&[1, 1, w, c], &mask);
                x = at.emit("Add", &[&x, &mask], &[]);
            }
            Seen::Within => {
                let before = before_end(at, 1, [1, 1, 1, c])?;
                let hidden = at.number(HIDDEN);
                let below = at.emit("Add", &[&x, &hidden], &[]);
                x = at.emit("Where", &[&before, &x, &below], &[]);
            }
            Seen::Where => {
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
        matches!(self.seen, Seen::Within | Seen::Where).then_some(1)
    }

    fn check(&self, i: usize, data: Data<'_>) -> Result<(), TraceErrorKind> {
        if self.seen == Seen::Within && i == 1 { within_steps(self.columns, data) } else { Ok(()) }
    }

    /// Emits the gradient of the softmax, dx = y·(dy − Σ dy·y).
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let Some(y) = at.result() else { return Ok(()) };
        let len = at.node.shape.len();
        let mul = binary::like(at.node, BinaryOp::Mul, Broadcast::All)?;
        let product = |a: BufferId| move |to: StoreSpec| Operation::Binary { p: mul, a, b: y.buf, y: to };
        let weighted = at.emit_temporary(len, dy.slot, product(dy.value.buf));
        let sum = of_rows(at, ReduceOp::Sum, weighted, dy.slot)?;
        let p = binary::like(at.node, BinaryOp::Sub, Broadcast::PerRow)?;
        let rest = at.emit_temporary(len, dy.slot, |y| Operation::Binary { p, a: dy.value.buf, b: sum, y });
        at.emit_gradient(0, dy, GradientFlow::Cast, ScaleRule::FromSoftmax, product(rest))
    }
}

/// Operator of the logarithm of softmax, y = x − max − ln Σ e^(x − max).
#[derive(Clone, Copy, Debug, PartialEq)]
struct LogSoftmax;

impl Operator for LogSoftmax {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let x = at.read(0)?.buf;
        let (len, rows) = (at.node.shape.len(), at.node.shape.rows());
        let most = of_rows(at, ReduceOp::Max, x, Slot::ONE)?;
        let p = binary::like(at.node, BinaryOp::Sub, Broadcast::PerRow)?;
        let below = at.emit_temporary(len, Slot::ONE, |y| Operation::Binary { p, a: x, b: most, y });
        let exp = at.emit_temporary(len, Slot::ONE, |y| unary(Unary::Exp, below, y));
        let sum = of_rows(at, ReduceOp::Sum, exp, Slot::ONE)?;
        let log = at.emit_temporary(rows, Slot::ONE, |y| unary(Unary::Ln, sum, y));
        at.store(|y| Operation::Binary { p, a: below, b: log, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let x = at.x(0)?;
        let y = at.emit("LogSoftmax", &[&x], &[("axis", Is::Int(-1))]);
        at.set_output(y);
        Ok(())
    }

    /// Emits the gradient of the logarithm of softmax, dx = dy − e^y·Σ dy.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let Some(y) = at.result() else { return Ok(()) };
        let len = at.node.shape.len();
        let sum = of_rows(at, ReduceOp::Sum, dy.value.buf, dy.slot)?;
        let exp = at.emit_temporary(len, Slot::ONE, |to| unary(Unary::Exp, y.buf, to));
        let p = binary::like(at.node, BinaryOp::Mul, Broadcast::PerRow)?;
        let share = at.emit_temporary(len, dy.slot, |y| Operation::Binary { p, a: exp, b: sum, y });
        let p = binary::like(at.node, BinaryOp::Sub, Broadcast::All)?;
        let a = dy.value.buf;
        at.emit_gradient(0, dy, GradientFlow::Cast, ScaleRule::FromSoftmax, |y| Operation::Binary { p, a, b: share, y })
    }
}

/// Emits e^(x − max) of each row.
fn exponentials(at: &mut Context<'_, '_, '_>, scores: BufferId) -> Result<BufferId, TraceError> {
    let len = at.node.shape.len();
    let most = of_rows(at, ReduceOp::Max, scores, Slot::ONE)?;
    let p = binary::like(at.node, BinaryOp::Sub, Broadcast::PerRow)?;
    let below = at.emit_temporary(len, Slot::ONE, |y| Operation::Binary { p, a: scores, b: most, y });
    Ok(at.emit_temporary(len, Slot::ONE, |y| unary(Unary::Exp, below, y)))
}

/// Emits the softmax over the columns at which the second input is above 0. The mask selects before and after, so that
/// hidden scores have no influence, and rows without a column are 0.
fn masked(at: &mut Context<'_, '_, '_>, x: BufferId) -> Result<(), TraceError> {
    let (mask, len) = (at.read_in(1, None)?, at.node.shape.len());
    let [is_set, is_clear] = conditions(at, mask)?;
    let select = binary::like(at.node, BinaryOp::Grad(Unary::Relu), Broadcast::All)?;
    let seen = at.emit_temporary(len, Slot::ONE, |y| Operation::Binary { p: select, a: is_set, b: x, y });
    let hidden = at.emit_temporary(len, Slot::ONE, |y| unary(Unary::Affine { a: HIDDEN, b: 0.0 }, is_clear, y));
    let p = binary::like(at.node, BinaryOp::Add, Broadcast::All)?;
    let scores = at.emit_temporary(len, Slot::ONE, |y| Operation::Binary { p, a: seen, b: hidden, y });
    let exp = exponentials(at, scores)?;
    let sum = of_rows(at, ReduceOp::Sum, exp, Slot::ONE)?;
    let p = binary::like(at.node, BinaryOp::Div, Broadcast::PerRow)?;
    let weights = at.emit_temporary(len, Slot::ONE, |y| Operation::Binary { p, a: exp, b: sum, y });
    at.store(|y| Operation::Binary { p: select, a: is_set, b: weights, y })
}

/// Emits a reduction of each row of x to one value.
fn of_rows(at: &mut Context<'_, '_, '_>, op: ReduceOp, x: BufferId, slot: Slot) -> Result<BufferId, TraceError> {
    let (rows, node) = (at.node.shape.rows(), at.node);
    let p = Reduce::new(op, node.size(rows)?, node.size(node.shape.channels())?, 1);
    let p = p.map_err(|error| node.error(error))?;
    Ok(at.emit_temporary(rows, slot, |y| Operation::Reduce { p, x, y }))
}

/// Emits scores with [`HIDDEN`] added above the diagonal of each matrix.
fn hide(at: &mut Context<'_, '_, '_>, x: BufferId) -> Result<BufferId, TraceError> {
    let node = at.node;
    let [n, h, w, c] = node.shape.sizes();
    let mask = (0..w * c).map(|i| if i % c > i / c { HIDDEN } else { 0.0 }).collect();
    let mask = at.constant(mask);
    let p = Binary::new(BinaryOp::Add, node.size(n * h)?, node.size(w * c)?, Broadcast::PerColumn);
    let p = p.map_err(|error| node.error(error))?;
    Ok(at.emit_temporary(node.shape.len(), Slot::ONE, |y| Operation::Binary { p, a: x, b: mask, y }))
}

/// Emits scores with [`HIDDEN`] added after the end of each sequence, whose lengths are the second input.
fn hide_behind(at: &mut Context<'_, '_, '_>, x: BufferId) -> Result<BufferId, TraceError> {
    let lengths = at.read_integers(1, "lengths", &[DType::U8, DType::U32])?.buf;
    let node = at.node;
    let [n, h, w, c] = node.sizes()?;
    let left = places_left(at, lengths, [n, 1, c, 1])?;
    // Distance of a position from the end: at least 1 after it, at most 0 before it.
    let places = n as usize * c as usize;
    let behind = at.emit_temporary(places, Slot::ONE, |y| unary(Unary::Affine { a: -1.0, b: 1.0 }, left, y));
    let behind = at.emit_temporary(places, Slot::ONE, |y| unary(Unary::Relu, behind, y));
    let mask = at.emit_temporary(places, Slot::ONE, |y| unary(Unary::Affine { a: HIDDEN, b: 0.0 }, behind, y));
    // The same for all rows of a sequence.
    let (rows, wide) = (h * w, i64::from(c));
    let dims = [
        Dim { len: n, x: wide, y: i64::from(rows) * wide },
        Dim { len: rows, x: 0, y: wide },
        Dim { len: c, x: 1, y: 1 },
    ];
    let p = Strided::new(&dims, 0, 0).map_err(|error| node.error(error))?;
    let mask = at.emit_temporary(node.shape.len(), Slot::ONE, |y| Operation::Copy { p, x: mask, y });
    let p = binary::like(node, BinaryOp::Add, Broadcast::All)?;
    Ok(at.emit_temporary(node.shape.len(), Slot::ONE, |y| Operation::Binary { p, a: x, b: mask, y }))
}
