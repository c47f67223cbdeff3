//! Functions of two numbers: every operation, operand type and broadcast. The vjp of a function is tested with the
//! function; the tests here prove that masks select.

use super::Case;
use crate::{
    case::{Check, Fail},
    compare::{Want, compare, same_bits},
    data::{Random, edges, held, lengths},
    epilogue,
    property::{merge, property},
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, DType, Launch, Slot, Store},
    ops::{At, Binary, BinaryOp, Broadcast, Unary},
};
use proptest::prelude::*;

const OVER: [Broadcast; 4] = [Broadcast::All, Broadcast::PerColumn, Broadcast::PerRow, Broadcast::One];
const TYPES: [[DType; 2]; 4] =
    [[DType::F32, DType::F32], [DType::F16, DType::F16], [DType::F16, DType::F32], [DType::F32, DType::F16]];

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    for &op in BinaryOp::ARITHMETIC {
        let name = format!("{op:?}").to_lowercase();
        cases.push(Case::new(format!("binary::{name}"), move |b: &B| shapes(b, op)));
        cases.push(Case::new(format!("binary::{name}_edges"), move |b: &B| edge_pairs(b, op)));
        cases.push(Case::new(format!("binary::{name}_epilogue"), move |b: &B| stores(b, op)));
    }
    cases.push(Case::new("binary::lengths", any_length::<B>));
    cases.push(Case::new("binary::masks_select", masks::<B>));
    cases.push(Case::new("binary::any_shape", any_shape::<B>));
}

/// Computes the function in f64. Rounding that to f32 once gives IEEE's result, because 53 digits suffice for + − · /
/// on 24.
fn exact(op: BinaryOp, a: f32, b: f32) -> f64 {
    let (a, b) = (f64::from(a), f64::from(b));
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Max if a.is_nan() || b.is_nan() => f64::NAN,
        BinaryOp::Max => a.max(b),
        BinaryOp::Grad(_) => unreachable!("derivatives have cases of their own"),
    }
}

/// Results bit for bit; quotients, which devices need not round correctly, within their tolerance.
fn check<B: Backend>(what: &str, b: &B, op: BinaryOp, pairs: &[[f32; 2]], got: &[f32]) -> Check {
    let want: Vec<f64> = pairs.iter().map(|&[a, b]| exact(op, a, b)).collect();
    if op == BinaryOp::Div {
        let want: Vec<Want> = want.into_iter().map(Want::one).collect();
        return Ok(vec![compare("div", DType::F32, &b.caps(), got, &want)?]);
    }
    let both_zeros = |&[a, b]: &[f32; 2]| op == BinaryOp::Max && a == 0.0 && b == 0.0;
    // If both operands are zeros, either may be the larger one.
    let got: Vec<f32> = got.iter().zip(pairs).map(|(&y, pair)| if both_zeros(pair) { y.abs() } else { y }).collect();
    let want: Vec<f32> =
        want.iter().zip(pairs).map(|(&y, pair)| if both_zeros(pair) { 0.0 } else { y as f32 }).collect();
    same_bits(what, &got, &want)?;
    Ok(vec![])
}

/// Element `i` of b, written down a second time.
fn place(over: Broadcast, cols: usize, i: usize) -> usize {
    match over {
        Broadcast::All => i,
        Broadcast::PerColumn => i - i / cols * cols,
        Broadcast::PerRow => i / cols,
        Broadcast::One => 0,
    }
}

fn b_len(over: Broadcast, rows: usize, cols: usize) -> usize {
    match over {
        Broadcast::All => rows * cols,
        Broadcast::PerColumn => cols,
        Broadcast::PerRow => rows,
        Broadcast::One => 1,
    }
}

/// Numbers with all digits of their type, none 0, whose sums, products and quotients stay normal.
fn operands(dtype: DType, len: usize, seed: u64) -> Vec<f32> {
    let mut random = Random(seed);
    let digits = if dtype == DType::F16 { 1.0 } else { 1.234_567_9 };
    held(dtype, &random.many(len, |random| (random.half() + if random.below(2) == 0 { 2.0 } else { -2.0 }) * digits))
}

