//! Products of f32 operands by six products of bfloat16, beside those without tensor cores and exact sums.

#![allow(dead_code, clippy::cast_precision_loss, reason = "each test uses some of it; sizes are small")]

use gradscale_core::{
    backend::{Backend, DType, Data, DataMut, Launch, Slot, Store},
    ops::{Gemm, GemmShape},
};
use gradscale_cuda::Cuda;
use pollster::block_on;

/// Random numbers, the same for every device.
pub struct Random(u32);

impl Random {
    /// Returns a number below 1, a multiple of 2^-24.
    fn uniform(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as f32 / (1 << 24) as f32
    }

    /// Returns a number of random sign.
    fn signed(&mut self) -> f32 {
        2.0 * self.uniform() - 1.0
    }

    /// Returns a power of two from 2^-20 to 2^20.
    fn power(&mut self) -> f32 {
        (40.0 * self.uniform() - 20.0).floor().exp2()
    }
}

/// Operands of a product: a as [m][k], b as [k][n].
#[derive(Clone, Debug)]
struct Operands {
    shape: GemmShape,
    a: Vec<f32>,
    b: Vec<f32>,
}

impl Operands {
    /// Generates operands, whose elements `a` and `b` return: of a row and k, and of k and a column.
    fn generate(
        shape: GemmShape, mut a: impl FnMut(usize, usize) -> f32, mut b: impl FnMut(usize, usize) -> f32,
    ) -> Self {
        let [m, n, k] = [shape.m, shape.n, shape.k].map(|size| size as usize);
        let a = (0..m * k).map(|i| a(i / k, i % k)).collect();
        Self { shape, a, b: (0..k * n).map(|i| b(i / n, i % n)).collect() }
    }

    /// Returns the exact sums, in f64, and the sums of magnitudes.
    fn exact_sums(&self) -> (Vec<f64>, Vec<f64>) {
        let [m, n, k] = [self.shape.m, self.shape.n, self.shape.k].map(|size| size as usize);
        let (mut sums, mut magnitudes) = (vec![0.0; m * n], vec![0.0; m * n]);
        for row in 0..m {
            for i in 0..k {
                let a = f64::from(self.a[row * k + i]);
                for column in 0..n {
                    let product = a * f64::from(self.b[i * n + column]);
                    sums[row * n + column] += product;
                    magnitudes[row * n + column] += product.abs();
                }
            }
        }
        (sums, magnitudes)
    }

    /// Returns the results of a device.
    fn multiply(&self, device: &Cuda) -> Vec<f32> {
        let GemmShape { m, n, k } = self.shape;
        let load = |values: &[f32]| {
            let mut memory = device.alloc(DType::F32, values.len()).expect("memory");
            device.write(Data::F32(values), &mut memory).expect("it is written");
            memory
        };
        let (a, b) = (load(&self.a), load(&self.b));
        let mut results = vec![0.0; m as usize * n as usize];
        let mut y = load(&results);
        let table = device.table(2, 0).expect("a table");
        let p = Gemm::new(m, n, k).expect("a shape");
        let y_store = Store::keep(Slot::ONE, &table, &mut y);
        device.launch(Launch::Gemm { p, a: &a, b: &b, bias: None, y: y_store }).expect("runs");
        block_on(device.read(&y, DataMut::F32(&mut results))).expect("it is read");
        results
    }

    /// Returns the largest error of a device, relative to the sum of magnitudes, in units of 2^-24.
    fn max_error(&self, device: &Cuda, (sums, magnitudes): &(Vec<f64>, Vec<f64>)) -> f64 {
        let errors = self.multiply(device).into_iter().zip(sums).zip(magnitudes);
        let relative = errors.map(|((got, sum), magnitude)| (f64::from(got) - sum).abs() / magnitude.max(1e-300));
        relative.fold(0.0, f64::max) * f64::from(1 << 24)
    }
}

/// Operands of all kinds of magnitudes.
fn cases(k: u32) -> Vec<(&'static str, Operands)> {
    let shape = GemmShape { m: 256, n: 256, k };
    let seeds = |seed: u32| [Random(seed), Random(seed + 1)];
    let [mut a, mut b] = seeds(1);
    let random = Operands::generate(shape, |_, _| a.signed(), |_, _| b.signed());
    let [mut a, mut b] = seeds(3);
    let positive = Operands::generate(shape, |_, _| a.uniform(), |_, _| b.uniform());
    let [mut a, mut b] = seeds(5);
    let near_one = Operands::generate(shape, |_, _| 1.0 + a.uniform() / 64.0, |_, _| 1.0 + b.uniform() / 64.0);
    // All parts have the sign of the value, and so their sums drift.
    let [mut a, mut b] = seeds(7);
    let all_parts =
        Operands::generate(shape, |_, _| 1.003_9 + a.uniform() / 4096.0, |_, _| 1.003_9 + b.uniform() / 4096.0);
    let graded = |mut powers: Random, len: u32| -> Vec<f32> { (0..len).map(|_| powers.power()).collect() };
    let ([mut a, mut b], [a_powers, b_powers]) = (seeds(9), [graded(Random(11), k), graded(Random(12), k)]);
    let along_k = Operands::generate(shape, |_, k| a.signed() * a_powers[k], |k, _| b.signed() * b_powers[k]);
    let ([mut a, mut b], [rows, columns]) = (seeds(13), [graded(Random(15), shape.m), graded(Random(16), shape.n)]);
    let along_rows = Operands::generate(shape, |m, _| a.signed() * rows[m], |_, n| b.signed() * columns[n]);
    vec![
        ("both signs", random),
        ("one sign", positive),
        ("near one", near_one),
        ("all parts positive", all_parts),
        ("graded along k", along_k),
        ("graded rows and columns", along_rows),
    ]
}

