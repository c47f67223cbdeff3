//! The same bits for every number of threads: values, rows, sums of rows.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test: small sizes, a device that cannot fail"
)]

mod sets;
mod shared;

use gradscale_core::{
    backend::{AttentionArgs, Backend, Buffer, Cast, CrossEntropyArgs, DType, Data, Launch, NormSaved, Slot, Store},
    ops::{
        Attention, AttentionShape, Conv2d, CrossEntropy, Dim, Gemm, Norm, NormOver, Pass, Pool, PoolOp, Reduce,
        ReduceOp, Softmax, SoftmaxColumns, Strided, Unary,
    },
    stats::{Convention, Detail, Stats},
};
use gradscale_cpu::{Cpu, Memory};
use sets::instruction_sets;
use shared::{Bits, halves, read, store};

/// One of everything whose work is divided.
fn everything(cpu: &Cpu) -> Vec<Bits> {
    let mut all = Vec::new();
    let conv = Conv2d::new([3, 29, 37, 10], 22, [5, 3]).and_then(|p| p.pad([2, 1])).unwrap();
    let (x, w, dy) = (halves(cpu, 3 * 29 * 37 * 10, 1), halves(cpu, 22 * 15 * 10, 2), halves(cpu, 3 * 29 * 37 * 22, 3));
    let len = 3 * 29 * 37;
    all.push(store(cpu, DType::F16, len * 22, |y| {
        cpu.launch(Launch::Conv { p: conv, pass: Pass::Forward, a: &x, b: &w, bias: None, y }).unwrap()
    }));
    all.push(store(cpu, DType::F16, len * 10, |y| {
        cpu.launch(Launch::Conv { p: conv, pass: Pass::Data, a: &dy, b: &w, bias: None, y }).unwrap()
    }));
    all.push(store(cpu, DType::F32, 22 * 150, |y| {
        cpu.launch(Launch::Conv { p: conv, pass: Pass::Weight, a: &x, b: &dy, bias: None, y }).unwrap()
    }));
    // Narrow enough for the highest tiles, and for slices of the weight gradient.
    let conv = Conv2d::new([2, 45, 60, 16], 11, [7, 7]).and_then(Conv2d::same).unwrap();
    let (x16, w16, dy11) = (halves(cpu, 86_400, 11), halves(cpu, 49 * 176, 12), halves(cpu, 59_400, 13));
    all.push(store(cpu, DType::F16, 59_400, |y| {
        cpu.launch(Launch::Conv { p: conv, pass: Pass::Forward, a: &x16, b: &w16, bias: None, y }).unwrap()
    }));
    all.push(store(cpu, DType::F16, 86_400, |y| {
        cpu.launch(Launch::Conv { p: conv, pass: Pass::Data, a: &dy11, b: &w16, bias: None, y }).unwrap()
    }));
    all.push(store(cpu, DType::F32, 49 * 176, |y| {
        cpu.launch(Launch::Conv { p: conv, pass: Pass::Weight, a: &x16, b: &dy11, bias: None, y }).unwrap()
    }));
    // A bias gradient, which many threads share, and a concatenation along channels.
    let bias = Reduce::new(ReduceOp::Sum, 1, 35_409, 2).unwrap();
    all.push(store(cpu, DType::F32, 2, |y| cpu.launch(Launch::Reduce { p: bias, x: &dy, y }).unwrap()));
    let dims = [Dim { len: 5400, x: 16, y: 48 }, Dim { len: 16, x: 1, y: 2 }];
    let strided = Strided::new(&dims, 0, 3).unwrap();
    all.push(store(cpu, DType::F16, 5400 * 48, |y| {
        cpu.launch(Launch::Copy { p: strided.clone(), x: &x16, y }).unwrap()
    }));
    // Rows of all blocks of a task together; a few at a time, of one panel and of few steps.
    for [m, n, k] in [[201, 130, 700], [1100, 16, 300], [5400, 70, 20]] {
        let gemm = Gemm::new(m, n, k).unwrap();
        let (a, b) = (halves(cpu, (m * k) as usize, 4), halves(cpu, (k * n) as usize, 5));
        all.push(store(cpu, DType::F16, (m * n) as usize, |y| {
            cpu.launch(Launch::Gemm { p: gemm, a: &a, b: &b, bias: None, y }).unwrap()
        }));
    }
    all.push(store(cpu, DType::F16, len * 22, |y| {
        cpu.launch(Launch::Unary { op: Unary::Gelu, len: dy.len() as u32, x: &dy, y }).unwrap()
    }));
    let reduce = Reduce::new(ReduceOp::SumSquares, 7, 3 * 29 * 37, 3).unwrap();
    let long = halves(cpu, 7 * len * 3, 6);
    all.push(store(cpu, DType::F32, 21, |y| cpu.launch(Launch::Reduce { p: reduce, x: &long, y }).unwrap()));
    let pool = Pool::new(PoolOp::Max, [3, 29, 37, 10], [2, 2]).and_then(Pool::ceil).unwrap();
    all.push(store(cpu, DType::F16, 3 * 15 * 19 * 10, |y| {
        cpu.launch(Launch::Pool { p: pool, x: &x, indices: None, y }).unwrap()
    }));
    // The last two are so large that sums are divided.
    let norms = [
        ([3, 29, 37, 10], NormOver::Batch),
        ([3, 29, 37, 10], NormOver::Group(2)),
        ([2, 100, 90, 5], NormOver::Batch),
        ([18_000, 1, 1, 5], NormOver::Group(1)),
    ];
    for (shape, over) in norms {
        let (norm, len) = (Norm::new(shape, over, 1e-5).unwrap(), shape.iter().product::<u32>() as usize);
        let (x, up) = (halves(cpu, len, 10), halves(cpu, len, 7));
        let mut saved = cpu.alloc(DType::F32, 2 * norm.groups() as usize).unwrap();
        all.push(store(cpu, DType::F16, len, |y| {
            cpu.launch(Launch::Norm { p: norm, x: &x, affine: None, saved: &mut saved, y }).unwrap()
        }));
        let normed = NormSaved { x: &x, saved: &saved, weight: None };
        let [mut scale, mut shift] = [0; 2].map(|_| cpu.alloc(DType::F32, shape[3] as usize).unwrap());
        all.push(store(cpu, DType::F16, len, |y| {
            let table = y.table;
            let affine = [&mut scale, &mut shift].map(|y| Store::param(Slot(2), Slot(1), false, table, y));
            cpu.launch(Launch::NormVjp { p: norm, x: normed, dy: &up, dx: y, affine: Some(affine) }).unwrap();
        }));
        for gradient in [&scale, &shift] {
            all.push((read(cpu, gradient, shape[3] as usize), Stats::new(Convention::FP16, 0, Detail::None)));
        }
    }
    let scores = halves(cpu, 3 * 61 * 1237, 14);
    for p in [
        Softmax::new([3, 61, 1237], SoftmaxColumns::Causal).unwrap(),
        Softmax::new([20_571, 1, 11], SoftmaxColumns::Masked).unwrap(),
        Softmax::logarithm(183, 1237).unwrap(),
    ] {
        let [matrices, rows, columns] = p.shape();
        let len = (matrices * rows * columns) as usize;
        let selection = Some(&scores).filter(|_| p.read() == SoftmaxColumns::Masked);
        let mut weights = cpu.alloc(DType::F32, len).unwrap();
        all.push(store(cpu, DType::F16, len, |y| {
            let table = y.table;
            let kept = Store::keep(Slot::ONE, table, &mut weights);
            cpu.launch(Launch::Softmax { p, x: &scores, selection, y: kept }).unwrap();
            cpu.launch(Launch::Softmax { p, x: &scores, selection, y }).unwrap();
        }));
        all.push(store(cpu, DType::F16, len, |dx| {
            cpu.launch(Launch::SoftmaxVjp { p, y: &weights, dy: &scores, dx }).unwrap();
        }));
    }
    // Many heads, and two whose queries are divided.
    all.extend(attention(cpu, AttentionShape { heads: 20, queries: 37, keys: 41, ..HEADS }, SoftmaxColumns::All));
    all.extend(attention(cpu, AttentionShape { heads: 2, queries: 300, keys: 300, ..HEADS }, SoftmaxColumns::Causal));
    let cross_entropy = CrossEntropy::new(20_000, 11).unwrap();
    let logits = halves(cpu, 220_000, 8);
    let mut labels = cpu.alloc(DType::U8, 20_000).unwrap();
    cpu.write(Data::U8(&(0..20_000u32).map(|i| (i % 11) as u8).collect::<Vec<_>>()), &mut labels).unwrap();
    let mut out = cpu.alloc(DType::F32, 20_002).unwrap();
    cpu.launch(Launch::CrossEntropy {
        p: cross_entropy,
        x: CrossEntropyArgs { logits: &logits, labels: &labels, weights: None },
        out: &mut out,
    })
    .unwrap();
    all.push((read(cpu, &out, 20_002), Stats::new(Convention::FP16, 0, Detail::None)));
    let up = store_f32(cpu, &halves(cpu, 1, 9), 1);
    let scored = CrossEntropyArgs { logits: &logits, labels: &labels, weights: None };
    all.push(store(cpu, DType::F16, 220_000, |y| {
        cpu.launch(Launch::CrossEntropyVjp { p: cross_entropy, x: scored, out: &out, g: &up, dx: y }).unwrap()
    }));
    let long = store_f32(cpu, &dy, len * 22);
    let mut norm = cpu.alloc(DType::F32, 1).unwrap();
    cpu.launch(Launch::GlobalNorm { gradients: &[&long], norm: &mut norm }).unwrap();
    all.push((read(cpu, &norm, 1), Stats::new(Convention::FP16, 0, Detail::None)));
    all
}

