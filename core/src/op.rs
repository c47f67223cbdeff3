//! Operators by name, for the two questions that depend on nothing else: which precision they run in
//! ([`crate::amp`]) and what becomes of a scale at them ([`crate::rules`]).

use core::fmt;

macro_rules! ops {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
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
        }
    };
}

ops! {
    /// Product of two matrices.
    Matmul "matmul",
    /// Batched product of matrices.
    BatchedMatmul "batched_matmul",
    /// Linear layer.
    Linear "linear",
    /// Convolution.
    Conv "conv",
    /// Transposed convolution.
    ConvTranspose "conv_transpose",
    /// Recurrent cell.
    Recurrent "recurrent",
    /// e^x.
    Exp "exp",
    /// ln x.
    Log "log",
    /// x^p.
    Pow "pow",
    /// √x.
    Sqrt "sqrt",
    /// Sum over many values.
    Sum "sum",
    /// Mean over many values.
    Mean "mean",
    /// Vector norm.
    Norm "norm",
    /// Softmax.
    Softmax "softmax",
    /// Logarithm of softmax.
    LogSoftmax "log_softmax",
    /// Batch normalisation.
    BatchNorm "batch_norm",
    /// Layer normalisation.
    LayerNorm "layer_norm",
    /// Group normalisation.
    GroupNorm "group_norm",
    /// Root-mean-square normalisation.
    RmsNorm "rms_norm",
    /// Local response normalisation.
    LocalResponseNorm "local_response_norm",
    /// Cross-entropy.
    CrossEntropy "cross_entropy",
    /// Binary cross-entropy on logits.
    BinaryCrossEntropy "binary_cross_entropy",
    /// Mean squared error.
    MseLoss "mse_loss",
    /// Mean absolute error.
    L1Loss "l1_loss",
    /// Smooth L1 (Huber).
    SmoothL1Loss "smooth_l1_loss",
    /// Focal loss.
    FocalLoss "focal_loss",
    /// Sum of two tensors.
    Add "add",
    /// Difference.
    Sub "sub",
    /// Product, element by element.
    Mul "mul",
    /// Quotient, element by element.
    Div "div",
    /// −x.
    Neg "neg",
    /// |x|.
    Abs "abs",
    /// 1 or −1.
    Sign "sign",
    /// 1 / x.
    Reciprocal "reciprocal",
    /// A constant times x.
    Scale "scale",
    /// max(x, 0).
    Relu "relu",
    /// Gaussian error linear unit.
    Gelu "gelu",
    /// Error function.
    Erf "erf",
    /// x·sigmoid(x).
    Silu "silu",
    /// x·min(max(x + 3, 0), 6) / 6.
    Hardswish "hardswish",
    /// Logistic function.
    Sigmoid "sigmoid",
    /// Hyperbolic tangent.
    Tanh "tanh",
    /// Dropout.
    Dropout "dropout",
    /// Max-pooling with windows that do not overlap.
    MaxPool "max_pool",
    /// Max-pooling with overlapping windows.
    MaxPoolOverlapping "max_pool_overlapping",
    /// Average or global pooling.
    AveragePool "average_pool",
    /// Unpooling to the places a max-pooling chose.
    Unpool "unpool",
    /// Upsampling by interpolation.
    Interpolate "interpolate",
    /// Other shape, same values.
    Reshape "reshape",
    /// Permutation of axes.
    Transpose "transpose",
    /// Part of a tensor.
    Slice "slice",
    /// Concatenation.
    Concat "concat",
    /// Splitting into parts.
    Split "split",
    /// The same values once more along axes of size 1.
    Expand "expand",
    /// Rows of a table.
    Embedding "embedding",
    /// Index of the largest.
    ArgMax "argmax",
    /// Change of precision.
    Cast "cast",
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
