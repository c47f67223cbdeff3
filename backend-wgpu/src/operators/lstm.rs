//! Steps of an LSTM cell. The gradient of its sums is computed in f32, and then stored by the kernel of casts, because
//! both together would bind more buffers than `WebGPU` guarantees.

use super::cell::shape_words;
use crate::{
    Error, Memory, Wgpu, kernel,
    launch::{KernelLaunch, strided_workgroups},
};
use gradscale_core::{
    backend::{Buffer, CellArgs, DType, Slot, Store},
    ops::{Lstm, Unary},
    scaled::Scaled,
};

impl Wgpu {
    pub(crate) fn run_lstm(
        &self, p: &Lstm, x: CellArgs<&Memory>, y: &Store<'_, Self>, state: &Memory,
    ) -> Result<(), Error> {
        if p.state_len() == 0 {
            return Ok(());
        }
        let types = [x.x, x.h, x.state, x.state].map(|operand| operand.dtype().code());
        let call = KernelLaunch::new(&kernel::LSTM).params(types).params(shape_words(p));
        let call = call.operand(x.x).operand(x.h).operand(x.state).memory(8, state);
        self.launch(call.store(y), strided_workgroups(p.state_len().div_ceil(8)))
    }

    pub(crate) fn run_lstm_vjp(
        &self, p: &Lstm, x: CellArgs<&Memory>, dh: &Memory, dc: Option<Scaled<&Memory, Slot>>, y: &Store<'_, Self>,
        state: &Memory,
    ) -> Result<(), Error> {
        if p.state_len() == 0 {
            return Ok(());
        }
        let sums = self.new_memory(DType::F32, p.gates_len() as usize)?;
        let types = [x.x, x.h, x.state, dh].map(|operand| operand.dtype().code());
        let slots = [dc.map_or(y.from, |dc| dc.alpha), y.from].map(|slot| u32::from(slot.0));
        let call = KernelLaunch::new(&kernel::LSTM_VJP).params(types).params(shape_words(p)).params(slots);
        let call = call.params([dc.is_some().into()]).operand(x.x).operand(x.h).operand(x.state).operand(dh);
        let call = call.optional_operand(dc.map(|dc| dc.data), dh).buffer(1, &y.table.control);
        self.launch(call.memory(3, &sums).memory(10, state), strided_workgroups(p.state_len()))?;
        self.run_unary(Unary::Id, p.gates_len(), &sums, y)
    }
}