/// Sizes of the heads of an attention.
const HEADS: AttentionShape = AttentionShape { sequences: 1, heads: 1, queries: 1, keys: 1, depth: 24, width: 40 };

/// Results and gradients of an attention. The row of a gradient also has those of dP and dS.
fn attention(cpu: &Cpu, shape: AttentionShape, columns: SoftmaxColumns) -> Vec<Bits> {
    let p = Attention::new(shape, columns).unwrap();
    let lens = [p.q_len(), p.k_len(), p.v_len()].map(|len| len as usize);
    let [q, k, v] = lens.map(|len| halves(cpu, len, 15));
    let x = AttentionArgs { q: &q, k: &k, v: &v, lengths: None };
    let [len, rows] = [p.y_len(), p.rows()].map(|len| len as usize);
    let (dy, mut sums) = (halves(cpu, len, 16), cpu.alloc(DType::F32, rows).unwrap());
    let mut y = cpu.alloc(DType::F16, len).unwrap();
    let mut all = vec![store(cpu, DType::F16, len, |to| {
        let kept = Store::keep(Slot::ONE, to.table, &mut y);
        cpu.launch(Launch::Attention { p, x, log_sums: &mut sums, y: kept }).unwrap();
        cpu.launch(Launch::Attention { p, x, log_sums: &mut sums, y: to }).unwrap();
    })];
    all.push((read(cpu, &sums, rows), Stats::new(Convention::FP16, 0, Detail::None)));
    for result in 0..3 {
        let mut others = lens.map(|len| cpu.alloc(DType::F16, len).unwrap());
        all.push(store(cpu, DType::F32, lens[result], |to| {
            let (table, from, at) = (to.table, to.from, to.to);
            let [dp, ds] = [from, at].map(|from| Cast { table, from, to: at, detail: Detail::Moments });
            let mut stores = others.each_mut().map(|y| Store::keep(at, table, y));
            stores[result] = to;
            let [dq, dk, dv] = stores;
            cpu.launch(Launch::AttentionVjp { p, x, y: &y, log_sums: &sums, dy: &dy, dp, ds, dq, dk, dv }).unwrap();
        }));
    }
    all
}

