//! Numbers that kernels of all devices share.

use crate::{
    descriptor::{BinaryOp, Unary},
    format::Format,
    stats,
};

/// Names and values that kernels may use. Backends inject them (as pipeline constants, as preprocessor definitions);
/// kernels never write the numbers.
#[expect(clippy::cast_possible_truncation, reason = "numbers of words below 2^16")]
pub const ABI: &[(&str, u32)] = &[
    ("F16_SIGN", Format::FP16.sign_mask()),
    ("F16_MAX", Format::FP16.max_bits()),
    ("F16_INFINITY", Format::FP16.max_bits() + 1),
    ("F16_NAN", Format::FP16.nan_bits()),
    ("ROW_WORDS", stats::WORDS as u32),
    ("ROW_LIGHT_WORDS", stats::LIGHT_WORDS as u32),
    ("ROW_BINS", stats::BINS as u32),
    ("DETAIL_COUNTS", stats::Detail::Counts.code()),
    ("DETAIL_FULL", stats::Detail::Full.code()),
    ("DETAIL_MOMENTS", stats::Detail::Moments.code()),
    ("UNARY_ID", Unary::Id.code()),
    ("UNARY_NEG", Unary::Neg.code()),
    ("UNARY_ABS", Unary::Abs.code()),
    ("UNARY_RELU", Unary::Relu.code()),
    ("UNARY_TANH", Unary::Tanh.code()),
    ("UNARY_SIGMOID", Unary::Sigmoid.code()),
    ("UNARY_GELU", Unary::Gelu.code()),
    ("UNARY_SILU", Unary::Silu.code()),
    ("UNARY_ERF", Unary::Erf.code()),
    ("UNARY_EXP", Unary::Exp.code()),
    ("UNARY_LN", Unary::Ln.code()),
    ("UNARY_SQRT", Unary::Sqrt.code()),
    ("UNARY_RECIP", Unary::Recip.code()),
    ("UNARY_POW", Unary::Pow(1.0).code()),
    ("UNARY_AFFINE", Unary::Affine { a: 1.0, b: 0.0 }.code()),
    ("UNARY_DROPOUT", Unary::Dropout { keep: 1.0, stream: 0 }.code()),
    ("UNARY_SIGN", Unary::Sign.code()),
    ("UNARY_HARDSWISH", Unary::Hardswish.code()),
    ("BINARY_ADD", BinaryOp::Add.code()),
    ("BINARY_SUB", BinaryOp::Sub.code()),
    ("BINARY_MUL", BinaryOp::Mul.code()),
    ("BINARY_DIV", BinaryOp::Div.code()),
    ("BINARY_MAX", BinaryOp::Max.code()),
    ("BINARY_GRAD", BinaryOp::Grad(Unary::Id).code()),
];
