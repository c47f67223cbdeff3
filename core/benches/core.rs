//! Benchmarks of casts, statistics and decisions, each compared with a baseline in the same run.
//!
//! `cargo bench -p gradscale-core-benches`

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gradscale_core::{
    cast::{Round, f16_slice_from_f32, f16_slice_to_f32},
    solve::Exact,
    stats::{Convention, Counts, Detail, Stats},
};
use half::{f16, slice::HalfFloatSliceExt};
use std::hint::black_box;

/// Returns normally distributed values (sums of twelve uniform numbers) with the standard deviation of a small
/// gradient.
fn data(len: usize) -> Vec<f32> {
    let mut state = 7u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 16_777_216.0 - 0.5
    };
    (0..len).map(|_| (0..12).map(|_| uniform()).sum::<f32>() * 1e-5).collect()
}

fn benchmarks(c: &mut Criterion) {
    let x = data(1 << 16);
    let mut half = vec![f16::ZERO; x.len()];
    let mut back = vec![0f32; x.len()];

    let mut group = c.benchmark_group("cast 65536 elements");
    group.throughput(Throughput::Elements(x.len() as u64));
    group.bench_function("copy f32 (baseline)", |b| b.iter(|| back.copy_from_slice(black_box(&x))));
    group
        .bench_function("half crate, f32 to f16 (baseline)", |b| b.iter(|| half.convert_from_f32_slice(black_box(&x))));
    group.bench_function("f32 to f16, nearest even", |b| {
        b.iter(|| f16_slice_from_f32(black_box(&x), &mut half, Round::NearestEven));
    });
    group.bench_function("f32 to f16, toward zero", |b| {
        b.iter(|| f16_slice_from_f32(black_box(&x), &mut half, Round::TowardZero));
    });
    group.bench_function("f16 to f32", |b| b.iter(|| f16_slice_to_f32(black_box(&half), &mut back)));
    group.finish();

    let mut group = c.benchmark_group("statistics 65536 elements");
    group.throughput(Throughput::Elements(x.len() as u64));
    group.bench_function("largest magnitude only (baseline)", |b| {
        b.iter(|| black_box(&x).iter().fold(0f32, |most, x| most.max(x.abs())));
    });
    group.bench_function("counts", |b| {
        b.iter(|| {
            let mut counts = Counts::new(0);
            counts.observe(Convention::FP16, black_box(&x));
            counts
        });
    });
    for (name, detail) in [("full", Detail::Full), ("with moments", Detail::Moments)] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut row = Stats::new(Convention::FP16, 0, detail);
                row.observe(black_box(&x));
                row
            });
        });
    }
    group.finish();

    let mut row = Stats::new(Convention::FP16, 0, Detail::Full);
    row.observe(&x);
    let mut group = c.benchmark_group("decision");
    group.bench_function("sum of the histogram (baseline)", |b| {
        b.iter(|| row.bins().map(|bins| black_box(bins).iter().map(|&bin| u64::from(bin)).sum::<u64>()));
    });
    group.bench_function("exact", |b| b.iter(|| Exact::FP16.decide(black_box(&row))));
    group.finish();
}

criterion_group!(benches, benchmarks);
criterion_main!(benches);
