//! Recorded steps: replays with other exponents, hyperparameters and seeds have the bits of an eager step.

use super::Case;
use crate::{
    case::{Check, Fail},
    compare::same_bits,
    data::Random,
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, Buffer, DType, Hyperparameter, Launch, Param, Slot, Store},
    ops::{Gemm, Optimizer, Rule, Unary},
    stats::Stats,
};

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    cases.push(Case::new("record::repeat_is_eager", repeat_is_eager::<B>));
}

/// A small step: data gradient (a site), weight gradient, dropout, update under a guard.
struct Work<B: Backend> {
    dy: B::Buffer,
    w: B::Buffer,
    dx: B::Buffer,
    dropped: B::Buffer,
    dw: B::Buffer,
    master: B::Buffer,
    half: B::Buffer,
}

const M: u32 = 9;
const N: u32 = 17;
const K: u32 = 33;
const FROM: Slot = Slot(2);
const SITE: Slot = Slot(3);
const PARAM: Slot = Slot(4);

impl<B: Backend> Work<B> {
    fn new(rig: &Rig<'_, B>) -> Result<Self, Fail> {
        let mut random = Random(21);
        let mut buffer = |dtype, len: u32| rig.input(dtype, &random.many(len as usize, Random::normal));
        Ok(Self {
            dy: buffer(DType::F16, M * K)?,
            w: buffer(DType::F16, K * N)?,
            dx: buffer(DType::F16, M * N)?,
            dropped: buffer(DType::F16, M * N)?,
            dw: buffer(DType::F32, K * N)?,
            master: buffer(DType::F32, K * N)?,
            half: buffer(DType::F16, K * N)?,
        })
    }

    fn step(&mut self, b: &B, table: &B::Table) -> Result<(), B::Error> {
        let (data, weight) =
            (descriptor(Gemm::new(M, N, K)), descriptor(Gemm::new(K, N, M).and_then(Gemm::transpose_a)));
        b.launch(Launch::Gemm {
            p: data,
            a: &self.dy,
            b: &self.w,
            bias: None,
            y: Store::site(FROM, SITE, table, &mut self.dx),
        })?;
        let dropout = descriptor(Unary::dropout(0.5, 7));
        b.launch(Launch::Unary {
            op: dropout,
            len: self.dx.len() as u32,
            x: &self.dx,
            y: Store::keep(SITE, table, &mut self.dropped),
        })?;
        b.launch(Launch::Gemm {
            p: weight,
            a: &self.dy,
            b: &self.dropped,
            bias: None,
            y: Store::param(FROM, PARAM, false, table, &mut self.dw),
        })?;
        let sgd = descriptor(Optimizer::new(Rule::Sgd { momentum: 0.0, nesterov: false }, Hyperparameter(1)));
        let param = Param {
            len: self.dw.len() as u32,
            master: &mut self.master,
            grad: &self.dw,
            state: [None, None],
            half: Some(&mut self.half),
        };
        b.launch(Launch::Optimize {
            p: sgd,
            table,
            guard: (PARAM.0..PARAM.0 + 1).into(),
            norm: None,
            parameters: &mut [param],
        })
    }

    fn results(&self, rig: &Rig<'_, B>) -> Result<(Vec<f32>, Vec<Stats>), Fail> {
        let buffers = [&self.dx, &self.dropped, &self.dw, &self.master, &self.half];
        let values: Result<Vec<_>, _> = buffers.into_iter().map(|buffer| rig.read(buffer)).collect();
        Ok((values?.concat(), vec![rig.row(SITE)?, rig.row(PARAM)?]))
    }
}

fn descriptor<T, E: core::fmt::Debug>(built: Result<T, E>) -> T {
    built.expect("valid by the constants above")
}

/// Sets the values that the host decides before step `i`. The fourth step overflows.
fn set<B: Backend>(rig: &mut Rig<'_, B>, i: i32) -> Result<(), Fail> {
    rig.seed = 100 + i as u64;
    rig.hyperparameters[1] = 0.01 * (i + 1) as f32;
    rig.set(&[4, 4 + if i == 3 { 40 } else { 2 * i }])
}

fn repeat_is_eager<B: Backend>(b: &B) -> Check {
    let mut eager = Rig::new(b)?;
    let mut work = Work::new(&eager)?;
    let mut want = Vec::new();
    for i in 0..6 {
        set(&mut eager, i)?;
        work.step(b, &eager.table)?;
        want.push(work.results(&eager)?);
    }

    let mut rig = Rig::new(b)?;
    let mut work = Work::new(&rig)?;
    set(&mut rig, 0)?;
    // The first step is eager, as a warm-up; its update is undone by writing the masters again.
    work.step(b, &rig.table)?;
    let fresh = Work::new(&rig)?;
    let masters = rig.read(&fresh.master)?;
    rig.fill(&mut work.master, &masters)?;
    set(&mut rig, 0)?;
    let Some(recording) = b.record(|| work.step(b, &rig.table))? else {
        return Err(Fail::Unsupported("steps are not recorded".into()));
    };
    same_bits("a recording that has not been repeated", &rig.read(&work.master)?, &masters)?;
    for (i, (values, rows)) in want.iter().enumerate() {
        set(&mut rig, i as i32)?;
        b.replay(&recording)?;
        let (got, got_rows) = work.results(&rig)?;
        same_bits(&format!("step {i}, repeated"), &got, values)?;
        if &got_rows != rows {
            return Err(Fail::new(format!("step {i}, repeated: rows differ from those of an eager step")));
        }
    }
    Ok(vec![])
}
