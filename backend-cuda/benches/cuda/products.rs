//! Matrix products compared with cuBLASLt, and SegNet's convolutions in three directions.

use crate::{
    blas,
    measure::{Bench, Work},
    model::{self, Product},
};
use gradscale_core::{
    backend::{Backend, Buffer, DType, Launch, Slot, Store},
    ops::{Conv2d, Gemm, GemmShape, Pass, Unary},
    stats::Detail,
};
use gradscale_cuda::{Error, Memory};
use std::cell::RefCell;

pub fn shape(error: impl core::fmt::Display) -> Error {
    Error::Driver { doing: "describe an operator", name: error.to_string(), lost: false }
}

/// Order in which the sides of a comparison are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sides {
    /// All sides alternate, so that they have the same clock and temperature.
    InTurns,
    /// All sides alternate, and then each has the device alone for this number of seconds.
    InTurnsAndAlone(f64),
}

/// Matrix product that is compared with cuBLASLt.
pub struct GemmCase {
    pub name: String,
    pub p: Gemm,
    pub operands: DType,
    pub results: DType,
    pub sides: Sides,
}

/// Measures products of 1024³ to 8192³: with statistics, without, cuBLASLt, cuBLASLt and a pass for statistics;
/// `alone`: each side also by itself, since sides that take turns share heat and power.
pub fn gemm(bench: &mut Bench<'_>, alone: bool) -> Result<(), Error> {
    for size in bench.size([1024u32, 2048, 4096, 8192], [32, 64, 128, 136]) {
        let name = format!("gemm {size}³");
        if !bench.wants(&name) {
            continue;
        }
        // Two seconds at 8192³, in which an H100 settles at its power limit; smaller products draw less.
        let seconds = if size == 8192 { 2.0 } else { 0.5 };
        let sides = if alone { Sides::InTurnsAndAlone(seconds) } else { Sides::InTurns };
        let p = Gemm::new(size, size, size).map_err(shape)?;
        beside_blas(bench, &GemmCase { name, p, operands: DType::F16, results: DType::F16, sides })?;
    }
    Ok(())
}

