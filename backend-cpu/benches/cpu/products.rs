//! Matrix products and convolutions: multiply-adds, and the share of the peak.

use crate::measure::Bench;
use gradscale_core::{
    backend::{Backend, DType, Slot, Store},
    descriptor::{Conv2d, Gemm, Pass},
    stats::Detail,
};
use std::hint::black_box;

pub fn all(bench: &Bench<'_>) {
    for size in [256, 1024] {
        if bench.threads == 1 {
            baseline(bench, size);
        }
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

fn baseline(bench: &Bench<'_>, size: u32) {
    let n = size as usize;
    let (a, b, mut y) = (vec![0.5f32; n * n], vec![0.25f32; n * n], vec![0f32; n * n]);
    bench.line(&format!("gemm {n}³, `gemm` crate, f32"), (n * n * n) as f64, "GMAC/s", bench.peak, || {
        let (a, b, y, row) = (black_box(&a).as_ptr(), b.as_ptr(), y.as_mut_ptr(), n as isize);
        let none = gemm::Parallelism::None;
        // SAFETY: three dense n × n matrices.
        unsafe {
            gemm::gemm(n, n, n, y, 1, row, false, a, 1, row, b, 1, row, 0.0, 1.0, false, false, false, none);
        }
    });
}

fn product(bench: &Bench<'_>, size: u32) {
    let (n, table) = (size as usize, bench.table(Detail::Counts));
    let p = Gemm::new(size, size, size).expect("valid");
    let (a, b) = (bench.filled(DType::F16, n * n), bench.filled(DType::F16, n * n));
    let mut y = bench.cpu.alloc(DType::F16, n * n).expect("memory");
    bench.line(&format!("gemm {n}³, f16"), (n * n * n) as f64, "GMAC/s", bench.peak, || {
        let store = Store::site(Slot(2), Slot(3), &table, &mut y);
        bench.cpu.gemm(&p, black_box(&a), &b, None, store).expect("runs");
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
        bench.line(&name, amount, "GMAC/s", bench.peak, || {
            let store = Store::site(Slot(2), Slot(3), &table, &mut y);
            bench.cpu.conv(&p, pass, black_box(a), b, None, store).expect("runs");
        });
    }
}
