//! One-hot encoding of labels.

use super::{binary::like, embedding::with_channels, smooth::chain};
#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{
    TraceError, Var,
    error::TraceErrorKind,
    graph::{Context, Gradient, Operation, Operator, mismatch, size, sizes, unary},
};
use gradscale_core::{
    backend::{DType, Data, Slot},
    ops::{BinaryOp, Broadcast, Dim, Op, Strided, Unary},
};

/// Largest integer up to which every integer is an f32, 2^24.
const MAX_EXACT_INTEGER: u32 = 1 << 24;

impl Var<'_> {
    /// Encodes each label (u8 or u32) as a one-hot vector of `classes` values: `[n]` gives `[n, classes]`, `[n, t]`
    /// gives `[n, 1, t, classes]`, `[n, h, w]` gives `[n, h, w, classes]`. No gradient flows back.
    ///
    /// A label that is not a class is an error of the step if it comes directly from the host. A label that was
    /// computed or prefetched gives zeros.
    ///
    /// ```
    /// use gradscale::{Input, Cpu, Method, Parameters, Trainer, optim::Sgd};
    /// let mut trainer = Trainer::new(Cpu::new(1)?, Parameters::seeded(1), Sgd::new(0.1), Method::mixed())?;
    /// let y = trainer.evaluate([Input::u8([2], &[2, 0])], |[labels]| labels.one_hot(3))?;
    /// assert_eq!(y.data, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// No classes or more than 2^24, labels that are not integers or whose shape has no size of 1, or too many
    /// elements.
    pub fn one_hot(self, classes: usize) -> Self {
        self.try_record(|| {
            let name = "one_hot";
            let count = size(name, classes)?;
            if !(1..=MAX_EXACT_INTEGER).contains(&count) {
                let words = format!("expected 1 to {MAX_EXACT_INTEGER} classes, not {classes}");
                return Err(TraceError::new(name, TraceErrorKind::Range(words)));
            }
            let shape = with_channels(self.shape(), classes);
            let shape = shape.ok_or_else(|| mismatch(name, "labels", self, [None, None, None, Some(1)]))?;
            sizes(name, shape)?;
            Ok(self.record_op(name, Op::OneHot, OneHot(count), &[], shape))
        })
    }
}

/// Operator of the one-hot encoding, with this number of classes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct OneHot(u32);

impl Operator for OneHot {
    /// Emits the one-hot encoding max(1 − |label − class|, 0), which is exact for integers.
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let labels = at.read_integers(0, "labels", &[DType::U8, DType::U32])?.buf;
        let (node, classes) = (at.node, self.0);
        let rows = Dim { len: node.size(node.shape.rows())?, x: 1, y: classes.into() };
        let p = Strided::new(&[rows, Dim { len: classes, x: 0, y: 1 }], 0, 0).map_err(|error| node.error(error))?;
        let len = node.shape.len();
        let wide = at.emit_temporary(len, Slot::ONE, |y| Operation::Copy { p, x: labels, y });
        #[expect(clippy::cast_precision_loss, reason = "at most 2^24")]
        let all = at.constant((0..classes).map(|class| class as f32).collect());
        let p = like(node, BinaryOp::Sub, Broadcast::PerColumn)?;
        let apart = at.emit_temporary(len, Slot::ONE, |y| Operation::Binary { p, a: wide, b: all, y });
        let near = chain(at, apart, &[Unary::Abs, Unary::Affine { a: -1.0, b: 1.0 }]);
        at.store(|y| unary(Unary::Relu, near, y))
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let ((labels, len), sizes) = ((at.integers(0)?, at.shape(0).len()), at.node().shape.sizes());
        let labels = at.reshape(&labels, &[len]);
        let (depth, values) = (at.ints(&[self.0.into()]), at.constant(&[2], &[0.0, 1.0]));
        let y = at.emit("OneHot", &[&labels, &depth, &values], &[]);
        let y = at.reshape(&y, &sizes);
        at.set_output(y);
        Ok(())
    }

    fn is_differentiable(&self) -> bool {
        false
    }

    fn integers(&self) -> Option<usize> {
        Some(0)
    }

    fn check(&self, _: usize, data: Data<'_>) -> Result<(), TraceErrorKind> {
        let classes = self.0;
        let found = match data {
            Data::U8(all) => all.iter().map(|&label| label.into()).enumerate().find(|(_, label)| *label >= classes),
            Data::U32(all) => all.iter().copied().enumerate().find(|(_, label)| *label >= classes),
            Data::F32(_) | Data::F16(_) => None,
        };
        found.map_or(Ok(()), |(row, label)| Err(TraceErrorKind::Label { label, row, classes }))
    }

    fn vjp(&self, _: &mut Context<'_, '_, '_>, _: Gradient) -> Result<(), TraceError> {
        Ok(())
    }
}
