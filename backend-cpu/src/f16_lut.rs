//! Lookup tables of functions of halves. A half has 65,536 values, so that a table holds all results. Its numbers have
//! the same bits as the function.

use crate::{
    Isa,
    arch::{F16_VALUES, F16Lut},
    sine::{cosine, negative_sine, sine},
};
use gradscale_core::ops::Unary;
use half::f16;
use std::sync::OnceLock;

/// Function with which a lookup table is filled: replaces numbers by its results.
type TabulatedFunction = fn(Isa, &mut [f32]);

/// Functions with a lookup table, and their slopes where these do not follow from the result in a few operations.
const TABULATED_FUNCTIONS: [(TabulatedFunction, Option<TabulatedFunction>); 9] = [
    (Isa::exp, None),
    (Isa::ln, None),
    (Isa::sigmoid, None),
    (Isa::silu, Some(Isa::silu_slope)),
    (Isa::tanh, None),
    (Isa::erf, Some(Isa::erf_slope)),
    (Isa::gelu, Some(Isa::gelu_slope)),
    (|_, x| sine(x), Some(|_, x| cosine(x))),
    (|_, x| cosine(x), Some(|_, x| negative_sine(x))),
];

/// Returns the index of a function among the lookup tables; `None` if computing it is cheaper than a lookup.
const fn table_index(op: Unary) -> Option<usize> {
    match op {
        Unary::Exp => Some(0),
        Unary::Ln => Some(1),
        Unary::Sigmoid => Some(2),
        Unary::Silu => Some(3),
        Unary::Tanh => Some(4),
        Unary::Erf => Some(5),
        Unary::Gelu => Some(6),
        Unary::Sin => Some(7),
        Unary::Cos => Some(8),
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
        // Every exponent would need its own table.
        | Unary::Pow(_) => None,
    }
}

/// Lookup tables of functions of halves and of their slopes, each filled when it is first used.
#[derive(Debug, Default)]
pub struct LookupTables {
    functions: [OnceLock<Box<F16Lut>>; TABULATED_FUNCTIONS.len()],
    slopes: [OnceLock<Box<F16Lut>>; TABULATED_FUNCTIONS.len()],
}

impl LookupTables {
    /// Returns the lookup table of a function if it is used for enough elements.
    pub fn function(&self, isa: Isa, op: Unary, len: usize) -> Option<&F16Lut> {
        let index = table_index(op)?;
        get_or_fill(&self.functions[index], isa, TABULATED_FUNCTIONS[index].0, len)
    }

    /// Returns the lookup table of a function's slope if it is used for enough elements.
    pub fn slope(&self, isa: Isa, op: Unary, len: usize) -> Option<&F16Lut> {
        let index = table_index(op)?;
        get_or_fill(&self.slopes[index], isa, TABULATED_FUNCTIONS[index].1?, len)
    }
}

/// Returns a table, filled on first use; `None` for fewer elements than the table has.
fn get_or_fill(found: &OnceLock<Box<F16Lut>>, isa: Isa, function: TabulatedFunction, len: usize) -> Option<&F16Lut> {
    (len >= F16_VALUES).then(|| {
        &**found.get_or_init(|| {
            let mut lut: Box<[f32]> = (0..=u16::MAX).map(|bits| f16::from_bits(bits).to_f32()).collect();
            function(isa, &mut lut);
            lut.try_into().expect("as many as values")
        })
    })
}
