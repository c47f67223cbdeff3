//! The other operators of a training step: elements per second, and the fraction of a copy's bandwidth that they reach.

use crate::{baselines, measure::Bench};
use gradscale_core::{
    backend::{Backend, Buffer, CrossEntropyArgs, DType, Hyperparameter, Launch, NormSaved, Param, Slot, Store},
    ops::{
        At, Binary, BinaryOp, Broadcast, CrossEntropy, Dim, Divisor, GatherScatter, Norm, NormOver, Optimizer, Pool,
        PoolOp, Reduce, ReduceOp, Rule, Strided, Unary,
    },
    scaled::Scaled,
    stats::Detail,
};
use gradscale_cpu::{Cpu, Memory};

/// Shape of the measured activations: two images, NHWC.
const SHAPE: [u32; 4] = [2, 180, 240, 32];
const LEN: usize = 2 * 180 * 240 * 32;

pub fn bench_operators(bench: &Bench<'_>) {
    casts(bench);
    functions(bench);
    norms(bench);
    group_norms(bench);
    pools(bench);
    losses(bench);
    bench_reduce_copy_update(bench);
}

/// Measures an operator over `len` elements that moves `bytes` for each.
fn bench_elements(bench: &Bench<'_>, name: &str, len: usize, bytes: usize, run: impl FnMut()) {
    bench.line(name, len as f64, "Gelem/s", bench.copy / bytes as f64, run);
}

/// Measures an operator like [`bench_elements`], together with a baseline.
fn bench_elements_against<F: FnMut()>(
    bench: &Bench<'_>, name: &str, [len, bytes]: [usize; 2], other: (&str, impl FnOnce() -> F), run: impl FnMut(),
) {
    bench.against_on_one_thread(name, len as f64, "Gelem/s", bench.copy / bytes as f64, other, run);
}

fn memory(bench: &Bench<'_>, dtype: DType, len: usize) -> Memory {
    bench.cpu.alloc(dtype, len).expect("memory")
}

/// Number of elements of large operands: 64 MiB of f32.
const LARGE_LEN: usize = 16 << 20;

fn casts(bench: &Bench<'_>) {
    for detail in [Detail::None, Detail::Counts, Detail::Full, Detail::Moments] {
        let other = ("`half` crate, cast alone", || baselines::cast(LEN));
        bench_elements_against(
            bench,
            &format!("cast f32 to f16, {detail:?}"),
            [LEN, 6],
            other,
            cast(bench, LEN, detail),
        );
    }
    for detail in [Detail::Counts, Detail::Full, Detail::Moments] {
        let name = format!("cast of 64 MiB, {detail:?}");
        if bench.wants(&name) {
            let other = ("cast alone, on as many threads", || baselines::bare_cast(LARGE_LEN, bench.threads));
            let run = cast(bench, LARGE_LEN, detail);
            bench.against(&name, LARGE_LEN as f64, "Gelem/s", bench.copy / 6.0, other, run);
        }
    }
}

fn cast<'a>(bench: &Bench<'a>, len: usize, detail: Detail) -> impl FnMut() + use<'a> {
    let (cpu, table, x) = (bench.cpu, bench.table(detail), bench.filled(DType::F32, len));
    let mut y = memory(bench, DType::F16, len);
    move || {
        cpu.launch(Launch::Unary {
            op: Unary::Id,
            len: x.len() as u32,
            x: &x,
            y: Store::site(Slot(2), Slot(3), &table, &mut y),
        })
        .expect("runs");
    }
}

