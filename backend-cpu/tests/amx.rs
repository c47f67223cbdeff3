//! The matrix unit (AMX) has the results of AVX-512: the same bits where sums are exact, with infinities and NaN too.

#![cfg(target_arch = "x86_64")]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test: small sizes, a device that cannot fail"
)]

mod shared;

use gradscale_core::{
    backend::{Backend, DType, Launch, Store},
    ops::{Conv2d, Gemm, Pass},
};
use gradscale_cpu::{Cpu, Isa, Memory};
use half::f16;
use shared::{halves, store, upload};

/// Returns a device with AVX-512 only, and one with the matrix unit, if the processor has one.
fn avx512_and_amx(threads: usize) -> Option<[Cpu; 2]> {
    let named = |name: &str| Isa::available().into_iter().find(|isa| isa.to_string() == name);
    let [Some(plain), Some(unit)] = ["AVX-512", "AMX"].map(named) else {
        println!("SKIPPED: no AMX here");
        return None;
    };
    Some([plain, unit].map(|isa| Cpu::with_isa(threads, isa).unwrap()))
}

/// Whole numbers below `most`, some of them zeros; a few that are not finite where `with_non_finite`.
fn integers(cpu: &Cpu, len: usize, most: u64, with_non_finite: bool, seed: u64) -> Memory {
    let mut state = seed;
    let values: Vec<f16> = (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = (state >> 33) % (2 * most - 1);
            match (state >> 20) % 700 {
                0 if with_non_finite => f16::INFINITY,
                1 if with_non_finite => f16::NEG_INFINITY,
                2 if with_non_finite => f16::NAN,
                _ => f16::from_f32(value as f32 - (most - 1) as f32),
            }
        })
        .collect();
    upload(cpu, &values)
}

/// Bits of a result, where every NaN is the same.
fn bits(cpu: &Cpu, len: usize, run: impl FnOnce(Store<'_, Cpu>)) -> Vec<u32> {
    let canonical = |bits: u32| if f32::from_bits(bits).is_nan() { u32::MAX } else { bits };
    store(cpu, DType::F32, len, run).0.into_iter().map(canonical).collect()
}

/// Compares both devices on a launch with operands of these sizes. With integers, finite or not, the results must be
/// equal. With other numbers they must differ if the unit is `used`, because it sums in another order.
fn compare(
    cpus: &[Cpu; 2], what: &str, used: bool, lens: [usize; 3], launch: impl Fn(&Cpu, [&Memory; 2], Store<'_, Cpu>),
) {
    for (a_wild, b_wild) in [(false, false), (true, false), (false, true)] {
        let of = |cpu: &Cpu| {
            let (a, b) = (integers(cpu, lens[0], 1024, a_wild, 1), integers(cpu, lens[1], 2, b_wild, 2));
            bits(cpu, lens[2], |y| launch(cpu, [&a, &b], y))
        };
        let [plain, unit] = cpus.each_ref().map(of);
        let different = plain.iter().zip(&unit).filter(|(plain, unit)| plain != unit).count();
        assert_eq!(different, 0, "{what}, not finite: {a_wild}, {b_wild}");
    }
    let of = |cpu: &Cpu| {
        let (a, b) = (halves(cpu, lens[0], 3), halves(cpu, lens[1], 4));
        bits(cpu, lens[2], |y| launch(cpu, [&a, &b], y))
    };
    let [plain, unit] = cpus.each_ref().map(of);
    assert_eq!(plain != unit, used, "{what}: whether the unit is used");
    let [plain, unit] = [plain, unit].map(|bits| bits.into_iter().map(f32::from_bits).collect::<Vec<_>>());
    let most = plain.iter().fold(0f32, |most, v| most.max(v.abs()));
    for (plain, unit) in plain.iter().zip(&unit) {
        assert!((plain - unit).abs() <= 1e-6 * most, "{what}: {plain}, {unit}, the largest {most}");
    }
}

#[test]
fn products() {
    let Some(cpus) = avx512_and_amx(2) else { return };
    for (m, n, k, used) in [
        (70, 40, 100, true),
        (300, 16, 64, true),
        (129, 33, 600, true),
        (200, 64, 27, true),
        (96, 96, 7, false),
        (20, 400, 64, false),
    ] {
        for turned in 0..4 {
            let mut p = Gemm::new(m, n, k).unwrap();
            p = if turned & 1 == 1 { p.transpose_a().unwrap() } else { p };
            p = if turned & 2 == 2 { p.transpose_b().unwrap() } else { p };
            let lens = [m * k, k * n, m * n].map(|len| len as usize);
            let run = |cpu: &Cpu, [a, b]: [&Memory; 2], y: Store<'_, Cpu>| {
                cpu.launch(Launch::Gemm { p, a, b, bias: None, y }).unwrap();
            };
            compare(&cpus, &format!("{m} × {n} × {k}, turned {turned}"), used, lens, run);
        }
    }
}

/// Convolution: input shape, output channels, kernel, stride, padding, dilation, groups, and for each pass whether it
/// uses the unit.
type Case = ([u32; 4], u32, [u32; 2], [u32; 2], [u32; 2], [u32; 2], u32, [bool; 3]);

#[test]
fn convolutions() {
    let Some(cpus) = avx512_and_amx(2) else { return };
    let all = [true; 3];
    let cases: [Case; 9] = [
        ([2, 9, 40, 16], 40, [3, 3], [1, 1], [1, 1], [1, 1], 1, all),
        ([1, 8, 40, 3], 16, [7, 7], [1, 1], [3, 3], [1, 1], 1, all),
        ([2, 11, 40, 32], 80, [3, 5], [2, 2], [1, 2], [1, 1], 1, all),
        ([1, 12, 40, 32], 32, [3, 3], [1, 1], [2, 3], [2, 3], 1, all),
        ([1, 12, 40, 64], 64, [3, 3], [1, 1], [1, 1], [1, 1], 2, all),
        ([2, 6, 16, 128], 32, [3, 3], [1, 1], [0, 0], [1, 1], 1, [true, true, false]),
        ([1, 4, 50, 64], 48, [1, 1], [1, 1], [0, 0], [1, 1], 1, [true, true, false]),
        ([1, 4, 50, 16], 11, [1, 1], [1, 1], [0, 0], [1, 1], 1, [false; 3]),
        ([1, 9, 40, 16], 16, [3, 3], [1, 1], [1, 1], [1, 1], 16, [false; 3]),
    ];
    for (x, outs, kernel, stride, pad, dilation, groups, used) in cases {
        let p = Conv2d::padded(x, outs, kernel, pad).and_then(|p| p.stride(stride)).and_then(|p| p.dilation(dilation));
        let p = p.and_then(|p| p.groups(groups)).unwrap();
        let [image, weights, result] =
            [p.x(), p.w(), p.y()].map(|shape| shape.iter().map(|&size| size as usize).product::<usize>());
        for (pass, used) in Pass::ALL.into_iter().zip(used) {
            let lens = match pass {
                Pass::Forward => [image, weights, result],
                Pass::Data => [result, weights, image],
                Pass::Weight => [image, result, weights],
            };
            let run = |cpu: &Cpu, [a, b]: [&Memory; 2], y: Store<'_, Cpu>| {
                cpu.launch(Launch::Conv { p, pass, a, b, bias: None, y }).unwrap();
            };
            compare(&cpus, &format!("{p:?}, {pass:?}"), used, lens, run);
        }
    }
}
