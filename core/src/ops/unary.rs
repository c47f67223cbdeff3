//! Element-wise functions of one tensor.

use super::{At, ShapeError, dropout_keeps};
use core::f32::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// Element-wise function of one tensor, with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// Identity: x, the cast of a tensor.
    Id,
    /// Negation of x: −x.
    Neg,
    /// Absolute value: |x|.
    Abs,
    /// Sign: 1, −1, or x itself if that is 0 or NaN. The derivative is 0.
    Sign,
    /// ReLU: max(x, 0). NaN remains NaN, −0 becomes 0.
    Relu,
    /// Leaky ReLU: x above 0, slope·x elsewhere. The derivative at 0 is the slope (Maas et al. 2013).
    LeakyRelu(f32),
    /// Hyperbolic tangent: tanh x.
    Tanh,
    /// Logistic function: 1 / (1 + e^-x).
    Sigmoid,
    /// GELU: x · Φ(x), computed with the error function.
    Gelu,
    /// SiLU: x / (1 + e^-x).
    Silu,
    /// Hard swish: x·min(max(x + 3, 0), 6) / 6, which is 0 up to −3 and x from 3 on (Howard et al. 2019, section 5.2).
    Hardswish,
    /// Error function: erf(x).
    Erf,
    /// Sine of x in radians: sin x.
    Sin,
    /// Cosine of x in radians: cos x.
    Cos,
    /// Exponential function: e^x.
    Exp,
    /// Natural logarithm: ln x.
    Ln,
    /// Square root: √x.
    Sqrt,
    /// Reciprocal of x: 1 / x.
    Recip,
    /// Power: x^p, as IEEE 754-2019 §9.2 `pow`.
    Pow(f32),
    /// Affine function: a·x + b; the product is rounded before the sum.
    Affine {
        /// Factor a of the affine function.
        a: f32,
        /// Summand b of the affine function, added after the product.
        b: f32,
    },
    /// Dropout: x / keep with probability `keep`, else 0. The random number is [`super::hash`] of step seed, stream and
    /// index. Create it with [`Unary::dropout`].
    Dropout {
        /// Probability that dropout keeps an element, in (0, 1].
        keep: f32,
        /// Number of dropout's random stream, different for each dropout of a network.
        stream: u32,
    },
}

crate::codes!(Unary {
    Self::Id => 0 "UNARY_ID",
    Self::Neg => 1 "UNARY_NEG",
    Self::Abs => 2 "UNARY_ABS",
    Self::Relu => 3 "UNARY_RELU",
    Self::Tanh => 4 "UNARY_TANH",
    Self::Sigmoid => 5 "UNARY_SIGMOID",
    Self::Gelu => 6 "UNARY_GELU",
    Self::Silu => 7 "UNARY_SILU",
    Self::Erf => 8 "UNARY_ERF",
    Self::Exp => 9 "UNARY_EXP",
    Self::Ln => 10 "UNARY_LN",
    Self::Sqrt => 11 "UNARY_SQRT",
    Self::Recip => 12 "UNARY_RECIP",
    Self::Pow(_) => 13 "UNARY_POW",
    Self::Affine { .. } => 14 "UNARY_AFFINE",
    Self::Dropout { .. } => 15 "UNARY_DROPOUT",
    Self::Sign => 16 "UNARY_SIGN",
    Self::Hardswish => 17 "UNARY_HARDSWISH",
    Self::LeakyRelu(_) => 18 "UNARY_LEAKY_RELU",
    Self::Sin => 19 "UNARY_SIN",
    Self::Cos => 20 "UNARY_COS",
});

/// Value that the tape saves for the derivative of a unary function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Saved {
    /// Nothing is saved for the backward pass; pass the gradient itself to the vjp.
    Nothing,
    /// The input of the function is saved for the backward pass.
    Input,
    /// The output of the function is saved for the backward pass.
    Output,
}

