//! Steps of a GRU cell and their gradients: against f64, with every type, and with values that are not finite.

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
    scaled::Scaled,
};

type Cell = cell::Cell<3>;

/// Value of elements of a gradient that a launch must not write.
const UNTOUCHED: f32 = 7.25;

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    cases.push(Case::new("gru::against_f64", |b: &B| all(b, check::<B>)));
    cases.push(Case::new("gru::not_finite", not_finite::<B>));
    cases.push(Case::new("gru::epilogue", stores::<B>));
    cases.push(Case::new("gru_vjp::differences", differences::<B>));
    cases.push(Case::new("gru_vjp::against_f64", |b: &B| all(b, check_vjp::<B>)));
    cases.push(Case::new("gru_vjp::exponent_of_the_inputs", exponent_of_the_inputs::<B>));
    cases.push(Case::new("gru_vjp::epilogue", stores_of_vjp::<B>));
}

/// A hidden unit in f64.
struct Unit {
    /// Gates r, z, n.
    gates: [f64; 3],
    /// Magnitudes of the terms of the sums of r and z.
    terms: [f64; 2],
    /// Third product with h.
    product: f64,
    /// State h.
    state: f64,
    /// Error scale of n.
    scale: f64,
}

/// Gradients in f64.
struct Exact {
    /// Those of the products with h, and of the products with the inputs, in the layout of h.
    h: Vec<Want>,
    x: Vec<Want>,
    state: Vec<Want>,
}

/// Gradients of a launch.
#[derive(Clone, Debug, Default)]
struct Gradients {
    h: Vec<f32>,
    x: Vec<f32>,
    state: Vec<f32>,
}

impl Cell {
    /// By the definition, in f64.
    fn unit(&self, unit: usize) -> Unit {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let [reset, update, [x, product]] = self.products(unit);
        let terms = [reset, update].map(|[x, h]| x.abs() + h.abs());
        let (r, z) = (sigmoid(reset[0] + reset[1]), sigmoid(update[0] + update[1]));
        let n = (x + r * product).tanh();
        let scale = n.abs() + (1.0 - n * n) * (x.abs() + r * (1.0 + terms[0]) * product.abs());
        Unit { gates: [r, z, n], terms, product, state: f64::from(self.state[unit]), scale }
    }

    /// h′.
    fn exact(&self) -> Vec<Want> {
        let result = |k: usize| {
            let Unit { gates: [_, z, n], terms, state, scale, .. } = self.unit(k);
            Want { value: n + z * (state - n), scale: scale + z * (1.0 + terms[1]) * (state.abs() + scale), terms: 2 }
        };
        (0..self.rows * self.hidden).map(result).collect()
    }

    fn exact_vjp(&self) -> Exact {
        let zero = Want { value: 0.0, scale: 0.0, terms: 1 };
        let [mut x, mut h] = [vec![zero; self.h.len()], vec![zero; self.h.len()]];
        let mut of_state = vec![];
        for k in 0..self.rows * self.hidden {
            let Unit { gates: [r, z, n], terms, product, state, scale } = self.unit(k);
            let dh = f64::from(self.dh[k]);
            let d = dh * (1.0 - z) * (1.0 - n * n);
            // A difference from 1 has the error of 1.
            let scale_of_d = dh.abs() * (1.0 + z * (1.0 + terms[1])) * (1.0 + 2.0 * scale);
            let want = |value: f64, scale: f64| Want { value, scale, terms: 2 };
            let of_reset = want(d * product * r * (1.0 - r), scale_of_d * product.abs() * r * (1.0 + terms[0]));
            let scale_of_update = dh.abs() * (state.abs() + scale) * z * (1.0 + terms[1]);
            let of_update = want(dh * (state - n) * z * (1.0 - z), scale_of_update);
            let of_candidates = [want(d, scale_of_d), want(d * r, scale_of_d * r * (1.0 + terms[0]))];
            for (gradients, of_candidate) in [&mut x, &mut h].into_iter().zip(of_candidates) {
                for (gate, gradient) in [of_reset, of_update, of_candidate].into_iter().enumerate() {
                    gradients[self.places(k, gate)[0]] = gradient;
                }
            }
            of_state.push(want(dh * z, dh.abs() * z * (1.0 + terms[1])));
        }
        Exact { h, x, state: of_state }
    }

