//! Table of operators by name. A row answers three questions: in which precision does the operator run
//! ([`crate::amp`]), how does it change the exponent of a gradient ([`crate::gradient_rules`]), and how the exponents of
//! activations ([`crate::activation_rules`])?

use core::fmt;

/// Autocast list of an operator, which determines its precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    /// Autocast list "allow": runs in half, because it is fast there and loses no accuracy.
    Allow,
    /// Autocast list "deny": runs in f32. Exponentials, logarithms, powers, large reductions, softmax, losses.
    Deny,
    /// Autocast list "inside": computes in f32 and stores in the type of its input. For normalisations; a variant of
    /// deny that needs no casts.
    Inside,
    /// Autocast list "infer": runs in the type of its inputs; of several, the widest type wins.
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

/// Effect of an operator's gradient on the exponent of the incoming gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GradientFlow {
    /// Cast site with its own exponent and statistics: f32 results are stored as half. The factor is applied to the f32
    /// accumulators, before the only rounding.
    Cast,
    /// Copies and zeros: the exponent of the gradient passes through, and nothing is rounded.
    PassThrough,
    /// A loss, where the scaled gradient starts as ⟨α₀, ∂L⟩.
    Loss,
    /// The operator has no gradient for its input data.
    None,
}

/// Effect of an operator on the exponents of its inputs, in a forward pass whose stores have exponents
/// ([`crate::activation_rules`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActivationFlow {
    /// Products and convolutions: the exponents of both operands are added. A bias is scaled to their sum.
    Product,
    /// Sums and concatenations: all inputs are brought to one exponent.
    Common,
    /// Operators with f(2^a·x) = 2^a·f(x), for example ReLU: the result has the exponent of the first input.
    Homogeneous,
    /// All others read true values, and their results have exponent 0. For example, GELU is not homogeneous, and the ε
    /// of a normalisation has no exponent.
    TrueValues,
}

