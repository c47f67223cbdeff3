//! The gradient of attention: against f64, its formula against slopes, and exactly where weights are exact.

use super::{
    Case,
    attention::{Buffers, OF_HALVES, Problem, READS, each, name_of, row_of},
};
use crate::{
    case::{Check, Fail},
    compare::{Want, compare, same_bits, same_numbers},
    data::{Random, readable},
    epilogue::{half, same_row, stored},
    property::merge,
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, Cast, DType, Launch, Slot, Store},
    ops::SoftmaxColumns,
    scale::step,
    stats::{Detail, FlushRule},
};

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    for read in READS {
        let name = format!("attention_vjp::{}", name_of(read));
        cases.push(Case::new(name, move |b: &B| each(b, read, check)));
    }
    for read in READS {
        let name = format!("attention_vjp::exact_{}", name_of(read));
        cases.push(Case::new(name, move |b: &B| exact(b, read)));
    }
    cases.push(Case::new("attention_vjp::differences", differences::<B>));
    cases.push(Case::new("attention_vjp::flushes_and_overflows", flushes_and_overflows::<B>));
    cases.push(Case::new("attention_vjp::details", details::<B>));
    cases.push(Case::new("attention_vjp::hidden_columns", hidden::<B>));
    cases.push(Case::new("attention_vjp::not_finite", not_finite::<B>));
}

/// Slots of dy, dP, dS, dq, dk, dv.
const DY: Slot = Slot(2);
const DP: Slot = Slot(3);
const DS: Slot = Slot(4);
const RESULTS: [Slot; 3] = [Slot(5), Slot(6), Slot(7)];

/// Operands of a gradient.
#[derive(Clone, Debug)]
struct Backward {
    problem: Problem,
    /// Types of y, dy, dq, dk and dv.
    types: [DType; 5],
    y: Vec<f32>,
    dy: Vec<f32>,
    log_sums: Vec<f32>,
    /// Exponents of dy, dP, dS, dq, dk, dv.
    exponents: [i32; 6],
    detail: Detail,
}

/// Gradients in f64, at the exponents of their slots.
struct Exact {
    /// Values that the casts of dP and of dS observe.
    casts: [Vec<f32>; 2],
    dq: Vec<Want>,
    dk: Vec<Want>,
    dv: Vec<Want>,
}

/// Gradients of a launch: dq, dk, dv.
type Gradients = [Vec<f32>; 3];

/// Adds a row times a factor to row `row` of sums.
fn add(sums: &mut [Want], row: usize, factor: Want, values: &[f32]) {
    for (sum, &value) in sums[row * values.len()..].iter_mut().zip(values) {
        sum.value += factor.value * f64::from(value);
        sum.scale += factor.scale * f64::from(value.abs());
    }
}

/// Error scale of a value that is rounded to half. Subnormal halves have an error of 2^-25, however small they are.
fn of_halves(scale: f64) -> f64 {
    OF_HALVES * scale.max(2f64.powi(-13))
}

impl Backward {
    /// Gradients of random operands, at exponents that differ.
    fn new(problem: &Problem) -> Self {
        let exact = problem.exact();
        let values = |wants: &[Want]| wants.iter().map(|want| want.value as f32).collect::<Vec<_>>();
        let [v, ..] = problem.types;
        // Halves alone, as in trainings, or types that differ.
        let of_dy = if problem.types == [DType::F16; 3] || v == DType::F32 { DType::F16 } else { DType::F32 };
        let y = readable(v, &values(&exact.y));
        let dy = readable(of_dy, &Random(300).many(y.len(), Random::normal));
        Self {
            problem: problem.clone(),
            types: [v, of_dy, DType::F32, DType::F32, DType::F32],
            y,
            dy,
            log_sums: values(&exact.log_sums),
            exponents: [3, 5, 9, 9, 7, 4],
            detail: Detail::Moments,
        }
    }

    /// Gradients whose weights are exactly 0 or 1, so that all sums are exact. Results of the forward pass and logarithms of
    /// sums are operands like others, which need not be those of the scores.
    fn exact_weights(sizes: [u32; 6], read: SoftmaxColumns, seed: u64) -> Self {
        let problem = Problem::with_exact_weights(sizes, read, true, seed);
        let (rows, mut random) = (problem.rows(), Random(seed + 2));
        let len = rows * problem.shape.width as usize;
        Self {
            types: [DType::F16; 5],
            y: random.many(len, |random| random.integer(2)),
            dy: random.many(len, |random| random.integer(4)),
            log_sums: vec![0.0; rows],
            exponents: [3, 5, 9, 6, 7, 4],
            detail: Detail::Moments,
            problem,
        }
    }

