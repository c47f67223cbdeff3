//! Table of operators by name. A row answers two questions: in which precision does the operator run ([`crate::amp`]),
//! and how does it change the exponent of a gradient ([`crate::rules`])?

use core::fmt;

/// Autocast list of an operator, which determines its precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    /// Runs in half, because it is fast there and loses no accuracy.
    Allow,
    /// Runs in f32: exponentials, logarithms, powers, large reductions, softmax, losses.
    Deny,
    /// Computes in f32 and stores in the type of its input: normalisations. A variant of deny that needs no casts.
    Inside,
    /// Runs in the type of its inputs; of several, the widest type wins.
    Infer,
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Inside => "inside",
            Self::Infer => "infer",
        })
    }
}

/// Effect of an operator on the exponent of the incoming gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// A cast site with its own exponent and statistics: f32 results are stored as half. The factor is applied to the
    /// f32 accumulators, before the only rounding.
    Site,
    /// Copies and zeros: the exponent passes through, and nothing is rounded.
    Pass,
    /// A loss, where the tuple starts as ⟨α₀, ∂L⟩.
    Start,
    /// The operator has no data gradient.
    Nothing,
}

macro_rules! ops {
    ($($(#[$doc:meta])* $variant:ident $name:literal $list:ident $flow:ident,)*) => {
        /// Operator of a network, by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Op { $($(#[$doc])* $variant,)* }

        impl Op {
            /// All operators, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the operator's name in files and messages.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns the autocast list of the operator by default.
            #[must_use]
            pub const fn list(self) -> List {
                match self { $(Self::$variant => List::$list,)* }
            }

            /// Returns the effect on the exponent of the operator's data gradient if that is stored as half. An
            /// operator that runs in f32 and returns an f32 gradient keeps the exponent; the cast after it is the site.
            #[must_use]
            pub const fn flow(self) -> Flow {
                match self { $(Self::$variant => Flow::$flow,)* }
            }
        }
    };
}

// One row defines everything about an operator name: the name, its list, and the flow of its data gradient.
ops! {
    /// Product of two matrices.
    Matmul "matmul" Allow Site,
    /// Batched product of matrices.
    BatchedMatmul "batched_matmul" Allow Site,
    /// Linear layer.
    Linear "linear" Allow Site,
    /// Convolution.
    Conv "conv" Allow Site,
    /// Transposed convolution.
    ConvTranspose "conv_transpose" Allow Site,
    /// Recurrent cell.
    Recurrent "recurrent" Allow Site,
    /// e^x.
    Exp "exp" Deny Site,
    /// ln x.
    Log "log" Deny Site,
    /// x^p.
    Pow "pow" Deny Site,
    /// √x.
    Sqrt "sqrt" Deny Site,
    /// Sum over many values.
    Sum "sum" Deny Pass,
    /// Mean over many values.
    Mean "mean" Deny Site,
    /// Vector norm.
    Norm "norm" Deny Site,
    /// Softmax.
    Softmax "softmax" Deny Site,
    /// Logarithm of softmax.
    LogSoftmax "log_softmax" Deny Site,
    /// Batch normalisation.
    BatchNorm "batch_norm" Inside Site,
    /// Layer normalisation.
    LayerNorm "layer_norm" Inside Site,
    /// Group normalisation.
    GroupNorm "group_norm" Inside Site,
    /// Root-mean-square normalisation.
    RmsNorm "rms_norm" Inside Site,
    /// Local response normalisation.
    LocalResponseNorm "local_response_norm" Inside Site,
    /// Cross-entropy.
    CrossEntropy "cross_entropy" Deny Start,
    /// Connectionist temporal classification.
    CtcLoss "ctc_loss" Deny Start,
    /// Binary cross-entropy on logits.
    BinaryCrossEntropy "binary_cross_entropy" Deny Start,
    /// Mean squared error.
    MseLoss "mse_loss" Deny Start,
    /// Mean absolute error.
    L1Loss "l1_loss" Deny Start,
    /// Smooth L1 (Huber).
    SmoothL1Loss "smooth_l1_loss" Deny Start,
    /// Focal loss.
    FocalLoss "focal_loss" Deny Start,
    /// Addition of two tensors.
    Add "add" Infer Pass,
    /// Subtraction of two tensors.
    Sub "sub" Infer Pass,
    /// Product, element by element.
    Mul "mul" Infer Site,
    /// Quotient, element by element.
    Div "div" Infer Site,
    /// Negation: −x.
    Neg "neg" Infer Pass,
    /// |x|.
    Abs "abs" Infer Pass,
    /// Sign of x: 1 or −1.
    Sign "sign" Infer Nothing,
    /// 1 / x.
    Reciprocal "reciprocal" Infer Site,
    /// A constant times x.
    Scale "scale" Infer Site,
    /// ReLU: max(x, 0).
    Relu "relu" Infer Pass,
    /// Leaky ReLU: x above 0, a slope times x elsewhere.
    LeakyRelu "leaky_relu" Infer Site,
    /// Gaussian error linear unit.
    Gelu "gelu" Infer Site,
    /// Error function.
    Erf "erf" Infer Site,
    /// SiLU: x·sigmoid(x).
    Silu "silu" Infer Site,
    /// Hard swish: x·min(max(x + 3, 0), 6) / 6.
    Hardswish "hardswish" Infer Site,
    /// Logistic function.
    Sigmoid "sigmoid" Infer Site,
    /// Hyperbolic tangent.
    Tanh "tanh" Infer Site,
    /// Dropout.
    Dropout "dropout" Infer Site,
    /// Max-pooling with windows that do not overlap.
    MaxPool "max_pool" Infer Pass,
    /// Max-pooling with overlapping windows.
    MaxPoolOverlapping "max_pool_overlapping" Infer Site,
    /// Average or global pooling.
    AveragePool "average_pool" Infer Site,
    /// Unpooling to the positions that a max-pooling selected.
    Unpool "unpool" Infer Pass,
    /// RoIAlign: boxes of images, resampled to one size.
    RoiAlign "roi_align" Infer Site,
    /// RoI max pooling: boxes of images, with the maximum of each bin.
    RoiPool "roi_pool" Infer Site,
    /// Upsampling by interpolation.
    Interpolate "interpolate" Infer Site,
    /// Change of shape without a change of values.
    Reshape "reshape" Infer Pass,
    /// Permutation of the axes of a tensor.
    Transpose "transpose" Infer Pass,
    /// Slice of a tensor along an axis.
    Slice "slice" Infer Pass,
    /// Concatenation. Its gradient is split, and the parts keep the exponent.
    Concat "concat" Infer Pass,
    /// Selection: values where a condition holds, 0 elsewhere.
    Select "select" Infer Pass,
    /// Split into parts. Its gradient is a concatenation of parts that may have different exponents.
    Split "split" Infer Site,
    /// Repetition of values along axes of size 1.
    Expand "expand" Infer Site,
    /// Embedding: lookup of table rows by index.
    Embedding "embedding" Infer Nothing,
    /// Gather: rows selected by index.
    Gather "gather" Infer Site,
    /// One-hot encoding: 1 at the index of a label, 0 elsewhere.
    OneHot "one_hot" Infer Nothing,
    /// Argmax: index of the maximum.
    ArgMax "argmax" Infer Nothing,
    /// Change of precision.
    Cast "cast" Infer Site,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl core::str::FromStr for Op {
    type Err = UnknownOp;

    /// Parses the operator's name.
    fn from_str(name: &str) -> Result<Self, UnknownOp> {
        Self::ALL.iter().copied().find(|op| op.name() == name).ok_or(UnknownOp)
    }
}

/// Error: no operator has this name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UnknownOp;

impl fmt::Display for UnknownOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no operator has that name")
    }
}

crate::sentence!(UnknownOp);

impl core::error::Error for UnknownOp {}
