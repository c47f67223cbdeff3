//! The gradient of cross-entropy, where scaling begins: against its formula, slopes, and at exponents beyond half.

use super::{
    Case,
    cross_entropy::{Batch, Buffers, batches, run, weights},
};
use crate::{
    case::{Check, Fail},
    compare::{Want, compare, same_bits},
    data::Random,
    epilogue,
    property::merge,
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, DType, Launch, Slot, Store},
    ops::Divisor,
};

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    for (name, divisor) in [("rows", Divisor::Rows), ("weights", Divisor::Weights), ("fixed", Divisor::Fixed(720.0))] {
        cases.push(Case::new(format!("cross_entropy_vjp::by_{name}"), move |b: &B| {
            let mut measured = vec![];
            for batch in batches(divisor) {
                merge(&mut measured, &check(&Rig::new(b)?, &batch, -0.625)?);
            }
            Ok(measured)
        }));
    }
    cases.push(Case::new("cross_entropy_vjp::central_differences", differences::<B>));
    cases.push(Case::new("cross_entropy_vjp::all_ignored", all_ignored::<B>));
    cases.push(Case::new("cross_entropy_vjp::rows_apart", rows_apart::<B>));
    cases.push(Case::new("cross_entropy_vjp::large_logits", large::<B>));
    cases.push(Case::new("cross_entropy_vjp::tiny_gradients_survive", tiny::<B>));
    cases.push(Case::new("cross_entropy_vjp::shift_invariant", shift_invariant::<B>));
    cases.push(Case::new("cross_entropy_vjp::epilogue", stores::<B>));
}

/// g·w/divisor·(softmax − one-hot); 0 in rows that do not count.
fn formula(batch: &Batch, g: f64) -> Vec<Want> {
    let (exact, classes) = (batch.exact(), batch.shape[1]);
    let mut want = vec![Want::sum([]); batch.logits.len()];
    for (r, label, weight) in batch.counted() {
        let factor = g * weight / exact.divisor.value;
        for (c, v) in batch.row(r).enumerate() {
            let p = (v - exact.lse[r].value).exp();
            let hit = f64::from(u8::from(c == label));
            // The exponential has the absolute error of its argument; far out it may be any tiny number, or 0.
            let distance = if v.is_finite() { v.abs() + exact.lse[r].scale } else { 0.0 };
            let scale = p.max(2f64.powi(-76)) * (1.0 + distance) + hit;
            want[r * classes + c] = Want { value: (p - hit) * factor, scale: scale * factor.abs(), terms: classes };
        }
    }
    want
}

/// Returns the values that `cross_entropy` should have stored in `out`, as f32.
fn out_of(batch: &Batch) -> Vec<f32> {
    let exact = batch.exact();
    let head = [exact.loss.value, exact.divisor.value].into_iter();
    head.chain(exact.lse.iter().map(|lse| lse.value)).map(|v| v as f32).collect()
}

fn gradient<B: Backend>(rig: &Rig<'_, B>, batch: &Batch, out: &[f32], g: f32) -> Result<Vec<f32>, Fail> {
    let buffers = Buffers::new(rig, batch)?;
    let (out, g) = (rig.padded(DType::F32, out)?, rig.padded(DType::F32, &[g])?);
    rig.plain(batch.logits.len(), |dx| {
        rig.backend.launch(Launch::CrossEntropyVjp { p: batch.build(), x: buffers.scored(), out: &out, g: &g, dx })
    })
}

fn check<B: Backend>(rig: &Rig<'_, B>, batch: &Batch, g: f32) -> Check {
    let got = gradient(rig, batch, &out_of(batch), g)?;
    Ok(vec![compare("cross_entropy_vjp", DType::F32, &rig.backend.caps(), &got, &formula(batch, g.into()))?])
}

/// The formula against slopes of the loss in f64, then the device against the formula.
fn differences<B: Backend>(b: &B) -> Check {
    let (rig, mut measured) = (Rig::new(b)?, vec![]);
    for divisor in [Divisor::Rows, Divisor::Weights, Divisor::Fixed(7.5)] {
        let mut batch = Batch::new(9, 6, DType::F32, divisor, 70);
        batch.weights = Some(weights(6));
        batch.ignore = Some(batch.labels[4]);
        // Few digits, so that a moved logit is an f32 too.
        batch.logits.iter_mut().for_each(|v| *v = (*v * 1024.0).round() / 1024.0);
        for g in [1.0, 3.5, -0.25] {
            for (i, want) in formula(&batch, g).iter().enumerate() {
                let loss = |by: f32| {
                    let mut moved = batch.clone();
                    moved.logits[i] += by;
                    moved.exact().loss.value
                };
                let h = 2f32.powi(-12);
                let slope = g * (loss(h) - loss(-h)) / (2.0 * f64::from(h));
                if (slope - want.value).abs() > 1e-7 {
                    return Err(Fail::new(format!("{divisor:?}: formula {i} gives {}, slope {slope}", want.value)));
                }
            }
            merge(&mut measured, &check(&rig, &batch, g as f32)?);
        }
    }
    Ok(measured)
}

/// If nothing counts, the gradient is 0 and not 0/0, whatever `cross_entropy` has stored.
fn all_ignored<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for divisor in [Divisor::Rows, Divisor::Weights, Divisor::Fixed(3.0)] {
        let batch = Batch { ignore: Some(255), labels: vec![255; 40], ..Batch::new(40, 5, DType::F16, divisor, 72) };
        let out = run(&rig, &batch)?;
        same_bits("the gradient of nothing", &gradient(&rig, &batch, &out, 1.0)?, &[0.0; 200])?;
    }
    Ok(vec![])
}

