//! Steps of an LSTM cell, and their gradients: one kernel each.

use crate::{
    Cuda, Error,
    kernels::{self, Kernel},
    memory::Memory,
    store::StoreParams,
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{Buffer, DType, LstmArgs, Slot, Store},
    ops::Lstm,
    scaled::Scaled,
};

/// A step as kernels receive it: `LstmCell` of `lstm.cu`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct LstmCell {
    x: u64,
    h: u64,
    c: u64,
    kinds: [u32; 3],
    units: u32,
    hidden: u32,
    step: u32,
    steps: u32,
    unused: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct LstmParams {
    y: StoreParams,
    cell: LstmCell,
    state: u64,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct LstmVjpParams {
    y: StoreParams,
    cell: LstmCell,
    dh: u64,
    dc: u64,
    state: u64,
    dh_kind: u32,
    dc_slot: u32,
}

/// Threads of a block of the cell's kernels.
const THREADS: u32 = 256;

impl LstmCell {
    fn new(p: &Lstm, x: LstmArgs<&Memory>) -> Self {
        let ([_, hidden], [step, steps]) = (p.shape(), p.step());
        Self {
            x: x.x.expect_len(p.x_len() as usize).at(),
            h: x.h.expect_len(p.gates_len() as usize).at(),
            c: x.c.expect_len(p.state_len() as usize).at(),
            kinds: [x.x.kind(), x.h.kind(), x.c.kind()],
            units: p.state_len(),
            hidden,
            step,
            steps,
            unused: 0,
        }
    }

    /// Returns the grid of a kernel for these units.
    fn blocks(&self, cuda: &Cuda, kernel: &'static Kernel) -> Result<[u32; 3], Error> {
        let each = if self.hidden.is_multiple_of(8) { 8 } else { 1 };
        Ok([cuda.fill_device(kernel, self.units.div_ceil(each * THREADS))?, 1, 1])
    }
}

/// Returns the address of a state that is written without an epilogue.
fn state_address(state: &Memory, p: &Lstm) -> u64 {
    assert_eq!(state.dtype(), DType::F32, "the state of a cell");
    state.expect_len(p.state_len() as usize).at()
}

impl Cuda {
    pub(crate) fn run_lstm(
        &self, p: &Lstm, x: LstmArgs<&Memory>, y: &Store<'_, Self>, state: &Memory,
    ) -> Result<(), Error> {
        let cell = LstmCell::new(p, x);
        let blocks = cell.blocks(self, &kernels::LSTM)?;
        let y = self.store(y, p.state_len() as usize, blocks)?;
        let params = LstmParams { y, cell, state: state_address(state, p) };
        // SAFETY: all operands have the descriptor's sizes.
        unsafe { self.launch(&kernels::LSTM, blocks, &params) }
    }

    pub(crate) fn run_lstm_vjp(
        &self, p: &Lstm, x: LstmArgs<&Memory>, dh: &Memory, dc: Option<Scaled<&Memory, Slot>>, y: &Store<'_, Self>,
        state: &Memory,
    ) -> Result<(), Error> {
        let (cell, len) = (LstmCell::new(p, x), p.state_len() as usize);
        let blocks = cell.blocks(self, &kernels::LSTM_VJP)?;
        assert!(dc.is_none_or(|dc| dc.data.dtype() == DType::F32), "the gradient of a cell's state");
        let params = LstmVjpParams {
            y: self.store(y, p.gates_len() as usize, blocks)?,
            cell,
            dh: dh.expect_len(len).at(),
            dc: dc.map_or(0, |dc| dc.data.expect_len(len).at()),
            state: state_address(state, p),
            dh_kind: dh.kind(),
            dc_slot: y.table.slot(dc.map_or(y.from, |dc| dc.alpha)),
        };
        // SAFETY: all operands have the descriptor's sizes.
        unsafe { self.launch(&kernels::LSTM_VJP, blocks, &params) }
    }
}
