//! Rows of a table by index, and adding to them.

use super::Case;
use crate::{
    case::Check,
    compare::same_bits,
    data::{Random, held, lengths},
    epilogue::{self, same_row},
    property::property,
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, DType, Launch, Slot, Store},
    ops::{GatherScatter, Rows},
    scale::Factor,
    stats::Detail,
};
use proptest::prelude::*;

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    cases.push(Case::new("rows::gather", |b: &B| shapes(b, GatherScatter::Gather)));
    cases.push(Case::new("rows::scatter", |b: &B| shapes(b, GatherScatter::Scatter)));
    cases.push(Case::new("rows::beyond_the_table", beyond::<B>));
    cases.push(Case::new("rows::all_into_one", all_into_one::<B>));
    cases.push(Case::new("rows::in_order", in_order::<B>));
    cases.push(Case::new("rows::selects", selects::<B>));
    cases.push(Case::new("rows::parameter_gradient", parameter::<B>));
    cases.push(Case::new("rows::epilogue", stores::<B>));
    cases.push(Case::new("rows::any", any_rows::<B>));
}

/// Computes the operator from its definition, on values whose sums are exact.
fn meaning(way: GatherScatter, [count, table, width]: [usize; 3], x: &[f32], index: &[u32]) -> Vec<f32> {
    let mut y = vec![0f32; width * if way == GatherScatter::Gather { count } else { table }];
    for (i, &row) in index.iter().enumerate() {
        // An index beyond the table selects no row.
        let row = row as usize;
        for c in (0..width).filter(|_| row < table) {
            match way {
                GatherScatter::Gather => y[i * width + c] = x[row * width + c],
                GatherScatter::Scatter => y[row * width + c] += x[i * width + c],
            }
        }
    }
    y
}

fn check<B: Backend>(
    rig: &Rig<'_, B>, way: GatherScatter, shape: [usize; 3], dtype: DType, x: &[f32], index: &[u32],
) -> Check {
    let [count, table, width] = shape.map(|size| size as u32);
    let p = Rows::new(count, table, width).expect("small");
    let want = meaning(way, shape, x, index);
    // More indices follow, which the operator must not use.
    let longer: Vec<u32> = index.iter().copied().chain([0; 9]).collect();
    let (x, index) = (rig.padded(dtype, x)?, rig.words(&longer)?);
    let got = rig.plain(want.len(), |y| rig.backend.launch(Launch::Rows { p, way, x: &x, indices: &index, y }))?;
    same_bits(&format!("{way:?} {count} of {table} rows of {width}, {dtype:?}"), &got, &want)?;
    Ok(vec![])
}

fn x_rows(way: GatherScatter, [count, table, _]: [usize; 3]) -> usize {
    if way == GatherScatter::Gather { table } else { count }
}

fn shapes<B: Backend>(b: &B, way: GatherScatter) -> Check {
    let rig = Rig::new(b)?;
    let mut shapes =
        vec![[0, 5, 3], [5, 0, 3], [5, 3, 0], [1, 1, 1], [7, 3, 5], [3, 7, 5], [100, 1000, 33], [1000, 10, 64]];
    shapes.extend(lengths().take(14).flat_map(|n| [[n, 19, 2], [5, 4, n]]));
    for (shape, dtype) in shapes.into_iter().flat_map(|shape| [(shape, DType::F32), (shape, DType::F16)]) {
        let mut random = Random(1);
        let x = random.many(x_rows(way, shape) * shape[2], |random| random.integer(16));
        // Indices repeat, and some rows are never selected.
        let index: Vec<u32> = (0..shape[0]).map(|_| random.below(shape[1] as u64 + 1) as u32 / 2 * 2).collect();
        check(&rig, way, shape, dtype, &x, &index)?;
    }
    Ok(vec![])
}

/// Indices beyond the table, also those whose place would wrap round in 32 bits to one inside it.
fn beyond<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let index = [0, 5, 6, 7, 1 << 30, 1 << 31, u32::MAX, u32::MAX - 1, (1 << 30) + 1, 255, 256, 65_536, 3];
    for (way, dtype) in [GatherScatter::Gather, GatherScatter::Scatter]
        .into_iter()
        .flat_map(|way| [(way, DType::F32), (way, DType::F16)])
    {
        for (table, width) in [(6, 4), (6, 3), (1, 8), (256, 2)] {
            let shape = [index.len(), table, width];
            let x: Vec<f32> = (1..=x_rows(way, shape) * width).map(|i| i as f32).collect();
            check(&rig, way, shape, dtype, &x, &index)?;
        }
    }
    Ok(vec![])
}

/// Many rows are added to the same position, and none is lost.
fn all_into_one<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for (count, row) in [(5000usize, 2u32), (4097, 0)] {
        let shape = [count, 3, 7];
        check(&rig, GatherScatter::Scatter, shape, DType::F16, &vec![1.0; count * 7], &vec![row; count])?;
    }
    Ok(vec![])
}

