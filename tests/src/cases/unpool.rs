//! Unpooling: scatter is the vjp of pooling, gather the vjp of that.

use super::{
    Case,
    pool::{SHAPES, Shape, any_shape, every_shape, place, winner},
};
use crate::{
    case::{Check, Fail},
    compare::{Want, compare, same_bits},
    data::Random,
    epilogue,
    property::property,
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, DType, Launch},
    ops::{GatherScatter, PoolOp},
};
use proptest::prelude::*;

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    cases.push(Case::new("unpool::max", |b: &B| every_shape(b, check_max)));
    cases.push(Case::new("unpool::average", |b: &B| every_shape(b, check_average)));
    cases.push(Case::new("unpool::adjoint", |b: &B| every_shape(b, check_adjoint)));
    cases.push(Case::new("unpool::vjp_of_pool", |b: &B| every_shape(b, check_vjp)));
    cases.push(Case::new("unpool::masks_select", |b: &B| every_shape(b, check_masks)));
    cases.push(Case::new("unpool::epilogue", unpool_epilogue::<B>));
    cases.push(Case::new("unpool::any", any_unpool::<B>));
}

/// Scatter and gather at given offsets, on integers.
fn unpool_is<B: Backend>(rig: &Rig<'_, B>, shape: &Shape, dtype: DType, seed: u64) -> Result<(), Fail> {
    let (p, windows, b) = (shape.build(PoolOp::Max), shape.windows(), rig.backend);
    let mut random = Random(seed);
    let offsets = shape.offsets(seed);
    let places: Vec<usize> = windows.iter().zip(&offsets).map(|(window, &offset)| place(window, offset)).collect();
    let at = rig.padded(DType::U8, &offsets)?;
    let pooled = random.many(windows.len(), |random| random.integer(50));
    let x = rig.padded(dtype, &pooled)?;
    let mut want = vec![0f32; shape.x_len()];
    places.iter().zip(&pooled).for_each(|(&place, v)| want[place] += v);
    same_bits(
        "scatter",
        &rig.plain(want.len(), |y| {
            b.launch(Launch::Unpool { p, way: GatherScatter::Scatter, x: &x, indices: Some(&at), y })
        })?,
        &want,
    )?;
    let full = random.many(shape.x_len(), Random::normal);
    let x = rig.padded(dtype, &full)?;
    let want: Vec<f32> = places.iter().map(|&place| full[place]).collect();
    same_bits(
        "gather",
        &rig.plain(want.len(), |y| {
            b.launch(Launch::Unpool { p, way: GatherScatter::Gather, x: &x, indices: Some(&at), y })
        })?,
        &want,
    )
}

fn check_max<B: Backend>(rig: &Rig<'_, B>, shape: &Shape, dtype: DType) -> Check {
    unpool_is(rig, shape, dtype, 5)?;
    // Gathering finds the elements that pooling has selected.
    let (p, b, len) = (shape.build(PoolOp::Max), rig.backend, shape.windows().len());
    let x = rig.padded(dtype, &Random(6).many(shape.x_len(), Random::normal))?;
    let mut at = rig.output(DType::U8, len)?;
    let pooled = rig.plain(len, |y| b.launch(Launch::Pool { p, x: &x, indices: Some(&mut at.buffer), y }))?;
    let gathered = rig.plain(len, |y| {
        b.launch(Launch::Unpool { p, way: GatherScatter::Gather, x: &x, indices: Some(&at.buffer), y })
    })?;
    same_bits("gather where pooling found the largest", &gathered, &pooled)?;
    Ok(vec![])
}

fn check_average<B: Backend>(rig: &Rig<'_, B>, shape: &Shape, dtype: DType) -> Check {
    let (p, windows, b) = (shape.build(PoolOp::Average), shape.windows(), rig.backend);
    let (mut random, share) = (Random(7), 1.0 / shape.area() as f64);
    let pooled = random.many(windows.len(), Random::normal);
    let x = rig.padded(dtype, &pooled)?;
    let mut want = vec![Want::sum([]); shape.x_len()];
    for (window, &v) in windows.iter().zip(&pooled) {
        let term = f64::from(v) * share;
        for &(_, i) in window {
            want[i] = Want { value: want[i].value + term, scale: want[i].scale + term.abs(), terms: want[i].terms + 1 };
        }
    }
    let got = rig
        .plain(want.len(), |y| b.launch(Launch::Unpool { p, way: GatherScatter::Scatter, x: &x, indices: None, y }))?;
    let scattered = compare("average", DType::F32, &b.caps(), &got, &want)?;
    let full = random.many(shape.x_len(), Random::normal);
    let x = rig.padded(dtype, &full)?;
    let mean = |window: &Vec<(u32, usize)>| Want::sum(window.iter().map(|&(_, i)| f64::from(full[i]))).times(share);
    let want: Vec<Want> = windows.iter().map(mean).collect();
    let got =
        rig.plain(want.len(), |y| b.launch(Launch::Unpool { p, way: GatherScatter::Gather, x: &x, indices: None, y }))?;
    let gathered = compare("average", DType::F32, &b.caps(), &got, &want)?;
    Ok(vec![scattered, gathered])
}