impl Unary {
    /// One example of each unary function, with parameters for tests.
    pub const ALL: &'static [Self] = &[
        Self::Id,
        Self::Neg,
        Self::Abs,
        Self::Sign,
        Self::Relu,
        Self::LeakyRelu(0.2),
        Self::Tanh,
        Self::Sigmoid,
        Self::Gelu,
        Self::Silu,
        Self::Hardswish,
        Self::Erf,
        Self::Sin,
        Self::Cos,
        Self::Exp,
        Self::Ln,
        Self::Sqrt,
        Self::Recip,
        Self::Pow(-0.75),
        Self::Affine { a: 1.5, b: -0.25 },
        Self::Dropout { keep: 0.75, stream: 3 },
    ];

    /// Creates a dropout that keeps elements with probability `keep`.
    ///
    /// # Errors
    /// [`ShapeError::Value`] unless 2^-24 ≤ `keep` ≤ 1.
    pub fn dropout(keep: f32, stream: u32) -> Result<Self, ShapeError> {
        if (1.0 / 16_777_216.0..=1.0).contains(&keep) {
            Ok(Self::Dropout { keep, stream })
        } else {
            Err(ShapeError::Value(keep))
        }
    }

    /// Returns the two parameters that kernels need besides the code, 0 if there are none.
    #[must_use]
    pub const fn parameters(self) -> [f32; 2] {
        match self {
            Self::Pow(p) | Self::LeakyRelu(p) => [p, 0.0],
            Self::Affine { a, b } => [a, b],
            Self::Dropout { keep, .. } => [keep, 0.0],
            Self::Id
            | Self::Neg
            | Self::Abs
            | Self::Sign
            | Self::Relu
            | Self::Tanh
            | Self::Sigmoid
            | Self::Gelu
            | Self::Silu
            | Self::Hardswish
            | Self::Erf
            | Self::Sin
            | Self::Cos
            | Self::Exp
            | Self::Ln
            | Self::Sqrt
            | Self::Recip => [0.0; 2],
        }
    }

    /// Computes the unary function for one element.
    #[must_use]
    pub fn eval(self, x: f32, at: At) -> f32 {
        match self {
            Self::Id => x,
            Self::Neg => -x,
            Self::Abs => x.abs(),
            Self::Sign => {
                if x == 0.0 || x.is_nan() {
                    x
                } else {
                    1f32.copysign(x)
                }
            }
            Self::Relu => {
                if x <= 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Self::LeakyRelu(slope) => {
                if x > 0.0 {
                    x
                } else {
                    slope * x
                }
            }
            Self::Tanh => libm::tanhf(x),
            Self::Sigmoid => sigmoid(x),
            Self::Gelu => x * normal_cdf(x),
            Self::Silu => x * sigmoid(x),
            Self::Hardswish => {
                if x <= -3.0 {
                    0.0
                } else if x >= 3.0 {
                    x
                } else {
                    x * ((x + 3.0) * SIXTH)
                }
            }
            Self::Erf => libm::erff(x),
            Self::Sin => libm::sinf(x),
            Self::Cos => libm::cosf(x),
            Self::Exp => libm::expf(x),
            Self::Ln => libm::logf(x),
            Self::Sqrt => libm::sqrtf(x),
            Self::Recip => 1.0 / x,
            Self::Pow(p) => libm::powf(x, p),
            Self::Affine { a, b } => a * x + b,
            Self::Dropout { keep, stream } => {
                if dropout_keeps(at, stream, keep) {
                    x / keep
                } else {
                    0.0
                }
            }
        }
    }

    /// Returns true for functions with f(2^a·x) = 2^a·f(x), whose derivative does not depend on a. They may read
    /// activations that carry an exponent ([`super::ActivationFlow::Homogeneous`]).
    #[must_use]
    pub fn is_homogeneous(self) -> bool {
        match self {
            Self::Id | Self::Neg | Self::Abs | Self::Relu | Self::LeakyRelu(_) | Self::Dropout { .. } => true,
            Self::Affine { b, .. } => b == 0.0,
            Self::Sign
            | Self::Tanh
            | Self::Sigmoid
            | Self::Gelu
            | Self::Silu
            | Self::Hardswish
            | Self::Erf
            | Self::Sin
            | Self::Cos
            | Self::Exp
            | Self::Ln
            | Self::Sqrt
            | Self::Recip
            | Self::Pow(_) => false,
        }
    }

    /// Returns which value the tape saves for [`Unary::vjp`]: input, output or nothing.
    #[must_use]
    pub const fn keeps(self) -> Saved {
        match self {
            Self::Id | Self::Neg | Self::Sign | Self::Affine { .. } | Self::Dropout { .. } => Saved::Nothing,
            Self::Abs
            | Self::LeakyRelu(_)
            | Self::Ln
            | Self::Pow(_)
            | Self::Gelu
            | Self::Silu
            | Self::Hardswish
            | Self::Erf
            | Self::Sin
            | Self::Cos => Saved::Input,
            Self::Relu | Self::Tanh | Self::Sigmoid | Self::Exp | Self::Sqrt | Self::Recip => Saved::Output,
        }
    }

    /// Computes the derivative times `dy`. Masks select and never multiply, because ∞ · 0 is NaN.
    #[must_use]
    pub fn vjp(self, kept: f32, dy: f32, at: At) -> f32 {
        match self {
            Self::Id => dy,
            Self::Neg => -dy,
            Self::Abs => {
                if kept > 0.0 {
                    dy
                } else if kept < 0.0 {
                    -dy
                } else {
                    0.0
                }
            }
            Self::Sign => 0.0,
            Self::Relu => {
                if kept > 0.0 {
                    dy
                } else {
                    0.0
                }
            }
            Self::LeakyRelu(slope) => {
                if kept > 0.0 {
                    dy
                } else {
                    slope * dy
                }
            }
            Self::Tanh => dy * (1.0 - kept * kept),
            Self::Sigmoid => dy * (kept * (1.0 - kept)),
            Self::Gelu => {
                let density = FRAC_2_SQRT_PI * 0.5 * FRAC_1_SQRT_2 * libm::expf(-0.5 * kept * kept);
                dy * (normal_cdf(kept) + kept * density)
            }
            Self::Silu => {
                let s = sigmoid(kept);
                dy * (s * (1.0 + kept * (1.0 - s)))
            }
            Self::Hardswish => {
                if kept < -3.0 {
                    0.0
                } else if kept > 3.0 {
                    dy
                } else {
                    dy * (kept * (2.0 * SIXTH) + 0.5)
                }
            }
            Self::Erf => dy * (FRAC_2_SQRT_PI * libm::expf(-kept * kept)),
            Self::Sin => dy * libm::cosf(kept),
            Self::Cos => -dy * libm::sinf(kept),
            Self::Exp => dy * kept,
            Self::Ln => dy / kept,
            Self::Sqrt => dy * (0.5 / kept),
            Self::Recip => -dy * kept * kept,
            Self::Pow(p) => dy * (p * libm::powf(kept, p - 1.0)),
            Self::Affine { a, .. } => dy * a,
            Self::Dropout { .. } => self.eval(dy, at),
        }
    }
}

/// Factor 1/6 of [`Unary::Hardswish`].
const SIXTH: f32 = 1.0 / 6.0;

/// Computes the logistic function. It uses the exponential that does not overflow, so that the lower tail keeps its
/// significant bits.
fn sigmoid(x: f32) -> f32 {
    if x < 0.0 {
        let e = libm::expf(x);
        e / (1.0 + e)
    } else {
        1.0 / (1.0 + libm::expf(-x))
    }
}

/// Computes Φ(x) with erfc, so that the lower tail keeps its significant bits.
fn normal_cdf(x: f32) -> f32 {
    0.5 * libm::erfcf(-x * FRAC_1_SQRT_2)
}
