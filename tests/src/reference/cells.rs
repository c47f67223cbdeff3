//! Steps of recurrent cells, unit by unit.

use super::{Memory, Reference};
use crate::Fault;
use gradscale_core::{backend::*, ops::*, scale::Factor, scaled::Scaled};

impl Reference {
    /// The products of a hidden unit with the input, and those with the hidden state.
    fn products<const N: u32, const GATES: usize>(
        &self, p: &CellStep<N>, x: CellArgs<&Memory>, unit: usize,
    ) -> [[f32; GATES]; 2] {
        let hidden = p.shape()[1] as usize;
        let (row, k) = (unit / hidden, unit % hidden);
        let step = if self.on(Fault::StepIgnored) { 0 } else { p.step()[0] as usize };
        let start = (row * p.step()[1] as usize + step) * GATES * hidden;
        let of_input = core::array::from_fn(|gate| x.x.get(start + gate * hidden + k));
        [of_input, core::array::from_fn(|gate| x.h.get((row * GATES + gate) * hidden + k))]
    }

    /// The sums of a hidden unit's gates, and its cell state.
    fn sums(&self, p: &Lstm, x: CellArgs<&Memory>, unit: usize) -> ([f32; 4], f32) {
        let [of_input, of_hidden] = self.products::<4, 4>(p, x, unit);
        (core::array::from_fn(|gate| of_input[gate] + of_hidden[gate]), x.state.get(unit))
    }

    pub(super) fn lstm(
        &self, p: &Lstm, x: CellArgs<&Memory>, y: Store<'_, Self>, state: &mut Memory,
    ) -> DeviceResult<Self> {
        let units: Vec<LstmUnit> = (0..p.state_len() as usize)
            .map(|unit| {
                let (sums, c) = self.sums(p, x, unit);
                Lstm::unit(sums, c)
            })
            .collect();
        units.iter().enumerate().for_each(|(i, unit)| state.set(i, f64::from(unit.c)));
        self.put(y, units.iter().map(|unit| unit.gates[3] * unit.tanh))
    }

    pub(super) fn lstm_vjp(
        &self, p: &Lstm, x: CellArgs<&Memory>, dh: &Memory, dc: Option<Scaled<&Memory, Slot>>, y: Store<'_, Self>,
        state: &mut Memory,
    ) -> DeviceResult<Self> {
        let (hidden, exponent) = (p.shape()[1] as usize, |slot: Slot| y.table.exponents[usize::from(slot.0)]);
        let mut gradients = vec![0.0; p.gates_len() as usize];
        for unit in 0..p.state_len() as usize {
            let (sums, c) = self.sums(p, x, unit);
            let of_state = |dc: Scaled<&Memory, Slot>| {
                let from = if self.on(Fault::StateNotRescaled) { y.from } else { dc.alpha };
                Factor::between(exponent(from), exponent(y.from)).apply(dc.data.get(unit))
            };
            let gradient = Lstm::unit_vjp(Lstm::unit(sums, c), c, dh.get(unit), dc.map_or(0.0, of_state));
            state.set(unit, f64::from(gradient.c));
            for (gate, sum) in gradient.sums.into_iter().enumerate() {
                gradients[(unit / hidden * 4 + gate) * hidden + unit % hidden] = sum;
            }
        }
        self.put(y, gradients)
    }

    pub(super) fn gru(&self, p: &Gru, x: CellArgs<&Memory>, y: Store<'_, Self>) -> DeviceResult<Self> {
        let h = |unit: usize| {
            let [of_input, of_hidden] = self.products::<3, 3>(p, x, unit);
            Gru::unit(of_input, of_hidden, x.state.get(unit)).h
        };
        self.put(y, (0..p.state_len() as usize).map(h))
    }

    pub(super) fn gru_vjp(
        &self, p: &Gru, x: CellArgs<&Memory>, dh: &Memory, y: Store<'_, Self>, dx: Scaled<&mut Memory, Slot>,
        state: &mut Memory,
    ) -> DeviceResult<Self> {
        let (hidden, exponent) = (p.shape()[1] as usize, |slot: Slot| y.table.exponents[usize::from(slot.0)]);
        let to = if self.on(Fault::InputsNotRescaled) { y.from } else { dx.alpha };
        let factor = Factor::between(exponent(y.from), exponent(to));
        let mut gradients = vec![0.0; p.gates_len() as usize];
        for unit in 0..p.state_len() as usize {
            let ([of_input, of_hidden], h) = (self.products::<3, 3>(p, x, unit), x.state.get(unit));
            let gradient = Gru::unit_vjp(Gru::unit(of_input, of_hidden, h), of_hidden[2], h, dh.get(unit));
            state.set(unit, f64::from(gradient.state));
            let (row, k) = (unit / hidden, unit % hidden);
            let of_hidden = if self.on(Fault::ResetDropped) { gradient.x } else { gradient.h };
            for gate in 0..3 {
                gradients[(row * 3 + gate) * hidden + k] = of_hidden[gate];
                let place = p.x_of_row(row as u32) as usize + gate * hidden + k;
                dx.data.set(place, f64::from(factor.apply(gradient.x[gate])));
            }
        }
        self.put(y, gradients)
    }
}
