//! Products, convolutions and stores, each beside a baseline in the same run.
//!
//! `cargo bench -p gradscale-cpu`. Throughputs are multiply-adds (or elements) per second, on all threads; the first
//! line of each group is the baseline.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gradscale_core::{
    backend::{Backend, DType, Slot, Store},
    descriptor::{Conv2d, Gemm, Pass, Unary},
    stats::Detail,
};
use gradscale_cpu::{Cpu, Memory};
use std::hint::black_box;

fn filled(cpu: &Cpu, dtype: DType, len: usize) -> Memory {
    let mut state = 9u64;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 16_777_216.0 - 0.5
    };
    let values: Vec<f32> = (0..len).map(|_| unit()).collect();
    let table = cpu.table(2, 0).expect("small");
    let mut wide = cpu.alloc(DType::F32, len).expect("memory");
    cpu.write(gradscale_core::backend::Data::F32(&values), &mut wide).expect("fits");
    let mut y = cpu.alloc(dtype, len).expect("memory");
    cpu.unary(Unary::Id, &wide, Store::keep(Slot::ONE, &table, &mut y)).expect("runs");
    y
}

fn products(c: &mut Criterion, cpu: &Cpu) {
    let table = cpu.table(4, 0).expect("small");
    for size in [256u32, 1024] {
        let n = size as usize;
        let mut group = c.benchmark_group(format!("gemm {n}³"));
        group.throughput(Throughput::Elements((n * n * n) as u64)).sample_size(10);
        let (wide_a, wide_b, mut wide_y) = (vec![0.5f32; n * n], vec![0.25f32; n * n], vec![0f32; n * n]);
        group.bench_function("gemm crate, f32, one thread (baseline)", |bench| {
            bench.iter(|| {
                let (a, b, y, row) = (black_box(&wide_a).as_ptr(), wide_b.as_ptr(), wide_y.as_mut_ptr(), n as isize);
                let none = gemm::Parallelism::None;
                // SAFETY: three dense n × n matrices.
                unsafe {
                    gemm::gemm(n, n, n, y, 1, row, false, a, 1, row, b, 1, row, 0.0, 1.0, false, false, false, none);
                }
            });
        });
        let gemm = Gemm::new(size, size, size).expect("valid");
        let (a, b) = (filled(cpu, DType::F16, n * n), filled(cpu, DType::F16, n * n));
        let mut y = cpu.alloc(DType::F16, n * n).expect("memory");
        group.bench_function("f16, statistics off", |bench| {
            bench.iter(|| cpu.gemm(&gemm, black_box(&a), &b, None, Store::keep(Slot::ONE, &table, &mut y)));
        });
        group.bench_function("f16, full statistics", |bench| {
            bench.iter(|| cpu.gemm(&gemm, black_box(&a), &b, None, Store::site(Slot(2), Slot(3), &table, &mut y)));
        });
    }
}

fn convolutions(c: &mut Criterion, cpu: &Cpu) {
    let table = cpu.table(4, 0).expect("small");
    for (channels, kernel) in [(64u32, 7u32), (16, 7), (64, 3), (16, 3)] {
        let p = Conv2d::new([1, 90, 120, channels], channels, [kernel; 2]).and_then(Conv2d::same).expect("valid");
        let len = 90 * 120 * channels as usize;
        let weights = (channels * channels * kernel * kernel) as usize;
        let (x, w, dy) = (filled(cpu, DType::F16, len), filled(cpu, DType::F16, weights), filled(cpu, DType::F16, len));
        let mut group = c.benchmark_group(format!("conv {kernel}×{kernel}×{channels}, 90×120"));
        group.throughput(Throughput::Elements(90 * 120 * weights as u64)).sample_size(10);
        for (name, pass, a, b, size) in [
            ("forward", Pass::Forward, &x, &w, len),
            ("data", Pass::Data, &dy, &w, len),
            ("weight", Pass::Weight, &x, &dy, weights),
        ] {
            let dtype = if pass == Pass::Weight { DType::F32 } else { DType::F16 };
            let mut y = cpu.alloc(dtype, size).expect("memory");
            group.bench_function(name, |bench| {
                bench.iter(|| cpu.conv(&p, pass, black_box(a), b, None, Store::site(Slot(2), Slot(3), &table, &mut y)));
            });
        }
    }
}

fn stores(c: &mut Criterion, cpu: &Cpu) {
    let table = cpu.table(4, 0).expect("small");
    let len = 1 << 22;
    let x = filled(cpu, DType::F32, len);
    let mut y = cpu.alloc(DType::F16, len).expect("memory");
    let (from, mut to) = (vec![1f32; len], vec![0f32; len]);
    let mut group = c.benchmark_group("store 4 Mi elements, f32 to f16");
    group.throughput(Throughput::Elements(len as u64)).sample_size(10);
    group.bench_function("copy of the f32 (baseline)", |bench| bench.iter(|| to.copy_from_slice(black_box(&from))));
    group.bench_function("cast", |bench| {
        bench.iter(|| cpu.unary(Unary::Id, black_box(&x), Store::keep(Slot::ONE, &table, &mut y)));
    });
    // A slot for each: rows of different detail do not merge.
    for (name, detail, slot) in
        [("cast and counts", Detail::Counts, Slot(2)), ("cast and histogram", Detail::Full, Slot(3))]
    {
        group.bench_function(name, |bench| {
            bench.iter(|| {
                let store = Store { detail, ..Store::site(Slot::ONE, slot, &table, &mut y) };
                cpu.unary(Unary::Id, black_box(&x), store)
            });
        });
    }
}

fn benchmarks(c: &mut Criterion) {
    for threads in [1, 0] {
        let cpu = Cpu::new(threads).expect("threads");
        println!("{}", cpu.caps().name);
        products(c, &cpu);
        convolutions(c, &cpu);
        stores(c, &cpu);
    }
}

criterion_group!(benches, benchmarks);
criterion_main!(benches);
