//! Functions of halves that cost more than a look into memory: a half has 65 536 values, so that a table has all results.
//! Its numbers are those of the function itself, to the bit.

use crate::{
    Isa,
    arch::{F16_VALUES, F16Lut},
};
use gradscale_core::ops::Unary;
use half::f16;
use std::sync::OnceLock;

/// Replaces numbers by their results.
type Kernel = fn(Isa, &mut [f32]);

/// What is looked up: functions, and slopes where these are not made from the result by few operations.
const TABULATED_FUNCTIONS: [(Kernel, Option<Kernel>); 7] = [
    (Isa::exp, None),
    (Isa::ln, None),
    (Isa::sigmoid, None),
    (Isa::silu, Some(Isa::silu_slope)),
    (Isa::tanh, None),
    (Isa::erf, Some(Isa::erf_slope)),
    (Isa::gelu, Some(Isa::gelu_slope)),
];

/// The place of a function among them; none if it costs less than a look.
const fn table_index(op: Unary) -> Option<usize> {
    match op {
        Unary::Exp => Some(0),
        Unary::Ln => Some(1),
        Unary::Sigmoid => Some(2),
        Unary::Silu => Some(3),
        Unary::Tanh => Some(4),
        Unary::Erf => Some(5),
        Unary::Gelu => Some(6),
        Unary::Id
        | Unary::Neg
        | Unary::Abs
        | Unary::Sign
        | Unary::Hardswish
        | Unary::Relu
        | Unary::LeakyRelu(_)
        | Unary::Affine { .. }
        | Unary::Sqrt
        | Unary::Recip
        | Unary::Dropout { .. }
        // One table for each power would be needed.
        | Unary::Pow(_) => None,
    }
}

/// LookupTables, each made when it is first wanted.
#[derive(Debug, Default)]
pub struct LookupTables {
    functions: [OnceLock<Box<F16Lut>>; TABULATED_FUNCTIONS.len()],
    slopes: [OnceLock<Box<F16Lut>>; TABULATED_FUNCTIONS.len()],
}

impl LookupTables {
    /// A function of halves, where a table of it serves so many elements.
    pub fn function(&self, isa: Isa, op: Unary, len: usize) -> Option<&F16Lut> {
        let index = table_index(op)?;
        get_or_fill(&self.functions[index], isa, TABULATED_FUNCTIONS[index].0, len)
    }

    /// The slope of a function of halves, likewise.
    pub fn slope(&self, isa: Isa, op: Unary, len: usize) -> Option<&F16Lut> {
        let index = table_index(op)?;
        get_or_fill(&self.slopes[index], isa, TABULATED_FUNCTIONS[index].1?, len)
    }
}

/// The table of a function, unless it has more results than are asked for.
fn get_or_fill(found: &OnceLock<Box<F16Lut>>, isa: Isa, kernel: Kernel, len: usize) -> Option<&F16Lut> {
    (len >= F16_VALUES).then(|| {
        &**found.get_or_init(|| {
            let mut lut: Box<[f32]> = (0..=u16::MAX).map(|bits| f16::from_bits(bits).to_f32()).collect();
            kernel(isa, &mut lut);
            lut.try_into().expect("as many as values")
        })
    })
}
