//! Matrix products beside cuBLASLt, and SegNet's convolutions in three directions.

use crate::{
    blas,
    measure::{Bench, Work},
    model::{self, Product},
};
use gradscale_core::{
    backend::{Backend, Buffer, DType, Launch, Slot, Store},
    ops::{Conv2d, Gemm, Pass, Unary},
    stats::Detail,
};
use gradscale_cuda::{Error, Memory};
use std::cell::RefCell;

fn shape(error: impl core::fmt::Display) -> Error {
    Error::Driver { doing: "describe an operator", name: error.to_string(), lost: false }
}

/// 1024³ to 8192³: with statistics, without, cuBLASLt, cuBLASLt and a pass for statistics.
pub fn gemm(bench: &mut Bench<'_>) -> Result<(), Error> {
    let device = bench.device;
    for size in bench.size([1024u32, 2048, 4096, 8192], [32, 64, 128, 136]) {
        let name = format!("gemm {size}³");
        let len = size as usize * size as usize;
        let sets = bench.sets(6 * len);
        if !bench.wants(&name) || !bench.fits(6 * (len * sets) as u64) {
            continue;
        }
        let p = Gemm::new(size, size, size).map_err(shape)?;
        let (on, off) = (bench.sites(Detail::Counts)?, bench.sites(Detail::None)?);
        let many = || (0..sets).map(|_| bench.normal(DType::F16, len)).collect::<Result<Vec<_>, _>>();
        let (a, b, y) = (many()?, many()?, many()?.into_iter().map(RefCell::new).collect::<Vec<_>>());
        let addresses = |i: usize| [a[i % sets].at(), b[i % sets].at(), y[i % sets].borrow().at()];
        let ours = |table| {
            let (a, b, y) = (&a, &b, &y);
            move |i: usize| {
                let mut y = y[i % sets].borrow_mut();
                device.launch(Launch::Gemm {
                    p,
                    a: &a[i % sets],
                    b: &b[i % sets],
                    bias: None,
                    y: Store::site(Slot(2), Slot(3), table, &mut *y),
                })
            }
        };
        let workspace = device.alloc(DType::U8, blas::Product::workspace())?;
        let theirs = if blas::is_present() {
            Some(blas::Product::new(device, [size; 3], addresses(0), workspace.at())?)
        } else {
            None
        };
        let mut observed = device.alloc(DType::F16, len)?;
        let mut works: Vec<Work<'_>> = vec![Box::new(ours(&on)), Box::new(ours(&off))];
        if let Some(theirs) = &theirs {
            works.push(Box::new(|i| theirs.run(device, addresses(i))));
            works.push(Box::new(|i| {
                theirs.run(device, addresses(i))?;
                let y = y[i % sets].borrow();
                device.launch(Launch::Unary {
                    op: Unary::Id,
                    len: y.len() as u32,
                    x: &y,
                    y: Store::site(Slot(2), Slot(3), &on, &mut observed),
                })
            }));
        }
        let times = bench.medians(works)?;
        let speed = |seconds: f64| format!("{:.1} TFLOP/s", 2.0 * f64::from(size).powi(3) / seconds / 1e12);
        let (with, without) = (times[0], times[1]);
        let work = asked(bench, By::Largest, [f64::from(size); 3], 6.0 * len as f64, false);
        bench.line_of(
            &format!("{name}: statistics on / off"),
            speed(with),
            speed(without),
            Some(without / with),
            work.map(|work| (work, with)),
        );
        if let [_, _, blas, apart] = times[..] {
            let beside = [("cuBLASLt without", blas), ("cuBLASLt and a pass for them", apart)];
            for (peer, seconds) in beside {
                let ratio = Some(seconds / with);
                bench.line(&format!("{name}: with statistics / {peer}"), speed(with), speed(seconds), ratio);
            }
        } else {
            bench.line(&name, speed(with), "no cuBLASLt here".into(), None);
        }
    }
    Ok(())
}

/// Which kernel by warpgroups makes a product: tiles of 256 columns; of 64, whose end is beside the next tile's products;
/// of 64, with operands that threads bring.
#[derive(Clone, Copy)]
enum By {
    Largest,
    Narrow,
    NarrowOfThreads,
}

