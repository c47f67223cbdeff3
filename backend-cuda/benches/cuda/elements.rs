//! Operators bound by memory, compared with the fastest copy on the device.

use crate::{copies::large, measure::Bench};
use gradscale_core::backend::{CrossEntropyArgs, Data, Launch, NormSaved};
use gradscale_core::{
    backend::{Backend, Buffer, DType, Hyperparameter, Param, Slot, Store},
    ops::{CrossEntropy, Norm, NormOver, Optimizer, Rule, Softmax, SoftmaxColumns, Unary},
    stats::Detail,
};
use gradscale_cuda::Error;
use std::cell::RefCell;

fn shape(error: impl core::fmt::Display) -> Error {
    Error::Driver { doing: "describe an operator", name: error.to_string(), lost: false }
}

/// Adds a line with a kernel's bytes per second, compared with those of the copy. `what` is its key in the table of
/// instruction counts.
fn line(bench: &mut Bench<'_>, name: &str, what: &str, [count, bytes]: [f64; 2], seconds: f64) {
    let speed = count * bytes / seconds / 1e9;
    let copy = bench.copy;
    let (beside, ratio) = (format!("{:.0} GB/s by {}", copy.gigabytes, copy.by), speed / copy.gigabytes);
    let work = bench.elements(what, count, bytes).map(|work| (work, seconds));
    bench.line_of(&format!("{name} / copy"), format!("{speed:.0} GB/s"), beside, Some(ratio), work);
}

/// Measures kernels that are bound by memory: casts, normalisation, softmax, loss and update.
pub fn measure(bench: &mut Bench<'_>) -> Result<(), Error> {
    casts(bench)?;
    norms(bench)?;
    softmaxes(bench)?;
    losses(bench)?;
    updates(bench)
}

fn casts(bench: &mut Bench<'_>) -> Result<(), Error> {
    let (device, len) = (bench.device, large(bench));
    if !bench.wants("cast") {
        return Ok(());
    }
    let (x, y) = (bench.normal(DType::F32, len)?, RefCell::new(device.alloc(DType::F16, len)?));
    for (detail, name) in [
        (Detail::None, "cast"),
        (Detail::Counts, "cast and counts"),
        (Detail::Full, "cast and counts and histogram"),
        (Detail::Moments, "cast and counts and histogram and sums"),
    ] {
        let table = bench.sites(detail)?;
        let run = |_| {
            let mut y = y.borrow_mut();
            device.launch(Launch::Unary {
                op: Unary::Id,
                len: x.len() as u32,
                x: &x,
                y: Store::site(Slot(2), Slot(3), &table, &mut *y),
            })
        };
        let times = bench.medians(vec![Box::new(run)])?;
        line(bench, name, name, [len as f64, 6.0], times[0]);
    }
    Ok(())
}

fn norms(bench: &mut Bench<'_>) -> Result<(), Error> {
    let device = bench.device;
    if !bench.wants("norm") {
        return Ok(());
    }
    let x = bench.size([12, 180, 240, 64], [2, 4, 4, 64]);
    let (p, len) = (Norm::new(x, NormOver::Batch, 1e-5).map_err(shape)?, x.into_iter().product::<u32>() as usize);
    let (input, upstream) = (bench.normal(DType::F16, len)?, bench.normal(DType::F16, len)?);
    let affine = [bench.normal(DType::F32, 64)?, bench.normal(DType::F32, 64)?];
    let (saved, y) = (RefCell::new(device.alloc(DType::F32, 128)?), RefCell::new(device.alloc(DType::F16, len)?));
    let parameters = RefCell::new([device.alloc(DType::F32, 64)?, device.alloc(DType::F32, 64)?]);
    let table = bench.sites(Detail::Counts)?;
    let forward = |_| {
        let (mut saved, mut y) = (saved.borrow_mut(), y.borrow_mut());
        let store = Store::site(Slot::ONE, Slot(3), &table, &mut *y);
        device.launch(Launch::Norm {
            p,
            x: &input,
            affine: Some([&affine[0], &affine[1]]),
            saved: &mut saved,
            y: store,
        })
    };
    let backward = |_| {
        let (saved, mut y, mut parameters) = (saved.borrow(), y.borrow_mut(), parameters.borrow_mut());
        let [scale, shift] = &mut *parameters;
        let stores = [scale, shift].map(|y| Store::param(Slot(2), Slot(2), false, &table, y));
        let normed = NormSaved { x: &input, saved: &*saved, weight: Some(&affine[0]) };
        device.launch(Launch::NormVjp {
            p,
            x: normed,
            dy: &upstream,
            dx: Store::site(Slot(2), Slot(3), &table, &mut *y),
            affine: Some(stores),
        })
    };
    let times = bench.medians(vec![Box::new(forward), Box::new(backward)])?;
    // Read twice and written; read twice, both operands, and written.
    line(bench, "batch norm forward", "", [len as f64, 6.0], times[0]);
    line(bench, "batch norm backward", "", [len as f64, 10.0], times[1]);
    Ok(())
}

