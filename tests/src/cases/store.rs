//! The epilogue: scale, add, observe, round once.

use super::Case;
use crate::{
    case::Check,
    compare::same_bits,
    data::{Random, edges},
    epilogue::{self, same_row, stored},
    property::property,
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, Buffer, DType, Launch, Slot, Store},
    ops::Unary,
    scale::Factor,
    stats::Detail,
};
use proptest::prelude::*;

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    cases.push(Case::new("store::epilogue", |b: &B| {
        let mut rig = Rig::new(b)?;
        let values = Random(3).many(5000, |random| random.normal() * 1e-3);
        let x = rig.input(DType::F32, &values)?;
        epilogue::check(&mut rig, values.len(), |b, y| {
            b.launch(Launch::Unary { op: Unary::Id, len: x.len() as u32, x: &x, y })
        })?;
        Ok(vec![])
    }));
    cases.push(Case::new("store::any_values", any_values::<B>));
    cases.push(Case::new("store::edges_at_every_step", every_step::<B>));
    cases.push(Case::new("store::order", order::<B>));
    cases.push(Case::new("store::exponents_of_each_step", exponents::<B>));
}

/// Values that a device without f32 subnormals must keep too, before and after scaling.
fn kept(rig_keeps: bool, x: f32, factor: Factor) -> bool {
    let fine = |v: f32| rig_keeps || v == 0.0 || !v.is_subnormal();
    fine(x) && fine(factor.apply(x)) && (rig_keeps || factor.apply(x) != 0.0 || x == 0.0)
}

/// Any f32 bit patterns, any exponents.
fn any_values<B: Backend>(b: &B) -> Check {
    let exponent = prop_oneof![-200..200i32, any::<i32>()];
    let values = prop::collection::vec(prop_oneof![any::<u32>().prop_map(f32::from_bits), -1f32..1f32], 1..300);
    property(&(values, exponent.clone(), exponent), |(values, from, to)| {
        let mut rig = Rig::new(b)?;
        rig.set(&[from, to])?;
        let factor = Factor::between(from, to);
        let values: Vec<f32> = values.into_iter().filter(|&x| kept(b.caps().f32_subnormals, x, factor)).collect();
        check(&rig, &values, factor)
    })
}

/// Every edge, at every step by which it can reach a half.
fn every_step<B: Backend>(b: &B) -> Check {
    let edges = edges();
    for k in -170..=170 {
        let mut rig = Rig::new(b)?;
        rig.set(&[1000, 1000 + k])?;
        let factor = Factor::between(1000, 1000 + k);
        let values: Vec<f32> = edges.iter().copied().filter(|&x| kept(b.caps().f32_subnormals, x, factor)).collect();
        check(&rig, &values, factor)?;
    }
    Ok(vec![])
}

fn check<B: Backend>(rig: &Rig<'_, B>, values: &[f32], factor: Factor) -> Check {
    let (from, to) = (Slot(2), Slot(3));
    let x = rig.input(DType::F32, values)?;
    let mut y = rig.output(DType::F16, values.len())?;
    let store = Store { detail: Detail::Full, ..Store::site(from, to, &rig.table, &mut y.buffer) };
    rig.backend.launch(Launch::Unary { op: Unary::Id, len: x.len() as u32, x: &x, y: store })?;
    let scaled: Vec<f32> = values.iter().map(|&v| factor.apply(v)).collect();
    same_bits("cast", &rig.take(&y)?, &stored(rig, DType::F16, &scaled))?;
    same_row("cast", rig, to, &scaled, Detail::Full)?;
    Ok(vec![])
}

/// The same values in any order give the same row, bit for bit.
fn order<B: Backend>(b: &B) -> Check {
    let values = prop::collection::vec(any::<u32>().prop_map(f32::from_bits), 1..2000)
        .prop_flat_map(|values| (Just(values.clone()), Just(values).prop_shuffle()));
    property(&values, |(values, shuffled)| {
        let mut rig = Rig::new(b)?;
        let mut rows = Vec::new();
        for values in [values, shuffled] {
            rig.upload()?;
            let values: Vec<f32> =
                values.into_iter().filter(|&x| b.caps().f32_subnormals || !x.is_subnormal()).collect();
            check(&rig, &values, Factor::between(0, 0))?;
            let row = rig.row(Slot(3))?;
            rows.push((*row.counts(), row.bins().copied()));
        }
        if rows[0] == rows[1] { Ok(vec![]) } else { Err(crate::Fail::new("a row depends on the order of its values")) }
    })
}

/// Every upload counts, not only the first.
fn exponents<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for (from, to) in [(0, 3), (0, 9), (7, 9), (-5, 9), (0, 0)] {
        rig.set(&[from, to])?;
        check(&rig, &[1.0, -3.0, 2e-5, 1e-8], Factor::between(from, to))?;
    }
    Ok(vec![])
}
