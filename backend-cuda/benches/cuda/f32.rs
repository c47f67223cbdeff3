//! Products and convolutions of f32 operands on tensor cores, as six products of bfloat16, beside the kernels without.

use crate::{
    measure::{Bench, Work},
    model::{self, Product},
    products::shape,
};
use gradscale_core::{
    backend::{Backend, DType, Launch, Slot, Store},
    ops::{Conv2d, Gemm, Pass},
    stats::Detail,
};
use gradscale_cuda::{Cuda, Error};
use std::cell::RefCell;

/// Products of bfloat16 for one of f32 operands, and bytes that a split of a value moves.
const PART_PRODUCTS: f64 = 6.0;
const SPLIT_BYTES: f64 = 10.0;

/// Product of f32 operands.
enum Case {
    Gemm(Gemm),
    Conv(Conv2d, Pass),
}

impl Case {
    /// Returns the numbers of elements of both operands and of the result.
    fn lens(&self) -> [usize; 3] {
        let len = |shape: [u32; 4]| shape.into_iter().map(|size| size as usize).product::<usize>();
        match self {
            Self::Gemm(p) => p.lens().map(|len| len as usize),
            Self::Conv(p, Pass::Forward) => [p.x(), p.w(), p.y()].map(len),
            Self::Conv(p, Pass::Data) => [p.y(), p.w(), p.x()].map(len),
            Self::Conv(p, Pass::Weight) => [p.x(), p.y(), p.w()].map(len),
        }
    }

    /// Returns rows, columns and terms.
    fn size(&self) -> [f64; 3] {
        match self {
            Self::Gemm(p) => [p.shape().m, p.shape().n, p.shape().k].map(f64::from),
            Self::Conv(p, pass) => {
                let ([_, high, wide, inputs], [images, h, w, outputs]) = (p.w().map(f64::from), p.y().map(f64::from));
                let (pixels, taps) = (images * h * w, high * wide);
                match pass {
                    Pass::Forward => [pixels, outputs, taps * inputs],
                    Pass::Data => [pixels, inputs, taps * outputs],
                    // The kernel for few outputs has them as columns.
                    Pass::Weight => [taps * inputs, outputs, pixels],
                }
            }
        }
    }

    /// Returns the seconds of a launch on the device of a bench.
    fn seconds(&self, bench: &Bench<'_>) -> Result<f64, Error> {
        let [a_len, b_len, y_len] = self.lens();
        let (a, b) = (bench.normal(DType::F32, a_len)?, bench.normal(DType::F32, b_len)?);
        let y = RefCell::new(bench.device.alloc(DType::F32, y_len)?);
        let table = bench.sites(Detail::Counts)?;
        let work: Work<'_> = Box::new(|_| {
            let mut y = y.borrow_mut();
            let (a, b, y) = (&a, &b, Store::site(Slot(2), Slot(3), &table, &mut *y));
            bench.device.launch(match *self {
                Self::Gemm(p) => Launch::Gemm { p, a, b, bias: None, y },
                Self::Conv(p, pass) => Launch::Conv { p, pass, a, b, bias: None, y },
            })
        });
        Ok(bench.medians(vec![work])?[0])
    }

    /// Returns the work on tensor cores that the model knows, of tiles of that many columns.
    fn work(&self, bench: &Bench<'_>, columns: f64) -> Option<model::Work> {
        let ([m, n, k], [a_len, b_len, y_len]) = (self.size(), self.lens().map(|len| len as f64));
        let product = Product {
            size: [m, n, PART_PRODUCTS * k],
            tile: [128.0, columns],
            part: [64.0, columns],
            inner: 0.0,
            epilogue: [model::instructions("end of a product with counts", bench.device.gpu().arch())?, 0.0],
            cut: matches!(self, Self::Conv(_, Pass::Weight)),
            memory: SPLIT_BYTES * (a_len + b_len) + 4.0 * y_len,
        };
        Some(product.work(bench.figures()?))
    }
}

/// Measures products of f32 operands on this device and on one without tensor cores for them, if `f32` is requested or
/// everything is.
///
/// # Errors
/// The device's.
pub fn measure(bench: &mut Bench<'_>, open: &dyn Fn() -> Result<Cuda, Error>) -> Result<(), Error> {
    if !bench.wants_group("f32") {
        return Ok(());
    }
    let arch = bench.device.gpu().arch();
    if arch != 90 {
        println!("not here: f32 on tensor cores, which sm_{arch} lacks");
        return Ok(());
    }
    let mut cases = vec![];
    for size in bench.size([1024u32, 4096, 8192], [256, 264, 272]) {
        let p = Gemm::new(size, size, size).map_err(shape)?;
        cases.push((format!("f32 gemm {size}³"), Case::Gemm(p), 128.0));
    }
    let (input, channels) = bench.size(([12, 180, 240, 64], 64), ([1, 16, 17, 64], 64));
    let p = Conv2d::padded(input, channels, [7, 7], [3, 3]).map_err(shape)?;
    cases.extend(Pass::ALL.map(|pass| (format!("f32 conv 7×7 {pass:?}"), Case::Conv(p, pass), 64.0)));
    let simt = open()?.without_f32_tensor_cores();
    for (name, case, columns) in cases {
        let with = case.seconds(bench)?;
        let without = case.seconds(&bench.with_device(&simt))?;
        let products: f64 = case.size().iter().product();
        let speed = |seconds: f64| format!("{:.1} TFLOP/s", 2.0 * products / seconds / 1e12);
        let work = case.work(bench, columns).map(|work| (work, with));
        let name = format!("{name}: tensor cores / without");
        bench.line_of(&name, speed(with), speed(without), Some(without / with), work);
    }
    Ok(())
}
