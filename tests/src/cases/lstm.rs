//! Steps of an LSTM cell and their gradients: against f64, with every type, and with values that are not finite.

use super::Case;
use crate::{
    case::{Check, Fail},
    compare::{Want, compare, same_bits},
    data::{Random, readable},
    epilogue,
    property::merge,
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, DType, Launch, LstmArgs, Slot, Store},
    ops::Lstm,
    scaled::Scaled,
};

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    cases.push(Case::new("lstm::against_f64", |b: &B| all(b, check::<B>)));
    cases.push(Case::new("lstm::not_finite", not_finite::<B>));
    cases.push(Case::new("lstm::epilogue", stores::<B>));
    cases.push(Case::new("lstm_vjp::differences", differences::<B>));
    cases.push(Case::new("lstm_vjp::against_f64", |b: &B| all(b, check_vjp::<B>)));
    cases.push(Case::new("lstm_vjp::exponent_of_the_state", exponent_of_the_state::<B>));
    cases.push(Case::new("lstm_vjp::epilogue", stores_of_vjp::<B>));
}

/// Operands of a step, forward and backward.
#[derive(Clone, Debug)]
struct Cell {
    rows: usize,
    hidden: usize,
    /// Step that is read, and number of steps.
    step: [usize; 2],
    /// Types of the products, of c and of dh.
    dtypes: [DType; 3],
    x: Vec<f32>,
    h: Vec<f32>,
    c: Vec<f32>,
    dh: Vec<f32>,
    dc: Option<Vec<f32>>,
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
    fn new([rows, hidden]: [usize; 2], step: [usize; 2], dtypes: [DType; 3], seed: u64) -> Self {
        let mut random = Random(seed);
        let [of_gates, of_state, of_dh] = dtypes;
        let mut values = |dtype, len| readable(dtype, &random.many(len, |random| random.normal() * 1.5));
        let (gates, units) = (4 * rows * hidden, rows * hidden);
        let [x, h] = [gates * step[1], gates].map(|len| values(of_gates, len));
        let (c, dh, dc) = (values(of_state, units), values(of_dh, units), Some(values(DType::F32, units)));
        let mut cell = Self { rows, hidden, step, dtypes, x, h, c, dh, dc };
        // Other steps are never read.
        for i in 0..cell.x.len() {
            if i / (4 * hidden) % step[1] != step[0] {
                cell.x[i] = f32::NAN;
            }
        }
        cell
    }

    fn build(&self) -> Lstm {
        let [step, steps] = self.step.map(|number| number as u32);
        let p = Lstm::new(self.rows as u32, self.hidden as u32);
        p.and_then(|p| p.of_step(step, steps)).expect("a valid shape")
    }

    /// Index of a gate of a unit in the products with h, and in those with x.
    fn places(&self, unit: usize, gate: usize) -> [usize; 2] {
        let (row, k) = (unit / self.hidden, unit % self.hidden);
        let place = |row: usize| (row * 4 + gate) * self.hidden + k;
        [place(row), place(row * self.step[1] + self.step[0])]
    }

