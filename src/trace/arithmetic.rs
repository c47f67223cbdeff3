//! Element-wise operators.

use super::{Var, Work, mismatch, size};
use crate::{Shape, TraceError};
use gradscale_core::{
    descriptor::{BinaryOp, Over, ReduceOp, Unary},
    op::Op,
};

impl<'t> Var<'t> {
    /// max(x, 0).
    #[must_use]
    pub fn relu(self) -> Self {
        self.unary(Unary::Relu)
    }

    /// Hyperbolic tangent.
    #[must_use]
    pub fn tanh(self) -> Self {
        self.unary(Unary::Tanh)
    }

    /// 1 / (1 + e^-x).
    #[must_use]
    pub fn sigmoid(self) -> Self {
        self.unary(Unary::Sigmoid)
    }

    /// x·Φ(x), by the error function: GELU without the approximation by tanh.
    #[must_use]
    pub fn gelu(self) -> Self {
        self.unary(Unary::Gelu)
    }

    /// x·sigmoid(x), also called swish.
    #[must_use]
    pub fn silu(self) -> Self {
        self.unary(Unary::Silu)
    }

    /// ln(1 + e^x), in f32.
    #[must_use]
    pub fn softplus(self) -> Self {
        self.then("softplus", Op::Log, Work::Softplus, &[], self.shape())
    }

    /// e^x, in f32.
    #[must_use]
    pub fn exp(self) -> Self {
        self.unary(Unary::Exp)
    }

    /// Natural logarithm, in f32.
    #[must_use]
    pub fn ln(self) -> Self {
        self.unary(Unary::Ln)
    }

    /// x^p, in f32.
    #[must_use]
    pub fn pow(self, p: f32) -> Self {
        self.unary(Unary::Pow(p))
    }

    /// `factor`·x.
    #[must_use]
    pub fn scale(self, factor: f32) -> Self {
        self.affine(factor, 0.0)
    }

    /// a·x + b.
    #[must_use]
    pub fn affine(self, a: f32, b: f32) -> Self {
        self.unary(Unary::Affine { a, b })
    }

    /// Any element-wise function of the device contract, which gives its meaning and its derivative.
    #[must_use]
    pub fn unary(self, function: Unary) -> Self {
        let (kind, op) = match function {
            Unary::Id => ("copy", Op::Reshape),
            Unary::Neg => ("neg", Op::Neg),
            Unary::Abs => ("abs", Op::Abs),
            Unary::Relu => ("relu", Op::Relu),
            Unary::Tanh => ("tanh", Op::Tanh),
            Unary::Sigmoid => ("sigmoid", Op::Sigmoid),
            Unary::Gelu => ("gelu", Op::Gelu),
            Unary::Silu => ("silu", Op::Silu),
            Unary::Erf => ("erf", Op::Erf),
            Unary::Exp => ("exp", Op::Exp),
            Unary::Ln => ("ln", Op::Log),
            Unary::Sqrt => ("sqrt", Op::Sqrt),
            Unary::Recip => ("recip", Op::Reciprocal),
            Unary::Pow(_) => ("pow", Op::Pow),
            Unary::Dropout { .. } => ("dropout", Op::Dropout),
            Unary::Affine { .. } => ("scale", Op::Scale),
        };
        self.then(kind, op, Work::Unary(function), &[], self.shape())
    }

    /// x / keep with probability `keep`, else 0, while training; x in evaluation. Which elements are kept is counted
    /// out from the step's seed, so a step that is repeated draws anew.
    ///
    /// # Errors
    /// Unless 2^-24 ≤ `keep` ≤ 1.
    pub fn dropout(self, keep: f32) -> Result<Self, TraceError> {
        // The number that this node will have: two dropouts of one value draw each for themselves.
        let stream = size("dropout", self.tape.trace.borrow().nodes.len())?;
        let function = Unary::dropout(keep, stream).map_err(|error| TraceError::new("dropout", error))?;
        Ok(if self.tape.training() { self.unary(function) } else { self })
    }

