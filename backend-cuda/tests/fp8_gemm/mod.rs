//! Products of operands of eight bits: integers bit for bit as the reference backend, all values of each format within the
//! stated bound, and long sums, which only promotion keeps exact.

#![allow(dead_code, reason = "each test uses some of it")]

use crate::stored::{SITE, read_stored};
use gradscale_conformance::Reference;
use gradscale_core::{
    backend::{Backend, Control, DType, Data, Launch, Slot, Store},
    format::Format,
    ops::{Gemm, GemmShape, ShapeError},
    stats::{Detail, Stats},
    store_format::StoreFormat,
};
use gradscale_cuda::Cuda;
use half::f16;

/// The formats of eight bits.
const FORMATS: [StoreFormat; 2] = [StoreFormat::E5m2, StoreFormat::E4m3];

/// Product with its operands.
struct Case {
    p: Gemm,
    operands: [Vec<f16>; 2],
    /// True to add a bias and what the destination holds.
    more: bool,
}

/// Returns the results in f32 at 2^0, or in half at 2^-3, and their row.
fn results<B: Backend>(device: &B, case: &Case, dtype: DType) -> Result<(Vec<f32>, Stats), B::Error> {
    let load = |values: &[f16]| {
        let mut buffer = device.alloc(DType::F16, values.len())?;
        device.write(Data::F16(values), &mut buffer)?;
        Ok::<_, B::Error>(buffer)
    };
    let (a, b) = (load(&case.operands[0])?, load(&case.operands[1])?);
    let bias = load(&integers(case.p.shape().n as usize, 4))?;
    let y_len = case.p.lens()[2] as usize;
    let mut y = device.alloc(dtype, y_len)?;
    match dtype {
        DType::F16 => device.write(Data::F16(&integers(y_len, 3)), &mut y)?,
        _ => device.write(Data::F32(&vec![0.0; y_len]), &mut y)?,
    }
    let mut table = device.table(3, 0)?;
    let exponent = if dtype == DType::F16 { -3 } else { 0 };
    let control = Control { exponents: &[0, 0, exponent], hyperparameters: &[], seed: 0, detail: Detail::Full };
    device.upload(&control, 0..3, &mut table)?;
    let bias = Some(&bias).filter(|_| case.more);
    let store = Store { add: case.more, ..Store::site(Slot::ONE, SITE, &table, &mut y) };
    device.launch(Launch::Gemm { p: case.p, a: &a, b: &b, bias, y: store })?;
    read_stored(device, &y, dtype, y_len, &table)
}

/// Returns numbers of a generator, the same for every device.
fn numbers<T>(len: usize, seed: u32, number: impl Fn(u32) -> T) -> Vec<T> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        number(state >> 16)
    };
    (0..len).map(|_| next()).collect()
}

/// Returns integers from -3 to 3, which are values of both formats. Their sums are exact in 14 bits.
pub fn integers(len: usize, seed: u32) -> Vec<f16> {
    numbers(len, seed, |bits| f16::from_f32((bits >> 8) as f32 % 7.0 - 3.0))
}

/// Returns values of a format with any finite bits.
pub fn values_of(format: StoreFormat, len: usize, seed: u32) -> Vec<f16> {
    let format: Format = format.format();
    let finite = |bits: u32| {
        let value = format.decode(bits >> 4 & 0xFF);
        f16::from_f32(if value.is_finite() { value } else { 1.75 })
    };
    numbers(len, seed, finite)
}

/// Returns shapes of parts of tiles, odd tails of k, all layouts, batches, shared operands, and rows with gaps.
fn shapes() -> Result<Vec<Gemm>, ShapeError> {
    let mut all = vec![];
    for [m, n, k] in [[136, 144, 72], [33, 21, 45], [24, 56, 136], [1, 40, 300]] {
        let p = Gemm::new(m, n, k)?;
        all.extend([p, p.transpose_a()?, p.transpose_b()?, p.transpose_a()?.transpose_b()?]);
    }
    all.push(Gemm::new(65, 24, 65)?.batched(3, [65 * 65, 65 * 24, 65 * 24])?);
    all.push(Gemm::new(35, 65, 64)?.transpose_a()?.batched(3, [35 * 64, 0, 35 * 65])?);
    all.push(Gemm::new(16, 16, 17)?.transpose_b()?.batched(2, [0, 16 * 17, 16 * 16])?);
    all.push(Gemm::new(40, 24, 48)?.leading([56, 32, 40])?);
    all.push(Gemm::new(136, 144, 0)?);
    all.push(Gemm::new(9, 8, 1)?);
    Ok(all)
}