    /// Values of the step in the gradient of the products with the inputs. The launch must not write others.
    fn of_step(&self, all: &[f32]) -> Result<Vec<f32>, Fail> {
        match all.iter().enumerate().find(|&(i, &value)| !self.is_of_step(i) && value != UNTOUCHED) {
            Some((i, value)) => Err(Fail::new(format!("element {i} of another step is {value}"))),
            None => Ok((0..all.len()).filter(|&i| self.is_of_step(i)).map(|i| all[i]).collect()),
        }
    }
}

fn run<B: Backend>(rig: &Rig<'_, B>, cell: &Cell) -> Result<Vec<f32>, Fail> {
    let buffers = Buffers::new(rig, cell)?;
    rig.plain(cell.rows * cell.hidden, |y| rig.backend.launch(Launch::Gru { p: cell.build(), x: buffers.args(), y }))
}

/// Runs the gradient into a store, `alpha` being the slot of the gradient of the products with the inputs.
fn run_vjp_into<B: Backend>(
    rig: &Rig<'_, B>, cell: &Cell, alpha: Slot, run: impl FnOnce(&mut Vjp<'_, B>) -> Result<Vec<f32>, Fail>,
) -> Result<Gradients, Fail> {
    let buffers = Buffers::new(rig, cell)?;
    let mut dx = rig.output_over(DType::F32, &vec![UNTOUCHED; cell.x.len()])?;
    let mut state = rig.output(DType::F32, cell.rows * cell.hidden)?;
    let p = cell.build();
    let h = run(&mut |b, y| {
        let (x, dx) = (buffers.args(), Scaled::new(&mut dx.buffer, alpha));
        b.launch(Launch::GruVjp { p, x, dh: &buffers.dh, y, dx, state: &mut state.buffer })
    })?;
    Ok(Gradients { h, x: cell.of_step(&rig.take(&dx)?)?, state: rig.take(&state)? })
}

/// Launch of a gradient.
type Vjp<'a, B> = dyn FnMut(&B, Store<'_, B>) -> Result<(), <B as Backend>::Error> + 'a;

fn run_vjp<B: Backend>(rig: &Rig<'_, B>, cell: &Cell) -> Result<Gradients, Fail> {
    run_vjp_into(rig, cell, Slot::ONE, |vjp| rig.plain(cell.h.len(), |y| vjp(rig.backend, y)))
}

fn check<B: Backend>(rig: &Rig<'_, B>, cell: &Cell) -> Check {
    Ok(vec![compare("gru", DType::F32, &rig.backend.caps(), &run(rig, cell)?, &cell.exact())?])
}

fn check_vjp<B: Backend>(rig: &Rig<'_, B>, cell: &Cell) -> Check {
    let (got, want, caps) = (run_vjp(rig, cell)?, cell.exact_vjp(), rig.backend.caps());
    let mut measured = vec![];
    for (got, want) in [(&got.h, &want.h), (&got.x, &want.x), (&got.state, &want.state)] {
        measured.push(compare("gru_vjp", DType::F32, &caps, got, want)?);
    }
    Ok(measured)
}

/// NaN stays in its unit, and ±∞ saturates a gate.
fn not_finite<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let clean = Cell::new([2, 17], [1, 2], [DType::F16, DType::F32, DType::F16], 120);
    let exact = |cell: &Cell| [cell.exact().into_iter().map(|want| want.value).collect()];
    check_not_finite(&clean, |cell| Ok([run(&rig, cell)?]), exact)
}

