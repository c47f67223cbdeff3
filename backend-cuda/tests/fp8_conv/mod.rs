//! Convolutions of operands of eight bits: integers bit for bit as the reference backend, all values of each format within
//! the stated bound, and long sums, which only promotion keeps exact.

#![allow(dead_code, reason = "each test uses some of it")]

use crate::{
    fp8_gemm::{formats, integers, values_of},
    stored::{SITE, read_stored},
};
use gradscale_conformance::Reference;
use gradscale_core::{
    backend::{Backend, Control, DType, Data, Launch, Slot, Store},
    ops::{Conv2d, Pass, ShapeError},
    stats::{Detail, Stats},
    store_format::StoreFormat,
};
use gradscale_cuda::Cuda;
use half::f16;

/// Pass of a convolution with its operands: x and w, or dy and w.
struct Case {
    p: Conv2d,
    pass: Pass,
    operands: [Vec<f16>; 2],
    /// True to add a bias and what the destination holds.
    more: bool,
}

fn value_count(shape: [u32; 4]) -> usize {
    shape.into_iter().product::<u32>() as usize
}

/// Returns the shapes of the image that a pass reads, of the weights and of the result.
fn shapes_of(p: &Conv2d, pass: Pass) -> [[u32; 4]; 3] {
    match pass {
        Pass::Forward => [p.x(), p.w(), p.y()],
        Pass::Data => [p.y(), p.w(), p.x()],
        Pass::Weight => [p.x(), p.y(), p.w()],
    }
}

/// Returns the results in f32 at 2^0, or in half at 2^-3, and their row.
fn results<B: Backend>(device: &B, case: &Case, dtype: DType) -> Result<(Vec<f32>, Stats), B::Error> {
    let load = |values: &[f16]| {
        let mut buffer = device.alloc(DType::F16, values.len())?;
        device.write(Data::F16(values), &mut buffer)?;
        Ok::<_, B::Error>(buffer)
    };
    let (a, b) = (load(&case.operands[0])?, load(&case.operands[1])?);
    let y_shape = shapes_of(&case.p, case.pass)[2];
    let y_len = value_count(y_shape);
    let bias = load(&integers(y_shape[3] as usize, 4))?;
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
    device.launch(Launch::Conv { p: case.p, pass: case.pass, a: &a, b: &b, bias, y: store })?;
    read_stored(device, &y, dtype, y_len, &table)
}

/// Returns convolutions with parts of tiles, padding, strides, dilation, groups, and phases that no tap reads.
fn shapes() -> Result<Vec<Conv2d>, ShapeError> {
    Ok(vec![
        Conv2d::padded([2, 9, 11, 32], 48, [3, 3], [1, 1])?,
        Conv2d::padded([2, 10, 9, 32], 64, [2, 3], [0, 2])?.dilation([2, 1])?.stride([1, 2])?.groups(2)?,
        Conv2d::padded([3, 7, 8, 16], 16, [3, 3], [1, 1])?.stride([2, 2])?,
        // Most pixels of x have no gradient, and weights are wider than their padding.
        Conv2d::new([1, 9, 7, 16], 32, [1, 1])?.stride([3, 2])?,
        // The data pass reads pixels of dy from a distance on.
        Conv2d::padded([1, 6, 5, 16], 16, [1, 2], [2, 3])?.dilation([1, 3])?.stride([2, 1])?,
        // Results that are no multiples of eight, and one input of each group.
        Conv2d::new([2, 6, 6, 2], 32, [3, 2])?.groups(2)?,
        Conv2d::new([1, 5, 6, 48], 9, [2, 2])?.groups(3)?,
        // Sums that are divided among blocks.
        Conv2d::padded([1, 3, 3, 128], 128, [3, 3], [1, 1])?,
        Conv2d::padded([1, 4, 4, 16], 272, [3, 3], [1, 1])?.stride([2, 2])?,
    ])
}

/// Tests convolutions of integers: results, counts and histogram of the reference backend, bit for bit.
pub fn check_integers(device: &Cuda) {
    for (i, p) in shapes().expect("valid shapes").into_iter().enumerate() {
        for (j, formats) in formats().enumerate() {
            for pass in [Pass::Forward, Pass::Data] {
                check_shape(device, p.operand_formats(formats), pass, (i + j) % 2 == 1);
            }
        }
    }
}