/// Returns all pairs of formats of eight bits.
pub fn formats() -> impl Iterator<Item = [StoreFormat; 2]> {
    FORMATS.into_iter().flat_map(|a| FORMATS.map(|b| [a, b]))
}

/// Tests products of integers: results, counts and histogram of the reference backend, bit for bit.
pub fn check_integers(device: &Cuda) {
    for (i, p) in shapes().expect("valid shapes").into_iter().enumerate() {
        for formats in formats() {
            check_shape(device, p.operand_formats(formats), i % 2 == 1);
        }
    }
}

fn check_shape(device: &Cuda, p: Gemm, more: bool) {
    let [a_len, b_len, _] = p.lens().map(|len| len as usize);
    let case = Case { p, operands: [integers(a_len, 1), integers(b_len, 2)], more };
    let (values, row) = results(device, &case, DType::F16).expect("runs");
    let (want, want_row) = results(&Reference::default(), &case, DType::F16).expect("runs");
    let differs = values.iter().zip(&want).position(|(a, b)| a.to_bits() != b.to_bits());
    assert_eq!(differs, None, "{p:?}");
    assert_eq!((row.counts(), row.bins()), (want_row.counts(), want_row.bins()), "{p:?}");
}

/// Tests each value of each format, NaN and infinities included: a product with 1 keeps it.
fn check_each_value(device: &Cuda) {
    for [a, b] in formats() {
        let values: Vec<f16> = (0..256).map(|bits| f16::from_f32(a.format().decode(bits))).collect();
        let p = Gemm::new(256, 8, 1).expect("a valid shape").operand_formats([a, b]);
        // Rows of one value are contiguous along k. Stored transposed, values are contiguous along m.
        for p in [p, p.transpose_a().expect("a valid shape")] {
            let case = Case { p, operands: [values.clone(), vec![f16::ONE; 8]], more: false };
            let (found, _) = results(device, &case, DType::F32).expect("runs");
            for (bits, (row, value)) in found.chunks(8).zip(&values).enumerate() {
                let is_kept = |y: &f32| *y == value.to_f32() || y.is_nan() && value.is_nan();
                assert!(row.iter().all(is_kept), "{a} {bits:#x}: {row:?} of {value}");
            }
        }
    }
}

/// Returns the exact sum of each result's products, and the sum of their magnitudes.
fn exact(case: &Case) -> Vec<[f64; 2]> {
    let (GemmShape { m, n, k }, [ta, tb], lead) = (case.p.shape(), case.p.transposed(), case.p.lead());
    let value = |operand: usize, row: u32, column: u32, transposed: bool| {
        let (row, column) = if transposed { (column, row) } else { (row, column) };
        f64::from(case.operands[operand][(row * lead[operand] + column) as usize].to_f32())
    };
    let product = |i: u32, j: u32, l: u32| value(0, i, l, ta) * value(1, l, j, tb);
    let sum = |i, j| (0..k).map(|l| product(i, j, l)).fold([0.0, 0.0], |[sum, size], x| [sum + x, size + x.abs()]);
    (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| sum(i, j)).collect()
}

/// Tests operands with all finite values of their formats: results are within a 60th of the sum of magnitudes, and half of
/// them within 2^-10.
pub fn check_all_values(device: &Cuda) {
    for formats in formats() {
        let p = Gemm::new(40, 33, 390).and_then(Gemm::transpose_a).expect("a valid shape").operand_formats(formats);
        let [a_len, b_len, _] = p.lens().map(|len| len as usize);
        let operands = [values_of(formats[0], a_len, 5), values_of(formats[1], b_len, 6)];
        let case = Case { p, operands, more: false };
        let (values, _) = results(device, &case, DType::F32).expect("runs");
        let errors = values.into_iter().zip(exact(&case)).map(|(y, [sum, size])| (f64::from(y) - sum).abs() / size);
        let mut errors: Vec<f64> = errors.collect();
        errors.sort_by(f64::total_cmp);
        let [median, largest] = [errors[errors.len() / 2], errors[errors.len() - 1]];
        println!("{formats:?}: errors of {median:.1e}, at most {largest:.1e}");
        assert!(largest <= 1.0 / 60.0 && median <= 2f64.powi(-10), "{formats:?}: {median}, {largest}");
    }
}

