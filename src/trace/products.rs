//! Products with weights.

use super::{Var, Work, mismatch};
use crate::{Shape, TraceError, error::TraceErrorKind};
use gradscale_core::{
    descriptor::{Conv2d, Gemm, Norm},
    op::Op,
};

impl<'t> Var<'t> {
    /// `x·weightᵀ + bias` over the channels of x, weights `[out, in]`.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn linear(self, name: &str, weight: Self, bias: Option<Self>) -> Result<Self, TraceError> {
        let [n, h, w, c] = self.shape().sizes();
        let [out, .., features] = weight.shape().sizes();
        if features != c || weight.shape().len() != out * c {
            return Err(mismatch(name, self.shape(), weight.shape()));
        }
        if let Some(bias) = bias.filter(|bias| bias.shape().len() != out) {
            return Err(mismatch(name, bias.shape(), weight.shape()));
        }
        let rows = super::size(name, self.shape().rows())?;
        Gemm::new(rows, super::size(name, out)?, super::size(name, c)?)
            .map_err(|error| TraceError::new(name, error))?;
        let others: Vec<Self> = std::iter::once(weight).chain(bias).collect();
        Ok(self.then_named(name.to_owned(), Op::Linear, Work::Linear, &others, Shape::from([n, h, w, out])))
    }

    /// A convolution as `conv` describes it for the shape of x; weights OHWI.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn conv(
        self, name: &str, conv: impl FnOnce([u32; 4]) -> Result<Conv2d, gradscale_core::descriptor::ShapeError>,
        weight: Self, bias: Option<Self>,
    ) -> Result<Self, TraceError> {
        let p = conv(self.sizes(name)?).map_err(|error| TraceError::new(name, error))?;
        let shape = Shape::from(p.y().map(|size| size as usize));
        if weight.shape() != Shape::from(p.w().map(|size| size as usize)) {
            return Err(mismatch(name, self.shape(), weight.shape()));
        }
        if let Some(bias) = bias.filter(|bias| bias.shape().len() != shape.channels()) {
            return Err(mismatch(name, bias.shape(), weight.shape()));
        }
        let others: Vec<Self> = std::iter::once(weight).chain(bias).collect();
        Ok(self.then_named(name.to_owned(), Op::Conv, Work::Conv(p), &others, shape))
    }

    /// A normalisation with scale and shift of each channel. `running` are statistics `[2, channels]` that follow the
    /// batches in training and are used in evaluation.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn norm(
        self, name: &str, op: Op, norm: impl FnOnce([u32; 4]) -> Result<Norm, gradscale_core::descriptor::ShapeError>,
        [scale, shift]: [Self; 2], running: Option<&crate::Parameter>,
    ) -> Result<Self, TraceError> {
        let p = norm(self.sizes(name)?).map_err(|error| TraceError::new(name, error))?;
        for affine in [scale, shift] {
            if affine.shape().len() != self.shape().channels() {
                return Err(mismatch(name, affine.shape(), self.shape()));
            }
        }
        if running.is_some_and(|running| running.shape.len() != 2 * p.groups() as usize) {
            return Err(TraceError::new(name, TraceErrorKind::Range));
        }
        let p = if running.is_some() && !self.tape.training() { p.given() } else { p };
        let work = Work::Norm(p, running.map(|running| running.id));
        Ok(self.then_named(name.to_owned(), op, work, &[scale, shift], self.shape()))
    }
}
