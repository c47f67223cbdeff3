//! Texts of the functions that elementwise kernels apply. A pipeline has the text of one, because drivers compile all that a
//! text has before they remove what is never reached. With all functions in it, lavapipe took 1.3 s instead of 0.5 for a
//! binary function.

use gradscale_core::{
    ops::{BinaryOp, Unary},
    store_format::StoreFormat,
};

/// Function of an elementwise kernel, as WGSL text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionText {
    /// Name of the function, unique among those of one kernel.
    pub name: &'static str,
    /// Texts that follow each other: the function, what a kernel applies of it, and how to eight values.
    pub parts: [&'static str; 3],
    /// Format to which the kernel's store rounds.
    pub format: StoreFormat,
}

const APPLY_VALUE: &str = include_str!("../kernels/apply_value.wgsl");
const APPLY_GRADIENT: &str = include_str!("../kernels/apply_gradient.wgsl");
const APPLY_UNROLLED: &str = include_str!("../kernels/apply_unrolled.wgsl");
const APPLY_LOOP: &str = include_str!("../kernels/apply_loop.wgsl");

/// Name and text of the file of a function.
macro_rules! file {
    ($name:literal) => {
        ($name, include_str!(concat!("../kernels/functions/", $name, ".wgsl")))
    };
}

impl FunctionText {
    /// Returns the text that applies a unary function.
    pub const fn for_unary(op: Unary) -> Self {
        let (name, text) = unary_file(op);
        Self { name, parts: [text, APPLY_VALUE, APPLY_UNROLLED], format: StoreFormat::Fp16 }
    }

    /// Returns the text that applies nothing before a store in a format.
    pub const fn for_format(format: StoreFormat) -> Self {
        Self { name: format.name(), format, ..Self::for_unary(Unary::Id) }
    }

    /// Returns the text that applies a binary function.
    pub const fn for_binary(op: BinaryOp) -> Self {
        let (name, text) = match op {
            BinaryOp::Add => file!("add"),
            BinaryOp::Sub => file!("sub"),
            BinaryOp::Mul => file!("mul"),
            BinaryOp::Div => file!("div"),
            BinaryOp::Max => file!("max"),
            BinaryOp::Grad(unary) => {
                let (name, text) = unary_file(unary);
                let times = if has_short_gradient(unary) { APPLY_UNROLLED } else { APPLY_LOOP };
                return Self { name, parts: [text, APPLY_GRADIENT, times], format: StoreFormat::Fp16 };
            }
        };
        let times = if matches!(op, BinaryOp::Div) { APPLY_LOOP } else { APPLY_UNROLLED };
        Self { name, parts: [text, "", times], format: StoreFormat::Fp16 }
    }
}

const fn unary_file(op: Unary) -> (&'static str, &'static str) {
    match op {
        Unary::Id => file!("id"),
        Unary::Neg => file!("neg"),
        Unary::Abs => file!("abs"),
        Unary::Sign => file!("sign"),
        Unary::Relu => file!("relu"),
        Unary::LeakyRelu(_) => file!("leaky_relu"),
        Unary::Tanh => file!("tanh"),
        Unary::Sigmoid => file!("sigmoid"),
        Unary::Gelu => file!("gelu"),
        Unary::Silu => file!("silu"),
        Unary::Hardswish => file!("hardswish"),
        Unary::Erf => file!("erf"),
        Unary::Sin => file!("sin"),
        Unary::Cos => file!("cos"),
        Unary::Exp => file!("exp"),
        Unary::Ln => file!("ln"),
        Unary::Sqrt => file!("sqrt"),
        Unary::Recip => file!("recip"),
        Unary::Pow(_) => file!("pow"),
        Unary::Affine { .. } => file!("affine"),
        Unary::Dropout { .. } => file!("dropout"),
    }
}

/// Returns true for functions whose gradient is so short that eight copies of its text are faster than a loop.
const fn has_short_gradient(op: Unary) -> bool {
    match op {
        Unary::Id
        | Unary::Neg
        | Unary::Abs
        | Unary::Sign
        | Unary::Relu
        | Unary::LeakyRelu(_)
        | Unary::Tanh
        | Unary::Sigmoid
        | Unary::Hardswish
        | Unary::Exp
        | Unary::Recip
        | Unary::Affine { .. } => true,
        Unary::Gelu
        | Unary::Silu
        | Unary::Erf
        | Unary::Sin
        | Unary::Cos
        | Unary::Ln
        | Unary::Sqrt
        | Unary::Pow(_)
        | Unary::Dropout { .. } => false,
    }
}
