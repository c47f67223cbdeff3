//! Products and convolutions of operands of eight bits beside those of halves, and a decoder's training step with each. `peers.py fp8` has
//! `torch._scaled_mm` for the same sizes.

use crate::{
    measure::{Bench, Work},
    networks,
    products::shape,
};
use gradscale_core::{
    backend::{Backend, DType, Launch, Slot, Store},
    ops::{Conv2d, Gemm, GemmShape, Pass},
    stats::Detail,
    store_format::StoreFormat,
};
use gradscale_cuda::{Cuda, Error, Memory};
use std::cell::RefCell;

/// Lowest compute capability with tensor cores for eight bits.
const MIN_ARCH: u32 = 89;
/// Methods of the decoder's step: halves; stores in eight bits; products in eight bits, too.
const METHODS: [(&str, &str); 3] = [
    ("halves", "gs"),
    ("stores in eight bits", "gs:grad=e5m2,act=e4m3,weight=e4m3"),
    ("products in eight bits", "gs:grad=e5m2,act=e4m3,weight=e4m3,products=fp8"),
];

/// Measures everything with eight bits, if `fp8` is requested or everything is.
///
/// # Errors
/// The device's.
pub fn measure(bench: &mut Bench<'_>, open: &dyn Fn() -> Result<Cuda, Error>) -> Result<(), Error> {
    if !bench.wants_group("fp8") {
        return Ok(());
    }
    let arch = bench.device.gpu().arch();
    if arch < MIN_ARCH {
        println!("not here: products in eight bits, which sm_{arch} lacks");
        return Ok(());
    }
    for size in bench.size([2048u32, 4096, 8192], [32, 64, 128]) {
        let p = Gemm::new(size, size, size).map_err(shape)?;
        // The products of a layer: forward, gradient of its input, gradient of its weight.
        let [forward, data, weight] = [p.transpose_b().map_err(shape)?, p, p.transpose_a().map_err(shape)?];
        for (name, p, a) in [
            ("forward", forward, StoreFormat::E4m3),
            ("data", data, StoreFormat::E5m2),
            ("weight", weight, StoreFormat::E5m2),
        ] {
            gemm(bench, &format!("fp8 gemm {size}³ {name}"), p.operand_formats([a, StoreFormat::E4m3]))?;
        }
    }
    let [images, side, channels] = bench.size([32u32, 56, 256], [1, 6, 16]);
    let p = Conv2d::padded([images, side, side, channels], channels, [3, 3], [1, 1]).map_err(shape)?;
    conv(bench, p)?;
    for (name, method) in METHODS {
        networks::decoder_step(bench, &format!("fp8 decoder step: {name}"), method, open)?;
    }
    Ok(())
}

/// Returns about normally distributed values, rounded to a format.
fn rounded(bench: &Bench<'_>, format: StoreFormat, len: usize) -> Result<Memory, Error> {
    let (x, mut y) = (bench.normal(DType::F32, len)?, bench.device.alloc(DType::F16, len)?);
    let table = bench.sites(Detail::None)?;
    let y_store = Store::keep(Slot::ONE, &table, &mut y);
    let len = u32::try_from(len).map_err(shape)?;
    bench.device.launch(Launch::Round { format, len, x: &x, y: y_store })?;
    Ok(y)
}

/// Adds the line of a matrix product.
fn gemm(bench: &mut Bench<'_>, name: &str, p: Gemm) -> Result<(), Error> {
    let (device, GemmShape { m, n, k }) = (bench.device, p.shape());
    let multiply = |is_eight_bits, a: &Memory, b: &Memory, y: Store<'_, Cuda>| {
        let p = if is_eight_bits { p } else { p.operand_formats([StoreFormat::Fp16; 2]) };
        device.launch(Launch::Gemm { p, a, b, bias: None, y })
    };
    let products = f64::from(m) * f64::from(n) * f64::from(k);
    beside_halves(bench, name, p.formats(), p.lens(), products, &multiply)
}

/// Adds the lines of the forward and the data pass of a convolution.
fn conv(bench: &mut Bench<'_>, p: Conv2d) -> Result<(), Error> {
    let device = bench.device;
    let [x, w, y] = [p.x(), p.w(), p.y()].map(|shape| shape.into_iter().product::<u32>());
    let products = f64::from(y) * f64::from(w) / f64::from(p.y()[3]);
    for (pass, lens, gathered) in
        [(Pass::Forward, [x, w, y], StoreFormat::E4m3), (Pass::Data, [y, w, x], StoreFormat::E5m2)]
    {
        let formats = [gathered, StoreFormat::E4m3];
        let convolve = |is_eight_bits, a: &Memory, b: &Memory, y: Store<'_, Cuda>| {
            let p = if is_eight_bits { p.operand_formats(formats) } else { p };
            device.launch(Launch::Conv { p, pass, a, b, bias: None, y })
        };
        beside_halves(bench, &format!("fp8 conv 3×3 {pass:?}"), formats, lens, products, &convolve)?;
    }
    Ok(())
}

/// Launch of a product, in eight bits or of halves.
type Multiply<'a> = dyn Fn(bool, &Memory, &Memory, Store<'_, Cuda>) -> Result<(), Error> + 'a;

/// Adds the line of a product whose operands are packed each time, beside the same product of halves. `lens` are those of
/// both operands and of the result.
fn beside_halves(
    bench: &mut Bench<'_>, name: &str, formats: [StoreFormat; 2], lens: [u32; 3], products: f64,
    multiply: &Multiply<'_>,
) -> Result<(), Error> {
    let [a_len, b_len, y_len] = lens.map(|len| len as usize);
    let sets = bench.sets(2 * (a_len + b_len + y_len));
    let many = |format, len| (0..sets).map(|_| rounded(bench, format, len)).collect::<Result<Vec<_>, _>>();
    let (a, b) = (many(formats[0], a_len)?, many(formats[1], b_len)?);
    let y =
        (0..sets).map(|_| bench.device.alloc(DType::F16, y_len).map(RefCell::new)).collect::<Result<Vec<_>, _>>()?;
    let table = bench.sites(Detail::Counts)?;
    let work = |is_eight_bits| -> Work<'_> {
        let (a, b, y, table) = (&a, &b, &y, &table);
        Box::new(move |i: usize| {
            let mut y = y[i % sets].borrow_mut();
            let y = Store::site(Slot(2), Slot(3), table, &mut *y);
            multiply(is_eight_bits, &a[i % sets], &b[i % sets], y)
        })
    };
    let recorded = bench.recorded(vec![work(true), work(false)])?;
    let times = bench.in_turns(&recorded)?;
    let speed = |seconds: f64| format!("{:.1} TFLOP/s", 2.0 * products / seconds / 1e12);
    let [eight, half] = times[..] else { return Ok(()) };
    let name = format!("{name}: in eight bits / of halves");
    bench.line(&name, speed(eight), speed(half), Some(half / eight));
    Ok(())
}