/// ⟨scatter(d), x⟩ = ⟨d, gather(x)⟩, in integers.
fn check_adjoint<B: Backend>(rig: &Rig<'_, B>, shape: &Shape, dtype: DType) -> Check {
    let (b, mut random) = (rig.backend, Random(8));
    let len = shape.windows().len();
    let (d, x) = (random.many(len, |random| random.integer(9)), random.many(shape.x_len(), |random| random.integer(9)));
    let (pooled, full) = (rig.padded(dtype, &d)?, rig.padded(dtype, &x)?);
    let at = rig.padded(DType::U8, &shape.offsets(9))?;
    for op in [PoolOp::Max, PoolOp::Average] {
        // Shares of other areas are not exact.
        if op == PoolOp::Average && !shape.area().is_power_of_two() {
            continue;
        }
        let (p, at) = (shape.build(op), (op == PoolOp::Max).then_some(&at));
        let scattered = rig.plain(x.len(), |y| {
            b.launch(Launch::Unpool { p, way: GatherScatter::Scatter, x: &pooled, indices: at, y })
        })?;
        let gathered =
            rig.plain(len, |y| b.launch(Launch::Unpool { p, way: GatherScatter::Gather, x: &full, indices: at, y }))?;
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
        let (left, right) = (dot(&scattered, &x), dot(&d, &gathered));
        if left != right {
            return Err(Fail::new(format!("{op:?}: ⟨scatter(d), x⟩ = {left}, ⟨d, gather(x)⟩ = {right}")));
        }
    }
    Ok(vec![])
}

/// Pooling, then its vjp: the gradient of each window goes to its winner, the first of several.
fn check_vjp<B: Backend>(rig: &Rig<'_, B>, shape: &Shape, dtype: DType) -> Check {
    let (p, windows, b) = (shape.build(PoolOp::Max), shape.windows(), rig.backend);
    let mut random = Random(10);
    let values = random.many(shape.x_len(), |random| random.integer(2));
    let x = rig.padded(dtype, &values)?;
    let mut at = rig.output(DType::U8, windows.len())?;
    rig.plain(windows.len(), |y| b.launch(Launch::Pool { p, x: &x, indices: Some(&mut at.buffer), y }))?;
    let dy = random.many(windows.len(), |random| random.integer(20));
    let gradient = rig.padded(dtype, &dy)?;
    let mut want = vec![0f32; values.len()];
    windows.iter().zip(&dy).for_each(|(window, dy)| want[winner(window, &values).1] += dy);
    let got = rig.plain(want.len(), |y| {
        b.launch(Launch::Unpool { p, way: GatherScatter::Scatter, x: &gradient, indices: Some(&at.buffer), y })
    })?;
    same_bits("gradient", &got, &want)?;
    Ok(vec![])
}

/// ∞ and NaN reach the chosen places only.
fn check_masks<B: Backend>(rig: &Rig<'_, B>, shape: &Shape, dtype: DType) -> Check {
    let (p, windows, b) = (shape.build(PoolOp::Max), shape.windows(), rig.backend);
    let (mut random, offsets) = (Random(11), shape.offsets(11));
    let places: Vec<usize> = windows.iter().zip(&offsets).map(|(window, &offset)| place(window, offset)).collect();
    let at = rig.padded(DType::U8, &offsets)?;
    let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1.0, 2.0];
    let mut pick = |len: usize| random.many(len, |random| special[random.below(5) as usize]);
    let pooled = pick(windows.len());
    let x = rig.padded(dtype, &pooled)?;
    let mut want = vec![0f32; shape.x_len()];
    places.iter().zip(&pooled).for_each(|(&place, v)| want[place] += v);
    same_bits(
        "scatter",
        &rig.plain(want.len(), |y| {
            b.launch(Launch::Unpool { p, way: GatherScatter::Scatter, x: &x, indices: Some(&at), y })
        })?,
        &want,
    )?;
    let full = pick(shape.x_len());
    let x = rig.padded(dtype, &full)?;
    let want: Vec<f32> = places.iter().map(|&place| full[place]).collect();
    same_bits(
        "gather",
        &rig.plain(want.len(), |y| {
            b.launch(Launch::Unpool { p, way: GatherScatter::Gather, x: &x, indices: Some(&at), y })
        })?,
        &want,
    )?;
    Ok(vec![])
}

fn unpool_epilogue<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for shape in [SHAPES[3], SHAPES[1]] {
        let at = rig.padded(DType::U8, &shape.offsets(12))?;
        for (op, way) in [PoolOp::Max, PoolOp::Average]
            .into_iter()
            .flat_map(|op| [(op, GatherScatter::Scatter), (op, GatherScatter::Gather)])
        {
            let (from, to) = (shape.windows().len(), shape.x_len());
            let (from, to) = if way == GatherScatter::Scatter { (from, to) } else { (to, from) };
            let x = rig.padded(DType::F16, &Random(13).many(from, |random| random.normal() * 1e-2))?;
            let (p, at) = (shape.build(op), (op == PoolOp::Max).then_some(&at));
            epilogue::check(&mut rig, to, |b, y| b.launch(Launch::Unpool { p, way, x: &x, indices: at, y }))?;
        }
    }
    Ok(vec![])
}

fn any_unpool<B: Backend>(b: &B) -> Check {
    property(&(any_shape(), any::<u32>(), any::<bool>()), |(shape, seed, wide)| {
        let rig = Rig::new(b)?;
        let dtype = if wide { DType::F32 } else { DType::F16 };
        unpool_is(&rig, &shape, dtype, seed.into())?;
        check_adjoint(&rig, &shape, dtype)
    })
}