    /// By the definition, in f64.
    fn unit(&self, unit: usize) -> Unit {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let both = [0, 1, 2, 3].map(|gate| {
            let [h, x] = self.places(unit, gate);
            [f64::from(self.x[x]), f64::from(self.h[h])]
        });
        let (sums, terms) = (both.map(|[x, h]| x + h), both.map(|[x, h]| x.abs() + h.abs()));
        let [i, f, g, o] = [sigmoid(sums[0]), sigmoid(sums[1]), sums[2].tanh(), sigmoid(sums[3])];
        let c = f64::from(self.c[unit]);
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

/// Operands in a device's memory.
struct Buffers<B: Backend> {
    x: [B::Buffer; 3],
    dh: B::Buffer,
    dc: Option<B::Buffer>,
}

impl<B: Backend> Buffers<B> {
    fn new(rig: &Rig<'_, B>, cell: &Cell) -> Result<Self, Fail> {
        let [of_gates, of_state, of_dh] = cell.dtypes;
        Ok(Self {
            x: [rig.padded(of_gates, &cell.x)?, rig.padded(of_gates, &cell.h)?, rig.padded(of_state, &cell.c)?],
            dh: rig.padded(of_dh, &cell.dh)?,
            dc: cell.dc.as_ref().map(|dc| rig.padded(DType::F32, dc)).transpose()?,
        })
    }

    fn args(&self) -> LstmArgs<&B::Buffer> {
        let [x, h, c] = &self.x;
        LstmArgs { x, h, c }
    }

    fn forward(&self, b: &B, p: Lstm, y: Store<'_, B>, state: &mut B::Buffer) -> Result<(), B::Error> {
        b.launch(Launch::Lstm { p, x: self.args(), y, state })
    }

    fn backward(&self, b: &B, p: Lstm, alpha: Slot, y: Store<'_, B>, state: &mut B::Buffer) -> Result<(), B::Error> {
        let dc = self.dc.as_ref().map(|dc| Scaled::new(dc, alpha));
        b.launch(Launch::LstmVjp { p, x: self.args(), dh: &self.dh, dc, y, state })
    }
}

/// h′ and c′.
fn run<B: Backend>(rig: &Rig<'_, B>, cell: &Cell) -> Result<[Vec<f32>; 2], Fail> {
    let (buffers, units) = (Buffers::new(rig, cell)?, cell.rows * cell.hidden);
    let mut state = rig.output(DType::F32, units)?;
    let h = rig.plain(units, |y| buffers.forward(rig.backend, cell.build(), y, &mut state.buffer))?;
    Ok([h, rig.take(&state)?])
}

/// Gradients of the sums and of c.
fn run_vjp<B: Backend>(rig: &Rig<'_, B>, cell: &Cell) -> Result<[Vec<f32>; 2], Fail> {
    let (buffers, units) = (Buffers::new(rig, cell)?, cell.rows * cell.hidden);
    let mut state = rig.output(DType::F32, units)?;
    let sums =
        rig.plain(4 * units, |y| buffers.backward(rig.backend, cell.build(), Slot::ONE, y, &mut state.buffer))?;
    Ok([sums, rig.take(&state)?])
}

/// Shapes × types: units in eights and others, one step and several.
fn all<B: Backend>(b: &B, check: impl Fn(&Rig<'_, B>, &Cell) -> Check) -> Check {
    const TYPES: [[DType; 3]; 3] =
        [[DType::F16, DType::F32, DType::F16], [DType::F32; 3], [DType::F16, DType::F16, DType::F32]];
    let (rig, mut measured) = (Rig::new(b)?, vec![]);
    let shapes = [([1, 1], [0, 1]), ([3, 5], [2, 3]), ([2, 40], [1, 4]), ([5, 1100], [0, 1]), ([0, 4], [0, 2])];
    for (shape, step) in shapes {
        for (seed, dtypes) in (110..).zip(TYPES) {
            let mut cell = Cell::new(shape, step, dtypes, seed);
            if seed == 111 {
                // Gates at their ends. A device without f32 subnormals may flush gates below e^-87, and their products with
                // large numbers with them, so gates are larger there.
                let most = if b.caps().f32_subnormals { f32::INFINITY } else { 75.0 };
                cell.h.iter_mut().step_by(3).for_each(|h| *h = (*h * 100.0).clamp(-most, most));
            }
            if seed == 112 {
                cell.dc = None;
            }
            merge(&mut measured, &check(&rig, &cell)?);
        }
    }
    Ok(measured)
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
    let mut cell = clean.clone();
    for gate in 0..4 {
        let [_, x] = cell.places(3, gate);
        cell.x[x] = f32::INFINITY;
        let [_, x] = cell.places(20, gate);
        cell.x[x] = f32::NEG_INFINITY;
    }
    let [h, _] = clean.places(9, 1);
    cell.h[h] = f32::NAN;
    cell.c[33] = f32::INFINITY;
    let ([h, c], [exact_h, exact_c]) = (run(&rig, &cell)?, cell.exact());
    let plain = run(&rig, &clean)?;
    for unit in 0..h.len() {
        let others = ![3, 9, 20, 33].contains(&unit);
        if others && [h[unit], c[unit]].map(f32::to_bits) != [plain[0][unit], plain[1][unit]].map(f32::to_bits) {
            return Err(Fail::new(format!("unit {unit} is {}, {}", h[unit], c[unit])));
        }
        for (got, want) in [(h[unit], exact_h[unit].value), (c[unit], exact_c[unit].value)] {
            let right =
                if want.is_finite() { (f64::from(got) - want).abs() < 1e-4 } else { got.is_nan() == want.is_nan() };
            if !others && !right {
                return Err(Fail::new(format!("unit {unit} has {got}, not {want}")));
            }
        }
    }
    Ok(vec![])
}

fn stores<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for (shape, step) in [([3, 7], [1, 2]), ([2, 24], [0, 1])] {
        let cell = Cell::new(shape, step, [DType::F16, DType::F32, DType::F16], 121);
        let (buffers, units) = (Buffers::new(&rig, &cell)?, cell.rows * cell.hidden);
        let state = core::cell::RefCell::new(rig.output(DType::F32, units)?);
        epilogue::check(&mut rig, units, |b, y| buffers.forward(b, cell.build(), y, &mut state.borrow_mut().buffer))?;
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
        let slope = slope(&|cell, by| cell.c[unit] += by);
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
        buffers.backward(b, cell.build(), Slot(2), y, &mut of_c.buffer)?;
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
            buffers.backward(b, cell.build(), from, y, &mut state.borrow_mut().buffer)
        })?;
        same_bits("gradient of c", &rig.take(&state.borrow())?, &run_vjp(&rig, &cell)?[1])?;
    }
    Ok(vec![])
}
