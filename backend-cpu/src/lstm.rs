//! One step of an LSTM cell, and its gradient. Rows are computed in the block that is stored.

use crate::{
    Cpu, Memory,
    arch::Isa,
    cell::{RowsBeside, load_gates},
    elementwise::load_f32,
    threading::Cost,
};
use gradscale_core::{
    backend::{CellArgs, Slot, Store},
    ops::Lstm,
    scale::Factor,
    scaled::Scaled,
};

/// Computes the gates of a row into `gates`, and its next cell state into `c`.
fn compute_row(isa: Isa, p: &Lstm, x: CellArgs<&Memory>, row: usize, gates: &mut [f32], c: &mut [f32]) {
    let hidden = c.len();
    load_gates(isa, p, x, row, gates, 4 * hidden);
    load_f32(isa, x.state, row * hidden, c);
    let (input_and_forget, rest) = gates.split_at_mut(2 * hidden);
    let (candidate, output) = rest.split_at_mut(hidden);
    isa.sigmoid(input_and_forget);
    isa.tanh(candidate);
    isa.sigmoid(output);
    let (input, forget) = input_and_forget.split_at(hidden);
    isa.lstm_state(c, input, forget, candidate);
}

impl Cpu {
    pub(crate) fn run_lstm(&self, p: &Lstm, x: CellArgs<&Memory>, y: Store<'_, Self>, state: &mut Memory) {
        let (isa, [rows, hidden]) = (self.isa(), p.shape().map(|size| size as usize));
        let states = RowsBeside::of_state(state, p);
        self.store_rows([rows, 1, hidden], None, Cost::elements(p.gates_len() as usize), y, || {
            let mut gates = self.workspace(4 * hidden);
            let states = &states;
            move |r, h: &mut [f32]| {
                states.write(r, |c| {
                    compute_row(isa, p, x, r, &mut gates, c);
                    h.copy_from_slice(c);
                });
                isa.tanh(h);
                isa.zip(h, &gates[3 * hidden..], |tanh, output| tanh * output);
            }
        });
    }

    pub(crate) fn run_lstm_vjp(
        &self, p: &Lstm, x: CellArgs<&Memory>, dh: &Memory, dc: Option<Scaled<&Memory, Slot>>, y: Store<'_, Self>,
        state: &mut Memory,
    ) {
        let (isa, [rows, hidden]) = (self.isa(), p.shape().map(|size| size as usize));
        let states = RowsBeside::of_state(state, p);
        let exponent = y.table.exponent(y.from);
        let dc = dc.map(|dc| dc.map(|data| (data, Factor::between(y.table.exponent(dc.alpha), exponent).parts())));
        self.store_rows([rows, 1, 4 * hidden], None, Cost::elements(p.gates_len() as usize), y, || {
            let mut units = self.workspace(3 * hidden);
            let states = &states;
            move |r, gates: &mut [f32]| {
                let (c, rest) = units.split_at_mut(hidden);
                let (tanh, dh_row) = rest.split_at_mut(hidden);
                compute_row(isa, p, x, r, gates, tanh);
                isa.tanh(tanh);
                load_f32(isa, x.state, r * hidden, c);
                load_f32(isa, dh, r * hidden, dh_row);
                states.write(r, |gradient| {
                    match dc {
                        Some(Scaled { data: (dc, [first, second, third]), .. }) => {
                            load_f32(isa, dc, r * hidden, gradient);
                            isa.map(gradient, |dc| dc * first * second * third);
                        }
                        None => gradient.fill(0.0),
                    }
                    isa.lstm_vjp(gates, c, tanh, dh_row, gradient);
                });
            }
        });
    }
}
