//! Matrix products and convolutions: multiply-adds, and the share of the peak.

use crate::measure::Bench;
use gradscale_core::{
    backend::{Backend, DType, Launch, Slot, Store},
    ops::{Conv2d, Gemm, Pass},
    stats::Detail,
};
use std::hint::black_box;

pub fn bench_gemm_conv(bench: &Bench<'_>) {
    for size in [256, 512, 1024, 2048, 4096] {
        bench_gemm(bench, [size; 3], [false; 2]);
    }
    for size in [256, 1024] {
        bench_statistics(bench, size);
    }
    // Sizes from training: pixels by kernel windows, a linear layer, and their gradients.
    bench_gemm(bench, [43_200, 64, 27], [false; 2]);
    bench_gemm(bench, [10_800, 16, 784], [false, true]);
    bench_gemm(bench, [2700, 64, 3136], [false, true]);
    bench_gemm(bench, [43_200, 11, 64], [false, true]);
    bench_gemm(bench, [16, 784, 10_800], [true, false]);
    bench_gemm(bench, [64, 576, 2700], [true, false]);
    bench_gemm(bench, [1024, 512, 128], [false, true]);
    bench_gemm(bench, [512, 128, 1024], [true, false]);
    for (kernel, channels) in [(7, 64), (7, 16), (3, 64), (3, 16)] {
        bench_conv(bench, [4, 90, 120, channels], channels, kernel);
    }
    bench_conv(bench, [4, 45, 60, 16], 16, 7);
    // The first layer, and the classifier.
    bench_conv(bench, [2, 180, 240, 3], 16, 7);
    bench_conv(bench, [2, 180, 240, 16], 11, 1);
}

/// Returns the strides of a matrix that is stored by rows or, `transposed`, by columns.
fn strides(rows: usize, columns: usize, transposed: bool) -> [isize; 2] {
    if transposed { [1, rows as isize] } else { [columns as isize, 1] }
}

/// Baseline: `times` products of m × k and k × n by the `gemm` crate, in f32, with the best instructions it finds.
fn baseline([m, n, k]: [usize; 3], [ta, tb]: [bool; 2], times: usize) -> impl FnMut() {
    let (a, b, mut y) = (vec![0.5f32; m * k], vec![0.25f32; k * n], vec![0f32; m * n]);
    let ([ra, ca], [rb, cb], [ry, cy]) = (strides(m, k, ta), strides(k, n, tb), strides(m, n, false));
    move || {
        for _ in 0..times {
            let (a, b, y) = (black_box(&a).as_ptr(), b.as_ptr(), y.as_mut_ptr());
            let none = gemm::Parallelism::None;
            // SAFETY: dense matrices of these sizes.
            unsafe {
                gemm::gemm(m, n, k, y, cy, ry, false, a, ca, ra, b, cb, rb, 0.0, 1.0, false, false, false, none);
            }
        }
    }
}

/// Returns a function that runs a matrix product of this crate, with the given detail of statistics.
fn launch_gemm<'a>(
    bench: &Bench<'a>, [m, n, k]: [u32; 3], [ta, tb]: [bool; 2], detail: Detail,
) -> impl FnMut() + use<'a> {
    let (cpu, table) = (bench.cpu, bench.table(detail));
    let mut p = Gemm::new(m, n, k).expect("valid");
    if ta {
        p = p.transpose_a().expect("valid");
    }
    if tb {
        p = p.transpose_b().expect("valid");
    }
    let [a, b] = [m * k, k * n].map(|len| bench.filled(DType::F16, len as usize));
    let mut y = cpu.alloc(DType::F16, (m * n) as usize).expect("memory");
    move || {
        let store = Store::site(Slot(2), Slot(3), &table, &mut y);
        cpu.launch(Launch::Gemm { p, a: black_box(&a), b: &b, bias: None, y: store }).expect("runs");
    }
}

fn bench_gemm(bench: &Bench<'_>, mnk: [u32; 3], transposed: [bool; 2]) {
    let [m, n, k] = mnk;
    let sizes = if [m, n] == [k; 2] { format!("{k}³") } else { format!("{m}×{n}×{k}") };
    let transposed_suffix =
        ["", ", aᵀ", ", bᵀ", ", aᵀ, bᵀ"][usize::from(transposed[0]) + 2 * usize::from(transposed[1])];
    let name = format!("gemm {sizes}{transposed_suffix}, f16");
    if !bench.wants(&name) {
        return;
    }
    let other = ("`gemm` crate, f32", || baseline(mnk.map(|size| size as usize), transposed, 1));
    let amount = f64::from(m) * f64::from(n) * f64::from(k);
    bench.against_on_one_thread(
        &name,
        amount,
        "GMAC/s",
        bench.peak,
        other,
        launch_gemm(bench, mnk, transposed, Detail::Counts),
    );
}

/// Measures the cost of statistics in a matrix product.
fn bench_statistics(bench: &Bench<'_>, size: u32) {
    let (name, cubic) = (format!("statistics of gemm {size}³"), [size; 3]);
    if bench.wants(&name) {
        let other = ("without", || launch_gemm(bench, cubic, [false; 2], Detail::None));
        let run = launch_gemm(bench, cubic, [false; 2], Detail::Counts);
        bench.against(&name, f64::from(size).powi(3), "GMAC/s", bench.peak, other, run);
    }
}

fn bench_conv(bench: &Bench<'_>, x: [u32; 4], outs: u32, kernel: u32) {
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
        // The same product on existing rows, image by image.
        let [pixels, taps, c, outs] = [h * w, kernel * kernel, c, outs].map(|size| size as usize);
        let product = match pass {
            Pass::Forward => [pixels, outs, taps * c],
            Pass::Data => [pixels, c, taps * outs],
            Pass::Weight => [outs, taps * c, pixels],
        };
        let other = ("`gemm` crate, f32", || baseline(product, [false; 2], n as usize));
        bench.against_on_one_thread(&name, amount, "GMAC/s", bench.peak, other, || {
            let store = Store::site(Slot(2), Slot(3), &table, &mut y);
            bench.cpu.launch(Launch::Conv { p, pass, a: black_box(a), b, bias: None, y: store }).expect("runs");
        });
    }
}