    /// By the definition, in f64. `round` is the rounding of the casts.
    fn by_definition(&self, round: impl Fn(f64) -> f64) -> Exact {
        let (problem, shape) = (&self.problem, self.problem.shape);
        let factor = |from: usize, to: usize| 2f64.powi(step(self.exponents[from], self.exponents[to]));
        let sums = |values: &[f32]| vec![Want { value: 0.0, scale: 0.0, terms: 1 }; values.len()];
        let [mut dq, mut dk, mut dv] = [&problem.q, &problem.k, &problem.v].map(|x| sums(x));
        let mut casts = [vec![], vec![]];
        for row in 0..problem.rows() {
            let (dy, y) = (row_of(&self.dy, row, shape.width), row_of(&self.y, row, shape.width));
            let dot = |a: &[f32], b: &[f32]| {
                Want::sum(a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b))).times(factor(0, 1))
            };
            let delta = dot(dy, y);
            for key in problem.keys(row) {
                let weight = (problem.score(row, key).value - f64::from(self.log_sums[row])).exp();
                let of_weight = dot(dy, row_of(&problem.v, key, shape.width));
                casts[0].push(of_weight.value as f32);
                let rounded = round(of_weight.value);
                let of_score = if weight == 0.0 { 0.0 } else { weight * (rounded - delta.value) * factor(1, 2) };
                casts[1].push(of_score as f32);
                let scale = weight * (rounded.abs() + delta.scale) * factor(1, 2) + of_score.abs();
                let of_score = Want { value: round(of_score), scale: of_halves(scale), terms: 1 };
                add(&mut dq, row, of_score.times(factor(2, 3)), row_of(&problem.k, key, shape.depth));
                add(&mut dk, key, of_score.times(factor(2, 4)), row_of(&problem.q, row, shape.depth));
                let weight = Want { value: weight, scale: of_halves(weight), terms: 1 };
                add(&mut dv, key, weight.times(factor(0, 5)), dy);
            }
        }
        Exact { casts, dq, dk, dv }
    }

    /// Runs the gradient with the exponents of its slots.
    fn run<B: Backend>(&self, rig: &mut Rig<'_, B>) -> Result<Gradients, Fail> {
        rig.set(&self.exponents)?;
        let (buffers, p) = (Buffers::new(rig, &self.problem)?, self.problem.build());
        let (y, dy) = (rig.padded(self.types[0], &self.y)?, rig.padded(self.types[1], &self.dy)?);
        let log_sums = rig.padded(DType::F32, &self.log_sums)?;
        let [mut dq, mut dk, mut dv] = [
            rig.output(self.types[2], self.problem.q.len())?,
            rig.output(self.types[3], self.problem.k.len())?,
            rig.output(self.types[4], self.problem.v.len())?,
        ];
        let (table, detail) = (&rig.table, self.detail);
        let [to_q, to_k, to_v] = RESULTS;
        rig.backend.launch(Launch::AttentionVjp {
            p,
            x: buffers.args(),
            y: &y,
            log_sums: &log_sums,
            dy: &dy,
            dp: Cast { table, from: DY, to: DP, detail },
            ds: Cast { table, from: DP, to: DS, detail },
            dq: Store { detail, ..Store::site(DS, to_q, table, &mut dq.buffer) },
            dk: Store { detail, ..Store::site(DS, to_k, table, &mut dk.buffer) },
            dv: Store { detail, ..Store::site(DY, to_v, table, &mut dv.buffer) },
        })?;
        Ok([rig.take(&dq)?, rig.take(&dk)?, rig.take(&dv)?])
    }

    /// Checks results and rows bit for bit, but for the signs of zeros.
    fn check_exactly<B: Backend>(&self, rig: &mut Rig<'_, B>) -> Result<(), Fail> {
        let (got, rule) = (self.run(rig)?, rig.backend.caps().flush);
        let Exact { casts, dq, dk, dv } = self.by_definition(|v| f64::from(half(rule, v as f32)));
        self.check_casts(rig, &casts)?;
        for (i, (got, want)) in got.iter().zip([dq, dk, dv]).enumerate() {
            let (what, dtype) = (["dq", "dk", "dv"][i], self.types[2 + i]);
            let values: Vec<f32> = want.iter().map(|want| want.value as f32).collect();
            same_numbers(what, got, &stored(rig, dtype, &values))?;
            if self.detail != Detail::None {
                same_row(what, rig, RESULTS[i], &values, self.detail)?;
            }
        }
        Ok(())
    }

    fn check_casts<B: Backend>(&self, rig: &Rig<'_, B>, casts: &[Vec<f32>; 2]) -> Result<(), Fail> {
        for (i, (slot, values)) in [DP, DS].into_iter().zip(casts).enumerate() {
            if self.detail == Detail::None {
                let row = rig.row(slot)?;
                if row.counts().count > 0 {
                    return Err(Fail::new("a row without detail counts"));
                }
            } else {
                same_row(["dP", "dS"][i], rig, slot, values, self.detail)?;
            }
        }
        Ok(())
    }
}

