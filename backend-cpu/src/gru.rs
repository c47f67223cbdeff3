//! One step of a GRU cell, and its gradient. Rows are computed in the block that is stored.

use crate::{
    Cpu, Memory,
    arch::Isa,
    cell::{RowsBeside, load_gates},
    elementwise::load_f32,
    threading::Cost,
};
use gradscale_core::{
    backend::{CellArgs, Slot, Store},
    ops::Gru,
    scale::Factor,
    scaled::Scaled,
};

/// Computes the gates of a row into `gates`, and loads the product of its candidate with the hidden state into `product`.
fn compute_row(isa: Isa, p: &Gru, x: CellArgs<&Memory>, row: usize, gates: &mut [f32], product: &mut [f32]) {
    let hidden = product.len();
    load_gates(isa, p, x, row, gates, 2 * hidden);
    load_f32(isa, x.h, (3 * row + 2) * hidden, product);
    let (reset_and_update, candidate) = gates.split_at_mut(2 * hidden);
    isa.sigmoid(reset_and_update);
    isa.gru_candidate(candidate, &reset_and_update[..hidden], product);
    isa.tanh(candidate);
}

impl Cpu {
    pub(crate) fn run_gru(&self, p: &Gru, x: CellArgs<&Memory>, y: Store<'_, Self>) {
        let (isa, [rows, hidden]) = (self.isa(), p.shape().map(|size| size as usize));
        self.store_rows([rows, 1, hidden], None, Cost::elements(p.gates_len() as usize), y, || {
            let mut workspace = self.workspace(4 * hidden);
            move |r, h: &mut [f32]| {
                let (gates, product) = workspace.split_at_mut(3 * hidden);
                compute_row(isa, p, x, r, gates, product);
                load_f32(isa, x.state, r * hidden, h);
                isa.gru_state(h, &gates[hidden..2 * hidden], &gates[2 * hidden..]);
            }
        });
    }

    pub(crate) fn run_gru_vjp(
        &self, p: &Gru, x: CellArgs<&Memory>, dh: &Memory, y: Store<'_, Self>, dx: Scaled<&mut Memory, Slot>,
        state: &mut Memory,
    ) {
        let (isa, [rows, hidden]) = (self.isa(), p.shape().map(|size| size as usize));
        let [first, second, third] = Factor::between(y.table.exponent(y.from), y.table.exponent(dx.alpha)).parts();
        let (states, products) = (RowsBeside::of_state(state, p), RowsBeside::of_step(dx.data, p));
        self.store_rows([rows, 1, 3 * hidden], None, Cost::elements(p.gates_len() as usize), y, || {
            let mut units = self.workspace(3 * hidden);
            let (states, products) = (&states, &products);
            move |r, gates: &mut [f32]| {
                let (product, rest) = units.split_at_mut(hidden);
                let (h, dh_row) = rest.split_at_mut(hidden);
                compute_row(isa, p, x, r, gates, product);
                load_f32(isa, x.state, r * hidden, h);
                load_f32(isa, dh, r * hidden, dh_row);
                states.write(r, |of_state| {
                    products.write(r, |of_x| {
                        isa.gru_vjp(gates, product, h, dh_row, of_x, of_state);
                        isa.map(of_x, |dx| dx * first * second * third);
                    });
                });
            }
        });
    }
}