/// Adds the lines of a matrix product: its speed, compared with that of cuBLASLt.
///
/// Two ratios to cuBLASLt are measured: alternating, and each side alone. The lower one is compared with the target,
/// because a claim has to hold in both ways. In alternation, a side that leaves tensor cores idle leaves its power to
/// the other; alone, clocks may have changed between the sides.
///
/// # Errors
/// The device's, or cuBLASLt's.
pub fn beside_blas(bench: &mut Bench<'_>, case: &GemmCase) -> Result<(), Error> {
    let GemmCase { name, p, operands, results, sides } = case;
    let device = bench.device;
    let [a_len, b_len, y_len] = p.lens().map(|len| len as usize);
    let bytes = operands.size() * (a_len + b_len) + results.size() * y_len;
    // Operands that exceed the L2 cache by themselves need no second set.
    let sets = if bytes > bench.size(256 << 20, 1 << 20) { 1 } else { bench.sets(bytes) };
    // The pass for statistics writes once more.
    if !bench.fits((bytes * sets + results.size() * y_len + blas::Product::workspace()) as u64) {
        println!("{name}: does not fit this device's memory, {:.1} GB", (bytes * sets) as f64 / 1e9);
        return Ok(());
    }
    let (on, off) = (bench.sites(Detail::Counts)?, bench.sites(Detail::None)?);
    let many = |dtype, len| (0..sets).map(|_| bench.normal(dtype, len)).collect::<Result<Vec<_>, _>>();
    let (a, b) = (many(*operands, a_len)?, many(*operands, b_len)?);
    let y = (0..sets).map(|_| device.alloc(*results, y_len).map(RefCell::new)).collect::<Result<Vec<_>, _>>()?;
    let addresses = |i: usize| [a[i % sets].at(), b[i % sets].at(), y[i % sets].borrow().at()];
    let ours = |table| {
        let (a, b, y) = (&a, &b, &y);
        move |i: usize| {
            let mut y = y[i % sets].borrow_mut();
            device.launch(Launch::Gemm {
                p: *p,
                a: &a[i % sets],
                b: &b[i % sets],
                bias: None,
                y: Store::site(Slot(2), Slot(3), table, &mut *y),
            })
        }
    };
    let workspace = device.alloc(DType::U8, blas::Product::workspace())?;
    let theirs = if blas::is_present() {
        match blas::Product::new(device, p, [*operands, *results], addresses(0), workspace.at()) {
            Ok(theirs) => Some(theirs),
            Err(error) => {
                println!("{name}: without cuBLASLt: {error}");
                None
            }
        }
    } else {
        None
    };
    let mut observed = device.alloc(*results, y_len)?;
    let mut works: Vec<Work<'_>> = vec![Box::new(ours(&on)), Box::new(ours(&off))];
    if let Some(theirs) = &theirs {
        works.push(Box::new(|i| theirs.launch(device, addresses(i))));
        works.push(Box::new(|i| {
            theirs.launch(device, addresses(i))?;
            let y = y[i % sets].borrow();
            device.launch(Launch::Unary {
                op: Unary::Id,
                len: y.len() as u32,
                x: &y,
                y: Store::site(Slot(2), Slot(3), &on, &mut observed),
            })
        }));
    }
    let recorded = bench.recorded(works)?;
    let times = bench.in_turns(&recorded)?;
    let GemmShape { m, n, k } = p.shape();
    let size = [m, n, k].map(f64::from);
    let speed = |seconds: f64| format!("{:.1} TFLOP/s", 2.0 * size.iter().product::<f64>() / seconds / 1e12);
    let (with, without) = (times[0], times[1]);
    let is_square = size[0] == size[1] && size[1] == size[2] && *operands == DType::F16;
    let work = if is_square { asked(bench, By::Largest, size, bytes as f64, false) } else { None };
    bench.line_of(
        &format!("{name}: statistics on / off"),
        speed(with),
        speed(without),
        Some(without / with),
        work.map(|work| (work, with)),
    );
    let mut alone = vec![];
    if let Sides::InTurnsAndAlone(seconds) = sides {
        for side in [0, 2] {
            alone.extend(recorded.get(side).map(|side| bench.alone(side, *seconds)).transpose()?);
        }
    }
    let [_, _, blas, apart] = times[..] else {
        let value = alone.first().map_or_else(|| speed(with), |own| speed(own.seconds) + &own.conditions());
        bench.line(name, value, "no cuBLASLt here".into(), None);
        return Ok(());
    };
    let mut lowest = ("in turns", with, blas);
    if let [own, other] = alone[..] {
        let ratio = Some(other.seconds / own.seconds);
        bench.line(&format!("{name}: in turns / cuBLASLt"), speed(with), speed(blas), Some(blas / with));
        let sides = [own, other].map(|side| speed(side.seconds) + &side.conditions());
        let [own_words, other_words] = sides;
        bench.line(&format!("{name}: alone / cuBLASLt"), own_words, other_words, ratio);
        if other.seconds / own.seconds < blas / with {
            lowest = ("alone", own.seconds, other.seconds);
        }
    }
    let (how, own, other) = lowest;
    let beside = format!("{} {how}", speed(other));
    bench.line(&format!("{name}: with statistics / cuBLASLt without"), speed(own), beside, Some(other / own));
    let name = format!("{name}: with statistics / cuBLASLt and a pass for them");
    bench.line(&name, speed(with), speed(apart), Some(apart / with));
    Ok(())
}

/// Kernel by warpgroups that computes a product: with tiles of 256 columns; of 64, whose end overlaps with the next
/// tile's products; of 64, with operands that threads load; from halo tiles.
#[derive(Clone, Copy)]
pub enum By {
    Largest,
    Narrow,
    NarrowOfThreads,
    Halo,
}

/// Returns the work of a product on the device, in tiles of 128 rows where warpgroups multiply: those of 64 rows read
/// their operands from shared memory. Elsewhere warps of 64 × 32 do, in tiles of 128 × 128. Instructions of loops whose
/// threads also bring operands are not counted.
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
        By::Halo => {
            // A warp multiplies 16 results by 128 pixels, twice what the loop of a tile's 16 rows and 64 columns does. Pixels
            // outside of an image are not counted.
            let inner = count("inner loop of conv_halo_forward")? / 2.0;
            let epilogue = [count("sums of a product left to be stored")?, count("end of a product beside the next")?];
            ([256.0, 64.0], [128.0, 64.0], inner, epilogue)
        }
    };
    Some(Product { size, tile, part, inner, epilogue, cut, memory }.work(bench.figures()?))
}

