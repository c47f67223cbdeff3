//! Steps of a GRU cell. The gradient of its products with the hidden state is computed in f32, and then stored by the kernel
//! of casts, because both together would bind more buffers than `WebGPU` guarantees.

use super::cell::shape_words;
use crate::{
    Error, Memory, Wgpu, kernel,
    launch::{KernelLaunch, strided_workgroups},
};
use gradscale_core::{
    backend::{Buffer, CellArgs, DType, Slot, Store},
    ops::{Gru, Unary},
    scaled::Scaled,
};

impl Wgpu {
    pub(crate) fn run_gru(&self, p: &Gru, x: CellArgs<&Memory>, y: &Store<'_, Self>) -> Result<(), Error> {
        if p.state_len() == 0 {
            return Ok(());
        }
        let types = [x.x, x.h, x.state, x.state].map(|operand| operand.dtype().code());
        let call = KernelLaunch::new(&kernel::GRU).params(types).params(shape_words(p));
        let call = call.operand(x.x).operand(x.h).operand(x.state);
        self.launch(call.store(y), strided_workgroups(p.state_len().div_ceil(8)))
    }

    pub(crate) fn run_gru_vjp(
        &self, p: &Gru, x: CellArgs<&Memory>, dh: &Memory, y: &Store<'_, Self>, dx: &Scaled<&mut Memory, Slot>,
        state: &Memory,
    ) -> Result<(), Error> {
        if p.state_len() == 0 {
            return Ok(());
        }
        let of_h = self.new_memory(DType::F32, p.gates_len() as usize)?;
        let types = [x.x, x.h, x.state, dh].map(|operand| operand.dtype().code());
        let slots = [y.from, dx.alpha].map(|slot| u32::from(slot.0));
        let call = KernelLaunch::new(&kernel::GRU_VJP).params(types).params(shape_words(p)).params(slots);
        let call = call.operand(x.x).operand(x.h).operand(x.state).operand(dh).buffer(1, &y.table.control);
        let call = call.memory(3, &of_h).memory(9, dx.data).memory(10, state);
        self.launch(call, strided_workgroups(p.state_len()))?;
        self.run_unary(Unary::Id, p.gates_len(), &of_h, y)
    }
}
