//! Operands of steps of recurrent cells, as kernels receive them.

use crate::{Cuda, Error, kernels::Kernel, memory::Memory};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{Buffer, CellArgs, DType},
    ops::CellStep,
};

/// A step as kernels receive it: `Cell` of `cell.cuh`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct CellParams {
    x: u64,
    h: u64,
    state: u64,
    kinds: [u32; 3],
    units: u32,
    hidden: u32,
    step: u32,
    steps: u32,
    unused: u32,
}

/// Threads of a block of the cells' kernels.
const THREADS: u32 = 256;

impl CellParams {
    pub fn new<const GATES: u32>(p: &CellStep<GATES>, x: CellArgs<&Memory>) -> Self {
        let ([_, hidden], [step, steps]) = (p.shape(), p.step());
        Self {
            x: x.x.expect_len(p.x_len() as usize).at(),
            h: x.h.expect_len(p.gates_len() as usize).at(),
            state: x.state.expect_len(p.state_len() as usize).at(),
            kinds: [x.x.kind(), x.h.kind(), x.state.kind()],
            units: p.state_len(),
            hidden,
            step,
            steps,
            unused: 0,
        }
    }

    /// Returns the grid of a kernel for these units.
    pub fn blocks(&self, cuda: &Cuda, kernel: &'static Kernel) -> Result<[u32; 3], Error> {
        let each = if self.hidden.is_multiple_of(8) { 8 } else { 1 };
        Ok([cuda.fill_device(kernel, self.units.div_ceil(each * THREADS))?, 1, 1])
    }
}

/// Returns the address of f32 memory that a cell writes without an epilogue.
pub(crate) fn address_beside(memory: &Memory, len: u32) -> u64 {
    assert_eq!(memory.dtype(), DType::F32, "memory beside the store of a cell");
    memory.expect_len(len as usize).at()
}
