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
        self.product(name, Op::Linear, weight, bias)
    }

    /// [`Var::linear`] under another operator's precision.
    pub(crate) fn product(self, name: &str, op: Op, weight: Self, bias: Option<Self>) -> Result<Self, TraceError> {
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
        Ok(self.then_named(name.to_owned(), op, Work::Linear, &others, Shape::from([n, h, w, out])))
    }

    /// A convolution as `conv` describes it for the shape of x; weights OHWI.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn conv(
        self, name: &str, conv: impl FnOnce([u32; 4]) -> Result<Conv2d, gradscale_core::descriptor::ShapeError>,
        weight: Self, bias: Option<Self>,
    ) -> Result<Self, TraceError> {
        let p = conv(self.sizes(name)?).map_err(|error| super::input(name, error, self.shape()))?;
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

    /// A transposed convolution: the data pass of the convolution that `conv` describes for the shape of x, from x, in
    /// the place of that convolution's result, back to its input. Weights as that convolution has them, `[channels of
    /// x, kh, kw, channels of the result / groups]`.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn conv_transpose(
        self, name: &str, conv: impl FnOnce([u32; 4]) -> Result<Conv2d, gradscale_core::descriptor::ShapeError>,
        weight: Self, bias: Option<Self>,
    ) -> Result<Self, TraceError> {
        let sizes = self.sizes(name)?;
        let p = conv(sizes).map_err(|error| super::input(name, error, self.shape()))?;
        let shape = Shape::from(p.x().map(|size| size as usize));
        if p.y() != sizes {
            return Err(mismatch(name, self.shape(), Shape::from(p.y().map(|size| size as usize))));
        }
        if weight.shape() != Shape::from(p.w().map(|size| size as usize)) {
            return Err(mismatch(name, self.shape(), weight.shape()));
        }
        if let Some(bias) = bias.filter(|bias| bias.shape().len() != shape.channels()) {
            return Err(mismatch(name, bias.shape(), weight.shape()));
        }
        let others: Vec<Self> = std::iter::once(weight).chain(bias).collect();
        Ok(self.then_named(name.to_owned(), Op::ConvTranspose, Work::ConvTranspose(p), &others, shape))
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
        let p = norm(self.sizes(name)?).map_err(|error| super::input(name, error, self.shape()))?;
        self.normalised(name, op, p, &[scale, shift], running)
    }

    /// Each pixel over its channels: mean 0, variance 1, then scale and shift of each channel. In f32, stored as x is.
    ///
    /// # Errors
    /// Shapes that do not fit, an `eps` that is not positive.
    pub fn layer_norm(self, name: &str, eps: f32, affine: [Self; 2]) -> Result<Self, TraceError> {
        let p = self.of_rows(name, |rows, width| Norm::layer(rows, width, eps))?;
        self.normalised(name, Op::LayerNorm, p, &affine, None)
    }

    /// Each pixel over its channels, divided by the root of their mean square (+ `eps`), times the scale of each
    /// channel. In f32, stored as x is.
    ///
    /// # Errors
    /// Shapes that do not fit, an `eps` that is not positive.
    pub fn rms_norm(self, name: &str, eps: f32, scale: Self) -> Result<Self, TraceError> {
        let p = self.of_rows(name, |rows, width| Norm::rms(rows, width, eps))?;
        self.normalised(name, Op::RmsNorm, p, &[scale], None)
    }

    fn of_rows(
        self, name: &str, norm: impl FnOnce(u32, u32) -> Result<Norm, gradscale_core::descriptor::ShapeError>,
    ) -> Result<Norm, TraceError> {
        let [n, h, w, c] = self.sizes(name)?;
        norm(n * h * w, c).map_err(|error| TraceError::new(name, error))
    }

    /// `affine`: scale, perhaps shift.
    fn normalised(
        self, name: &str, op: Op, p: Norm, affine: &[Self], running: Option<&crate::Parameter>,
    ) -> Result<Self, TraceError> {
        for affine in affine {
            if affine.shape().len() != self.shape().channels() {
                return Err(mismatch(name, affine.shape(), self.shape()));
            }
        }
        if running.is_some_and(|running| running.shape.len() != 2 * p.groups() as usize) {
            let words = format!("running statistics of another number of channels than {}", self.shape());
            return Err(TraceError::new(name, TraceErrorKind::Range(words)));
        }
        let p = if running.is_some() && !self.tape.training() { p.given() } else { p };
        running.into_iter().for_each(|running| self.tape.check(running));
        let work = Work::Norm(p, running.map(|running| running.id));
        Ok(self.then_named(name.to_owned(), op, work, affine, self.shape()))
    }
}
