//! The gradient of a softmax and of its logarithm: against its formula, slopes, and with weights of 0.

use super::{
    Case,
    softmax::{KINDS, Kind, Rows, all_rows},
};
use crate::{
    case::{Check, Fail},
    compare::{Want, compare, same_bits},
    data::{Random, readable},
    epilogue,
    property::merge,
    rig::Rig,
};
use gradscale_core::backend::{Backend, DType, Launch, Slot, Store};

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    for kind in KINDS {
        cases.push(Case::new(format!("softmax_vjp::{}", kind.name()), move |b: &B| {
            let (rig, mut measured) = (Rig::new(b)?, vec![]);
            for rows in all_rows(kind) {
                merge(&mut measured, &check(&rig, &Results::new(&rows))?);
            }
            Ok(measured)
        }));
    }
    cases.push(Case::new("softmax_vjp::central_differences", differences::<B>));
    cases.push(Case::new("softmax_vjp::no_weight_no_gradient", without_weight::<B>));
    cases.push(Case::new("softmax_vjp::rows_apart", rows_apart::<B>));
    cases.push(Case::new("softmax_vjp::shift_invariant", shift_invariant::<B>));
    cases.push(Case::new("softmax_vjp::epilogue", stores::<B>));
}

/// Results of a softmax and their gradients.
#[derive(Clone, Debug)]
struct Results {
    rows: Rows,
    dtype: DType,
    y: Vec<f32>,
    dy: Vec<f32>,
}

impl Results {
    /// Creates results in f32 for scores in half, as attention has them, and the other way round.
    fn new(rows: &Rows) -> Self {
        let dtype = if rows.dtype == DType::F16 { DType::F32 } else { DType::F16 };
        let y: Vec<f32> = rows.exact().iter().map(|want| want.value as f32).collect();
        let dy = Random(90).many(y.len(), |random| random.normal());
        Self { rows: rows.clone(), dtype, y: readable(dtype, &y), dy: readable(rows.dtype, &dy) }
    }

    fn is_logarithm(&self) -> bool {
        self.rows.build().is_logarithm()
    }

    /// dx = y·(dy − Σ dy·y), or dy − e^y·Σ dy.
    fn formula(&self) -> Vec<Want> {
        let (columns, is_logarithm) = (self.rows.shape[2], self.is_logarithm());
        let pairs = |row: usize| {
            let at = row * columns..(row + 1) * columns;
            self.y[at.clone()].iter().zip(&self.dy[at]).map(|(&y, &dy)| (f64::from(y), f64::from(dy)))
        };
        let row = |r: usize| {
            let live = pairs(r).filter(|(y, _)| is_logarithm || *y != 0.0);
            let sum = Want::sum(live.map(|(y, dy)| if is_logarithm { dy } else { y * dy }));
            pairs(r).map(move |(y, dy)| match (is_logarithm, y == 0.0) {
                (false, true) => Want::sum([]),
                (false, false) => {
                    Want { value: y * (dy - sum.value), scale: y.abs() * (dy.abs() + sum.scale), terms: columns }
                }
                (true, _) => Want {
                    value: dy - y.exp() * sum.value,
                    scale: dy.abs() + y.exp() * (1.0 + y.abs()) * sum.scale,
                    terms: columns,
                },
            })
        };
        (0..self.rows.shape[0] * self.rows.shape[1]).flat_map(row).collect()
    }
}

fn gradient<B: Backend>(rig: &Rig<'_, B>, results: &Results) -> Result<Vec<f32>, Fail> {
    let y = rig.padded(results.dtype, &results.y)?;
    let dy = rig.padded(results.rows.dtype, &results.dy)?;
    rig.plain(results.y.len(), |dx| {
        rig.backend.launch(Launch::SoftmaxVjp { p: results.rows.build(), y: &y, dy: &dy, dx })
    })
}

fn check<B: Backend>(rig: &Rig<'_, B>, results: &Results) -> Check {
    let got = gradient(rig, results)?;
    same_bits("the same rows again", &gradient(rig, results)?, &got)?;
    Ok(vec![compare("softmax_vjp", DType::F32, &rig.backend.caps(), &got, &results.formula())?])
}

