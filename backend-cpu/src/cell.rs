//! Rows of products and of states that steps of recurrent cells read and write.

use crate::{Memory, arch::Isa, elementwise::load_f32};
use gradscale_core::{
    backend::{Buffer, CellArgs},
    ops::CellStep,
};
use std::sync::{Mutex, PoisonError};

/// Number of sums to which products are added at a time.
const BLOCK_UNITS: usize = 1024;

/// Loads the products with the inputs of a row of a step into `gates`, and adds those with the hidden state to the first
/// `summed` of them.
pub(crate) fn load_gates<const GATES: u32>(
    isa: Isa, p: &CellStep<GATES>, x: CellArgs<&Memory>, row: usize, gates: &mut [f32], summed: usize,
) {
    load_f32(isa, x.x, start_in_x(p, row), gates);
    // Units come in blocks, so that the products with h need no memory of their own.
    let (mut of_hidden, width) = ([0.0; BLOCK_UNITS], gates.len());
    for (block, sums) in gates[..summed].chunks_mut(BLOCK_UNITS).enumerate() {
        let of_hidden = &mut of_hidden[..sums.len()];
        load_f32(isa, x.h, row * width + block * BLOCK_UNITS, of_hidden);
        isa.zip(sums, of_hidden, |x, h| x + h);
    }
}

fn start_in_x<const GATES: u32>(p: &CellStep<GATES>, row: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "below the number of rows")]
    let row = row as u32;
    p.x_of_row(row) as usize
}

/// Rows of f32 memory that is written besides a store. Each row is written by one thread.
pub(crate) struct RowsBeside<'a>(Vec<Mutex<&'a mut [f32]>>);

impl<'a> RowsBeside<'a> {
    /// Creates the rows of a state.
    pub fn of_state<const GATES: u32>(state: &'a mut Memory, p: &CellStep<GATES>) -> Self {
        let hidden = p.shape()[1] as usize;
        Self(floats(state).chunks_mut(hidden.max(1)).map(Mutex::new).collect())
    }

    /// Creates the rows of the products with the inputs in the step.
    pub fn of_step<const GATES: u32>(products: &'a mut Memory, p: &CellStep<GATES>) -> Self {
        let ([_, hidden], [step, steps]) = (p.shape(), p.step());
        let (width, steps) = ((GATES * hidden) as usize, steps as usize);
        let of_step = |row: &'a mut [f32]| row.chunks_mut(width.max(1)).nth(step as usize);
        Self(floats(products).chunks_mut((steps * width).max(1)).filter_map(of_step).map(Mutex::new).collect())
    }

    /// Writes a row.
    pub fn write(&self, row: usize, write: impl FnOnce(&mut [f32])) {
        write(&mut self.0[row].lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn floats(memory: &mut Memory) -> &mut [f32] {
    match memory {
        Memory::F32(values) => values,
        other => panic!("{:?} beside a store of a cell", other.dtype()),
    }
}