/// What a product asks of the device, in tiles of 128 rows where warpgroups multiply: those of 64 rows read their operands
/// from shared memory. Elsewhere warps of 64 × 32 do, in tiles of 128 × 128. Instructions of loops whose threads also bring
/// operands are not counted.
fn asked(bench: &Bench<'_>, by: By, size: [f64; 3], memory: f64, cut: bool) -> Option<model::Work> {
    let arch = bench.device.gpu().arch();
    let count = |what: &str| model::instructions(what, arch);
    let end = "end of a product with counts";
    let (tile, part, inner, epilogue) = match by {
        _ if arch != 90 => ([128.0, 128.0], [64.0, 32.0], 0.0, [count(end)?, 0.0]),
        By::Largest => {
            let inner = count("inner loop of wgmma_tma_gemm_128x256")?;
            ([128.0, 256.0], [64.0, 256.0], inner, [count(end)?, 0.0])
        }
        By::Narrow => {
            let inner = count("inner loop of wgmma_tma_forward_128x64")?;
            let epilogue = [count("sums of a product left to be stored")?, count("end of a product beside the next")?];
            ([128.0, 64.0], [64.0, 64.0], inner, epilogue)
        }
        By::NarrowOfThreads => ([128.0, 64.0], [64.0, 64.0], 0.0, [count(end)?, 0.0]),
    };
    Some(Product { size, tile, part, inner, epilogue, cut, memory }.work(bench.figures()?))
}

/// The convolutions of SegNetBasic, batch 12 of 360 × 480, width 64.
pub fn conv(bench: &mut Bench<'_>) -> Result<(), Error> {
    let device = bench.device;
    for (name, h, w, c) in [
        ("encoder.conv1", 360, 480, 3),
        ("decoder.conv1", 360, 480, 64),
        ("encoder.conv2", 180, 240, 64),
        ("encoder.conv3", 90, 120, 64),
        ("encoder.conv4", 45, 60, 64),
    ] {
        let (batch, h, w) = bench.size((12, h, w), (1, 8, 8));
        let p = Conv2d::padded([batch, h, w, c], 64, [7, 7], [3, 3]).map_err(shape)?;
        let len = |shape: [u32; 4]| shape.into_iter().product::<u32>() as usize;
        for pass in Pass::ALL {
            // Nobody needs the gradient of images.
            let name = format!("conv {name} {pass:?}");
            if !bench.wants(&name) || (c == 3 && pass == Pass::Data) {
                continue;
            }
            let ([a, b], result, y_type) = match pass {
                Pass::Forward => ([p.x(), p.w()], p.y(), DType::F16),
                Pass::Data => ([p.y(), p.w()], p.x(), DType::F16),
                Pass::Weight => ([p.x(), p.y()], p.w(), DType::F32),
            };
            let (a, b) = (bench.normal(DType::F16, len(a))?, bench.normal(DType::F16, len(b))?);
            let y = RefCell::new(device.alloc(y_type, len(result))?);
            let (on, off) = (bench.sites(Detail::Counts)?, bench.sites(Detail::None)?);
            let run = |table| {
                let (a, b, y): (&Memory, &Memory, _) = (&a, &b, &y);
                move |_: usize| {
                    let mut y = y.borrow_mut();
                    device.launch(Launch::Conv {
                        p,
                        pass,
                        a,
                        b,
                        bias: None,
                        y: Store::site(Slot(2), Slot(3), table, &mut *y),
                    })
                }
            };
            let times = bench.medians(vec![Box::new(run(&on)), Box::new(run(&off))])?;
            let flops = 2.0 * len(p.y()) as f64 * 49.0 * f64::from(c);
            let speed = |seconds: f64| format!("{:.1} TFLOP/s", flops / seconds / 1e12);
            let [pixels, channels, taps] = [len(p.y()) as f64 / 64.0, f64::from(c.max(8)), 49.0];
            let size = match pass {
                Pass::Forward => [pixels, 64.0, taps * channels],
                Pass::Data => [pixels, channels, taps * 64.0],
                Pass::Weight => [taps * channels, 64.0, pixels],
            };
            let memory = 2.0 * pixels * (64.0 + channels);
            let by = if c % 64 == 0 { By::Narrow } else { By::NarrowOfThreads };
            let work = asked(bench, by, size, memory, pass == Pass::Weight).map(|work| (work, times[0]));
            let ratio = Some(times[1] / times[0]);
            bench.line_of(&format!("{name}: statistics on / off"), speed(times[0]), speed(times[1]), ratio, work);
        }
    }
    Ok(())
}