fn shapes<B: Backend>(b: &B, op: BinaryOp) -> Check {
    let rig = Rig::new(b)?;
    let mut measured = vec![];
    for (rows, cols) in [(0, 5), (5, 0), (1, 1), (1, 257), (257, 1), (3, 5), (33, 31), (64, 64), (2, 4097)] {
        for (over, [ta, tb]) in OVER.into_iter().flat_map(|over| TYPES.map(|types| (over, types))) {
            let p = Binary::new(op, rows as u32, cols as u32, over).expect("small");
            let x = operands(ta, rows * cols, 1);
            let y = operands(tb, b_len(over, rows, cols), 2);
            let (a, other) = (rig.padded(ta, &x)?, rig.padded(tb, &y)?);
            let got = rig.plain(x.len(), |store| b.launch(Launch::Binary { p, a: &a, b: &other, y: store }))?;
            let pairs: Vec<[f32; 2]> = x.iter().enumerate().map(|(i, &x)| [x, y[place(over, cols, i)]]).collect();
            let what = format!("{op:?} {ta:?} {tb:?} over {over:?} of {rows} x {cols}");
            merge(&mut measured, &check(&what, b, op, &pairs, &got)?);
        }
    }
    Ok(measured)
}

/// Every edge with every edge, where a device must agree with IEEE.
fn edge_pairs<B: Backend>(b: &B, op: BinaryOp) -> Check {
    let rig = Rig::new(b)?;
    let caps = b.caps();
    let mut measured = vec![];
    for [ta, tb] in TYPES {
        let values = |dtype| -> Vec<f32> {
            let keeps = caps.f32_subnormals && (dtype == DType::F32 || caps.flush.keeps_subnormals());
            let least = if dtype == DType::F16 { 2f32.powi(-14) } else { f32::MIN_POSITIVE };
            let fine = |x: &f32| keeps || *x == 0.0 || x.is_nan() || x.abs() >= least;
            held(dtype, &edges()).into_iter().filter(fine).collect()
        };
        let normal = |v: f64| v == 0.0 || !v.is_finite() || v.abs() >= f64::from(f32::MIN_POSITIVE);
        // Division is good where neither an operand nor the result is near the ends of the range.
        let middle = |v: f64| v == 0.0 || !v.is_finite() || (2f64.powi(-120)..2f64.powi(120)).contains(&v.abs());
        let fine = |&[x, y]: &[f32; 2]| {
            let result = exact(op, x, y);
            match op {
                BinaryOp::Div => [f64::from(x), f64::from(y), result].into_iter().all(middle),
                _ => caps.f32_subnormals || normal(result),
            }
        };
        let (xs, ys) = (values(ta), values(tb));
        let pairs: Vec<[f32; 2]> = xs.iter().flat_map(|&x| ys.iter().map(move |&y| [x, y])).filter(fine).collect();
        let p = Binary::new(op, 1, pairs.len() as u32, Broadcast::All).expect("small");
        let x = rig.input(ta, &pairs.iter().map(|pair| pair[0]).collect::<Vec<_>>())?;
        let y = rig.input(tb, &pairs.iter().map(|pair| pair[1]).collect::<Vec<_>>())?;
        let got = rig.plain(pairs.len(), |store| b.launch(Launch::Binary { p, a: &x, b: &y, y: store }))?;
        merge(&mut measured, &check(&format!("{op:?} {ta:?} {tb:?}"), b, op, &pairs, &got)?);
    }
    Ok(measured)
}

fn stores<B: Backend>(b: &B, op: BinaryOp) -> Check {
    let mut rig = Rig::new(b)?;
    let (rows, cols) = (37, 53);
    for (over, [ta, tb]) in OVER.into_iter().zip(TYPES) {
        let p = Binary::new(op, rows, cols, over).expect("small");
        // Small enough that some results flush or are subnormal at some of the steps, large enough that some overflow.
        let small: Vec<f32> = operands(ta, (rows * cols) as usize, 3)
            .iter()
            .enumerate()
            .map(|(i, x)| x * 2f32.powi(-((i % 14) as i32)))
            .collect();
        let x = rig.padded(ta, &small)?;
        let y = rig.padded(tb, &operands(tb, p.b_len() as usize, 4))?;
        epilogue::check(&mut rig, small.len(), |b, store| b.launch(Launch::Binary { p, a: &x, b: &y, y: store }))?;
    }
    Ok(vec![])
}

