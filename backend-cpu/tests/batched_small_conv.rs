//! Convolutions of small images with many channels, compared with the sums in their definition. Operands are small
//! integers, so every sum is exact.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test: small sizes, a device that cannot fail"
)]

mod sets;
mod shared;

use gradscale_core::{
    backend::{Backend, DType, Data, Launch},
    cast::{Round, f16_from_f32},
    ops::{Conv2d, Pass},
    stats::{Convention, Detail, Stats},
};
use gradscale_cpu::{Cpu, Memory};
use half::f16;
use sets::instruction_sets;
use shared::{Bits, halves, store, upload};

/// Images, channels of the result, kernel, strides, padding, dilation.
type Case = ([u32; 4], u32, [u32; 2], [u32; 2], [u32; 2], [u32; 2]);

/// All have so many weights that the forward and data passes batch small images.
const CASES: [Case; 6] = [
    ([5, 4, 4, 128], 128, [3, 3], [1, 1], [1, 1], [1, 1]),
    ([3, 6, 7, 64], 256, [3, 3], [2, 2], [1, 1], [1, 1]),
    ([2, 3, 4, 80], 130, [4, 4], [1, 2], [2, 2], [1, 1]),
    ([1, 6, 5, 96], 200, [3, 3], [3, 1], [2, 2], [2, 2]),
    // Results that no tap reaches, and taps that reach nothing.
    ([9, 1, 2, 256], 600, [1, 1], [3, 3], [1, 3], [1, 1]),
    ([2, 7, 1, 128], 68, [5, 5], [1, 1], [2, 4], [1, 2]),
];

fn to_conv((x, outs, kernel, stride, pad, dilation): Case) -> Conv2d {
    let p = Conv2d::padded(x, outs, kernel, pad).and_then(|p| p.stride(stride));
    p.and_then(|p| p.dilation(dilation)).unwrap()
}

/// Integers from −2 to 2.
fn integers(len: u32, seed: u32) -> Vec<f32> {
    (0..len).map(|i| ((i ^ seed).wrapping_mul(2_654_435_761) >> 16) % 5).map(|v| v as f32 - 2.0).collect()
}

/// Memory that holds f32.
fn upload_f32(cpu: &Cpu, values: &[f32]) -> Memory {
    let mut memory = cpu.alloc(DType::F32, values.len()).unwrap();
    cpu.write(Data::F32(values), &mut memory).unwrap();
    memory
}

fn len(shape: [u32; 4]) -> u32 {
    shape.iter().product()
}

/// The sums of a pass, in order of its result: each product of the definition once.
fn sums(p: &Conv2d, pass: Pass, a: &[f32], w: &[f32], bias: &[f32]) -> Vec<f32> {
    let ([images, _, _, depth], [outs, height, width, _]) = (p.x(), p.w());
    let at = |[_, rows, pixels, channels]: [u32; 4], n: u32, row: u32, pixel: u32| {
        (((n * rows + row) * pixels + pixel) * channels) as usize
    };
    let result = if pass == Pass::Forward { p.y() } else { p.x() };
    let mut all: Vec<f32> = (0..len(result)).map(|i| bias[(i % result[3]) as usize]).collect();
    for n in 0..images {
        for (row, pixel) in (0..p.y()[1]).flat_map(|row| (0..p.y()[2]).map(move |pixel| (row, pixel))) {
            for (i, j) in (0..height).flat_map(|i| (0..width).map(move |j| (i, j))) {
                let (Some(u), Some(v)) = (p.place(0, row, i), p.place(1, pixel, j)) else { continue };
                let (x, y) = (at(p.x(), n, u, v), at(p.y(), n, row, pixel));
                for o in 0..outs as usize {
                    let w = &w[(o * (height * width) as usize + (i * width + j) as usize) * depth as usize..];
                    for (c, w) in w.iter().take(depth as usize).enumerate() {
                        match pass {
                            Pass::Forward => all[y + o] += a[x + c] * w,
                            Pass::Data => all[x + c] += a[y + o] * w,
                            Pass::Weight => panic!("it has another way"),
                        }
                    }
                }
            }
        }
    }
    all
}

#[test]
fn sums_are_those_of_the_definition_on_every_instruction_set_and_number_of_threads() {
    for p in CASES.map(to_conv) {
        for (pass, operand, result) in [(Pass::Forward, p.x(), p.y()), (Pass::Data, p.y(), p.x())] {
            let [a, w, bias] = [(len(operand), 1), (len(p.w()), 2), (result[3], 3)].map(|(len, i)| integers(len, i));
            let exact = sums(&p, pass, &a, &w, &bias);
            // From exponent 3 to exponent 9, see `shared`.
            let stored = |v: &f32| f16_from_f32(v * 64.0, Round::NearestEven);
            let values: Vec<f32> = exact.iter().map(|v| v * 64.0).collect();
            let wide: Vec<u32> = values.iter().map(|v| v.to_bits()).collect();
            let mut row = Stats::new(Convention::FP16, 9, Detail::Full);
            row.observe(&values);
            let narrow: Vec<u32> = exact.iter().map(|v| u32::from(stored(v).to_bits())).collect();
            for (isa, threads) in instruction_sets().into_iter().flat_map(|isa| [1, 2, 3, 8].map(|n| (isa, n))) {
                let cpu = Cpu::with_isa(threads, isa).unwrap();
                let half = |v: &[f32]| upload(&cpu, &v.iter().map(|&v| f16::from_f32(v)).collect::<Vec<_>>());
                let a = if threads == 3 { upload_f32(&cpu, &a) } else { half(&a) };
                let [w, bias] = [&w, &bias].map(|v| half(v));
                for (dtype, want) in [(DType::F32, &wide), (DType::F16, &narrow)] {
                    let (got, seen) = store(&cpu, dtype, want.len(), |y| {
                        cpu.launch(Launch::Conv { p, pass, a: &a, b: &w, bias: Some(&bias), y }).unwrap()
                    });
                    let right = got == *want && (seen.counts(), seen.bins()) == (row.counts(), row.bins());
                    assert!(right, "{pass:?} of {p:?} as {dtype:?}, {isa}, {threads} threads");
                }
            }
        }
    }
}

#[test]
fn bits_and_rows_are_the_same_for_every_number_of_threads() {
    for p in CASES.map(to_conv) {
        for (pass, operand, result) in [(Pass::Forward, p.x(), p.y()), (Pass::Data, p.y(), p.x())] {
            let run = |threads: usize| -> Bits {
                let cpu = Cpu::new(threads).unwrap();
                let [a, w] = [(operand, 1), (p.w(), 2)].map(|(shape, i)| halves(&cpu, len(shape) as usize, i));
                store(&cpu, DType::F16, len(result) as usize, |y| {
                    cpu.launch(Launch::Conv { p, pass, a: &a, b: &w, bias: None, y }).unwrap()
                })
            };
            let serial = run(1);
            for threads in [2, 3, 5, 16] {
                assert!(run(threads) == serial, "{pass:?} of {p:?}, {threads} threads");
            }
        }
    }
}