    /// a + b. b may be as large as a, one value for each channel, or one number.
    ///
    /// # Errors
    /// Shapes that do not fit.
    #[expect(clippy::should_implement_trait, reason = "it can fail")]
    pub fn add(self, b: Self) -> Result<Self, TraceError> {
        self.binary("add", Op::Add, BinaryOp::Add, b)
    }

    /// a − b, as [`Var::add`].
    ///
    /// # Errors
    /// Shapes that do not fit.
    #[expect(clippy::should_implement_trait, reason = "it can fail")]
    pub fn sub(self, b: Self) -> Result<Self, TraceError> {
        self.binary("sub", Op::Sub, BinaryOp::Sub, b)
    }

    /// a·b element by element, as [`Var::add`].
    ///
    /// # Errors
    /// Shapes that do not fit.
    #[expect(clippy::should_implement_trait, reason = "it can fail")]
    pub fn mul(self, b: Self) -> Result<Self, TraceError> {
        self.binary("mul", Op::Mul, BinaryOp::Mul, b)
    }

    /// a / b, as [`Var::add`].
    ///
    /// # Errors
    /// Shapes that do not fit.
    #[expect(clippy::should_implement_trait, reason = "it can fail")]
    pub fn div(self, b: Self) -> Result<Self, TraceError> {
        self.binary("div", Op::Div, BinaryOp::Div, b)
    }

    /// x², in f32.
    ///
    /// # Errors
    /// More than 2^32 − 1 elements.
    pub fn square(self) -> Result<Self, TraceError> {
        self.binary("square", Op::Pow, BinaryOp::Mul, self)
    }

    pub(super) fn binary(self, kind: &'static str, op: Op, function: BinaryOp, b: Self) -> Result<Self, TraceError> {
        let (shape, with) = (self.shape(), b.shape());
        let over = if with == shape {
            Over::All
        } else if with.len() == 1 {
            Over::One
        } else if with.len() == shape.channels()
            && (with.channels() == shape.channels() || with.rows() == shape.channels())
        {
            Over::PerColumn
        } else {
            return Err(mismatch(kind, with, shape));
        };
        self.sizes(kind)?;
        Ok(self.then(kind, op, Work::Binary(function, over), &[b], shape))
    }

    /// Σ of all elements, in f32: one number.
    ///
    /// # Errors
    /// More than 2^32 − 1 elements.
    pub fn sum(self) -> Result<Self, TraceError> {
        self.reduce("sum", Op::Sum, ReduceOp::Sum)
    }

    /// Mean of all elements, in f32: one number.
    ///
    /// # Errors
    /// More than 2^32 − 1 elements, or none.
    pub fn mean(self) -> Result<Self, TraceError> {
        self.reduce("mean", Op::Mean, ReduceOp::Mean)
    }

    pub(super) fn reduce(self, kind: &'static str, op: Op, function: ReduceOp) -> Result<Self, TraceError> {
        self.sizes(kind)?;
        if self.shape().len() == 0 && function == ReduceOp::Mean {
            return Err(TraceError::new(kind, gradscale_core::descriptor::ShapeError::Empty));
        }
        Ok(self.then(kind, op, Work::Reduce(function), &[], Shape::SCALAR))
    }

    /// Index of the largest channel of each pixel, `[n, h, w, 1]`. There is no gradient.
    ///
    /// # Errors
    /// No channels, or too many elements.
    pub fn argmax(self) -> Result<Self, TraceError> {
        let [n, h, w, _] = self.shape().sizes();
        self.sizes("argmax")?;
        if self.shape().channels() == 0 {
            return Err(TraceError::new("argmax", gradscale_core::descriptor::ShapeError::Empty));
        }
        Ok(self.then("argmax", Op::ArgMax, Work::ArgMax, &[], Shape::from([n, h, w, 1])))
    }
}
