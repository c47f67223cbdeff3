//! Reductions along one axis.

use super::{
    Case,
    shared::{HALF_AND_F32, Numbers, of, same_each_time},
};
use crate::{
    case::{Check, Fail},
    compare::{Want, compare, same_bits, same_numbers},
    data::{Random, is_small, lengths},
    epilogue::{self, same_row, stored},
    property::{merge, property},
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, DType, Launch, Slot, Store},
    ops::{Reduce, ReduceOp},
    stats::Detail,
};
use proptest::prelude::*;

/// All functions except ArgMax, whose results are indices.
const VALUES: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::SumSquares];

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    for op in VALUES {
        let name = format!("{op:?}").to_lowercase();
        cases.push(Case::new(format!("reduce::{name}"), move |b: &B| values(b, op)));
        cases.push(Case::new(format!("reduce::{name}_epilogue"), move |b: &B| epilogue(b, op)));
    }
    cases.push(Case::new("reduce::argmax", argmax::<B>));
    cases.push(Case::new("reduce::argmax_ties", ties::<B>));
    cases.push(Case::new("reduce::argmax_stays_an_integer", integers::<B>));
    cases.push(Case::new("reduce::not_finite", not_finite::<B>));
    cases.push(Case::new("reduce::nothing", nothing::<B>));
    cases.push(Case::new("reduce::sums_in_f32", sums_in_f32::<B>));
    cases.push(Case::new("reduce::same_bits_each_time", deterministic::<B>));
    cases.push(Case::new("reduce::any_shape", any_shape::<B>));
}

/// Few and many results, short and long sums, with and without something inside.
fn shapes() -> Vec<[usize; 3]> {
    let mixed = [
        [1, 1, 1],
        [5, 1, 3],
        [300, 7, 1],
        [1, 3, 300],
        [5, 33, 17],
        [2, 257, 65],
        [1000, 2, 1],
        [64, 64, 1],
        [1, 64, 64],
        [2, 70_000, 1],
        [1, 70_000, 3],
    ];
    let alone = lengths().filter(|&len| len != 0).map(|len| [1, len, 1]);
    let inside = [2, 16, 31, 256].map(|inner| [3, 20, inner]);
    mixed.into_iter().chain(alone).chain(inside).filter(|shape| is_small(shape.iter().product())).collect()
}

fn describe(op: ReduceOp, shape: [usize; 3]) -> Result<Reduce, Fail> {
    let [outer, len, inner] = shape.map(|size| u32::try_from(size).unwrap_or(u32::MAX));
    Reduce::new(op, outer, len, inner).map_err(|error| Fail::new(format!("{op:?} over {shape:?}: {error}")))
}

/// Returns the values that each result reduces.
fn lanes([outer, len, inner]: [usize; 3], x: &[f32]) -> Vec<Vec<f32>> {
    let lane = |o, i| (0..len).map(move |l| x[o * len * inner + l * inner + i]).collect();
    (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))).map(|(o, i)| lane(o, i)).collect()
}

/// The exact result of one lane.
fn exact(op: ReduceOp, lane: &[f32]) -> Want {
    let wide = lane.iter().map(|&v| f64::from(v));
    match op {
        ReduceOp::Mean => Want::sum(wide).times(1.0 / lane.len() as f64),
        ReduceOp::SumSquares => Want::sum(wide.map(|v| v * v)),
        ReduceOp::Max if lane.iter().any(|v| v.is_nan()) => Want::one(f64::NAN),
        ReduceOp::Max => Want::one(wide.fold(f64::NEG_INFINITY, f64::max)),
        ReduceOp::Sum | ReduceOp::ArgMax => Want::sum(wide),
    }
}

/// Returns true if the f32 result of these numbers does not depend on the order. A mean may be divided in several ways.
fn is_exact(op: ReduceOp, numbers: Numbers) -> bool {
    op == ReduceOp::Max || op != ReduceOp::Mean && numbers == Numbers::Integers
}