/// Sums are formed in the order of the indices, so their value is that of successive f32 additions.
fn in_order<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for dtype in [DType::F32, DType::F16] {
        let (shape, mut random) = ([3000, 11, 5], Random(2));
        let x = random.many(shape[0] * shape[2], |random| {
            let spread = random.below(6) as i32;
            (random.half() + 2.0) * 4f32.powi(spread - 3)
        });
        let index: Vec<u32> = (0..shape[0]).map(|_| random.below(11) as u32).collect();
        check(&rig, GatherScatter::Scatter, shape, dtype, &held(dtype, &x), &index)?;
    }
    Ok(vec![])
}

/// Rows that are not selected have no influence, even if they are ∞ or NaN.
fn selects<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let (rows, width) = (12usize, 5usize);
    let x: Vec<f32> = (0..rows * width)
        .map(|i| match i / width % 3 {
            0 => f32::NAN,
            1 => f32::NEG_INFINITY,
            _ => i as f32,
        })
        .collect();
    let finite: Vec<u32> = (0..rows as u32).filter(|row| row % 3 == 2).collect();
    for dtype in [DType::F32, DType::F16] {
        check(&rig, GatherScatter::Gather, [finite.len(), rows, width], dtype, &x, &finite)?;
        check(
            &rig,
            GatherScatter::Gather,
            [rows, rows, width],
            dtype,
            &x,
            &(0..rows as u32).rev().collect::<Vec<_>>(),
        )?;
        // Rows that are not finite go beyond the table.
        let index: Vec<u32> = (0..rows as u32).map(|row| if row % 3 == 2 { row / 3 } else { 4 }).collect();
        check(&rig, GatherScatter::Scatter, [rows, 4, width], dtype, &x, &index)?;
    }
    Ok(vec![])
}

/// The gradient of an embedding: f32, times 2^-α, added to that of the last micro-batch, each element counted.
fn parameter<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let shape = [300usize, 40, 9];
    let p = Rows::new(300, 40, 9).expect("small");
    let mut random = Random(3);
    let x = random.many(300 * 9, |random| random.integer(20));
    let index: Vec<u32> = (0..300).map(|_| random.below(45) as u32).collect();
    let before = random.many(40 * 9, |random| random.integer(100));
    let sums = meaning(GatherScatter::Scatter, shape, &x, &index);
    let (gradient, indices) = (rig.padded(DType::F16, &x)?, rig.words(&index)?);
    for (alpha, add) in [(0, false), (7, false), (7, true), (-3, true), (140, false)] {
        if alpha > 100 && !b.caps().f32_subnormals {
            continue;
        }
        rig.set(&[alpha, 0])?;
        let mut y = rig.output_over(DType::F32, &before)?;
        let store = Store::param(Slot(2), Slot(3), add, &rig.table, &mut y.buffer);
        b.launch(Launch::Rows { p, way: GatherScatter::Scatter, x: &gradient, indices: &indices, y: store })?;
        let factor = Factor::between(alpha, 0);
        let sum = |(&v, &before): (&f32, &f32)| if add { before + factor.apply(v) } else { factor.apply(v) };
        let want: Vec<f32> = sums.iter().zip(&before).map(sum).collect();
        same_bits(&format!("2^-{alpha}, add {add}"), &rig.take(&y)?, &want)?;
        same_row(&format!("2^-{alpha}, add {add}"), &rig, Slot(3), &want, Detail::Counts)?;
    }
    Ok(vec![])
}

fn stores<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let (p, mut random) = (Rows::new(90, 70, 33).expect("small"), Random(4));
    let indices = rig.words(&(0..90).map(|_| random.below(75) as u32).collect::<Vec<_>>())?;
    for (way, rows, len) in [(GatherScatter::Gather, 70, 90 * 33), (GatherScatter::Scatter, 90, 70 * 33)] {
        let x = rig.padded(DType::F16, &random.many(rows * 33, |random| random.normal() * 1e-2))?;
        epilogue::check(&mut rig, len, |b, y| b.launch(Launch::Rows { p, way, x: &x, indices: &indices, y }))?;
    }
    Ok(vec![])
}

fn any_rows<B: Backend>(b: &B) -> Check {
    let index = prop::collection::vec(prop_oneof![0..12u32, any::<u32>()], 0..80);
    let way = prop::sample::select(vec![GatherScatter::Gather, GatherScatter::Scatter]);
    property(
        &(way, 0..12usize, 0..20usize, index, any::<u32>(), any::<bool>()),
        |(way, table, width, index, seed, wide)| {
            let rig = Rig::new(b)?;
            let shape = [index.len(), table, width];
            let x = Random(seed.into()).many(x_rows(way, shape) * width, |random| random.integer(9));
            check(&rig, way, shape, if wide { DType::F32 } else { DType::F16 }, &x, &index)
        },
    )
}
