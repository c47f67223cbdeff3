//! Matrix products and convolutions: multiply-adds, and the share of the peak.

use crate::measure::Bench;
use gradscale_core::{
    backend::{Backend, DType, Launch, Slot, Store},
    ops::{Conv2d, Gemm, Pass},
    stats::Detail,
};
use std::hint::black_box;

pub fn all(bench: &Bench<'_>) {
    for size in [256, 1024] {
        product(bench, size);
    }
    for (kernel, channels) in [(7, 64), (7, 16), (3, 64), (3, 16)] {
        convolution(bench, [4, 90, 120, channels], channels, kernel);
    }
    convolution(bench, [4, 45, 60, 16], 16, 7);
    // The first layer, and the classifier.
    convolution(bench, [2, 180, 240, 3], 16, 7);
    convolution(bench, [2, 180, 240, 16], 11, 1);
}

/// `times` products of m × k and k × n by the `gemm` crate, in f32, with the instructions it finds best.
fn baseline([m, n, k]: [usize; 3], times: usize) -> impl FnMut() {
    let (a, b, mut y) = (vec![0.5f32; m * k], vec![0.25f32; k * n], vec![0f32; m * n]);
    move || {
        for _ in 0..times {
            let (a, b, y, row) = (black_box(&a).as_ptr(), b.as_ptr(), y.as_mut_ptr(), [n, k].map(|row| row as isize));
            let none = gemm::Parallelism::None;
            // SAFETY: dense matrices of these sizes.
            unsafe {
                let one = 1;
                gemm::gemm(
                    m, n, k, y, one, row[0], false, a, one, row[1], b, one, row[0], 0.0, 1.0, false, false, false, none,
                );
            }
        }
    }
}

fn product(bench: &Bench<'_>, size: u32) {
    let (n, table) = (size as usize, bench.table(Detail::Counts));
    let p = Gemm::new(size, size, size).expect("valid");
    let (a, b) = (bench.filled(DType::F16, n * n), bench.filled(DType::F16, n * n));
    let mut y = bench.cpu.alloc(DType::F16, n * n).expect("memory");
    let other = ("`gemm` crate, f32", || baseline([n; 3], 1));
    bench.beside(&format!("gemm {n}³, f16"), (n * n * n) as f64, "GMAC/s", bench.peak, other, || {
        let store = Store::site(Slot(2), Slot(3), &table, &mut y);
        bench.cpu.launch(Launch::Gemm { p, a: black_box(&a), b: &b, bias: None, y: store }).expect("runs");
    });
}

fn convolution(bench: &Bench<'_>, x: [u32; 4], outs: u32, kernel: u32) {
    let table = bench.table(Detail::Counts);
    let p = Conv2d::new(x, outs, [kernel; 2]).and_then(Conv2d::same).expect("valid");
    let [n, h, w, c] = x;
    let lens = [n * h * w * c, n * h * w * outs, outs * kernel * kernel * c].map(|len| len as usize);
    let [operand, result, weights] = lens.map(|len| bench.filled(DType::F16, len));
    let amount = lens[2] as f64 * f64::from(n * h * w);
    for (pass, a, b, size) in [
        (Pass::Forward, &operand, &weights, lens[1]),
        (Pass::Data, &result, &weights, lens[0]),
        (Pass::Weight, &operand, &result, lens[2]),
    ] {
        let dtype = if pass == Pass::Weight { DType::F32 } else { DType::F16 };
        let mut y = bench.cpu.alloc(dtype, size).expect("memory");
        let name = format!("conv {kernel}×{kernel} {c}→{outs}, {n}×{h}×{w}, {pass:?}");
        // The same product by rows that are there already, image by image.
        let [pixels, taps, c, outs] = [h * w, kernel * kernel, c, outs].map(|size| size as usize);
        let product = match pass {
            Pass::Forward => [pixels, outs, taps * c],
            Pass::Data => [pixels, c, taps * outs],
            Pass::Weight => [outs, taps * c, pixels],
        };
        let other = ("`gemm` crate, f32", || baseline(product, n as usize));
        bench.beside(&name, amount, "GMAC/s", bench.peak, other, || {
            let store = Store::site(Slot(2), Slot(3), &table, &mut y);
            bench.cpu.launch(Launch::Conv { p, pass, a: black_box(a), b, bias: None, y: store }).expect("runs");
        });
    }
}