/// Against f64, with as many values observed as the rows read.
fn check<B: Backend>(rig: &mut Rig<'_, B>, problem: &Problem) -> Check {
    let backward = Backward::new(problem);
    let got = backward.run(rig)?;
    let (rule, caps) = (rig.backend.caps().flush, rig.backend.caps());
    let Exact { casts, dq, dk, dv } = backward.by_definition(|v| f64::from(half(rule, v as f32)));
    for (slot, values) in [DP, DS].into_iter().zip(&casts) {
        let count = rig.row(slot)?.counts().count;
        if count != values.len() as u64 {
            return Err(Fail::new(format!("row of slot {} counts {count} values, not {}", slot.0, values.len())));
        }
    }
    let mut measured = vec![];
    for (got, want) in got.iter().zip([dq, dk, dv]) {
        merge(&mut measured, &[compare("attention_vjp", DType::F32, &caps, got, &want)?]);
    }
    for (again, got) in backward.run(rig)?.iter().zip(&got) {
        same_bits("the same gradients again", again, got)?;
    }
    Ok(measured)
}

/// Sizes of problems with exact weights.
const EXACT: [[u32; 6]; 6] = [
    [1, 1, 1, 1, 1, 1],
    [4, 1, 5, 7, 3, 5],
    [2, 2, 17, 33, 16, 16],
    [1, 1, 70, 131, 32, 64],
    [4, 1, 3, 100, 128, 40],
    [1, 2, 65, 64, 64, 128],
];

fn exact<B: Backend>(b: &B, read: SoftmaxColumns) -> Check {
    let mut rig = Rig::new(b)?;
    for (i, sizes) in EXACT.into_iter().enumerate() {
        let mut backward = Backward::exact_weights(sizes, read, 310 + i as u64);
        if i % 2 == 1 {
            backward.types = [DType::F32, DType::F16, DType::F16, DType::F32, DType::F16];
            backward.exponents = backward.exponents.map(|k| k - 1_000_000);
        }
        let named = |fail: Fail| match fail {
            Fail::Failed(why) => Fail::new(format!("{sizes:?}: {why}")),
            Fail::Unsupported(operator) => Fail::Unsupported(operator),
        };
        backward.check_exactly(&mut rig).map_err(named)?;
    }
    Ok(vec![])
}

/// The formula without rounding against slopes of Σ dy·y in f64.
fn differences<B: Backend>(_: &B) -> Check {
    for read in READS {
        let mut problem = Problem::new([2, 1, 3, 4, 2, 3], read, [DType::F32; 3], 320);
        // Few digits, so that a moved value is an f32 too.
        for x in [&mut problem.q, &mut problem.k, &mut problem.v] {
            x.iter_mut().for_each(|x| *x = (*x * 1024.0).round() / 1024.0);
        }
        let mut backward = Backward::new(&problem);
        (backward.exponents, backward.types) = ([0; 6], [DType::F32; 5]);
        backward.y = problem.exact().y.iter().map(|want| want.value as f32).collect();
        let Exact { dq, dk, dv, .. } = backward.by_definition(|v| v);
        let slope = |moved: &dyn Fn(&mut Problem, f32)| {
            let at = |by: f32| {
                let mut problem = problem.clone();
                moved(&mut problem, by);
                let y = problem.exact().y;
                y.iter().zip(&backward.dy).map(|(y, &dy)| y.value * f64::from(dy)).sum::<f64>()
            };
            (at(2f32.powi(-10)) - at(-2f32.powi(-10))) / 2f64.powi(-9)
        };
        type Operand = fn(&mut Problem) -> &mut [f32];
        let operands: [(&[Want], Operand); 3] =
            [(&dq, |problem| &mut problem.q), (&dk, |problem| &mut problem.k), (&dv, |problem| &mut problem.v)];
        let mut pairs = vec![];
        for (gradient, operand) in operands {
            for (i, want) in gradient.iter().enumerate() {
                pairs.push((want.value, slope(&|problem, by| operand(problem)[i] += by)));
            }
        }
        if let Some((formula, slope)) = pairs.iter().find(|(formula, slope)| (slope - formula).abs() > 1e-5) {
            return Err(Fail::new(format!("{read:?}: the formula gives {formula}, slope {slope}")));
        }
    }
    Ok(vec![])
}

