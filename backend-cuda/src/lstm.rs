//! Steps of an LSTM cell, and their gradients: one kernel each.

use crate::{
    Cuda, Error,
    cell::{CellParams, address_beside},
    kernels,
    memory::Memory,
    store::StoreParams,
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{Buffer, CellArgs, DType, Slot, Store},
    ops::Lstm,
    scaled::Scaled,
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct LstmParams {
    y: StoreParams,
    cell: CellParams,
    state: u64,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct LstmVjpParams {
    y: StoreParams,
    cell: CellParams,
    dh: u64,
    dc: u64,
    state: u64,
    dh_kind: u32,
    dc_slot: u32,
}

impl Cuda {
    pub(crate) fn run_lstm(
        &self, p: &Lstm, x: CellArgs<&Memory>, y: &Store<'_, Self>, state: &Memory,
    ) -> Result<(), Error> {
        let cell = CellParams::new(p, x);
        let blocks = cell.blocks(self, &kernels::LSTM)?;
        let y = self.store(y, p.state_len() as usize, blocks)?;
        let params = LstmParams { y, cell, state: address_beside(state, p.state_len()) };
        // SAFETY: all operands have the descriptor's sizes.
        unsafe { self.launch(&kernels::LSTM, blocks, &params) }
    }

    pub(crate) fn run_lstm_vjp(
        &self, p: &Lstm, x: CellArgs<&Memory>, dh: &Memory, dc: Option<Scaled<&Memory, Slot>>, y: &Store<'_, Self>,
        state: &Memory,
    ) -> Result<(), Error> {
        let (cell, len) = (CellParams::new(p, x), p.state_len() as usize);
        let blocks = cell.blocks(self, &kernels::LSTM_VJP)?;
        assert!(dc.is_none_or(|dc| dc.data.dtype() == DType::F32), "the gradient of a cell's state");
        let params = LstmVjpParams {
            y: self.store(y, p.gates_len() as usize, blocks)?,
            cell,
            dh: dh.expect_len(len).at(),
            dc: dc.map_or(0, |dc| dc.data.expect_len(len).at()),
            state: address_beside(state, p.state_len()),
            dh_kind: dh.kind(),
            dc_slot: y.table.slot(dc.map_or(y.from, |dc| dc.alpha)),
        };
        // SAFETY: all operands have the descriptor's sizes.
        unsafe { self.launch(&kernels::LSTM_VJP, blocks, &params) }
    }
}