fn check<B: Backend>(b: &B, op: ReduceOp, shape: [usize; 3], from: DType, seed: u64, numbers: Numbers) -> Check {
    let mut rig = Rig::new(b)?;
    let p = describe(op, shape)?;
    let x = Random(seed).many(shape.iter().product(), |random| numbers.next(random, from));
    let want: Vec<Want> = lanes(shape, &x).iter().map(|lane| exact(op, lane)).collect();
    let x = rig.padded(from, &x)?;
    let mut measured = vec![];
    for dtype in [DType::F32, DType::F16] {
        rig.upload()?;
        let mut y = rig.output(dtype, want.len())?;
        let site = Store::site(Slot::ONE, Slot::FIRST_SITE, &rig.table, &mut y.buffer);
        b.launch(Launch::Reduce { p, x: &x, y: Store { detail: Detail::Full, ..site } })?;
        let what = format!("{op:?} over {shape:?} of {from:?} as {dtype:?}");
        let named = of(&what);
        let got = rig.take(&y).map_err(&named)?;
        if is_exact(op, numbers) {
            let exact: Vec<f32> = want.iter().map(|want| want.value as f32).collect();
            same_numbers(&what, &got, &stored(&rig, dtype, &exact))?;
            same_row(&what, &rig, Slot::FIRST_SITE, &exact, Detail::Full)?;
        } else {
            measured.push(compare("reduce", dtype, &b.caps(), &got, &want).map_err(&named)?);
        }
    }
    Ok(measured)
}

fn values<B: Backend>(b: &B, op: ReduceOp) -> Check {
    let mut measured = vec![];
    for shape in shapes() {
        for from in HALF_AND_F32 {
            for (seed, numbers) in [(1, Numbers::Integers), (2, Numbers::Any), (3, Numbers::Positive)] {
                merge(&mut measured, &check(b, op, shape, from, seed, numbers)?);
            }
        }
    }
    Ok(measured)
}

fn epilogue<B: Backend>(b: &B, op: ReduceOp) -> Check {
    for shape in [[40, 33, 1], [3, 20, 50], [1, 5000, 1], [2, 1, 3000], [0, 4, 4]] {
        let mut rig = Rig::new(b)?;
        let x = Random(4).many(shape.iter().product(), |random| Numbers::Any.next(random, DType::F16));
        let (p, x) = (describe(op, shape)?, rig.padded(DType::F16, &x)?);
        epilogue::check(&mut rig, shape[0] * shape[2], |b, y| b.launch(Launch::Reduce { p, x: &x, y }))?;
    }
    Ok(vec![])
}

/// Indices of the largest, of the first if there are several, of the first NaN before all.
fn largest(lane: &[f32]) -> f32 {
    let nan = lane.iter().position(|v| v.is_nan());
    let most = lane.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    nan.or_else(|| lane.iter().position(|&v| v == most)).unwrap_or(0) as f32
}

fn indices<B: Backend>(b: &B, shape: [usize; 3], from: DType, x: &[f32]) -> Check {
    let rig = Rig::new(b)?;
    let p = describe(ReduceOp::ArgMax, shape)?;
    let want: Vec<f32> = lanes(shape, x).iter().map(|lane| largest(lane)).collect();
    let x = rig.padded(from, x)?;
    for dtype in [DType::U32, DType::U8] {
        if dtype == DType::U8 && shape[1] > 256 {
            continue;
        }
        let mut y = rig.output(dtype, want.len())?;
        b.launch(Launch::Reduce { p, x: &x, y: Store::keep(Slot::ONE, &rig.table, &mut y.buffer) })?;
        same_bits(&format!("ArgMax over {shape:?} of {from:?} as {dtype:?}"), &rig.take(&y)?, &want)?;
    }
    Ok(vec![])
}

fn argmax<B: Backend>(b: &B) -> Check {
    for shape in shapes().into_iter().chain([[7, 256, 3]]) {
        for from in HALF_AND_F32 {
            let len = shape.iter().product();
            indices(b, shape, from, &Random(5).many(len, |random| Numbers::Any.next(random, from)))?;
            // All values are negative, so that a 0 read from outside would win.
            indices(b, shape, from, &Random(6).many(len, |random| -1.0 - random.half().abs()))?;
        }
    }
    Ok(vec![])
}