/// Casts that flush small values, and casts that overflow: rows count them, and products continue with 0 and ∞. Where the
/// weight is 0, the gradient of the score is 0 also if that of the weight is infinite.
fn flushes_and_overflows<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for (read, [dp, ds]) in [
        (SoftmaxColumns::All, [-27, 3]),
        (SoftmaxColumns::Causal, [15, 15]),
        (SoftmaxColumns::Within, [15, -9]),
        (SoftmaxColumns::All, [5, -20]),
        (SoftmaxColumns::All, [2, 17]),
    ] {
        let mut backward = Backward::exact_weights([4, 1, 19, 40, 16, 64], read, 330);
        backward.exponents = [3, dp, ds, ds, ds, 3];
        backward.types = [DType::F16, DType::F16, DType::F32, DType::F32, DType::F32];
        // A device that flushes halves may read those that are subnormal as 0.
        if rig.backend.caps().flush == FlushRule::Nearest || dp.min(ds) > -1 {
            backward.check_exactly(&mut rig)?;
        } else {
            backward.run(&mut rig)?;
            let Exact { casts: [of_weights, _], .. } = backward.by_definition(|v| v);
            same_row("dP", &rig, DP, &of_weights, backward.detail)?;
        }
    }
    Ok(vec![])
}

fn details<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for detail in [Detail::None, Detail::Counts, Detail::Full, Detail::Moments] {
        for of_step in [Detail::Counts, Detail::Moments] {
            rig.detail = of_step;
            let backward =
                Backward { detail, ..Backward::exact_weights([1, 2, 20, 35, 8, 16], SoftmaxColumns::Causal, 340) };
            backward.check_exactly(&mut rig)?;
        }
    }
    Ok(vec![])
}

/// Keys and values that no row reads do not matter, and their gradients are 0.
fn hidden<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for read in [SoftmaxColumns::Causal, SoftmaxColumns::Within] {
        let backward = Backward::new(&Problem::new([2, 2, 13, 37, 16, 24], read, [DType::F16; 3], 350));
        let (problem, mut other) = (&backward.problem, backward.clone());
        let sizes = [problem.shape.depth, problem.shape.width].map(|size| size as usize);
        let is_read = |key: usize| (0..problem.rows()).any(|row| problem.keys(row).contains(&key));
        let hidden: Vec<usize> = (0..problem.k.len() / sizes[0]).filter(|&key| !is_read(key)).collect();
        for &key in &hidden {
            other.problem.k[key * sizes[0]..][..sizes[0]].fill(60_000.0);
            other.problem.v[key * sizes[1]..][..sizes[1]].fill(-60_000.0);
        }
        let (got, want) = (other.run(&mut rig)?, backward.run(&mut rig)?);
        for (got, want) in got.iter().zip(&want) {
            same_bits(name_of(read), got, want)?;
        }
        for (gradient, size) in [(&got[1], sizes[0]), (&got[2], sizes[1])] {
            let of_hidden = hidden.iter().flat_map(|&key| &gradient[key * size..][..size]);
            if let Some(value) = of_hidden.into_iter().find(|&&value| value != 0.0) {
                return Err(Fail::new(format!("a key that no row reads has the gradient {value}")));
            }
        }
    }
    Ok(vec![])
}

/// A gradient that is not finite makes NaN of its query's gradient, and not of other queries'. Rows count NaN.
fn not_finite<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let clean = Backward::new(&Problem::new([1, 2, 7, 37, 16, 24], SoftmaxColumns::All, [DType::F16; 3], 360));
    let want = clean.run(&mut rig)?;
    let [row, width, depth] = [3, 24, 16];
    for (value, of_sums) in [(f32::NAN, false), (f32::INFINITY, false), (f32::NAN, true)] {
        let mut bad = clean.clone();
        if of_sums {
            bad.log_sums[row] = value;
        } else {
            bad.dy[row * width + 5] = value;
        }
        let mut got = bad.run(&mut rig)?;
        let own = row * depth..(row + 1) * depth;
        if let Some(value) = got[0][own.clone()].iter().find(|value| !value.is_nan()) {
            return Err(Fail::new(format!("the gradient of the query is {value}")));
        }
        got[0][own.clone()].copy_from_slice(&want[0][own]);
        same_bits("other queries", &got[0], &want[0])?;
        let stats = rig.row(DS)?;
        let counts = stats.counts();
        if counts.count != 2 * 7 * 37 || counts.nan + counts.infinite != 37 {
            return Err(Fail::new(format!("row of dS is {counts:?}")));
        }
    }
    Ok(vec![])
}
