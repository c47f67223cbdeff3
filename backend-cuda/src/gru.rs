//! Steps of a GRU cell, and their gradients: one kernel each.

use crate::{
    Cuda, Error,
    cell::{CellParams, address_beside},
    kernels,
    memory::Memory,
    store::StoreParams,
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::{CellArgs, Slot, Store},
    ops::Gru,
    scaled::Scaled,
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GruParams {
    y: StoreParams,
    cell: CellParams,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GruVjpParams {
    y: StoreParams,
    cell: CellParams,
    dh: u64,
    dx: u64,
    state: u64,
    dh_kind: u32,
    dx_slot: u32,
}

impl Cuda {
    pub(crate) fn run_gru(&self, p: &Gru, x: CellArgs<&Memory>, y: &Store<'_, Self>) -> Result<(), Error> {
        let cell = CellParams::new(p, x);
        let blocks = cell.blocks(self, &kernels::GRU)?;
        let params = GruParams { y: self.store(y, p.state_len() as usize, blocks)?, cell };
        // SAFETY: all operands have the descriptor's sizes.
        unsafe { self.launch(&kernels::GRU, blocks, &params) }
    }

    pub(crate) fn run_gru_vjp(
        &self, p: &Gru, x: CellArgs<&Memory>, dh: &Memory, y: &Store<'_, Self>, dx: &Scaled<&mut Memory, Slot>,
        state: &Memory,
    ) -> Result<(), Error> {
        let cell = CellParams::new(p, x);
        let blocks = cell.blocks(self, &kernels::GRU_VJP)?;
        let params = GruVjpParams {
            y: self.store(y, p.gates_len() as usize, blocks)?,
            cell,
            dh: dh.expect_len(p.state_len() as usize).at(),
            dx: address_beside(dx.data, p.x_len()),
            state: address_beside(state, p.state_len()),
            dh_kind: dh.kind(),
            dx_slot: y.table.slot(dx.alpha),
        };
        // SAFETY: all operands have the descriptor's sizes.
        unsafe { self.launch(&kernels::GRU_VJP, blocks, &params) }
    }
}
