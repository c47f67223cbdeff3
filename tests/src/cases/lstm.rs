//! Steps of an LSTM cell and their gradients: against f64, with every type, and with values that are not finite.

use super::{
    Case,
    cell::{self, Buffers, all, check_not_finite},
};
use crate::{
    case::{Check, Fail},
    compare::{Want, compare, same_bits},
    epilogue,
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, DType, Launch, Slot, Store},
    ops::Lstm,
    scaled::Scaled,
};

type Cell = cell::Cell<4>;

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    cases.push(Case::new("lstm::against_f64", |b: &B| all(b, check::<B>)));
    cases.push(Case::new("lstm::not_finite", not_finite::<B>));
    cases.push(Case::new("lstm::epilogue", stores::<B>));
    cases.push(Case::new("lstm_vjp::differences", differences::<B>));
    cases.push(Case::new("lstm_vjp::against_f64", |b: &B| all(b, check_vjp::<B>)));
    cases.push(Case::new("lstm_vjp::exponent_of_the_state", exponent_of_the_state::<B>));
    cases.push(Case::new("lstm_vjp::epilogue", stores_of_vjp::<B>));
}

/// A hidden unit in f64: gates, c′, tanh c′, and the error scales of these numbers.
struct Unit {
    gates: [f64; 4],
    /// Magnitudes of the terms of each sum.
    terms: [f64; 4],
    c: f64,
    state: Want,
    tanh: f64,
}

impl Cell {
    /// By the definition, in f64.
    fn unit(&self, unit: usize) -> Unit {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let both = self.products(unit);
        let (sums, terms) = (both.map(|[x, h]| x + h), both.map(|[x, h]| x.abs() + h.abs()));
        let [i, f, g, o] = [sigmoid(sums[0]), sigmoid(sums[1]), sums[2].tanh(), sigmoid(sums[3])];
        let c = f64::from(self.state[unit]);
        let value = f * c + i * g;
        let scale = (f * c).abs() * (1.0 + terms[1]) + i * (1.0 + terms[0]) * (g.abs() + (1.0 - g * g) * terms[2]);
        let state = Want { value, scale, terms: 2 };
        Unit { gates: [i, f, g, o], terms, c, state, tanh: value.tanh() }
    }

    /// h′ and c′.
    fn exact(&self) -> [Vec<Want>; 2] {
        let units: Vec<Unit> = (0..self.rows * self.hidden).map(|unit| self.unit(unit)).collect();
        let result = |unit: &Unit| {
            let (o, tanh) = (unit.gates[3], unit.tanh);
            let scale = o * (1.0 + unit.terms[3]) * (tanh.abs() + (1.0 - tanh * tanh) * unit.state.scale);
            Want { value: o * tanh, scale, terms: 2 }
        };
        [units.iter().map(result).collect(), units.iter().map(|unit| unit.state).collect()]
    }

    /// Gradients of the sums and of c.
    fn exact_vjp(&self) -> [Vec<Want>; 2] {
        let zero = Want { value: 0.0, scale: 0.0, terms: 1 };
        let (mut of_sums, mut of_state) = (vec![zero; self.h.len()], vec![]);
        for k in 0..self.rows * self.hidden {
            let unit = self.unit(k);
            let ([i, f, g, o], terms, tanh) = (unit.gates, unit.terms, unit.tanh);
            let (dh, dc) = (f64::from(self.dh[k]), self.dc.as_ref().map_or(0.0, |dc| f64::from(dc[k])));
            let d = dc + dh * o * (1.0 - tanh * tanh);
            // A difference from 1 has the error of 1.
            let scale = dc.abs() + dh.abs() * o * (1.0 + terms[3]) * (1.0 + 2.0 * unit.state.scale);
            let wants = [
                (d * g * i * (1.0 - i), scale * i * (1.0 + terms[0]) * (g.abs() + (1.0 - g * g) * terms[2])),
                (d * unit.c * f * (1.0 - f), scale * unit.c.abs() * f * (1.0 + terms[1])),
                (d * i * (1.0 - g * g), scale * i * (1.0 + terms[0]) * (1.0 + terms[2])),
                (dh * tanh * o * (1.0 - o), dh.abs() * (tanh.abs() + unit.state.scale) * o * (1.0 + terms[3])),
            ];
            for (gate, (value, scale)) in wants.into_iter().enumerate() {
                of_sums[self.places(k, gate)[0]] = Want { value, scale, terms: 2 };
            }
            of_state.push(Want { value: d * f, scale: scale * f * (1.0 + terms[1]), terms: 2 });
        }
        [of_sums, of_state]
    }
}