/// Measures the convolutions of SegNetBasic with a batch of 12 images of 360 × 480, width 64.
pub fn conv(bench: &mut Bench<'_>) -> Result<(), Error> {
    for (name, h, w, c, by) in [
        ("encoder.conv1", 360, 480, 3, By::Halo),
        ("decoder.conv1", 360, 480, 64, By::Halo),
        ("encoder.conv2", 180, 240, 64, By::Halo),
        ("encoder.conv3", 90, 120, 64, By::Halo),
        // 144 halo tiles would take two rounds of 132 multiprocessors.
        ("encoder.conv4", 45, 60, 64, By::Narrow),
    ] {
        let (batch, h, w) = bench.size((12, h, w), (1, 8, 8));
        let p = Conv2d::padded([batch, h, w, c], 64, [7, 7], [3, 3]).map_err(shape)?;
        for pass in Pass::ALL {
            // The gradient of images is not needed.
            let name = format!("conv {name} {pass:?}");
            if !bench.wants(&name) || (c == 3 && pass == Pass::Data) {
                continue;
            }
            let by = match pass {
                Pass::Forward | Pass::Data => by,
                Pass::Weight if c % 64 == 0 => By::Narrow,
                Pass::Weight => By::NarrowOfThreads,
            };
            one_pass(bench, &ConvCase { name, p, pass, operands: DType::F16, by: Some(by) })?;
        }
    }
    Ok(())
}

/// Pass of a convolution to be measured.
pub struct ConvCase {
    pub name: String,
    pub p: Conv2d,
    pub pass: Pass,
    pub operands: DType,
    /// Kernel's tile and instructions for the performance model, if it knows this kind.
    pub by: Option<By>,
}

/// Adds the line of one pass of a convolution: its speed with statistics and without.
///
/// # Errors
/// The device's.
pub fn one_pass(bench: &mut Bench<'_>, case: &ConvCase) -> Result<(), Error> {
    let ConvCase { name, p, pass, operands, by } = case;
    let device = bench.device;
    let len = |shape: [u32; 4]| shape.into_iter().map(|size| size as usize).product::<usize>();
    let ([a, b], result, y_type) = match pass {
        Pass::Forward => ([p.x(), p.w()], p.y(), *operands),
        Pass::Data => ([p.y(), p.w()], p.x(), *operands),
        Pass::Weight => ([p.x(), p.y()], p.w(), DType::F32),
    };
    let bytes = operands.size() * (len(a) + len(b)) + y_type.size() * len(result);
    if !bench.fits(bytes as u64) {
        println!("{name}: does not fit this device's memory, {:.1} GB", bytes as f64 / 1e9);
        return Ok(());
    }
    let (a, b) = (bench.normal(*operands, len(a))?, bench.normal(*operands, len(b))?);
    let y = RefCell::new(device.alloc(y_type, len(result))?);
    let (on, off) = (bench.sites(Detail::Counts)?, bench.sites(Detail::None)?);
    let run = |table| {
        let (a, b, y): (&Memory, &Memory, _) = (&a, &b, &y);
        move |_: usize| {
            let mut y = y.borrow_mut();
            device.launch(Launch::Conv {
                p: *p,
                pass: *pass,
                a,
                b,
                bias: None,
                y: Store::site(Slot(2), Slot(3), table, &mut *y),
            })
        }
    };
    let times = bench.medians(vec![Box::new(run(&on)), Box::new(run(&off))])?;
    let [outputs, high, wide, inputs] = p.w().map(f64::from);
    let taps = high * wide;
    // The same in all passes: each is as many products as the forward pass, whatever a kernel multiplies in vain.
    let flops = 2.0 * len(p.y()) as f64 * taps * inputs;
    let speed = |seconds: f64| format!("{:.1} TFLOP/s", flops / seconds / 1e12);
    let (pixels, channels) = (len(p.y()) as f64 / outputs, inputs.max(8.0));
    let size = match pass {
        Pass::Forward => [pixels, outputs, taps * channels],
        Pass::Data => [pixels, channels, taps * outputs],
        Pass::Weight => [taps * channels, outputs, pixels],
    };
    let memory = 2.0 * pixels * (outputs + channels);
    let work = by.and_then(|by| asked(bench, by, size, memory, *pass == Pass::Weight)).map(|work| (work, times[0]));
    let ratio = Some(times[1] / times[0]);
    bench.line_of(&format!("{name}: statistics on / off"), speed(times[0]), speed(times[1]), ratio, work);
    Ok(())
}