fn stores<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for (shape, step) in [([3, 7], [1, 2]), ([2, 24], [0, 1])] {
        let cell = Cell::new(shape, step, [DType::F16, DType::F32, DType::F16], 121);
        let buffers = Buffers::new(&rig, &cell)?;
        let units = cell.rows * cell.hidden;
        epilogue::check(&mut rig, units, |b, y| b.launch(Launch::Gru { p: cell.build(), x: buffers.args(), y }))?;
    }
    Ok(vec![])
}

/// The formula against slopes of Σ dh·h′ in f64.
fn differences<B: Backend>(_: &B) -> Check {
    let cell = Cell::new([2, 3], [1, 2], [DType::F32; 3], 122);
    let exact = cell.exact_vjp();
    let loss = |cell: &Cell| {
        let terms = cell.exact().into_iter().zip(&cell.dh);
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
    for unit in 0..cell.rows * cell.hidden {
        let mut pairs = vec![(exact.state[unit], slope(&|cell, by| cell.state[unit] += by))];
        for gate in 0..3 {
            let [h, x] = cell.places(unit, gate);
            pairs.push((exact.h[h], slope(&|cell, by| cell.h[h] += by)));
            pairs.push((exact.x[h], slope(&|cell, by| cell.x[x] += by)));
        }
        if let Some((formula, slope)) = pairs.iter().find(|(formula, slope)| (slope - formula.value).abs() > 1e-5) {
            return Err(Fail::new(format!("formula of unit {unit} gives {}, slope {slope}", formula.value)));
        }
    }
    Ok(vec![])
}

/// The gradient of the products with the inputs has the exponent of its slot, the other two that of dh.
fn exponent_of_the_inputs<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let cell = Cell::new([2, 11], [1, 2], [DType::F16, DType::F32, DType::F32], 123);
    let plain = run_vjp(&rig, &cell)?;
    for (of_inputs, from) in [(0, 0), (5, 17), (40, 31), (-90, 20)] {
        rig.set(&[of_inputs, from])?;
        let scaled = |values: &[f32], k: i32| values.iter().map(|v| v * 2f32.powi(k)).collect::<Vec<_>>();
        let cell = Cell { dh: scaled(&cell.dh, from), ..cell.clone() };
        let got = run_vjp_into(&rig, &cell, Slot(2), |vjp| {
            let mut of_h = rig.output(DType::F32, cell.h.len())?;
            vjp(b, Store::keep(Slot(3), &rig.table, &mut of_h.buffer))?;
            rig.take(&of_h)
        })?;
        same_bits("gradients of products with h", &got.h, &scaled(&plain.h, from))?;
        same_bits("gradients of products with x", &got.x, &scaled(&plain.x, of_inputs))?;
        same_bits("gradient of h", &got.state, &scaled(&plain.state, from))?;
    }
    Ok(vec![])
}

fn stores_of_vjp<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for (shape, step) in [([3, 7], [1, 2]), ([2, 24], [0, 1])] {
        let cell = Cell::new(shape, step, [DType::F16, DType::F32, DType::F16], 124);
        let buffers = Buffers::new(&rig, &cell)?;
        let [dx, state] = [cell.x.len(), cell.rows * cell.hidden].map(|len| rig.output(DType::F32, len));
        let written = core::cell::RefCell::new((dx?, state?));
        epilogue::check(&mut rig, cell.h.len(), |b, y| {
            let (dx, state) = &mut *written.borrow_mut();
            let (x, dx) = (buffers.args(), Scaled::new(&mut dx.buffer, y.from));
            b.launch(Launch::GruVjp { p: cell.build(), x, dh: &buffers.dh, y, dx, state: &mut state.buffer })
        })?;
        let (dx, state) = written.into_inner();
        let (all, plain) = (rig.take(&dx)?, run_vjp(&rig, &cell)?);
        let of_step: Vec<f32> = (0..all.len()).filter(|&i| cell.is_of_step(i)).map(|i| all[i]).collect();
        same_bits("gradients of products with x", &of_step, &plain.x)?;
        same_bits("gradient of h", &rig.take(&state)?, &plain.state)?;
    }
    Ok(vec![])
}