fn forward<B: Backend>(
    b: &B, buffers: &Buffers<B>, p: Lstm, y: Store<'_, B>, state: &mut B::Buffer,
) -> Result<(), B::Error> {
    b.launch(Launch::Lstm { p, x: buffers.args(), y, state })
}

fn backward<B: Backend>(
    b: &B, buffers: &Buffers<B>, p: Lstm, alpha: Slot, y: Store<'_, B>, state: &mut B::Buffer,
) -> Result<(), B::Error> {
    let dc = buffers.dc.as_ref().map(|dc| Scaled::new(dc, alpha));
    b.launch(Launch::LstmVjp { p, x: buffers.args(), dh: &buffers.dh, dc, y, state })
}

/// h′ and c′.
fn run<B: Backend>(rig: &Rig<'_, B>, cell: &Cell) -> Result<[Vec<f32>; 2], Fail> {
    let (buffers, units) = (Buffers::new(rig, cell)?, cell.rows * cell.hidden);
    let mut state = rig.output(DType::F32, units)?;
    let h = rig.plain(units, |y| forward(rig.backend, &buffers, cell.build(), y, &mut state.buffer))?;
    Ok([h, rig.take(&state)?])
}

/// Gradients of the sums and of c.
fn run_vjp<B: Backend>(rig: &Rig<'_, B>, cell: &Cell) -> Result<[Vec<f32>; 2], Fail> {
    let (buffers, units) = (Buffers::new(rig, cell)?, cell.rows * cell.hidden);
    let mut state = rig.output(DType::F32, units)?;
    let sums =
        rig.plain(4 * units, |y| backward(rig.backend, &buffers, cell.build(), Slot::ONE, y, &mut state.buffer))?;
    Ok([sums, rig.take(&state)?])
}

fn check<B: Backend>(rig: &Rig<'_, B>, cell: &Cell) -> Check {
    let (got, want, caps) = (run(rig, cell)?, cell.exact(), rig.backend.caps());
    let mut measured = vec![];
    for (got, want) in got.iter().zip(&want) {
        measured.push(compare("lstm", DType::F32, &caps, got, want)?);
    }
    Ok(measured)
}

fn check_vjp<B: Backend>(rig: &Rig<'_, B>, cell: &Cell) -> Check {
    let (got, want, caps) = (run_vjp(rig, cell)?, cell.exact_vjp(), rig.backend.caps());
    let mut measured = vec![];
    for (got, want) in got.iter().zip(&want) {
        measured.push(compare("lstm_vjp", DType::F32, &caps, got, want)?);
    }
    Ok(measured)
}

/// NaN stays in its unit, and ±∞ saturates a gate.
fn not_finite<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let clean = Cell::new([2, 17], [1, 2], [DType::F16, DType::F32, DType::F16], 120);
    let values = |wants: Vec<Want>| wants.into_iter().map(|want| want.value).collect();
    check_not_finite(&clean, |cell| run(&rig, cell), |cell| cell.exact().map(values))
}

fn stores<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for (shape, step) in [([3, 7], [1, 2]), ([2, 24], [0, 1])] {
        let cell = Cell::new(shape, step, [DType::F16, DType::F32, DType::F16], 121);
        let (buffers, units) = (Buffers::new(&rig, &cell)?, cell.rows * cell.hidden);
        let state = core::cell::RefCell::new(rig.output(DType::F32, units)?);
        epilogue::check(&mut rig, units, |b, y| forward(b, &buffers, cell.build(), y, &mut state.borrow_mut().buffer))?;
        same_bits("c′", &rig.take(&state.borrow())?, &run(&rig, &cell)?[1])?;
    }
    Ok(vec![])
}