/// Returns a sum of equal products as an accumulator of 14 bits adds them, which cuts off the bits below.
fn sum_in_14_bits(product: f64, count: u32) -> f64 {
    let cut = |x: f64, largest: f64| {
        let unit = (largest.log2().floor() - 13.0).exp2();
        (x / unit).trunc() * unit
    };
    (0..count).fold(0.0, |sum: f64, _| cut(sum, sum.max(product)) + cut(product, sum.max(product)))
}

/// Tests long sums of equal products: promotion after 128 of them keeps each within 2^-10, and 14 bits alone would not.
fn check_long_sum(device: &Cuda, [m, n, k]: [u32; 3], formats: [StoreFormat; 2]) {
    let p = Gemm::new(m, n, k).expect("a valid shape").operand_formats(formats);
    let value = |format| f16::from_f32(if format == StoreFormat::E4m3 { 1.125 } else { 1.25 });
    let operands = [vec![value(formats[0]); (m * k) as usize], vec![value(formats[1]); (n * k) as usize]];
    let product = f64::from(operands[0][0]) * f64::from(operands[1][0]);
    let sum = f64::from(k) * product;
    let (values, _) = results(device, &Case { p, operands, more: false }, DType::F32).expect("runs");
    let largest = values.into_iter().map(|y| (f64::from(y) - sum).abs() / sum).fold(0.0, f64::max);
    assert!(largest <= 2f64.powi(-10), "{formats:?}: {largest}");
    let unpromoted = 1.0 - sum_in_14_bits(product, k) / sum;
    assert!(unpromoted > 0.02, "{formats:?}: {unpromoted}");
}

/// Tests long sums of few results.
pub fn check_long_sums(device: &Cuda) {
    formats().for_each(|formats| check_long_sum(device, [8, 16, 8192], formats));
}

/// Tests long sums of a whole tile, which one block adds.
pub fn check_long_sums_of_a_tile(device: &Cuda) {
    check_long_sum(device, [128, 128, 4096], [StoreFormat::E5m2, StoreFormat::E4m3]);
}

/// Tests that infinities and NaN of operands reach the results of their rows, and no others.
pub fn check_non_finite(device: &Cuda) {
    for formats in formats() {
        let p = Gemm::new(4, 8, 20).and_then(Gemm::transpose_b).expect("a valid shape").operand_formats(formats);
        let mut operands = [vec![f16::ONE; 80], vec![f16::ONE; 160]];
        operands[0][21] = StoreFormat::round(formats[0], -1e6);
        // A signalling NaN, whose upper byte alone would be an infinity.
        operands[0][79] = f16::from_bits(0x7C01);
        let case = Case { p, operands, more: false };
        let (values, row) = results(device, &case, DType::F16).expect("runs");
        let (want, want_row) = results(&Reference::default(), &case, DType::F16).expect("runs");
        let same = |(a, b): (&f32, &f32)| a == b || a.is_nan() && b.is_nan();
        assert!(values.iter().zip(&want).all(same), "{formats:?}: {values:?}");
        assert_eq!(row.counts(), want_row.counts(), "{formats:?}");
        assert!(row.counts().non_finite() == 16, "{formats:?}: {:?}", row.counts());
    }
}

/// Tests two matrices of several tiles each, and parts of tiles, in a pair of formats.
pub fn check_one(device: &Cuda, formats: [StoreFormat; 2]) {
    let p = Gemm::new(131, 136, 200).and_then(Gemm::transpose_b);
    let p = p.and_then(|p| p.batched(2, [131 * 200, 136 * 200, 131 * 136]));
    check_shape(device, p.expect("a valid shape").operand_formats(formats), false);
}

/// Runs the checks with one shape, for kernels that the emulation computes slowly.
pub fn check_some(device: &Cuda) {
    formats().for_each(|formats| check_one(device, formats));
    check_all_values(device);
    check_long_sums(device);
}

/// Runs all checks on a device.
pub fn check(device: &Cuda) {
    check_integers(device);
    check_each_value(device);
    check_all_values(device);
    check_long_sums(device);
    check_long_sums_of_a_tile(device);
    check_non_finite(device);
}
