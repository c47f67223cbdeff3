//! Cross-entropy of a softmax: a scalar, in f32.

use crate::{
    Shape, TraceError, Var,
    error::TraceErrorKind,
    graph::{Context, Gradient, Operation, Operator, ScaleRule, StoreSpec, other_shape, size},
};
use gradscale_core::{
    amp::Precision,
    backend::{CrossEntropyArgs, DType, Data, Slot},
    ops::{self, CrossEntropyRow, Divisor, GradientFlow, Op, Strided},
};

/// Options of a cross-entropy: weights, ignored label, divisor.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<'t> {
    /// Optional weight of each class in the loss, `[classes]`.
    pub weights: Option<Var<'t>>,
    /// Label whose rows the loss ignores, if there is one.
    pub ignore: Option<u32>,
    /// Divisor of the sum of the rows' losses.
    pub divisor: Divisor,
}

impl Default for CrossEntropy<'_> {
    /// Returns the default options: the mean loss over all rows.
    fn default() -> Self {
        Self { weights: None, ignore: None, divisor: Divisor::Rows }
    }
}

impl<'t> Var<'t> {
    /// Computes the mean cross-entropy of the softmax over channels; labels `[n, h, w]` or `[n]` (u8 or u32), one for
    /// each row.
    ///
    /// A label that is not a class is an error of the step if it comes directly from the host. A label that was
    /// computed or prefetched makes the loss NaN.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn cross_entropy(self, labels: Self) -> Self {
        self.cross_entropy_with(labels, &CrossEntropy::default())
    }

    /// Computes the cross-entropy with class weights, an ignored label or another divisor.
    ///
    /// # Errors
    /// Shapes that do not fit, a divisor that is not positive.
    pub fn cross_entropy_with(self, labels: Self, options: &CrossEntropy<'t>) -> Self {
        self.try_record(|| {
            let name = "cross_entropy";
            let (rows, classes) = (self.shape().rows(), self.shape().channels());
            if labels.shape().len() != rows {
                let [n, h, w, _] = self.shape().sizes();
                return Err(other_shape(name, "labels", labels, [n, h, w, 1].into()));
            }
            if let Some(weights) = options.weights.filter(|weights| weights.shape().len() != classes) {
                return Err(other_shape(name, "class weights", weights, [classes].into()));
            }
            let build = || {
                let p = ops::CrossEntropy::new(size(name, rows)?, size(name, classes)?)
                    .map_err(|error| TraceError::new(name, error))?;
                let p = options.ignore.map_or(p, |label| p.ignoring(label));
                p.divided_by(options.divisor).map_err(|error| TraceError::new(name, error))
            };
            let others: Vec<Self> = std::iter::once(labels).chain(options.weights).collect();
            Ok(self.record_op(name, Op::CrossEntropy, build()?, &others, Shape::SCALAR))
        })
    }
}

/// Impl of the cross-entropy operator, with inputs logits, labels and optional class weights.
impl Operator for ops::CrossEntropy {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (p, node) = (*self, at.node);
        let logits = at.read(0)?.buf;
        let labels = at.read_integers(1, "labels", &[DType::U8, DType::U32])?.buf;
        let weights = match node.inputs.get(2) {
            Some(_) => Some(at.read_in(2, Some(Precision::Single))?.buf),
            None => None,
        };
        let out = at.new_buffer(DType::F32, 2 + p.shape()[0] as usize);
        at.emit(Operation::CrossEntropy { p, x: CrossEntropyArgs { logits, labels, weights }, out: out.buf });
        at.save(out);
        let loss = at.new_buffer(DType::F32, 1);
        let first = Strided::new(&[], 0, 0).map_err(|error| node.error(error))?;
        at.emit(Operation::Copy { p: first, x: out.buf, y: StoreSpec::passthrough(loss, Slot::ONE) });
        at.set_output(loss);
        Ok(())
    }

    fn integers(&self) -> Option<usize> {
        Some(1)
    }

    fn is_loss(&self) -> bool {
        true
    }

    /// Rejects labels that are neither classes nor ignored. A device can only return NaN for them, without the label.
    fn check(&self, i: usize, data: Data<'_>) -> Result<(), TraceErrorKind> {
        if i != 1 {
            return Ok(());
        }
        let invalid = |label: u32| self.row(label) == CrossEntropyRow::Invalid;
        let found = match data {
            Data::U8(all) => all.iter().map(|&label| label.into()).enumerate().find(|(_, label)| invalid(*label)),
            Data::U32(all) => all.iter().copied().enumerate().find(|(_, label)| invalid(*label)),
            Data::F32(_) | Data::F16(_) => None,
        };
        let [_, classes] = self.shape();
        found.map_or(Ok(()), |(row, label)| Err(TraceErrorKind::Label { label, row, classes }))
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let Some(out) = at.saved() else { return Ok(()) };
        let weights = at.node.inputs.get(2).map(|_| at.operand(2).buf);
        let x = CrossEntropyArgs { logits: at.operand(0).buf, labels: at.operand(1).buf, weights };
        let (p, out, g) = (*self, out.buf, dy.value.buf);
        at.emit_gradient(0, dy, GradientFlow::Cast, ScaleRule::FromSoftmax, |dx| Operation::CrossEntropyVjp {
            p,
            x,
            out,
            g,
            dx,
        })
    }
}