/// Rows are independent: an invalid label makes only its own gradient NaN, and an ignored row gets 0 for any logits.
fn rows_apart<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for (invalid, label_type) in [(6, DType::U8), (254, DType::U8), (6, DType::U32), (u32::MAX, DType::U32)] {
        let mut batch = Batch { ignore: Some(255), ..Batch::new(30, 6, DType::F16, Divisor::Fixed(30.0), 73) };
        batch.label_type = label_type;
        let clean = batch.clone();
        batch.labels[17] = invalid;
        for (r, bad) in [(4, f32::NAN), (5, f32::INFINITY), (29, f32::NEG_INFINITY)] {
            batch.labels[r] = 255;
            batch.logits[r * 6 + 1] = bad;
        }
        let out = run(&rig, &batch)?;
        let got = gradient(&rig, &batch, &out, 2.0)?;
        let mut want = gradient(&rig, &clean, &run(&rig, &clean)?, 2.0)?;
        want[17 * 6..18 * 6].fill(f32::NAN);
        [4, 5, 29].into_iter().for_each(|r| want[r * 6..(r + 1) * 6].fill(0.0));
        same_bits(&format!("label {invalid} in row 17"), &got, &want)?;
    }
    Ok(vec![])
}

/// Logits at the ends of half's range, and excluded classes.
fn large<B: Backend>(b: &B) -> Check {
    let (rig, mut measured) = (Rig::new(b)?, vec![]);
    let values = [60_000.0, -60_000.0, 0.0, 65_504.0, -65_504.0, 12.0, f32::NEG_INFINITY];
    for dtype in [DType::F16, DType::F32] {
        let mut batch = Batch::new(50, 9, dtype, Divisor::Rows, 74);
        batch.logits = Random(75).many(50 * 9, |random| values[random.below(7) as usize]);
        for r in 0..50 {
            batch.logits[r * 9 + batch.labels[r] as usize] = values[r % 6];
        }
        merge(&mut measured, &check(&rig, &batch, 1.0)?);
    }
    Ok(measured)
}

/// Gradients divided by all pixels of 12 images of 1080 lines. Without a scale none of them is representable as a half.
/// At 2^32 all are, although neither a half nor a loss in half could hold that scale.
fn tiny<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let mut batch = Batch::new(500, 12, DType::F16, Divisor::Fixed(1920.0 * 1080.0 * 12.0), 76);
    batch.logits.iter_mut().for_each(|v| *v *= 0.25);
    let mut measured = vec![];
    // A smaller loss needs a larger scale, and gets it.
    for (g, to) in [(1.0, 0), (1.0, 32), (2f32.powi(-40), 72)] {
        rig.set(&[to])?;
        let (buffers, out) = (Buffers::new(&rig, &batch)?, rig.padded(DType::F32, &out_of(&batch))?);
        let g_buffer = rig.padded(DType::F32, &[g])?;
        let mut dx = rig.output(DType::F16, batch.logits.len())?;
        let store = Store::site(Slot::ONE, Slot(2), &rig.table, &mut dx.buffer);
        b.launch(Launch::CrossEntropyVjp {
            p: batch.build(),
            x: buffers.scored(),
            out: &out,
            g: &g_buffer,
            dx: store,
        })?;
        let (got, row) = (rig.take(&dx)?, rig.row(Slot(2))?);
        let flushed = row.counts().flushed;
        if to == 0 {
            if flushed < 5000 || got.iter().filter(|&&v| v == 0.0).count() as u64 != flushed {
                return Err(Fail::new(format!("unscaled, {flushed} of 6000 tiny gradients flush")));
            }
            continue;
        }
        if flushed != 0 {
            return Err(Fail::new(format!("{flushed} gradients flush at 2^{to}")));
        }
        let want: Vec<Want> = formula(&batch, g.into()).into_iter().map(|want| want.times(2f64.powi(to))).collect();
        measured.push(compare("cross_entropy_vjp", DType::F16, &b.caps(), &got, &want)?);
    }
    Ok(measured)
}

/// A loss times 2^-30 at exponents that are 30 higher has the same bits.
fn shift_invariant<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let batch = Batch::new(200, 12, DType::F16, Divisor::Weights, 77);
    let out = out_of(&batch);
    let mut bits = Vec::new();
    for shift in [0, 30, 60] {
        rig.set(&[14 + shift])?;
        let (buffers, out) = (Buffers::new(&rig, &batch)?, rig.padded(DType::F32, &out)?);
        let g = rig.padded(DType::F32, &[2f32.powi(-shift)])?;
        let mut dx = rig.output(DType::F16, batch.logits.len())?;
        let store = Store::site(Slot::ONE, Slot(2), &rig.table, &mut dx.buffer);
        b.launch(Launch::CrossEntropyVjp { p: batch.build(), x: buffers.scored(), out: &out, g: &g, dx: store })?;
        bits.push(rig.take(&dx)?);
    }
    same_bits("loss times 2^-30", &bits[1], &bits[0])?;
    same_bits("loss times 2^-60", &bits[2], &bits[0])?;
    Ok(vec![])
}

fn stores<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for divisor in [Divisor::Rows, Divisor::Weights, Divisor::Fixed(1e3)] {
        let mut batch = Batch { ignore: Some(3), ..Batch::new(119, 11, DType::F16, divisor, 78) };
        batch.weights = Some(weights(11));
        let (buffers, out) = (Buffers::new(&rig, &batch)?, rig.padded(DType::F32, &out_of(&batch))?);
        let (p, g) = (batch.build(), rig.padded(DType::F32, &[3.0])?);
        epilogue::check(&mut rig, batch.logits.len(), |b, dx| {
            b.launch(Launch::CrossEntropyVjp { p, x: buffers.scored(), out: &out, g: &g, dx })
        })?;
    }
    Ok(vec![])
}