fn store_f32(cpu: &Cpu, x: &Memory, len: usize) -> Memory {
    let table = cpu.table(2, 0).unwrap();
    let mut y = cpu.alloc(DType::F32, len).unwrap();
    cpu.launch(Launch::Unary { op: Unary::Id, len: x.len() as u32, x, y: Store::keep(Slot::ONE, &table, &mut y) })
        .unwrap();
    y
}

#[test]
fn bits_do_not_depend_on_threads() {
    for isa in instruction_sets() {
        let serial = everything(&Cpu::with_isa(1, isa).unwrap());
        for threads in [2, 3, 7] {
            let full = everything(&Cpu::with_isa(threads, isa).unwrap());
            for (i, (serial, full)) in serial.iter().zip(&full).enumerate() {
                assert!(serial == full, "{isa}: result {i} differs with {threads} threads");
            }
        }
    }
}

/// A product with few rows is computed in another way than one with many, but each sum has its terms in the same order.
/// The matrix unit is the exception: it has its own order, and is not used for few rows.
#[test]
fn few_rows_have_the_bits_of_many() {
    const FULL_M: u32 = 200;
    for isa in instruction_sets().into_iter().filter(|isa| isa.to_string() != "AMX") {
        for threads in [1, 3] {
            let cpu = Cpu::with_isa(threads, isa).unwrap();
            for ([n, k], turned) in
                [([300, 33], 0), ([300, 1100], 1), ([257, 1100], 0), ([257, 1100], 2), ([768, 513], 3)]
            {
                let [turned_a, turned_b] = [turned & 1 == 1, turned & 2 == 2];
                let (a, b) = (halves(&cpu, (FULL_M * k) as usize, 1), halves(&cpu, (k * n) as usize, 2));
                let bias = store_f32(&cpu, &halves(&cpu, n as usize, 3), n as usize);
                let product = |m: u32| {
                    let mut p = Gemm::new(m, n, k).unwrap();
                    p = if turned_a { p.transpose_a().unwrap() } else { p };
                    p = if turned_b { p.transpose_b().unwrap() } else { p };
                    // The first rows of a matrix that has many.
                    let p = p.leading([if turned_a { FULL_M } else { k }, if turned_b { k } else { n }, n]).unwrap();
                    let run =
                        |y: Store<'_, Cpu>| cpu.launch(Launch::Gemm { p, a: &a, b: &b, bias: Some(&bias), y }).unwrap();
                    store(&cpu, DType::F32, (m * n) as usize, run).0
                };
                let full = product(FULL_M);
                for m in [1, 5, 40, 64] {
                    let skinny = product(m);
                    let same = skinny == full[..skinny.len()];
                    assert!(same, "{isa}, {threads} threads: {m} × {n} × {k}, a {turned_a}, b {turned_b}");
                }
            }
        }
    }
}
