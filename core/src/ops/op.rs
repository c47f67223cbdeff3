//! Operators by name, each in one row, for the two questions that depend on nothing else: which precision they run in
//! ([`crate::amp`]) and what becomes of a scale at them ([`crate::rules`]).

use core::fmt;

/// How an operator's precision is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    /// Runs in half: it is fast there and loses nothing.
    Allow,
    /// Runs in f32: exponentials, logarithms, powers, large reductions, softmax, losses.
    Deny,
    /// f32 inside, stored as its input is: normalisations, a kind of deny that needs no casts.
    Inside,
    /// Runs in the type of its inputs; of several, the widest wins.
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

/// What an operator does with the exponent of the gradient that comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// f32 results that are stored as half: a cast site with an exponent and statistics of its own. The factor is
    /// applied to the f32 accumulators, before the one rounding.
    Site,
    /// Copies and zeros: the exponent passes through, nothing is rounded.
    Pass,
    /// A loss: here the tuple begins as ⟨α₀, ∂L⟩.
    Start,
    /// There is no data gradient.
    Nothing,
}

macro_rules! ops {
    ($($(#[$doc:meta])* $variant:ident $name:literal $list:ident $flow:ident,)*) => {
        /// An operator of a network.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Op { $($(#[$doc])* $variant,)* }

        impl Op {
            /// Every operator.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name that people write and read.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The list on which it stands unless the user says otherwise.
            #[must_use]
            pub const fn list(self) -> List {
                match self { $(Self::$variant => List::$list,)* }
            }

            /// What becomes of the exponent at its data gradient, where that is stored as half. An operator that runs
            /// in f32 and hands an f32 gradient on keeps the exponent; the cast behind it is the site.
            #[must_use]
            pub const fn flow(self) -> Flow {
                match self { $(Self::$variant => Flow::$flow,)* }
            }
        }
    };
}

// One row is all that an operator is by name: the name, its list, and the flow of its data gradient.
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
    /// Sum of two tensors.
    Add "add" Infer Pass,
    /// Difference.
    Sub "sub" Infer Pass,
    /// Product, element by element.
    Mul "mul" Infer Site,
    /// Quotient, element by element.
    Div "div" Infer Site,
    /// −x.
    Neg "neg" Infer Pass,
    /// |x|.
    Abs "abs" Infer Pass,
    /// 1 or −1.
    Sign "sign" Infer Nothing,
    /// 1 / x.
    Reciprocal "reciprocal" Infer Site,
    /// A constant times x.
    Scale "scale" Infer Site,
    /// max(x, 0).
    Relu "relu" Infer Pass,
    /// x above 0, a slope times x elsewhere.
    LeakyRelu "leaky_relu" Infer Site,
    /// Gaussian error linear unit.
    Gelu "gelu" Infer Site,
    /// Error function.
    Erf "erf" Infer Site,
    /// x·sigmoid(x).
    Silu "silu" Infer Site,
    /// x·min(max(x + 3, 0), 6) / 6.
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
    /// Unpooling to the places a max-pooling chose.
    Unpool "unpool" Infer Pass,
    /// Boxes of images, resampled to one size.
    RoiAlign "roi_align" Infer Site,
    /// Boxes of images, the largest value of each part.
    RoiPool "roi_pool" Infer Site,
    /// Upsampling by interpolation.
    Interpolate "interpolate" Infer Site,
    /// Other shape, same values.
    Reshape "reshape" Infer Pass,
    /// Permutation of axes.
    Transpose "transpose" Infer Pass,
    /// Part of a tensor.
    Slice "slice" Infer Pass,
    /// Concatenation: backward it splits, and its parts take the exponent.
    Concat "concat" Infer Pass,
    /// Values where a condition holds, 0 elsewhere.
    Select "select" Infer Pass,
    /// Splitting into parts: backward it concatenates parts that may have different exponents.
    Split "split" Infer Site,
    /// The same values once more along axes of size 1.
    Expand "expand" Infer Site,
    /// Rows of a table.
    Embedding "embedding" Infer Nothing,
    /// Rows chosen by index.
    Gather "gather" Infer Site,
    /// 1 at the place of a label, 0 elsewhere.
    OneHot "one_hot" Infer Nothing,
    /// Index of the largest.
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

    /// The operator of that name.
    fn from_str(name: &str) -> Result<Self, UnknownOp> {
        Self::ALL.iter().copied().find(|op| op.name() == name).ok_or(UnknownOp)
    }
}

/// No operator has that name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UnknownOp;

impl fmt::Display for UnknownOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no operator has that name")
    }
}

crate::sentence!(UnknownOp);

impl core::error::Error for UnknownOp {}
