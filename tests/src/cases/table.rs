//! Exponents, hyperparameters and rows: one upload sends them, and one collect returns them.

use super::Case;
use crate::{
    case::{Check, Fail},
    epilogue::same_row,
    rig::{Rig, SLOTS},
    wait::block_on,
};
use gradscale_core::{
    backend::{Backend, Buffer, DType, Launch, Slot, Store},
    ops::Unary,
    stats::{Detail, Stats},
};

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    cases.push(Case::new("table::empty_rows", empty_rows::<B>));
    cases.push(Case::new("table::rows_add_up", rows_add_up::<B>));
    cases.push(Case::new("table::clear", clear::<B>));
    cases.push(Case::new("table::detail", detail::<B>));
    cases.push(Case::new("table::scalars", scalars::<B>));
}

fn stats<B: Backend>(rig: &Rig<'_, B>) -> Result<Vec<Stats>, Fail> {
    let mut out = vec![Stats::new(rig.convention(), 0, Detail::None); usize::from(SLOTS)];
    block_on(rig.backend.collect(&rig.table, 0..SLOTS, &mut out, &[], &mut []))?;
    Ok(out)
}

fn empty_rows<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    match stats(&rig)?.iter().position(|row| row.counts().count != 0 || row.detail() != Detail::None) {
        None => Ok(vec![]),
        Some(slot) => Err(Fail::new(format!("row {slot} of a new table is not empty"))),
    }
}

fn store<B: Backend>(rig: &Rig<'_, B>, values: &[f32], to: Slot, detail: Detail) -> Result<(), Fail> {
    let x = rig.input(DType::F32, values)?;
    let mut y = rig.output(DType::F16, values.len())?;
    rig.backend.launch(Launch::Unary {
        op: Unary::Id,
        len: x.len() as u32,
        x: &x,
        y: Store { detail, ..Store::site(Slot::ONE, to, &rig.table, &mut y.buffer) },
    })?;
    rig.take(&y).map(|_| ())
}

/// Several stores into one slot merge; other slots stay empty.
fn rows_add_up<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    rig.set(&[3, -4, 7])?;
    let parts: [&[f32]; 3] = [&[1.0, -0.0, 1e-9], &[7e4, f32::INFINITY, 0.25], &[f32::NAN, 1e-7]];
    for part in parts {
        store(&rig, part, Slot(4), Detail::Full)?;
    }
    let scaled: Vec<f32> = parts.concat().iter().map(|v| v * 128.0).collect();
    same_row("three stores into one slot", &rig, Slot(4), &scaled, Detail::Full)?;
    let others = stats(&rig)?.iter().enumerate().filter(|(slot, row)| *slot != 4 && row.counts().count != 0).count();
    if others == 0 { Ok(vec![]) } else { Err(Fail::new(format!("{others} other rows were written"))) }
}

/// `upload` clears exactly the requested rows.
fn clear<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for slot in 2..SLOTS {
        store(&rig, &vec![1.0; usize::from(slot)], Slot(slot), Detail::Counts)?;
    }
    rig.upload_clearing(0..0)?;
    rig.upload_clearing(3..5)?;
    for (slot, row) in stats(&rig)?.iter().enumerate() {
        let want = if slot < 2 || (3..5).contains(&slot) { 0 } else { slot as u64 };
        if row.counts().count != want {
            return Err(Fail::new(format!("row {slot} counts {} after clearing 3..5, not {want}", row.counts().count)));
        }
    }
    Ok(vec![])
}

/// A row has the detail of its store or of the step, whichever is less.
fn detail<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let values = [1.0, 1e-8, 3e-6, -2.0, 0.0];
    for step in [Detail::None, Detail::Counts, Detail::Full, Detail::Moments] {
        for request in [Detail::None, Detail::Counts, Detail::Full, Detail::Moments] {
            rig.detail = step;
            rig.upload()?;
            store(&rig, &values, Slot(5), request)?;
            let seen: &[f32] = if step.min(request) == Detail::None { &[] } else { &values };
            same_row(&format!("step {step:?}, store {request:?}"), &rig, Slot(5), seen, request)?;
        }
    }
    Ok(vec![])
}

/// The same wait brings element 0 of buffers.
fn scalars<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let buffers = [rig.input(DType::F32, &[2.5, 9.0])?, rig.input(DType::F32, &[-1e-30])?];
    let mut values = [0f32; 2];
    block_on(b.collect(&rig.table, 0..0, &mut [], &[&buffers[0], &buffers[1]], &mut values))?;
    if values == [2.5, -1e-30] { Ok(vec![]) } else { Err(Fail::new(format!("scalars came back as {values:?}"))) }
}