fn check_shape(device: &Cuda, p: Conv2d, pass: Pass, more: bool) {
    let [a, b, _] = shapes_of(&p, pass).map(value_count);
    let case = Case { p, pass, operands: [integers(a, 1), integers(b, 2)], more };
    let (values, row) = results(device, &case, DType::F16).expect("runs");
    let (want, want_row) = results(&Reference::default(), &case, DType::F16).expect("runs");
    let differs = values.iter().zip(&want).position(|(a, b)| a.to_bits() != b.to_bits());
    assert_eq!(differs, None, "{pass:?} {p:?}");
    assert_eq!((row.counts(), row.bins()), (want_row.counts(), want_row.bins()), "{pass:?} {p:?}");
}

/// Tests each value of each format, NaN and infinities included: a product with 1 keeps it.
fn check_each_value(device: &Cuda) {
    for [a, b] in formats() {
        let p = Conv2d::new([1, 16, 16, 16], 16, [1, 1]).expect("a valid shape").operand_formats([a, b]);
        // A channel has all values, the others are zeros. Its weights are 1 for all results.
        let pixels = (0..256).flat_map(|bits| {
            (0..16).map(move |c| if c == 5 { f16::from_f32(a.format().decode(bits)) } else { f16::ZERO })
        });
        let pixels: Vec<f16> = pixels.collect();
        for pass in [Pass::Forward, Pass::Data] {
            let case = Case { p, pass, operands: [pixels.clone(), vec![f16::ONE; 256]], more: false };
            let (found, _) = results(device, &case, DType::F32).expect("runs");
            for (bits, (row, pixel)) in found.chunks(16).zip(pixels.chunks(16)).enumerate() {
                let value = pixel[5];
                let is_kept = |y: &f32| *y == value.to_f32() || y.is_nan() && value.is_nan();
                assert!(row.iter().all(is_kept), "{pass:?} {a} {bits:#x}: {row:?} of {value}");
            }
        }
    }
}

/// Returns the exact sum of each result's products, and the sum of their magnitudes.
fn exact(case: &Case) -> Vec<[f64; 2]> {
    let (p, is_forward) = (&case.p, case.pass == Pass::Forward);
    let ([images, _, _, channels], [_, rows, columns, outputs], [_, kernel_h, kernel_w, inputs]) =
        (p.x(), p.y(), p.w());
    let group_outputs = outputs / p.group_count();
    let at = |[_, h, w, c]: [u32; 4], [i, u, v, k]: [u32; 4]| (((i * h + u) * w + v) * c + k) as usize;
    let mut sums = vec![[0.0; 2]; value_count(shapes_of(p, case.pass)[2])];
    for place in 0..images * rows * columns * outputs {
        let (k, pixel) = (place % outputs, place / outputs);
        let (image, row, column) = (pixel / (rows * columns), pixel / columns % rows, pixel % columns);
        let first = k / group_outputs * inputs;
        for tap in 0..kernel_h * kernel_w * inputs {
            let (i, j, c) = (tap / inputs / kernel_w, tap / inputs % kernel_w, tap % inputs);
            let (Some(u), Some(v)) = (p.place(0, row, i), p.place(1, column, j)) else { continue };
            let x = at([images, p.x()[1], p.x()[2], channels], [image, u, v, first + c]);
            let [read, result] = if is_forward { [x, place as usize] } else { [place as usize, x] };
            let weight = case.operands[1][at(p.w(), [k, i, j, c])];
            let product = f64::from(case.operands[0][read].to_f32()) * f64::from(weight.to_f32());
            sums[result][0] += product;
            sums[result][1] += product.abs();
        }
    }
    sums
}

/// Tests operands with all finite values of their formats: results are within a 60th of the sum of magnitudes, and half of
/// them within 2^-10.
pub fn check_all_values(device: &Cuda) {
    let p = Conv2d::padded([2, 7, 6, 64], 96, [3, 2], [1, 1]).and_then(|p| p.stride([2, 1])?.groups(2));
    for (formats, pass) in formats().flat_map(|formats| [(formats, Pass::Forward), (formats, Pass::Data)]) {
        let p = p.expect("a valid shape").operand_formats(formats);
        let [a, b, _] = shapes_of(&p, pass).map(value_count);
        let case = Case { p, pass, operands: [values_of(formats[0], a, 5), values_of(formats[1], b, 6)], more: false };
        let (values, _) = results(device, &case, DType::F32).expect("runs");
        let errors = values.into_iter().zip(exact(&case)).filter(|(_, [_, size])| *size > 0.0);
        let mut errors: Vec<f64> = errors.map(|(y, [sum, size])| (f64::from(y) - sum).abs() / size).collect();
        errors.sort_by(f64::total_cmp);
        let [median, largest] = [errors[errors.len() / 2], errors[errors.len() - 1]];
        println!("{pass:?} {formats:?}: errors of {median:.1e}, at most {largest:.1e}");
        assert!(largest <= 1.0 / 60.0 && median <= 2f64.powi(-10), "{pass:?} {formats:?}: {median}, {largest}");
    }
}

