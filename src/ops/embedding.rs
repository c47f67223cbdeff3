//! Embedding lookup.

#[cfg(feature = "onnx")]
use crate::onnx::{Is, Writer};
use crate::{
    Shape, TraceError, Var,
    graph::{Context, Gradient, Operation, Operator, ScaleRule, mismatch, size},
};
use gradscale_core::{
    backend::DType,
    ops::{GatherScatter, GradientFlow, Op, Rows},
};

impl<'t> Var<'t> {
    /// Looks up the row of a table `[rows, width]` for each index. Indices are words (u32), `[n, t]` or of another
    /// shape with a size of 1, which becomes the width: `[n, t]` gives `[n, 1, t, width]`, `[n, h, w, 1]` gives
    /// `[n, h, w, width]`. An index beyond the table gives zeros. The table's gradient is accumulated in f32.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn embedding(self, name: &str, indices: Self) -> Self {
        self.try_record(|| {
            let [rows, .., width] = self.shape().sizes();
            let shape = with_channels(indices.shape(), width);
            if self.shape().len() != rows * width {
                return Err(mismatch(name, "table", self, [Some(rows), Some(1), Some(1), Some(width)]));
            }
            let shape = shape
                .ok_or_else(|| mismatch(name, "indices", indices, [None, None, None, Some(1)]).in_layer("Embedding"))?;
            let p = Rows::new(size(name, indices.shape().len())?, size(name, rows)?, size(name, width)?)
                .map_err(|error| TraceError::new(name, error))?;
            Ok(self.record_named_op(name.to_owned(), Op::Embedding, p, &[indices], shape))
        })
    }
}

/// Returns the shape of `width` values for each integer, which has no channels of its own.
pub(super) fn with_channels(integers: Shape, width: usize) -> Option<Shape> {
    Some(Shape::from(match integers.sizes() {
        [n, h, w, 1] => [n, h, w, width],
        [n, 1, 1, t] => [n, 1, t, width],
        [n, 1, w, t] => [n, w, t, width],
        _ => return None,
    }))
}

/// Impl of the embedding operator, with inputs table and indices.
impl Operator for Rows {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (p, way, x) = (*self, GatherScatter::Gather, at.read(0)?.buf);
        let indices = at.read_integers(1, "indices", &[DType::U32])?.buf;
        at.store(|y| Operation::Rows { p, way, x, indices, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (table, sizes) = (at.shape(0).len(), at.node().shape.sizes());
        let rows = self.table() as usize;
        let table = at.shaped(0, &[rows, table / rows.max(1)])?;
        let (indices, count) = (at.integers(1)?, at.shape(1).len());
        let indices = at.reshape(&indices, &[count]);
        let y = at.emit("Gather", &[&table, &indices], &[("axis", Is::Int(0))]);
        let y = at.reshape(&y, &sizes);
        at.set_output(y);
        Ok(())
    }

    fn integers(&self) -> Option<usize> {
        Some(1)
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (p, way, x, indices) = (*self, GatherScatter::Scatter, dy.value.buf, at.operand(1).buf);
        at.emit_gradient(0, dy, GradientFlow::Cast, ScaleRule::FromValues, |y| Operation::Rows {
            p,
            way,
            x,
            indices,
            y,
        })
    }
}