fn ties<B: Backend>(b: &B) -> Check {
    for shape in shapes() {
        let len: usize = shape.iter().product();
        for from in HALF_AND_F32 {
            // Two values, one value, zeros of both signs, nothing but −∞.
            indices(b, shape, from, &Random(7).many(len, |random| random.integer(1)))?;
            indices(b, shape, from, &vec![-3.0; len])?;
            indices(b, shape, from, &Random(8).many(len, |random| if random.below(2) == 0 { 0.0 } else { -0.0 }))?;
            indices(b, shape, from, &vec![f32::NEG_INFINITY; len])?;
            let rare = |random: &mut Random| match random.below(20) {
                0 => f32::NAN,
                1 => f32::INFINITY,
                _ => random.integer(3),
            };
            indices(b, shape, from, &Random(9).many(len, rare))?;
        }
    }
    Ok(vec![])
}

/// An index is not data: no exponent scales it and no row counts it.
fn integers<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    rig.set(&[3, -9])?;
    let shape = [50, 200, 1];
    let x = Random(10).many(50 * 200, Random::normal);
    let want: Vec<f32> = lanes(shape, &x).iter().map(|lane| largest(lane)).collect();
    let x = rig.padded(DType::F16, &x)?;
    for dtype in [DType::U8, DType::U32] {
        let mut y = rig.output(dtype, 50)?;
        b.launch(Launch::Reduce {
            p: describe(ReduceOp::ArgMax, shape)?,
            x: &x,
            y: Store::site(Slot(2), Slot(3), &rig.table, &mut y.buffer),
        })?;
        same_bits("indices", &rig.take(&y)?, &want)?;
        same_row("indices", &rig, Slot(3), &[], Detail::None)?;
    }
    Ok(vec![])
}

/// NaN, ∞ and their sums: by class, in the lanes that they are in, and in no others.
fn not_finite<B: Backend>(b: &B) -> Check {
    let specials: [&[f32]; 6] = [
        &[f32::NAN],
        &[f32::INFINITY],
        &[f32::NEG_INFINITY],
        &[f32::INFINITY, f32::NEG_INFINITY],
        &[f32::INFINITY, f32::NAN],
        &[-f32::NAN, f32::NEG_INFINITY],
    ];
    for shape in [[9, 40, 1], [2, 40, 9], [4, 3000, 2]] {
        for from in HALF_AND_F32 {
            for special in specials {
                let mut x = Random(11).many(shape.iter().product(), |random| random.integer(3));
                // The special values are in the first and the last lane: at the start, in the middle and at the end.
                for start in [0, x.len() / 2, x.len() - (special.len() - 1) * shape[2] - 1] {
                    for (i, &value) in special.iter().enumerate() {
                        x[start + i * shape[2]] = value;
                    }
                }
                let rig = Rig::new(b)?;
                let lanes = lanes(shape, &x);
                let x = rig.padded(from, &x)?;
                for op in VALUES {
                    let want: Vec<Want> = lanes.iter().map(|lane| exact(op, lane)).collect();
                    let got = rig.plain(want.len(), |y| {
                        b.launch(Launch::Reduce { p: describe(op, shape).expect("valid"), x: &x, y })
                    })?;
                    compare("reduce", DType::F32, &b.caps(), &got, &want)?;
                }
            }
        }
    }
    // The largest of nothing but −∞ is −∞, and squares that leave f32 are ∞.
    let rig = Rig::new(b)?;
    for (op, values, want) in [
        (ReduceOp::Max, [f32::NEG_INFINITY; 3], f32::NEG_INFINITY),
        (ReduceOp::Max, [f32::MIN, f32::NEG_INFINITY, f32::MIN], f32::MIN),
        (ReduceOp::SumSquares, [1e30, 1.0, 2.0], f32::INFINITY),
        (ReduceOp::SumSquares, [-1e30, 0.0, 0.0], f32::INFINITY),
    ] {
        let x = rig.padded(DType::F32, &values)?;
        let got =
            rig.plain(1, |y| b.launch(Launch::Reduce { p: describe(op, [1, 3, 1]).expect("valid"), x: &x, y }))?;
        same_bits(&format!("{op:?} of {values:?}"), &got, &[want])?;
    }
    Ok(vec![])
}

