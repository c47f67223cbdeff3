//! Functions of halves that cost more than a look into memory: a half has 65 536 values, so that a table has all results.
//! Its numbers are those of the function itself, to the bit.

use crate::Isa;
use gradscale_core::ops::Unary;
use half::f16;
use std::sync::OnceLock;

/// Values of a half.
const VALUES: usize = 1 << 16;

/// What a half's bits lead to.
pub type Results = [f32; VALUES];

/// Replaces numbers by their results.
type Kernel = fn(Isa, &mut [f32]);

/// Tables, each made when it is first wanted.
#[derive(Debug, Default)]
pub struct Tables {
    functions: [OnceLock<Box<Results>>; 7],
    slopes: [OnceLock<Box<Results>>; 3],
}

impl Tables {
    /// A function of halves, where a table of it serves so many elements.
    pub fn function(&self, isa: Isa, op: Unary, len: usize) -> Option<&Results> {
        let (place, kernel): (_, Kernel) = match op {
            Unary::Exp => (0, Isa::exp),
            Unary::Ln => (1, Isa::ln),
            Unary::Sigmoid => (2, Isa::sigmoid),
            Unary::Silu => (3, Isa::silu),
            Unary::Tanh => (4, Isa::tanh),
            Unary::Erf => (5, Isa::erf),
            Unary::Gelu => (6, Isa::gelu),
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
            | Unary::Pow(_) => return None,
        };
        table(&self.functions[place], isa, kernel, len)
    }

    /// The slope of a function of halves, likewise.
    pub fn slope(&self, isa: Isa, op: Unary, len: usize) -> Option<&Results> {
        let (place, kernel): (_, Kernel) = match op {
            Unary::Silu => (0, Isa::silu_slope),
            Unary::Gelu => (1, Isa::gelu_slope),
            Unary::Erf => (2, Isa::erf_slope),
            // These are made from the result, by few operations.
            Unary::Exp | Unary::Ln | Unary::Sigmoid | Unary::Tanh | Unary::Sqrt | Unary::Recip => return None,
            Unary::Id
            | Unary::Neg
            | Unary::Abs
            | Unary::Sign
            | Unary::Hardswish
            | Unary::Relu
            | Unary::LeakyRelu(_)
            | Unary::Affine { .. }
            | Unary::Dropout { .. }
            | Unary::Pow(_) => return None,
        };
        table(&self.slopes[place], isa, kernel, len)
    }
}

/// The table of a function, unless it has more results than are asked for.
fn table(found: &OnceLock<Box<Results>>, isa: Isa, kernel: Kernel, len: usize) -> Option<&Results> {
    (len >= VALUES).then(|| {
        &**found.get_or_init(|| {
            let mut results: Box<[f32]> = (0..=u16::MAX).map(|bits| f16::from_bits(bits).to_f32()).collect();
            kernel(isa, &mut results);
            results.try_into().expect("as many as values")
        })
    })
}

/// The results of halves.
pub fn look_up(results: &Results, x: &[f16], out: &mut [f32]) {
    for (x, out) in x.iter().zip(out) {
        *out = results[usize::from(x.to_bits())];
    }
}