/// Operands whose long sums are the least exact: those that drift, and those of which few terms are most of the sum.
pub const LEAST_EXACT: [&str; 2] = ["one sign", "graded along k"];

/// Tests that errors are at most those of products without tensor cores: of short sums of all operands, and of long sums of
/// those that `is_long` selects by name.
pub fn check_errors(device: &Cuda, simt: &Cuda, is_long: impl Fn(&str) -> bool) {
    for k in [256, 4096] {
        for (name, operands) in cases(k).into_iter().filter(|(name, _)| k == 256 || is_long(name)) {
            let exact = operands.exact_sums();
            let [here, without] = [device, simt].map(|device| operands.max_error(device, &exact));
            println!("K = {k}, {name}: {here:.2} with tensor cores, {without:.2} without (2^-24 of the magnitudes)");
            assert!(here <= without, "K = {k}, {name}: {here} with tensor cores, {without} without");
        }
    }
}

/// Tests integers of which all parts are needed, whose results are below 2^24 and so exact.
pub fn check_wide_integers(device: &Cuda) {
    let shape = GemmShape { m: 264, n: 200, k: 520 };
    for (a_end, a_one_in, b_end, b_one_in) in [(1 << 18, 1, 2, 64), (2, 64, 1 << 18, 1), (1 << 10, 8, 1 << 10, 8)] {
        let integer = |random: &mut Random, end: i32, one_in: i32| {
            let (value, is_there) = (random.signed(), random.uniform() * (one_in as f32) < 1.0);
            if is_there { value.signum() * (1.0 + (value.abs() * (end - 1) as f32).floor()) } else { 0.0 }
        };
        let [mut a, mut b] = [Random(1), Random(2)];
        let operands =
            Operands::generate(shape, |_, _| integer(&mut a, a_end, a_one_in), |_, _| integer(&mut b, b_end, b_one_in));
        let (sums, magnitudes) = operands.exact_sums();
        assert!(magnitudes.iter().all(|&sum| sum < f64::from(1 << 24)), "exact in any order");
        let got = operands.multiply(device);
        let differs = got.iter().zip(&sums).position(|(&got, &want)| f64::from(got) != want);
        assert_eq!(differs, None, "{a_end} {b_end}: {:?}", device.self_test_results());
    }
}

/// Tests values that are infinite, NaN, near the largest, tiny and zero: results are as those without tensor cores.
pub fn check_special_values(device: &Cuda, simt: &Cuda) {
    let shape = GemmShape { m: 136, n: 144, k: 264 };
    let [m, n, k] = [136, 144, 264];
    let [mut a, mut b] = [Random(1), Random(2)];
    let finite = Operands::generate(shape, |_, _| a.signed(), |_, _| b.signed());
    let with = |changes: &[(usize, usize, f32)], others: &[(usize, usize, f32)]| {
        let mut operands = finite.clone();
        changes.iter().for_each(|&(row, i, value)| operands.a[row * k + i] = value);
        others.iter().for_each(|&(i, column, value)| operands.b[i * n + column] = value);
        operands
    };
    let (infinity, nan) = (f32::INFINITY, f32::NAN);
    // A whole number of two, whose mid and lo are 0: an infinity times it is infinite.
    let twos: Vec<_> = (0..n).map(|column| (7, column, if column % 2 == 0 { 2.0 } else { -2.0 })).collect();
    let zero_and_two: Vec<_> = twos.iter().copied().chain([(7, 3, 0.0), (7, 5, -0.0), (9, 8, infinity)]).collect();
    let largest: Vec<_> = (0..m).map(|row| (row, 11, if row % 2 == 0 { f32::MAX } else { f32::MIN })).collect();
    let cases = [
        ("an infinity", with(&[(5, 7, infinity)], &twos)),
        (
            "infinities of both signs",
            with(&[(5, 7, infinity), (5, 200, -infinity), (100, 9, -infinity)], &zero_and_two),
        ),
        ("an infinity of the other operand", with(&[], &[(9, 8, infinity)])),
        ("NaN", with(&[(135, 263, nan), (0, 0, f32::from_bits(0x7F80_0001))], &[])),
        ("NaN of the other operand", with(&[], &[(263, 143, -nan), (1, 2, f32::from_bits(0xFF80_0100))])),
        ("the largest", with(&largest, &(0..n).map(|column| (11, column, 0.5)).collect::<Vec<_>>())),
        ("too large", with(&largest, &(0..n).map(|column| (11, column, 2.0)).collect::<Vec<_>>())),
        ("subnormal", with(&(0..m).map(|row| (row, 3, 1e-40)).collect::<Vec<_>>(), &[(3, 4, 1e38)])),
    ];
    for (name, operands) in cases {
        let (_, magnitudes) = operands.exact_sums();
        let [here, without] = [device, simt].map(|device| operands.multiply(device));
        for ((i, (here, without)), magnitude) in here.iter().zip(&without).enumerate().zip(magnitudes) {
            let place = format!("{name}, row {}, column {}: {here} and {without}", i / n, i % n);
            if without.is_finite() {
                let difference = (f64::from(*here) - f64::from(*without)).abs();
                // Of the subnormal value, half of bfloat16's least number may be lost.
                let lost = if name == "subnormal" { 1e38 * 2f64.powi(-134) } else { 0.0 };
                assert!(difference <= magnitude / f64::from(1 << 20) + lost, "{place}");
            } else {
                assert!(here == without || here.is_nan() && without.is_nan(), "{place}");
            }
        }
    }
}