/// Sums over nothing are 0 and must be written; no results are no results.
fn nothing<B: Backend>(b: &B) -> Check {
    for op in [ReduceOp::Sum, ReduceOp::SumSquares] {
        for shape in [[1, 0, 1], [3, 0, 5], [300, 0, 2], [0, 0, 0], [0, 0, 4], [4, 0, 0]] {
            check(b, op, shape, DType::F16, 12, Numbers::Integers)?;
        }
    }
    for op in VALUES {
        for shape in [[0, 5, 3], [3, 5, 0], [0, 5, 0]] {
            check(b, op, shape, DType::F16, 12, Numbers::Any)?;
        }
    }
    for shape in [[0, 5, 3], [3, 5, 0]] {
        indices(b, shape, DType::F16, &[])?;
    }
    Ok(vec![])
}

/// Sums that half cannot hold, not even on the way.
fn sums_in_f32<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let long = |first: f32, rest: f32, len: usize| (0..len).map(|i| if i == 0 { first } else { rest }).collect();
    let rows: [Vec<f32>; 5] = [
        long(2048.0, 1.0, 301),
        long(1.0, 1.0, 70_000),
        long(256.0, 256.0, 40_000),
        vec![65504.0, 65504.0, -65504.0],
        vec![-65504.0, 32752.0, 32752.0, 1.0],
    ];
    for row in rows {
        for inner in [1, 5] {
            let values: Vec<f32> = row.iter().flat_map(|&v| vec![v; inner]).collect();
            let (x, p) = (rig.padded(DType::F16, &values)?, describe(ReduceOp::Sum, [1, row.len(), inner])?);
            let want = row.iter().map(|&v| f64::from(v)).sum::<f64>() as f32;
            let what = format!("a sum of {} from {:?}", row.len(), row[0]);
            same_bits(&what, &rig.plain(inner, |y| b.launch(Launch::Reduce { p, x: &x, y }))?, &vec![want; inner])?;
        }
    }
    // Squares beyond half, and below it.
    for v in [300.0, 2f32.powi(-14)] {
        let (x, p) = (rig.padded(DType::F16, &[v; 64])?, describe(ReduceOp::SumSquares, [1, 64, 1])?);
        same_bits("squares", &rig.plain(1, |y| b.launch(Launch::Reduce { p, x: &x, y }))?, &[v * v * 64.0])?;
    }
    Ok(vec![])
}

/// Repeated calls return the same bits, in the result and in the row.
fn deterministic<B: Backend>(b: &B) -> Check {
    for shape in
        [[1, 70_000, 1], [70, 300, 20], [7, 300, 9]].into_iter().filter(|shape| is_small(shape.iter().product()))
    {
        for op in VALUES {
            let mut rig = Rig::new(b)?;
            let x = Random(13).many(shape.iter().product(), |random| Numbers::Any.next(random, DType::F16));
            let (p, x) = (describe(op, shape)?, rig.padded(DType::F16, &x)?);
            same_each_time(&mut rig, shape[0] * shape[2], |b, y| b.launch(Launch::Reduce { p, x: &x, y }))
                .map_err(of(format!("{op:?}")))?;
        }
    }
    Ok(vec![])
}

fn any_shape<B: Backend>(b: &B) -> Check {
    let size = || prop_oneof![3 => 0..20usize, 1 => 0..300usize];
    let from = prop::sample::select(HALF_AND_F32.to_vec());
    let shape = (size(), size(), 0..20usize).prop_map(|(outer, len, inner)| [outer, len, inner]);
    let strategy = (prop::sample::select(ReduceOp::ALL.to_vec()), shape, from, any::<u64>());
    property(&strategy, |(op, shape, from, seed)| {
        let shape =
            if matches!(op, ReduceOp::Sum | ReduceOp::SumSquares) { shape } else { shape.map(|size| size.max(1)) };
        if op == ReduceOp::ArgMax {
            let x = Random(seed).many(shape.iter().product(), |random| Numbers::Integers.next(random, from));
            return indices(b, shape, from, &x);
        }
        check(b, op, shape, from, seed, Numbers::Integers)?;
        check(b, op, shape, from, seed, Numbers::Any)
    })
}