fn any_length<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for len in lengths() {
        let (x, y) = (operands(DType::F16, len, 5), operands(DType::F16, len, 6));
        let (a, other) = (rig.padded(DType::F16, &x)?, rig.padded(DType::F16, &y)?);
        let p = Binary::new(BinaryOp::Sub, 1, len as u32, Broadcast::All).expect("small");
        let want: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x - y).collect();
        same_bits(
            &format!("length {len}"),
            &rig.plain(len, |store| b.launch(Launch::Binary { p, a: &a, b: &other, y: store }))?,
            &want,
        )?;
        // The output is half, so that the last 32-bit word may be only half used.
        let mut z = rig.output(DType::F16, len)?;
        b.launch(Launch::Binary { p, a: &a, b: &other, y: Store::keep(Slot::ONE, &rig.table, &mut z.buffer) })?;
        let stored = epilogue::stored(&rig, DType::F16, &want);
        same_bits(&format!("length {len} in half"), &rig.take(&z)?, &stored)?;
    }
    Ok(vec![])
}

/// Where a mask is 0, the gradient is 0 even if the incoming gradient is ∞ or NaN.
fn masks<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let gradients = [1.0, -3.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let kept = [2.0, 1.0, 0.0, -0.0, -2.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let pairs: Vec<[f32; 2]> =
        kept.iter().flat_map(|&kept| gradients.map(|dy| [kept, dy])).cycle().take(2000).collect();
    let [kept, dy] = [0, 1].map(|i| pairs.iter().map(|pair| pair[i]).collect::<Vec<f32>>());
    for ([ta, tb], op) in TYPES
        .into_iter()
        .flat_map(|types| [Unary::Relu, Unary::Abs, Unary::Dropout { keep: 0.5, stream: 9 }].map(|op| (types, op)))
    {
        let p = Binary::new(BinaryOp::Grad(op), 1, pairs.len() as u32, Broadcast::All).expect("small");
        let (a, g) = (rig.input(ta, &kept)?, rig.input(tb, &dy)?);
        let got = rig.plain(pairs.len(), |store| b.launch(Launch::Binary { p, a: &a, b: &g, y: store }))?;
        let want: Vec<f32> = pairs
            .iter()
            .enumerate()
            .map(|(i, &[kept, dy])| match op {
                Unary::Relu if kept > 0.0 => dy,
                Unary::Abs if kept > 0.0 => dy,
                Unary::Abs if kept < 0.0 => -dy,
                // Only core determines which elements are dropped; that they become 0 is tested here.
                Unary::Dropout { .. } if op.eval(1.0, At { seed: rig.seed, index: i as u32 }) != 0.0 => dy * 2.0,
                _ => 0.0,
            })
            .collect();
        same_bits(&format!("vjp of {op:?}, {ta:?} {tb:?}"), &got, &want)?;
    }
    Ok(vec![])
}

/// Any small shape, on integers, whose sums, products and maxima are exact.
fn any_shape<B: Backend>(b: &B) -> Check {
    let op = prop::sample::select(vec![BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Max]);
    let over = prop::sample::select(OVER.to_vec());
    let types = prop::sample::select(TYPES.to_vec());
    property(&(op, over, types, 0..70usize, 0..70usize, any::<u64>()), |(op, over, [ta, tb], rows, cols, seed)| {
        let rig = Rig::new(b)?;
        let mut random = Random(seed);
        // No zeros: their signs would need care.
        let mut integers = |len: usize| {
            random.many(len, |random| (random.below(40) as f32 + 1.0) * if random.below(2) == 0 { 1.0 } else { -1.0 })
        };
        let (x, y) = (integers(rows * cols), integers(b_len(over, rows, cols)));
        let (a, other) = (rig.padded(ta, &x)?, rig.padded(tb, &y)?);
        let p = Binary::new(op, rows as u32, cols as u32, over).map_err(|e| Fail::new(e.to_string()))?;
        let got = rig.plain(rows * cols, |store| b.launch(Launch::Binary { p, a: &a, b: &other, y: store }))?;
        let want: Vec<f32> = x.iter().enumerate().map(|(i, &x)| exact(op, x, y[place(over, cols, i)]) as f32).collect();
        same_bits(&format!("{op:?} over {over:?}"), &got, &want)?;
        Ok(vec![])
    })
}
