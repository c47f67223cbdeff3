//! Gather along an axis, by index.

use super::slice::within;
#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{
    Shape, TraceError, Var,
    error::TraceErrorKind,
    graph::{Context, Gradient, Operator, size, sizes},
};
use gradscale_core::{
    backend::Data,
    ops::{Op, Rows},
};

impl Var<'_> {
    /// Gathers the values at the indices along an axis (0 n, 1 h, 2 w, 3 c), in their order: torch's `index_select`.
    /// Indices are words (u32) of any shape, and their number becomes the size of the axis. In the backward pass the
    /// gradients of a repeated index are accumulated in f32, in the order of the indices; positions without an index
    /// get 0. Along other axes than the first, values are permuted before and after.
    ///
    /// An index beyond the axis is an error of the step if it comes directly from the host. An index that was computed
    /// or prefetched reads 0 and adds nothing.
    ///
    /// ```
    /// use gradscale::{Input, Cpu, Method, Parameters, Trainer, optim::Sgd};
    /// let mut trainer = Trainer::new(Cpu::new(1)?, Parameters::seeded(1), Sgd::new(0.1), Method::mixed())?;
    /// let batch = [Input::f32([3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), Input::u32([4], &[2, 0, 2, 1])];
    /// let y = trainer.evaluate(batch, |[x, rows]| x.gather("boxes", 0, rows))?;
    /// assert_eq!(y.data, [5.0, 6.0, 1.0, 2.0, 5.0, 6.0, 3.0, 4.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// An axis beyond 3, indices that are not words, or too many elements.
    pub fn gather(self, name: &str, axis: usize, indices: Self) -> Self {
        self.try_record(|| {
            within(name, axis)?;
            let shape = self.shape().sizes();
            if shape[..axis].iter().any(|&size| size != 1) {
                // Permutation that moves the axis to the front, and its inverse.
                let (mut order, mut back) = ([0, 1, 2, 3], [0, 1, 2, 3]);
                order[..=axis].rotate_right(1);
                back[..=axis].rotate_left(1);
                let first = self.permute(order).named(&format!("{name}.first"));
                return Ok(first.gather(name, 0, indices).permute(back).named(&format!("{name}.back")));
            }
            let (count, rows) = (indices.shape().len(), shape[axis]);
            let width = shape[axis + 1..].iter().fold(1usize, |product, &size| product.saturating_mul(size));
            let p = Rows::new(size(name, count)?, size(name, rows)?, size(name, width)?)
                .map_err(|error| TraceError::new(name, error))?;
            let mut shape = shape;
            shape[axis] = count;
            let shape = Shape::from(shape);
            sizes(name, shape)?;
            Ok(self.record_named_op(name.to_owned(), Op::Gather, Gather(p), &[indices], shape))
        })
    }
}

/// Operator that gathers rows from one table, with inputs x and indices.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Gather(Rows);

impl Operator for Gather {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        self.0.forward(at)
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        self.0.onnx(at)
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        self.0.vjp(at, dy)
    }

    fn integers(&self) -> Option<usize> {
        self.0.integers()
    }

    fn check(&self, i: usize, data: Data<'_>) -> Result<(), TraceErrorKind> {
        let count = self.0.table();
        let beyond = match data {
            Data::U32(all) if self.integers() == Some(i) => all.iter().position(|&index| index >= count).zip(Some(all)),
            Data::U32(_) | Data::U8(_) | Data::F32(_) | Data::F16(_) => None,
        };
        beyond.map_or(Ok(()), |(place, all)| Err(TraceErrorKind::Index { index: all[place], place, count }))
    }
}
