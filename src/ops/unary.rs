//! Element-wise functions of one value.

use super::{binary, smooth::Softplus};
#[cfg(feature = "onnx")]
use crate::onnx::{Is, Writer};
use crate::{
    TraceError, Var,
    graph::{Context, Gradient, Operation, Operator, ScaleRule, size, unary},
};
use gradscale_core::ops::{ActivationFlow, BinaryOp, Broadcast, Op, Saved, Unary};

impl<'t> Var<'t> {
    /// Applies ReLU, max(x, 0), to each element.
    pub fn relu(self) -> Self {
        self.unary(Unary::Relu)
    }

    /// Applies the hyperbolic tangent to each element.
    pub fn tanh(self) -> Self {
        self.unary(Unary::Tanh)
    }

    /// Applies the logistic function 1 / (1 + e^-x) to each element.
    pub fn sigmoid(self) -> Self {
        self.unary(Unary::Sigmoid)
    }

    /// Computes GELU, x·Φ(x), with the error function and not with the tanh approximation.
    pub fn gelu(self) -> Self {
        self.unary(Unary::Gelu)
    }

    /// Applies SiLU, x·sigmoid(x), to each element; it is also called swish.
    pub fn silu(self) -> Self {
        self.unary(Unary::Silu)
    }

    /// Applies hard swish, x·min(max(x + 3, 0), 6) / 6, to each element.
    pub fn hardswish(self) -> Self {
        self.unary(Unary::Hardswish)
    }

    /// Computes leaky ReLU: x above 0, `slope`·x elsewhere; the derivative at 0 is `slope`.
    pub fn leaky_relu(self, slope: f32) -> Self {
        self.unary(Unary::LeakyRelu(slope))
    }

    /// Returns the sign of each element, 1, −1, or 0; without a gradient.
    pub fn sign(self) -> Self {
        self.unary(Unary::Sign)
    }

    /// Applies softplus, ln(1 + e^x), to each element, in f32.
    pub fn softplus(self) -> Self {
        self.record_op("softplus", Op::Log, Softplus, &[], self.shape())
    }

    /// Computes the sine of each element, in radians. The result is accurate for every finite x, and NaN for ±∞.
    pub fn sin(self) -> Self {
        self.unary(Unary::Sin)
    }

    /// Computes the cosine of each element, in radians. The result is accurate for every finite x, and NaN for ±∞.
    pub fn cos(self) -> Self {
        self.unary(Unary::Cos)
    }

    /// Computes the exponential e^x of each element, in f32.
    pub fn exp(self) -> Self {
        self.unary(Unary::Exp)
    }

    /// Computes the natural logarithm of each element, in f32.
    pub fn ln(self) -> Self {
        self.unary(Unary::Ln)
    }

    /// Computes the power x^p of each element, in f32.
    pub fn pow(self, p: f32) -> Self {
        self.unary(Unary::Pow(p))
    }

    /// Returns this tensor with each element multiplied by the constant `factor`.
    pub fn scale(self, factor: f32) -> Self {
        self.affine(factor, 0.0)
    }

    /// Computes a·x + b for each element.
    pub fn affine(self, a: f32, b: f32) -> Self {
        self.unary(Unary::Affine { a, b })
    }

    /// Applies any element-wise function of the device contract, which defines its value and its derivative.
    pub fn unary(self, function: Unary) -> Self {
        let (kind, op) = match function {
            Unary::Id => ("copy", Op::Reshape),
            Unary::Neg => ("neg", Op::Neg),
            Unary::Abs => ("abs", Op::Abs),
            Unary::Sign => ("sign", Op::Sign),
            Unary::Relu => ("relu", Op::Relu),
            Unary::LeakyRelu(_) => ("leaky_relu", Op::LeakyRelu),
            Unary::Tanh => ("tanh", Op::Tanh),
            Unary::Sigmoid => ("sigmoid", Op::Sigmoid),
            Unary::Gelu => ("gelu", Op::Gelu),
            Unary::Silu => ("silu", Op::Silu),
            Unary::Hardswish => ("hardswish", Op::Hardswish),
            Unary::Erf => ("erf", Op::Erf),
            Unary::Sin => ("sin", Op::Sin),
            Unary::Cos => ("cos", Op::Cos),
            Unary::Exp => ("exp", Op::Exp),
            Unary::Ln => ("ln", Op::Log),
            Unary::Sqrt => ("sqrt", Op::Sqrt),
            Unary::Recip => ("recip", Op::Reciprocal),
            Unary::Pow(_) => ("pow", Op::Pow),
            Unary::Dropout { .. } => ("dropout", Op::Dropout),
            Unary::Affine { .. } => ("scale", Op::Scale),
        };
        self.record_op(kind, op, function, &[], self.shape())
    }