/// Measures the softmax of attention's scores, f16 in and f32 out, and its gradient in f16.
fn softmaxes(bench: &mut Bench<'_>) -> Result<(), Error> {
    let device = bench.device;
    if !bench.wants("softmax") {
        return Ok(());
    }
    let scores = bench.size([192, 1024, 1024], [2, 8, 64]);
    let p = Softmax::new(scores, SoftmaxColumns::All).map_err(shape)?;
    let len = scores.into_iter().product::<u32>() as usize;
    let (x, dy) = (bench.normal(DType::F16, len)?, bench.normal(DType::F16, len)?);
    let (y, dx) = (RefCell::new(device.alloc(DType::F32, len)?), RefCell::new(device.alloc(DType::F16, len)?));
    let table = bench.sites(Detail::Counts)?;
    let forward = |_| {
        let y = &mut *y.borrow_mut();
        device.launch(Launch::Softmax { p, x: &x, selection: None, y: Store::keep(Slot::ONE, &table, y) })
    };
    let backward = |_| {
        let (y, mut dx) = (y.borrow(), dx.borrow_mut());
        device.launch(Launch::SoftmaxVjp { p, y: &*y, dy: &dy, dx: Store::site(Slot(2), Slot(3), &table, &mut *dx) })
    };
    let times = bench.medians(vec![Box::new(forward), Box::new(backward)])?;
    line(bench, "softmax forward", "", [len as f64, 6.0], times[0]);
    line(bench, "softmax backward", "", [len as f64, 8.0], times[1]);
    Ok(())
}

fn losses(bench: &mut Bench<'_>) -> Result<(), Error> {
    let device = bench.device;
    if !bench.wants("cross-entropy") {
        return Ok(());
    }
    let (rows, classes) = (bench.size(12 * 360 * 480u32, 100), 11u32);
    let p = CrossEntropy::new(rows, classes).map_err(shape)?;
    let len = (rows * classes) as usize;
    let logits = bench.normal(DType::F16, len)?;
    let mut labels = device.alloc(DType::U8, rows as usize)?;
    device
        .write(Data::U8(&(0..rows).map(|i| (i * 7 / 5 % classes).to_le_bytes()[0]).collect::<Vec<_>>()), &mut labels)?;
    let (out, g) = (RefCell::new(device.alloc(DType::F32, rows as usize + 2)?), bench.normal(DType::F32, 1)?);
    let dx = RefCell::new(device.alloc(DType::F16, len)?);
    let table = bench.sites(Detail::Counts)?;
    let both = |_| {
        let (mut out, mut dx) = (out.borrow_mut(), dx.borrow_mut());
        let scored = || CrossEntropyArgs { logits: &logits, labels: &labels, weights: None };
        device.launch(Launch::CrossEntropy { p, x: scored(), out: &mut out })?;
        device.launch(Launch::CrossEntropyVjp {
            p,
            x: scored(),
            out: &*out,
            g: &g,
            dx: Store::site(Slot::ONE, Slot(3), &table, &mut *dx),
        })
    };
    let times = bench.medians(vec![Box::new(both)])?;
    // Logits twice, their gradient once, label and sum for each row.
    let bytes = 6.0 + 10.0 / f64::from(classes);
    line(bench, "softmax cross-entropy", "", [len as f64, bytes], times[0]);
    Ok(())
}

fn updates(bench: &mut Bench<'_>) -> Result<(), Error> {
    let device = bench.device;
    if !bench.wants("update") {
        return Ok(());
    }
    // ResNet-50's size in about its number of tensors.
    let (tensors, len) = bench.size((160, 160_000), (3, 5_000));
    let many = |dtype| (0..tensors).map(|_| bench.normal(dtype, len)).collect::<Result<Vec<_>, _>>();
    let grads = many(DType::F32)?;
    let state = RefCell::new([many(DType::F32)?, many(DType::F32)?, many(DType::F32)?, many(DType::F16)?]);
    let table = bench.sites(Detail::Counts)?;
    let sgd = Optimizer::new(Rule::Sgd { momentum: 0.9, nesterov: false }, Hyperparameter(0)).map_err(shape)?;
    let rule = Rule::Adam {
        beta: [0.9, 0.999],
        eps: 1e-8,
        correction: [Hyperparameter(1), Hyperparameter(1)],
        decoupled: true,
    };
    let adam = Optimizer::new(rule, Hyperparameter(0)).map_err(shape)?;
    let run = |p: Optimizer| {
        let (state, grads, table) = (&state, &grads, &table);
        move |_: usize| {
            let mut state = state.borrow_mut();
            let [master, first, second, half] = &mut *state;
            let mut params: Vec<_> = master
                .iter_mut()
                .zip(grads)
                .zip(first.iter_mut().zip(second.iter_mut()))
                .zip(half.iter_mut())
                .map(|(((master, grad), (first, second)), half)| {
                    let state = [Some(first), (p.states() > 1).then_some(second)];
                    Param { len: len as u32, master, grad, state, half: Some(half) }
                })
                .collect();
            device.launch(Launch::Optimize { p, table, guard: (2..3).into(), norm: None, parameters: &mut params })
        }
    };
    let times = bench.medians(vec![Box::new(run(sgd)), Box::new(run(adam))])?;
    let elements = (tensors * len) as f64;
    // Master, gradient, states; all but the gradient written, and a half copy.
    line(bench, "update: SGD with momentum", "update by SGD with momentum", [elements, 22.0], times[0]);
    line(bench, "update: AdamW", "update by AdamW", [elements, 30.0], times[1]);
    Ok(())
}