/// The formula against slopes of Σ dy·y in f64, then the device against the formula.
fn differences<B: Backend>(b: &B) -> Check {
    let (rig, mut measured) = (Rig::new(b)?, vec![]);
    for kind in KINDS {
        let mut rows = Rows::new(kind, [2, 5, 6], DType::F16, 91);
        // Few digits, so that a moved score is an f32 too.
        rows.x.iter_mut().for_each(|v| *v = (*v * 1024.0).round() / 1024.0);
        let results = Results::new(&rows);
        for (i, want) in results.formula().iter().enumerate() {
            let loss = |by: f32| {
                let mut moved = rows.clone();
                moved.x[i] += by;
                moved.exact().iter().zip(&results.dy).map(|(y, &dy)| y.value * f64::from(dy)).sum::<f64>()
            };
            let h = 2f32.powi(-12);
            let slope = (loss(h) - loss(-h)) / (2.0 * f64::from(h));
            if (slope - want.value).abs() > 1e-5 {
                return Err(Fail::new(format!("{kind:?}: formula {i} gives {}, slope {slope}", want.value)));
            }
        }
        merge(&mut measured, &check(&rig, &results)?);
    }
    Ok(measured)
}

/// A column of weight 0 has the gradient 0 and does not change others, whatever its own gradient is.
fn without_weight<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for kind in KINDS.into_iter().filter(|&kind| kind != Kind::Logarithm) {
        for (shape, dtype) in [([3, 17, 20], DType::F16), ([3, 17, 24], DType::F32)] {
            let mut clean = Results::new(&Rows::new(kind, shape, dtype, 92));
            clean.y.iter_mut().step_by(7).for_each(|y| *y = 0.0);
            let mut wild = clean.clone();
            for (i, dy) in wild.dy.iter_mut().enumerate().filter(|&(i, _)| clean.y[i] == 0.0) {
                *dy = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 60_000.0][i % 4];
            }
            let got = gradient(&rig, &wild)?;
            same_bits(kind.name(), &got, &gradient(&rig, &clean)?)?;
            if let Some(i) = (0..got.len()).find(|&i| clean.y[i] == 0.0 && got[i].to_bits() != 0) {
                return Err(Fail::new(format!("{}: element {i} without weight has {}", kind.name(), got[i])));
            }
        }
    }
    Ok(vec![])
}

/// A gradient that is not finite changes its own row only.
fn rows_apart<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for kind in KINDS {
        let (row, columns) = (13, 40);
        let clean = Results::new(&Rows::new(kind, [1, 20, columns], DType::F16, 93));
        let mut bad = clean.clone();
        let at = (row * columns..(row + 1) * columns).find(|&i| clean.y[i] != 0.0);
        bad.dy[at.ok_or_else(|| Fail::new("a row without weights"))?] = f32::NAN;
        let (mut got, want) = (gradient(&rig, &bad)?, gradient(&rig, &clean)?);
        let own = row * columns..(row + 1) * columns;
        if let Some(i) = own.clone().find(|&i| got[i].is_nan() != (clean.y[i] != 0.0)) {
            return Err(Fail::new(format!("{}: element {i} of the row is {}", kind.name(), got[i])));
        }
        got[own.clone()].copy_from_slice(&want[own]);
        same_bits(kind.name(), &got, &want)?;
    }
    Ok(vec![])
}

/// A gradient times 2^-12, which halves hold exactly, at an exponent that is 12 higher has the same bits.
fn shift_invariant<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for kind in KINDS {
        let results = Results::new(&Rows::new(kind, [2, 15, 50], DType::F32, 94));
        let mut bits = Vec::new();
        for shift in [0, 12] {
            rig.set(&[6 + shift])?;
            let dy: Vec<f32> = results.dy.iter().map(|v| v * 2f32.powi(-shift)).collect();
            let (y, dy) = (rig.padded(results.dtype, &results.y)?, rig.padded(results.rows.dtype, &dy)?);
            let mut dx = rig.output(DType::F16, results.y.len())?;
            let store = Store::site(Slot::ONE, Slot(2), &rig.table, &mut dx.buffer);
            b.launch(Launch::SoftmaxVjp { p: results.rows.build(), y: &y, dy: &dy, dx: store })?;
            bits.push(rig.take(&dx)?);
        }
        same_bits(kind.name(), &bits[1], &bits[0])?;
    }
    Ok(vec![])
}

fn stores<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for kind in KINDS {
        for shape in [[2, 17, 23], [3, 5, 40]] {
            let mut results = Results::new(&Rows::new(kind, shape, DType::F16, 95));
            // Weights and gradients whose products no device flushes.
            results.y.iter_mut().filter(|y| y.abs() < 1e-6).for_each(|y| *y = 0.0);
            let (y, dy) = (rig.padded(results.dtype, &results.y)?, rig.padded(results.rows.dtype, &results.dy)?);
            let p = results.rows.build();
            epilogue::check(&mut rig, results.y.len(), |b, dx| b.launch(Launch::SoftmaxVjp { p, y: &y, dy: &dy, dx }))?;
        }
    }
    Ok(vec![])
}