/// The formula against slopes of Σ dh·h′ + dc·c′ in f64.
fn differences<B: Backend>(_: &B) -> Check {
    let cell = Cell::new([2, 3], [1, 2], [DType::F32; 3], 122);
    let [of_sums, of_state] = cell.exact_vjp();
    let loss = |cell: &Cell| {
        let [h, c] = cell.exact();
        let dc = cell.dc.as_deref().unwrap_or_default();
        let terms = h.iter().zip(&cell.dh).chain(c.iter().zip(dc));
        terms.map(|(want, &d)| want.value * f64::from(d)).sum::<f64>()
    };
    let slope = |moved: &dyn Fn(&mut Cell, f32)| {
        // Values have few digits, so a moved one is an f32 too.
        let at = |by: f32| {
            let mut cell = cell.clone();
            moved(&mut cell, by);
            loss(&cell)
        };
        (at(2f32.powi(-10)) - at(-2f32.powi(-10))) / 2f64.powi(-9)
    };
    for (unit, of_state) in of_state.iter().enumerate() {
        for gate in 0..4 {
            let [h, x] = cell.places(unit, gate);
            let slopes = [slope(&|cell, by| cell.h[h] += by), slope(&|cell, by| cell.x[x] += by)];
            if slopes.iter().any(|slope| (slope - of_sums[h].value).abs() > 1e-5) {
                return Err(Fail::new(format!("formula {h} gives {}, slopes {slopes:?}", of_sums[h].value)));
            }
        }
        let slope = slope(&|cell, by| cell.state[unit] += by);
        if (slope - of_state.value).abs() > 1e-5 {
            return Err(Fail::new(format!("formula of c {unit} gives {}, slope {slope}", of_state.value)));
        }
    }
    Ok(vec![])
}

/// dc at another exponent than dh is brought to that of dh; the gradient of c is there, too.
fn exponent_of_the_state<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let cell = Cell::new([2, 11], [0, 1], [DType::F16, DType::F32, DType::F32], 123);
    let [sums, state] = run_vjp(&rig, &cell)?;
    for (of_state, from) in [(0, 0), (5, 17), (40, 31), (-90, 20)] {
        rig.set(&[of_state, from])?;
        let scaled = |values: &[f32], k: i32| values.iter().map(|v| v * 2f32.powi(k)).collect::<Vec<_>>();
        let dc = cell.dc.as_ref().map(|dc| scaled(dc, of_state));
        let cell = Cell { dh: scaled(&cell.dh, from), dc, ..cell.clone() };
        let buffers = Buffers::new(&rig, &cell)?;
        let [mut of_sums, mut of_c] = [rig.output(DType::F32, sums.len())?, rig.output(DType::F32, state.len())?];
        let y = Store::keep(Slot(3), &rig.table, &mut of_sums.buffer);
        backward(b, &buffers, cell.build(), Slot(2), y, &mut of_c.buffer)?;
        same_bits("gradients of the sums", &rig.take(&of_sums)?, &scaled(&sums, from))?;
        same_bits("gradient of c", &rig.take(&of_c)?, &scaled(&state, from))?;
    }
    Ok(vec![])
}

fn stores_of_vjp<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for (shape, step) in [([3, 7], [1, 2]), ([2, 24], [0, 1])] {
        let cell = Cell::new(shape, step, [DType::F16, DType::F32, DType::F16], 124);
        let (buffers, units) = (Buffers::new(&rig, &cell)?, cell.rows * cell.hidden);
        let state = core::cell::RefCell::new(rig.output(DType::F32, units)?);
        epilogue::check(&mut rig, 4 * units, |b, y| {
            let from = y.from;
            backward(b, &buffers, cell.build(), from, y, &mut state.borrow_mut().buffer)
        })?;
        same_bits("gradient of c", &rig.take(&state.borrow())?, &run_vjp(&rig, &cell)?[1])?;
    }
    Ok(vec![])
}
