//! One step of an LSTM cell, and its gradient. Rows are computed in the block that is stored.

use crate::{Cpu, Memory, arch::Isa, elementwise::load_f32, threading::Cost};
use gradscale_core::{
    backend::{LstmArgs, Slot, Store},
    ops::Lstm,
    scale::Factor,
    scaled::Scaled,
};
use std::sync::{Mutex, PoisonError};

/// Computes the gates of a row into `gates`, and its next cell state into `c`.
fn compute_row(isa: Isa, p: &Lstm, x: LstmArgs<&Memory>, row: usize, gates: &mut [f32], c: &mut [f32]) {
    let hidden = c.len();
    #[expect(clippy::cast_possible_truncation, reason = "below the number of rows")]
    let start = p.x_of_row(row as u32) as usize;
    load_f32(isa, x.x, start, gates);
    load_f32(isa, x.c, row * hidden, c);
    // Units come in blocks, so that the products with h need no memory of their own.
    let mut of_hidden = [0.0; BLOCK_UNITS];
    for (block, sums) in gates.chunks_mut(BLOCK_UNITS).enumerate() {
        let of_hidden = &mut of_hidden[..sums.len()];
        load_f32(isa, x.h, row * 4 * hidden + block * BLOCK_UNITS, of_hidden);
        isa.zip(sums, of_hidden, |x, h| x + h);
    }
    let (input_and_forget, rest) = gates.split_at_mut(2 * hidden);
    let (candidate, output) = rest.split_at_mut(hidden);
    isa.sigmoid(input_and_forget);
    isa.tanh(candidate);
    isa.sigmoid(output);
    let (input, forget) = input_and_forget.split_at(hidden);
    isa.lstm_state(c, input, forget, candidate);
}

/// Number of sums to which products are added at a time.
const BLOCK_UNITS: usize = 1024;

/// Returns the rows of a state that is written besides a store. Each row is written by one thread.
fn rows_of_state(state: &mut Memory, hidden: usize) -> Vec<Mutex<&mut [f32]>> {
    match state {
        Memory::F32(state) => state.chunks_mut(hidden.max(1)).map(Mutex::new).collect(),
        other => panic!("{:?} as a state of a cell", gradscale_core::backend::Buffer::dtype(other)),
    }
}

impl Cpu {
    pub(crate) fn run_lstm(&self, p: &Lstm, x: LstmArgs<&Memory>, y: Store<'_, Self>, state: &mut Memory) {
        let (isa, [rows, hidden]) = (self.isa(), p.shape().map(|size| size as usize));
        let states = rows_of_state(state, hidden);
        self.store_rows([rows, 1, hidden], None, Cost::elements(p.gates_len() as usize), y, || {
            let mut gates = self.workspace(4 * hidden);
            let states = &states;
            move |r, h: &mut [f32]| {
                let mut c = states[r].lock().unwrap_or_else(PoisonError::into_inner);
                compute_row(isa, p, x, r, &mut gates, &mut c);
                h.copy_from_slice(&c);
                isa.tanh(h);
                isa.zip(h, &gates[3 * hidden..], |tanh, output| tanh * output);
            }
        });
    }

    pub(crate) fn run_lstm_vjp(
        &self, p: &Lstm, x: LstmArgs<&Memory>, dh: &Memory, dc: Option<Scaled<&Memory, Slot>>, y: Store<'_, Self>,
        state: &mut Memory,
    ) {
        let (isa, [rows, hidden]) = (self.isa(), p.shape().map(|size| size as usize));
        let states = rows_of_state(state, hidden);
        let exponent = y.table.exponent(y.from);
        let dc = dc.map(|dc| dc.map(|data| (data, Factor::between(y.table.exponent(dc.alpha), exponent).parts())));
        self.store_rows([rows, 1, 4 * hidden], None, Cost::elements(p.gates_len() as usize), y, || {
            let mut units = self.workspace(3 * hidden);
            let states = &states;
            move |r, gates: &mut [f32]| {
                let mut gradient = states[r].lock().unwrap_or_else(PoisonError::into_inner);
                let (c, rest) = units.split_at_mut(hidden);
                let (tanh, dh_row) = rest.split_at_mut(hidden);
                compute_row(isa, p, x, r, gates, tanh);
                isa.tanh(tanh);
                load_f32(isa, x.c, r * hidden, c);
                load_f32(isa, dh, r * hidden, dh_row);
                match dc {
                    Some(Scaled { data: (dc, [first, second, third]), .. }) => {
                        load_f32(isa, dc, r * hidden, &mut gradient);
                        isa.map(&mut gradient, |dc| dc * first * second * third);
                    }
                    None => gradient.fill(0.0),
                }
                isa.lstm_vjp(gates, c, tanh, dh_row, &mut gradient);
            }
        });
    }
}
