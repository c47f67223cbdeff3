//! Rows of a table.

use super::{Var, Work, mismatch, size};
use crate::{Shape, TraceError};
use gradscale_core::{descriptor::Rows, op::Op};

impl<'t> Var<'t> {
    /// The row of a table `[rows, width]` for each index: embedding. Indices are words (u32), `[n, t]` or of another
    /// shape with a size of 1, which becomes the width: `[n, t]` gives `[n, 1, t, width]`, `[n, h, w, 1]` gives
    /// `[n, h, w, width]`. An index beyond the table gives zeros. The table's gradient is added in f32.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn embedding(self, name: &str, indices: Self) -> Result<Self, TraceError> {
        let [rows, .., width] = self.shape().sizes();
        let shape = match indices.shape().sizes() {
            [n, h, w, 1] => [n, h, w, width],
            [n, 1, 1, t] => [n, 1, t, width],
            [n, 1, w, t] => [n, w, t, width],
            _ => return Err(mismatch(name, indices.shape(), self.shape())),
        };
        if self.shape().len() != rows * width {
            return Err(mismatch(name, indices.shape(), self.shape()));
        }
        let p = Rows::new(size(name, indices.shape().len())?, size(name, rows)?, size(name, width)?)
            .map_err(|error| TraceError::new(name, error))?;
        Ok(self.then_named(name.to_owned(), Op::Embedding, Work::Rows(p), &[indices], Shape::from(shape)))
    }
}
