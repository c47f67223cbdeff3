//! What is normalised, as kernels take it.

use crate::{Memory, arch::Isa, elementwise::load};
use half::f16;

/// Elements of some operands, all of one type.
#[derive(Clone, Copy)]
pub enum Operands<'a, const N: usize> {
    /// As they lie in memory.
    Halves([&'a [f16]; N]),
    /// Converted.
    Floats([&'a [f32]; N]),
}

impl<'a, const N: usize> Operands<'a, N> {
    /// The elements from one on: as they are if all are halves that vectors widen, else in the blocks, as many as these hold.
    pub fn new(isa: Isa, operands: [&'a Memory; N], start: usize, blocks: [&'a mut [f32]; N]) -> Self {
        let len = blocks[0].len();
        let mut halves = [&[][..]; N];
        let all = operands.iter().zip(&mut halves).all(|(operand, halves)| {
            let Memory::F16(x) = operand else { return false };
            *halves = &x[start..start + len];
            true
        });
        if all && isa.widens_lanes() {
            return Self::Halves(halves);
        }
        let mut operands = operands.into_iter();
        Self::Floats(blocks.map(|block| {
            if let Some(operand) = operands.next() {
                load(isa, operand, start, block);
            }
            &*block
        }))
    }
}

/// Does the same with either type of operands.
macro_rules! either {
    ($operands:expr, $x:ident => $work:expr) => {
        match $operands {
            $crate::norm::operands::Operands::Halves($x) => $work,
            $crate::norm::operands::Operands::Floats($x) => $work,
        }
    };
}

pub(super) use either;