macro_rules! ops {
    ($($(#[$doc:meta])* $variant:ident $name:literal $list:ident $flow:ident $activation:ident,)*) => {
        /// Operator of a network, as a name with an autocast list and the flows of its gradient and of activations.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Op { $($(#[$doc])* $variant,)* }

        impl Op {
            /// All operators of networks, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the operator's name in files and messages, for example `conv`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns the default autocast list of the operator.
            #[must_use]
            pub const fn list(self) -> List {
                match self { $(Self::$variant => List::$list,)* }
            }

            /// Returns the effect on the exponent of the operator's data gradient if that is stored as half. An
            /// operator that runs in f32 and returns an f32 gradient keeps the exponent; the cast after it is the site.
            #[must_use]
            pub const fn flow(self) -> GradientFlow {
                match self { $(Self::$variant => GradientFlow::$flow,)* }
            }

            /// Returns the effect on the exponents of activations, before the result is stored at its own.
            #[must_use]
            pub const fn activation_flow(self) -> ActivationFlow {
                match self { $(Self::$variant => ActivationFlow::$activation,)* }
            }
        }
    };
}

// One row defines everything about an operator name: the name, its list, the flow of its data gradient, and the flow of
// activations.
ops! {
    /// Operator `matmul`: product of two matrices.
    Matmul "matmul" Allow Cast Product,
    /// Operator `batched_matmul`: products of many pairs of matrices.
    BatchedMatmul "batched_matmul" Allow Cast Product,
    /// Operator `linear`: fully connected layer.
    Linear "linear" Allow Cast Product,
    /// Operator `conv`: convolution.
    Conv "conv" Allow Cast Product,
    /// Operator `conv_transpose`: transposed convolution.
    ConvTranspose "conv_transpose" Allow Cast Product,
    /// Operator `recurrent`: cell of a recurrent network.
    Recurrent "recurrent" Allow Cast Product,
    /// Operator `exp`: e^x.
    Exp "exp" Deny Cast TrueValues,
    /// Operator `log`: ln x.
    Log "log" Deny Cast TrueValues,
    /// Operator `pow`: x^p.
    Pow "pow" Deny Cast TrueValues,
    /// Operator `sqrt`: √x.
    Sqrt "sqrt" Deny Cast TrueValues,
    /// Operator `sum`: sum over many values.
    Sum "sum" Deny PassThrough Homogeneous,
    /// Operator `mean`: mean over many values.
    Mean "mean" Deny Cast Homogeneous,
    /// Operator `cumsum`: cumulative sums along an axis.
    Cumsum "cumsum" Deny Cast Homogeneous,
    /// Operator `norm`: vector norm.
    Norm "norm" Deny Cast TrueValues,
    /// Operator `softmax`: exponentials of a row, divided by their sum.
    Softmax "softmax" Deny Cast TrueValues,
    /// Operator `log_softmax`: logarithm of softmax.
    LogSoftmax "log_softmax" Deny Cast TrueValues,
    /// Operator `batch_norm`: batch normalisation.
    BatchNorm "batch_norm" Inside Cast TrueValues,
    /// Operator `layer_norm`: layer normalisation.
    LayerNorm "layer_norm" Inside Cast TrueValues,
    /// Operator `group_norm`: group normalisation.
    GroupNorm "group_norm" Inside Cast TrueValues,
    /// Operator `rms_norm`: root-mean-square normalisation.
    RmsNorm "rms_norm" Inside Cast TrueValues,
    /// Operator `local_response_norm`: local response normalisation, as in AlexNet.
    LocalResponseNorm "local_response_norm" Inside Cast TrueValues,
    /// Operator `cross_entropy`: softmax cross-entropy loss.
    CrossEntropy "cross_entropy" Deny Loss TrueValues,
    /// Operator `ctc_loss`: connectionist temporal classification loss.
    CtcLoss "ctc_loss" Deny Loss TrueValues,
    /// Operator `binary_cross_entropy`: binary cross-entropy loss on logits.
    BinaryCrossEntropy "binary_cross_entropy" Deny Loss TrueValues,
    /// Operator `mse_loss`: mean squared error.
    MseLoss "mse_loss" Deny Loss TrueValues,
    /// Operator `l1_loss`: mean absolute error.
    L1Loss "l1_loss" Deny Loss TrueValues,
    /// Operator `smooth_l1_loss`: smooth L1 loss (Huber).
    SmoothL1Loss "smooth_l1_loss" Deny Loss TrueValues,
    /// Operator `focal_loss`: cross-entropy with less weight on easy examples.
    FocalLoss "focal_loss" Deny Loss TrueValues,
    /// Operator `add`: sum of two tensors.
    Add "add" Infer PassThrough Common,
    /// Operator `sub`: difference of two tensors.
    Sub "sub" Infer PassThrough TrueValues,
    /// Operator `mul`: product of two tensors, element by element.
    Mul "mul" Infer Cast Product,
    /// Operator `div`: quotient of two tensors, element by element.
    Div "div" Infer Cast TrueValues,
    /// Operator `neg`: −x.
    Neg "neg" Infer PassThrough Homogeneous,
    /// Operator `abs`: |x|.
    Abs "abs" Infer PassThrough Homogeneous,
    /// Operator `sign`: sign of x, 1 or −1.
    Sign "sign" Infer None TrueValues,
    /// Operator `reciprocal`: 1 / x.
    Reciprocal "reciprocal" Infer Cast TrueValues,
    /// Operator `scale`: a constant times x.
    Scale "scale" Infer Cast Homogeneous,
    /// Operator `relu`: max(x, 0).
    Relu "relu" Infer PassThrough Homogeneous,
    /// Operator `leaky_relu`: x above 0, a slope times x elsewhere.
    LeakyRelu "leaky_relu" Infer Cast Homogeneous,
    /// Operator `gelu`: Gaussian error linear unit, x·Φ(x).
    Gelu "gelu" Infer Cast TrueValues,
    /// Operator `erf`: error function.
    Erf "erf" Infer Cast TrueValues,
    /// Operator `sin`: sine.
    Sin "sin" Infer Cast TrueValues,
    /// Operator `cos`: cosine.
    Cos "cos" Infer Cast TrueValues,
    /// Operator `silu`: x·sigmoid(x).
    Silu "silu" Infer Cast TrueValues,
    /// Operator `hardswish`: x·min(max(x + 3, 0), 6) / 6.
    Hardswish "hardswish" Infer Cast TrueValues,
    /// Operator `sigmoid`: logistic function.
    Sigmoid "sigmoid" Infer Cast TrueValues,
    /// Operator `tanh`: hyperbolic tangent.
    Tanh "tanh" Infer Cast TrueValues,
    /// Operator `maximum`: larger or smaller of two tensors' values, element by element.
    Maximum "maximum" Infer Cast TrueValues,
    /// Operator `max`: maximum or minimum along an axis.
    Max "max" Infer PassThrough Homogeneous,
    /// Operator `top_k`: largest values along an axis.
    TopK "top_k" Infer PassThrough Homogeneous,
    /// Operator `dropout`: sets random elements to zero in training.
    Dropout "dropout" Infer Cast Homogeneous,
    /// Operator `max_pool`: max-pooling with windows that do not overlap.
    MaxPool "max_pool" Infer PassThrough Homogeneous,
    /// Operator `max_pool_overlapping`: max-pooling with overlapping windows.
    MaxPoolOverlapping "max_pool_overlapping" Infer Cast Homogeneous,
    /// Operator `average_pool`: average or global pooling.
    AveragePool "average_pool" Infer Cast Homogeneous,
    /// Operator `unpool`: values at the positions that a max-pooling selected, 0 elsewhere.
    Unpool "unpool" Infer PassThrough Homogeneous,
    /// Operator `roi_align`: boxes of images, resampled to one size.
    RoiAlign "roi_align" Infer Cast Homogeneous,
    /// Operator `roi_pool`: boxes of images, with the maximum of each bin.
    RoiPool "roi_pool" Infer Cast Homogeneous,
    /// Operator `interpolate`: upsampling by interpolation.
    Interpolate "interpolate" Infer Cast TrueValues,
    /// Operator `reshape`: change of shape without a change of values.
    Reshape "reshape" Infer PassThrough Homogeneous,
    /// Operator `transpose`: permutation of the axes of a tensor.
    Transpose "transpose" Infer PassThrough Homogeneous,
    /// Operator `slice`: part of a tensor along an axis.
    Slice "slice" Infer PassThrough Homogeneous,
    /// Operator `concat`: concatenation of tensors. Its gradient is split, and the parts keep the exponent.
    Concat "concat" Infer PassThrough Common,
    /// Operator `select`: values where a condition holds, 0 or other values elsewhere.
    Select "select" Infer PassThrough TrueValues,
    /// Operator `split`: parts of a tensor. Its gradient is a concatenation of parts that may have different exponents.
    Split "split" Infer Cast Homogeneous,
    /// Operator `expand`: repetition of values along axes of size 1.
    Expand "expand" Infer Cast Homogeneous,
    /// Operator `embedding`: lookup of table rows by index.
    Embedding "embedding" Infer None TrueValues,
    /// Operator `gather`: rows of a tensor, selected by index.
    Gather "gather" Infer Cast TrueValues,
    /// Operator `one_hot`: 1 at the index of a label, 0 elsewhere.
    OneHot "one_hot" Infer None TrueValues,
    /// Operator `argmax`: index of the maximum.
    ArgMax "argmax" Infer None TrueValues,
    /// Operator `custom`: operator of a user, with a gradient of its own.
    Custom "custom" Infer Cast Homogeneous,
    /// Operator `cast`: change of precision.
    Cast "cast" Infer Cast Homogeneous,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl core::str::FromStr for Op {
    type Err = UnknownOp;

    /// Parses an operator from its name, for example `conv`.
    fn from_str(name: &str) -> Result<Self, UnknownOp> {
        Self::ALL.iter().copied().find(|op| op.name() == name).ok_or(UnknownOp)
    }
}

/// Error: no operator has the parsed name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UnknownOp;

impl fmt::Display for UnknownOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no operator has this name")
    }
}

crate::sentence!(UnknownOp);

impl core::error::Error for UnknownOp {}
