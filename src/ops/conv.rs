//! Convolutions and transposed convolutions.

use super::linear::vjp_of_bias;
use crate::{
    Shape, TraceError, Var,
    graph::{Buf, Context, Gradient, Operation, Operator, Rule, input, mismatch},
};
use gradscale_core::{
    model::terms::{ConvShape, Terms},
    ops::{Conv2d, Flow, Op, Pass, ShapeError},
};

impl<'t> Var<'t> {
    /// A convolution as `conv` describes it for the shape of x; weights OHWI.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn conv(
        self, name: &str, conv: impl FnOnce([u32; 4]) -> Result<Conv2d, ShapeError>, weight: Self, bias: Option<Self>,
    ) -> Self {
        self.traced(|| {
            let p = conv(self.sizes(name)?).map_err(|error| input(name, error, self.shape()))?;
            let shape = Shape::from(p.y().map(|size| size as usize));
            if weight.shape() != Shape::from(p.w().map(|size| size as usize)) {
                return Err(mismatch(name, self.shape(), weight.shape()));
            }
            if let Some(bias) = bias.filter(|bias| bias.shape().len() != shape.channels()) {
                return Err(mismatch(name, bias.shape(), weight.shape()));
            }
            let others: Vec<Self> = std::iter::once(weight).chain(bias).collect();
            Ok(self.then_named(name.to_owned(), Op::Conv, p, &others, shape))
        })
    }

    /// A transposed convolution: the data pass of the convolution that `conv` describes for the shape of x, from x, in
    /// the place of that convolution's result, back to its input. Weights as that convolution has them, `[channels of
    /// x, kh, kw, channels of the result / groups]`.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn conv_transpose(
        self, name: &str, conv: impl FnOnce([u32; 4]) -> Result<Conv2d, ShapeError>, weight: Self, bias: Option<Self>,
    ) -> Self {
        self.traced(|| {
            let sizes = self.sizes(name)?;
            let p = conv(sizes).map_err(|error| input(name, error, self.shape()))?;
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
            Ok(self.then_named(name.to_owned(), Op::ConvTranspose, ConvTranspose(p), &others, shape))
        })
    }
}

/// x, weights, perhaps bias.
impl Operator for Conv2d {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        run(*self, Pass::Forward, at)
    }

    fn bias(&self) -> Option<usize> {
        Some(2)
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (p, x, g) = (*self, at.operand(0).buf, dy.value.buf);
        weights(p, [x, g], at, dy)?;
        vjp_of_bias(at, dy)?;
        let terms = Terms::conv(p.terms_shape()).map_err(|error| at.node.error(error))?;
        data(p, Pass::Data, terms, at, dy)
    }
}

/// x, weights, perhaps bias: the data pass of this convolution forward.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ConvTranspose(Conv2d);

impl Operator for ConvTranspose {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        run(self.0, Pass::Data, at)
    }

    fn bias(&self) -> Option<usize> {
        Some(2)
    }

    /// The convolution whose data pass this is, run forward; its weight pass with both operands exchanged.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (p, x, g) = (self.0, at.operand(0).buf, dy.value.buf);
        let shape = ConvShape { out_channels: p.x()[3], ..p.terms_shape() };
        weights(p, [g, x], at, dy)?;
        vjp_of_bias(at, dy)?;
        let terms = Terms::conv_transpose(shape).map_err(|error| at.node.error(error))?;
        data(p, Pass::Forward, terms, at, dy)
    }
}

fn run(p: Conv2d, pass: Pass, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
    let (a, b, bias) = at.read_product()?;
    at.store(|y| Operation::Conv { p, pass, a, b, bias, y })
}

/// The weight pass, of these two.
fn weights(p: Conv2d, [a, b]: [Buf; 2], at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
    if !at.wants(1) {
        return Ok(());
    }
    let pass = Pass::Weight;
    at.emit_gradient(1, dy, Flow::Site, Rule::Cast, |y| Operation::Conv { p, pass, a, b, bias: None, y })
}

/// The pass back to x.
fn data(p: Conv2d, pass: Pass, terms: Terms, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
    if !at.wants(0) {
        return Ok(());
    }
    let w = at.operand(1);
    let (a, b) = (dy.value.buf, w.buf);
    let rule = Rule::Product { dy, w, terms };
    at.emit_gradient(0, dy, at.flow(), rule, |y| Operation::Conv { p, pass, a, b, bias: None, y })
}