    /// Zeroes each element with probability `p` in training and divides the others by 1 − `p`; returns x in evaluation.
    /// The mask depends on the step's seed, so a repeated step draws another one.
    ///
    /// # Errors
    /// Unless 0 ≤ `p` ≤ 1 − 2^-24.
    pub fn dropout(self, p: f32) -> Self {
        self.try_record(|| {
            // Index that this node will have, so that two dropouts of one value use different random streams.
            let stream = size("dropout", self.tape().len())?;
            let function = Unary::dropout(1.0 - p, stream).map_err(|error| TraceError::new("dropout", error))?;
            Ok(if self.tape().training() { self.unary(function) } else { self })
        })
    }
}

impl Operator for Unary {
    fn activation_flow(&self, _op: Op) -> ActivationFlow {
        if self.is_homogeneous() { ActivationFlow::Homogeneous } else { ActivationFlow::TrueValues }
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (op, x) = (*self, at.read_any(0)?.buf);
        at.store(|y| unary(op, x, y))
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (x, first) = at.any(0)?;
        let y = match *self {
            Self::Id | Self::Dropout { .. } => x,
            Self::Neg => at.emit("Neg", &[&x], &[]),
            Self::Abs => at.emit("Abs", &[&x], &[]),
            Self::Sign => at.emit("Sign", &[&x], &[]),
            Self::Relu => at.emit("Relu", &[&x], &[]),
            Self::LeakyRelu(slope) => at.emit("LeakyRelu", &[&x], &[("alpha", Is::Float(slope))]),
            Self::Tanh => at.emit("Tanh", &[&x], &[]),
            Self::Sigmoid => at.emit("Sigmoid", &[&x], &[]),
            Self::Gelu => at.emit("Gelu", &[&x], &[]),
            Self::Silu => {
                let share = at.emit("Sigmoid", &[&x], &[]);
                at.emit("Mul", &[&x, &share], &[])
            }
            Self::Hardswish => at.emit("HardSwish", &[&x], &[]),
            Self::Erf => at.emit("Erf", &[&x], &[]),
            Self::Sin => at.emit("Sin", &[&x], &[]),
            Self::Cos => at.emit("Cos", &[&x], &[]),
            Self::Exp => at.emit("Exp", &[&x], &[]),
            Self::Ln => at.emit("Log", &[&x], &[]),
            Self::Sqrt => at.emit("Sqrt", &[&x], &[]),
            Self::Recip => at.emit("Reciprocal", &[&x], &[]),
            Self::Pow(power) => {
                let power = at.number(power);
                at.emit("Pow", &[&x, &power], &[])
            }
            Self::Affine { a, b } => {
                let a = at.number(a);
                let scaled = at.emit("Mul", &[&x, &a], &[]);
                if b == 0.0 {
                    scaled
                } else {
                    let b = at.number(b);
                    at.emit("Add", &[&scaled, &b], &[])
                }
            }
        };
        at.give_any(y, first);
        Ok(())
    }

    fn is_differentiable(&self) -> bool {
        *self != Self::Sign
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let kept = match self.keeps() {
            Saved::Nothing => dy.value,
            Saved::Input => at.operand(0),
            Saved::Output => at.result().unwrap_or(dy.value),
        };
        let p = binary::like(at.node, BinaryOp::Grad(*self), Broadcast::All)?;
        let (a, b) = (kept.buf, dy.value.buf);
        at.emit_gradient(0, dy, at.flow(), ScaleRule::FromValues, |y| Operation::Binary { p, a, b, y })
    }
}
