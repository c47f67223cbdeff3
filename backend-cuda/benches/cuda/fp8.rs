//! Products of operands of eight bits beside those of halves, and a decoder's training step with each. `peers.py fp8` has
//! `torch._scaled_mm` for the same sizes.

use crate::{
    measure::{Bench, Work},
    networks,
    products::shape,
};
use gradscale_core::{
    backend::{Backend, DType, Launch, Slot, Store},
    ops::Gemm,
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

/// Adds the line of a product whose operands are packed each time, beside the same product of halves.
fn gemm(bench: &mut Bench<'_>, name: &str, p: Gemm) -> Result<(), Error> {
    let [a_len, b_len, y_len] = p.lens().map(|len| len as usize);
    let sets = bench.sets(2 * (a_len + b_len + y_len));
    let [of_a, of_b] = p.formats();
    let many = |format, len| (0..sets).map(|_| rounded(bench, format, len)).collect::<Result<Vec<_>, _>>();
    let (a, b) = (many(of_a, a_len)?, many(of_b, b_len)?);
    let y =
        (0..sets).map(|_| bench.device.alloc(DType::F16, y_len).map(RefCell::new)).collect::<Result<Vec<_>, _>>()?;
    let table = bench.sites(Detail::Counts)?;
    let device = bench.device;
    let work = |p: Gemm| -> Work<'_> {
        let (a, b, y, table) = (&a, &b, &y, &table);
        Box::new(move |i: usize| {
            let mut y = y[i % sets].borrow_mut();
            let y = Store::site(Slot(2), Slot(3), table, &mut *y);
            device.launch(Launch::Gemm { p, a: &a[i % sets], b: &b[i % sets], bias: None, y })
        })
    };
    let recorded = bench.recorded(vec![work(p), work(p.operand_formats([StoreFormat::Fp16; 2]))])?;
    let times = bench.in_turns(&recorded)?;
    let size = f64::from(p.shape().m);
    let speed = |seconds: f64| format!("{:.1} TFLOP/s", 2.0 * size.powi(3) / seconds / 1e12);
    let [eight, half] = times[..] else { return Ok(()) };
    let name = format!("{name}: in eight bits / of halves");
    bench.line(&name, speed(eight), speed(half), Some(half / eight));
    Ok(())
}
