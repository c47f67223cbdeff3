//! Operators: by name ([`Op`], one row each), and as descriptors with shapes.
//!
//! A descriptor can only be created valid, so a device never checks one again. Each operator's scalar definition and
//! derivative are in this module, once; every kernel is tested against them. Layouts are row-major: activations NHWC,
//! convolution weights OHWI.

mod attention;
mod binary;
mod cell;
mod conv;
mod cross_entropy;
mod ctc;
mod gemm;
mod gru;
mod lstm;
mod norm;
mod op;
mod optimizer;
mod pool;
mod random;
mod reduce;
mod roi_align;
mod roi_pool;
mod rows;
mod softmax;
mod strided;
mod unary;

pub use attention::{Attention, AttentionShape};
pub use binary::{Binary, BinaryOp, Broadcast};
pub use cell::CellStep;
pub use conv::{Conv2d, Pass};
pub use cross_entropy::{CrossEntropy, CrossEntropyRow, Divisor};
pub use ctc::Ctc;
pub use gemm::{Gemm, GemmShape};
pub use gru::{Gru, GruUnit, GruUnitGradient};
pub use lstm::{Lstm, LstmUnit, LstmUnitGradient};
pub use norm::{Norm, NormOver};
pub use op::{ActivationFlow, GradientFlow, List, Op, UnknownOp};
pub use optimizer::{Optimizer, Rule, Step};
pub use pool::{GatherScatter, Pool, PoolOp};
pub use random::{At, dropout_keeps, dropout_threshold, hash};
pub use reduce::{Reduce, ReduceOp};
pub use roi_align::RoiAlign;
pub use roi_pool::RoiPool;
pub use rows::Rows;
pub use softmax::{Softmax, SoftmaxColumns};
pub use strided::{Dim, MAX_DIMS, Strided};
pub use unary::{Saved, Unary};

use core::fmt;

/// Reason why the descriptor of an operator cannot be created.
#[derive(Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum ShapeError {
    /// A stride or dilation is 0, or a leading dimension is below the row's length.
    Stride,
    /// The number of groups is 0 or does not divide the channels.
    Groups,
    /// A window or kernel is empty, larger than the padded input, padded by more than half of its size, or too large
    /// for its offsets.
    Window,
    /// A tensor has more than 2^32 − 1 elements, because row counters on devices are u32.
    TooLarge,
    /// A strided copy has more than [`MAX_DIMS`] dimensions.
    Rank,
    /// A strided copy reads or writes before the start of a buffer, or writes an element twice.
    Overlap,
    /// A reduction over no elements has no value, for example a mean.
    Empty,
    /// A head of an attention is empty or too large for the chip, or the attention has a mask
    /// ([`Attention::new`]).
    Head,
    /// A number is invalid: a decay outside [0, 1), an epsilon that is not positive (for Adam: below 10^-17), a divisor
    /// or threshold that is not positive.
    Value(f32),
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stride => f.write_str("strides and dilations must be positive, leading dimensions at least a row"),
            Self::Groups => f.write_str("the number of groups must divide the channels"),
            Self::Window => f.write_str("the window does not fit the input"),
            Self::TooLarge => f.write_str("more than 2^32 - 1 elements"),
            Self::Rank => write!(f, "more than {MAX_DIMS} dimensions"),
            Self::Overlap => f.write_str("a copy leaves its buffer or writes an element twice"),
            Self::Empty => f.write_str("a reduction over no elements"),
            Self::Head => {
                write!(f, "the attention has a mask, or heads are not of 1 to {} elements", Attention::MAX_HEAD)
            }
            Self::Value(x) => write!(f, "{x} is out of range"),
        }
    }
}

crate::sentence!(ShapeError);

impl core::error::Error for ShapeError {}

/// Computes the number of elements of a tensor, the product of its sizes, which must be below 2^32.
fn elements(sizes: &[u32]) -> Result<u32, ShapeError> {
    sizes.iter().try_fold(1u32, |product, &size| product.checked_mul(size)).ok_or(ShapeError::TooLarge)
}