fn functions(bench: &Bench<'_>) {
    let (cpu, table) = (bench.cpu, bench.table(Detail::Counts));
    let (x, bytes) = (bench.filled(DType::F16, LEN), bench.bytes(LEN, 256));
    let mut y = memory(bench, DType::F16, LEN);
    let mut positive = memory(bench, DType::F16, LEN);
    cpu.launch(Launch::Unary {
        op: Unary::Exp,
        len: x.len() as u32,
        x: &x,
        y: Store::keep(Slot::ONE, &table, &mut positive),
    })
    .expect("runs");
    for op in [
        Unary::Relu,
        Unary::Pow(-0.75),
        Unary::Exp,
        Unary::Ln,
        Unary::Sigmoid,
        Unary::Silu,
        Unary::Tanh,
        Unary::Erf,
        Unary::Gelu,
        Unary::Dropout { keep: 0.5, stream: 0 },
    ] {
        let x = if matches!(op, Unary::Pow(_) | Unary::Ln) { &positive } else { &x };
        let other = ("core's function", || baselines::function(LEN, move |x| op.eval(x, At::default())));
        bench_elements_against(bench, &format!("unary {op:?}"), [LEN, 4], other, || {
            cpu.launch(Launch::Unary { op, len: x.len() as u32, x, y: Store::site(Slot(2), Slot(3), &table, &mut y) })
                .expect("runs");
        });
    }
    let affine = Unary::Affine { a: 1.0 / 255.0, b: -0.5 };
    bench_elements(bench, "unary Affine of bytes", LEN, 3, || {
        cpu.launch(Launch::Unary {
            op: affine,
            len: bytes.len() as u32,
            x: &bytes,
            y: Store::site(Slot(2), Slot(3), &table, &mut y),
        })
        .expect("runs");
    });
    let [rows, cols] = [u32::try_from(LEN / 32).expect("small"), 32];
    for (op, over) in [
        (BinaryOp::Add, Broadcast::All),
        (BinaryOp::Mul, Broadcast::All),
        (BinaryOp::Grad(Unary::Relu), Broadcast::All),
        (BinaryOp::Grad(Unary::Gelu), Broadcast::All),
        (BinaryOp::Add, Broadcast::PerColumn),
        (BinaryOp::Mul, Broadcast::One),
    ] {
        let p = Binary::new(op, rows, cols, over).expect("valid");
        bench_elements(bench, &format!("binary {op:?} over {over:?}"), LEN, 6, || {
            cpu.launch(Launch::Binary { p, a: &x, b: &x, y: Store::site(Slot(2), Slot(3), &table, &mut y) })
                .expect("runs");
        });
    }
    let other = bench.filled(DType::F16, LEN);
    bench_elements(bench, "sum of two", LEN, 6, || {
        let terms = [Scaled { alpha: Slot(1), data: &x }, Scaled { alpha: Slot(2), data: &other }];
        cpu.launch(Launch::Sum {
            len: terms[0].data.len() as u32,
            terms: &terms,
            y: Store::site(Slot(2), Slot(3), &table, &mut y),
        })
        .expect("runs");
    });
}

fn norms(bench: &Bench<'_>) {
    let (cpu, table) = (bench.cpu, bench.table(Detail::Counts));
    let p = Norm::new(SHAPE, NormOver::Batch, 1e-5).expect("valid");
    let (x, dy) = (bench.filled(DType::F16, LEN), bench.filled(DType::F16, LEN));
    let (scale, shift) = (bench.filled(DType::F32, 32), bench.filled(DType::F32, 32));
    let (mut saved, mut y) = (memory(bench, DType::F32, 64), memory(bench, DType::F16, LEN));
    let other = ("plain loops", || baselines::norm(LEN / 32, 32));
    bench_elements_against(bench, "norm", [LEN, 6], other, || {
        let store = Store::site(Slot(2), Slot(3), &table, &mut y);
        cpu.launch(Launch::Norm { p, x: &x, affine: Some([&scale, &shift]), saved: &mut saved, y: store })
            .expect("runs");
    });
    let (mut dscale, mut dshift) = (memory(bench, DType::F32, 32), memory(bench, DType::F32, 32));
    bench_elements(bench, "norm_vjp", LEN, 10, || {
        let store = Store::site(Slot(2), Slot(3), &table, &mut y);
        let affine = [&mut dscale, &mut dshift].map(|y| Store::param(Slot(2), Slot(1), false, &table, y));
        let normed = NormSaved { x: &x, saved: &saved, weight: Some(&scale) };
        cpu.launch(Launch::NormVjp { p, x: normed, dy: &dy, dx: store, affine: Some(affine) }).expect("runs");
    });
}

