//! Operands of a normalisation: halves in memory, or converted f32.

use crate::{Cpu, Memory, elementwise::load_f32, workspace::Workspace};
use half::f16;

/// Elements of N operands of a normalisation, all of one type.
pub enum Operands<'a, const N: usize> {
    /// f16 operands, read in place.
    Halves([&'a [f16]; N]),
    /// f32 operands, converted to a workspace.
    Floats([Workspace<'a>; N]),
}

impl<'a, const N: usize> Operands<'a, N> {
    /// Returns `len` elements from `start` on: in memory if all are halves and the instruction set loads halves
    /// directly.
    pub fn new(cpu: &'a Cpu, operands: [&'a Memory; N], start: usize, len: usize) -> Self {
        let mut halves = [&[][..]; N];
        let all = operands.iter().zip(&mut halves).all(|(operand, halves)| {
            let Memory::F16(x) = operand else { return false };
            *halves = &x[start..start + len];
            true
        });
        if all && cpu.isa().loads_f16_directly() {
            return Self::Halves(halves);
        }
        Self::Floats(operands.map(|operand| {
            let mut block = cpu.workspace(len);
            load_f32(cpu.isa(), operand, start, &mut block);
            block
        }))
    }
}

/// Macro: evaluates an expression for operands of either type.
macro_rules! with_operands {
    ($operands:expr, $x:ident => $work:expr) => {
        match $operands {
            $crate::norm::operands::Operands::Halves($x) => $work,
            $crate::norm::operands::Operands::Floats(blocks) => {
                let $x = blocks.each_ref().map(|block| &**block);
                $work
            }
        }
    };
}

pub(super) use with_operands;