/// Tests long sums of equal products of a whole tile, which one block adds: promotion keeps each within 2^-10. In 14 bits
/// alone they lose more than 2 %, as `fp8_gemm` tests.
fn check_long_sums(device: &Cuda) {
    let formats = [StoreFormat::E5m2, StoreFormat::E4m3];
    for pass in [Pass::Forward, Pass::Data] {
        let p = match pass {
            Pass::Forward => Conv2d::new([128, 2, 4, 512], 128, [2, 4]),
            Pass::Data | Pass::Weight => Conv2d::new([128, 1, 1, 128], 4096, [1, 1]),
        };
        let p = p.expect("a valid shape").operand_formats(formats);
        let [a, b, _] = shapes_of(&p, pass).map(value_count);
        let case =
            Case { p, pass, operands: [vec![f16::from_f32(1.25); a], vec![f16::from_f32(1.125); b]], more: false };
        let sum = 4096.0 * 1.25 * 1.125;
        let (values, _) = results(device, &case, DType::F32).expect("runs");
        let largest = values.into_iter().map(|y| (f64::from(y) - sum).abs() / sum).fold(0.0, f64::max);
        assert!(largest <= 2f64.powi(-10), "{pass:?}: {largest}");
    }
}

/// Tests that infinities and NaN of operands reach the results of their pixels, and no others.
fn check_non_finite(device: &Cuda) {
    for formats in formats() {
        let p = Conv2d::padded([1, 2, 3, 16], 16, [1, 3], [0, 1]).expect("a valid shape").operand_formats(formats);
        for pass in [Pass::Forward, Pass::Data] {
            let mut operands = [vec![f16::ONE; 96], vec![f16::ONE; 768]];
            operands[0][20] = StoreFormat::round(formats[0], -1e6);
            // A signalling NaN, whose upper byte alone would be an infinity.
            operands[0][95] = f16::from_bits(0x7C01);
            let case = Case { p, pass, operands, more: false };
            let (values, row) = results(device, &case, DType::F16).expect("runs");
            let (want, want_row) = results(&Reference::default(), &case, DType::F16).expect("runs");
            let same = |(a, b): (&f32, &f32)| a == b || a.is_nan() && b.is_nan();
            assert!(values.iter().zip(&want).all(same), "{pass:?} {formats:?}: {values:?}");
            assert_eq!(row.counts(), want_row.counts(), "{pass:?} {formats:?}");
            // Three pixels of the first row, and two of the second.
            assert!(row.counts().non_finite() == 80, "{pass:?} {formats:?}: {:?}", row.counts());
        }
    }
}

/// Tests what is computed from halves: weight gradients, and sums over channels that are no multiples of 16.
pub fn check_halves(device: &Cuda) {
    let p = Conv2d::padded([1, 5, 5, 24], 8, [3, 3], [1, 1]).expect("a valid shape");
    let p = p.operand_formats([StoreFormat::E4m3; 2]);
    for pass in Pass::ALL {
        check_shape(device, p, pass, false);
    }
}

/// Tests whole tiles of 128 rows and columns, and parts of tiles, in each pair of formats.
pub fn check_some(device: &Cuda) {
    let p = Conv2d::padded([1, 12, 13, 32], 144, [3, 1], [1, 0]).expect("a valid shape");
    let q = Conv2d::padded([1, 12, 13, 144], 32, [1, 3], [0, 1]).expect("a valid shape");
    for formats in formats() {
        check_shape(device, p.operand_formats(formats), Pass::Forward, false);
        check_shape(device, q.operand_formats(formats), Pass::Data, false);
    }
}

/// Runs all checks on a device.
pub fn check(device: &Cuda) {
    check_integers(device);
    check_some(device);
    check_each_value(device);
    check_all_values(device);
    check_long_sums(device);
    check_non_finite(device);
}