/// Measures group normalisation of images and layer normalisation of rows.
fn group_norms(bench: &Bench<'_>) {
    let (cpu, table) = (bench.cpu, bench.table(Detail::Counts));
    let rows = u32::try_from(LEN / 256).expect("small");
    for (name, shape, groups) in [("group norm, 8 groups", SHAPE, 8), ("layer norm of 256", [rows, 1, 1, 256], 1)] {
        let p = Norm::new(shape, NormOver::Group(groups), 1e-5).expect("valid");
        let (channels, count) = (shape[3] as usize, 2 * p.groups() as usize);
        let (x, dy) = (bench.filled(DType::F16, LEN), bench.filled(DType::F16, LEN));
        let (scale, shift) = (bench.filled(DType::F32, channels), bench.filled(DType::F32, channels));
        let (mut saved, mut y) = (memory(bench, DType::F32, count), memory(bench, DType::F16, LEN));
        bench_elements(bench, name, LEN, 6, || {
            let store = Store::site(Slot(2), Slot(3), &table, &mut y);
            cpu.launch(Launch::Norm { p, x: &x, affine: Some([&scale, &shift]), saved: &mut saved, y: store })
                .expect("runs");
        });
        let (mut dscale, mut dshift) = (memory(bench, DType::F32, channels), memory(bench, DType::F32, channels));
        bench_elements(bench, &format!("{name}, vjp"), LEN, 10, || {
            let store = Store::site(Slot(2), Slot(3), &table, &mut y);
            let affine = [&mut dscale, &mut dshift].map(|y| Store::param(Slot(2), Slot(1), false, &table, y));
            let normed = NormSaved { x: &x, saved: &saved, weight: Some(&scale) };
            cpu.launch(Launch::NormVjp { p, x: normed, dy: &dy, dx: store, affine: Some(affine) }).expect("runs");
        });
    }
}

fn pools(bench: &Bench<'_>) {
    let (cpu, table, small) = (bench.cpu, bench.table(Detail::Counts), LEN / 4);
    let p = Pool::new(PoolOp::Max, SHAPE, [2, 2]).and_then(Pool::ceil).expect("valid");
    let (x, dy) = (bench.filled(DType::F16, LEN), bench.filled(DType::F16, small));
    let (mut at, mut y) = (memory(bench, DType::U8, small), memory(bench, DType::F16, small));
    bench_elements(bench, "pool 2×2, of the large tensor", LEN, 3, || {
        cpu.launch(Launch::Pool { p, x: &x, indices: Some(&mut at), y: Store::site(Slot(2), Slot(3), &table, &mut y) })
            .expect("runs");
    });
    bench_elements(bench, "unpool Gather, of the large tensor", LEN, 3, || {
        let store = Store::site(Slot(2), Slot(3), &table, &mut y);
        cpu.launch(Launch::Unpool { p, way: GatherScatter::Gather, x: &x, indices: Some(&at), y: store })
            .expect("runs");
    });
    let mut y = memory(bench, DType::F16, LEN);
    bench_elements(bench, "unpool Scatter, of the large tensor", LEN, 3, || {
        let store = Store::site(Slot(2), Slot(3), &table, &mut y);
        cpu.launch(Launch::Unpool { p, way: GatherScatter::Scatter, x: &dy, indices: Some(&at), y: store })
            .expect("runs");
    });
}

fn losses(bench: &Bench<'_>) {
    const ROWS: usize = 2 * 360 * 480;
    let (cpu, table) = (bench.cpu, bench.table(Detail::Counts));
    let p = CrossEntropy::new(u32::try_from(ROWS).expect("small"), 11).expect("valid").ignoring(11);
    let p = p.divided_by(Divisor::Fixed(1000.0)).expect("valid");
    let (logits, labels) = (bench.filled(DType::F16, ROWS * 11), bench.bytes(ROWS, 12));
    let (weights, g) = (bench.filled(DType::F32, 11), bench.filled(DType::F32, 1));
    let (mut out, mut y) = (memory(bench, DType::F32, ROWS + 2), memory(bench, DType::F16, ROWS * 11));
    let scored = CrossEntropyArgs { logits: &logits, labels: &labels, weights: Some(&weights) };
    let other = ("plain loops", || baselines::cross_entropy(ROWS, 11));
    bench_elements_against(bench, "cross_entropy, 11 classes", [ROWS * 11, 2], other, || {
        cpu.launch(Launch::CrossEntropy { p, x: scored, out: &mut out }).expect("runs")
    });
    let other = ("plain loops", || baselines::cross_entropy_vjp(ROWS, 11));
    bench_elements_against(bench, "cross_entropy_vjp, 11 classes", [ROWS * 11, 4], other, || {
        cpu.launch(Launch::CrossEntropyVjp {
            p,
            x: scored,
            out: &out,
            g: &g,
            dx: Store::site(Slot(2), Slot(3), &table, &mut y),
        })
        .expect("runs");
    });
}

fn bench_reduce_copy_update(bench: &Bench<'_>) {
    let (cpu, table) = (bench.cpu, bench.table(Detail::Counts));
    let x = bench.filled(DType::F16, LEN);
    for inner in [11u32, 16, 64] {
        let rows = LEN / inner as usize;
        let p = Reduce::new(ReduceOp::Sum, 1, u32::try_from(rows).expect("small"), inner).expect("valid");
        let mut y = memory(bench, DType::F32, inner as usize);
        bench_elements(bench, &format!("reduce to {inner}"), LEN, 2, || {
            cpu.launch(Launch::Reduce { p, x: &x, y: Store::param(Slot(2), Slot(3), false, &table, &mut y) })
                .expect("runs");
        });
    }
    let mut y = memory(bench, DType::F16, LEN);
    let [rows, half] = [u32::try_from(LEN / 64).expect("small"), 64];
    // Half of the channels of something wider, as where tensors are concatenated.
    let dims = [Dim { len: rows / 2, x: 64, y: 128 }, Dim { len: half, x: 1, y: 1 }];
    let p = Strided::new(&dims, 0, 64).expect("valid");
    bench_elements(bench, "copy of channels", LEN / 2, 4, || {
        cpu.launch(Launch::Copy { p: p.clone(), x: &x, y: Store::site(Slot(2), Slot(3), &table, &mut y) })
            .expect("runs");
    });
    update(bench, cpu);
}

fn update(bench: &Bench<'_>, cpu: &Cpu) {
    const COUNT: usize = 1 << 22;
    let table = bench.table(Detail::Counts);
    let [mut master, grad, mut state, mut other] = [0; 4].map(|_| bench.filled(DType::F32, COUNT));
    let mut half = memory(bench, DType::F16, COUNT);
    let rule = Rule::Sgd { momentum: 0.9, nesterov: false };
    let p = Optimizer::new(rule, Hyperparameter(0)).and_then(|p| p.decay(5e-4)).expect("valid");
    let base = ("a plain loop", || baselines::sgd(COUNT));
    bench_elements_against(bench, "optimize, SGD with momentum", [COUNT, 22], base, || {
        let param = Param {
            len: COUNT as u32,
            master: &mut master,
            grad: &grad,
            state: [Some(&mut state), None],
            half: Some(&mut half),
        };
        cpu.launch(Launch::Optimize { p, table: &table, guard: (0..1).into(), norm: None, parameters: &mut [param] })
            .expect("runs");
    });
    // Squares are not negative.
    cpu.launch(Launch::Unary {
        op: Unary::Abs,
        len: grad.len() as u32,
        x: &grad,
        y: Store::keep(Slot::ONE, &table, &mut other),
    })
    .expect("runs");
    let rule = Rule::Adam { beta: [0.9, 0.999], eps: 1e-8, correction: [Hyperparameter(0); 2], decoupled: false };
    let p = Optimizer::new(rule, Hyperparameter(0)).expect("valid");
    let base = ("a plain loop", || baselines::adam(COUNT));
    bench_elements_against(bench, "optimize, Adam", [COUNT, 30], base, || {
        let state = [Some(&mut state), Some(&mut other)];
        let param = Param { len: COUNT as u32, master: &mut master, grad: &grad, state, half: Some(&mut half) };
        cpu.launch(Launch::Optimize { p, table: &table, guard: (0..1).into(), norm: None, parameters: &mut [param] })
            .expect("runs");
    });
}
