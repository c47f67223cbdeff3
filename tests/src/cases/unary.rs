//! Functions of one number, and their derivatives.

use super::Case;
use crate::{
    compare::{Want, compare, same_bits},
    data::{Random, edges, lengths},
    epilogue,
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, Buffer, DType, Launch},
    ops::{At, Binary, BinaryOp, Broadcast, Saved, Unary},
};
use std::f64::consts::FRAC_1_SQRT_2;

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    for &op in Unary::ALL {
        let name = format!("{op:?}").split([' ', '(']).next().unwrap_or_default().to_lowercase();
        cases.push(Case::new(format!("unary::{name}"), move |b: &B| values(b, op)));
        cases.push(Case::new(format!("binary::vjp_of_{name}"), move |b: &B| derivative(b, op)));
    }
    cases.push(Case::new("unary::lengths", |b: &B| {
        for len in lengths() {
            let mut rig = Rig::new(b)?;
            let x = rig.input(DType::F16, &Random(len as u64).many(len, Random::normal))?;
            epilogue::check(&mut rig, len, |b, y| {
                b.launch(Launch::Unary { op: Unary::Affine { a: 1.5, b: 4.0 }, len: x.len() as u32, x: &x, y })
            })?;
        }
        Ok(vec![])
    }));
    cases.push(Case::new("unary::integers", |b: &B| {
        let rig = Rig::new(b)?;
        let bytes: Vec<f32> = (0..=255u8).map(f32::from).collect();
        let x = rig.input(DType::U8, &bytes)?;
        same_bits(
            "u8 to f32",
            &rig.plain(256, |y| b.launch(Launch::Unary { op: Unary::Id, len: x.len() as u32, x: &x, y }))?,
            &bytes,
        )?;
        let x = rig.words(&[0, 1, 2, 1 << 23, (1 << 24) - 1])?;
        let want = [0.0, 1.0, 2.0, 8_388_608.0, 16_777_215.0];
        same_bits(
            "u32 to f32",
            &rig.plain(5, |y| b.launch(Launch::Unary { op: Unary::Id, len: x.len() as u32, x: &x, y }))?,
            &want,
        )?;
        Ok(vec![])
    }));
    cases.push(Case::new("unary::dropout_mask", dropout));
}

/// The meaning in f64, written down a second time: core's own is f32.
fn exact(op: Unary, x: f64, at: At) -> f64 {
    match op {
        Unary::Id => x,
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Relu => {
            if x.is_nan() {
                x
            } else {
                x.max(0.0)
            }
        }
        Unary::LeakyRelu(_) if x > 0.0 => x,
        Unary::LeakyRelu(slope) => f64::from(slope) * x,
        Unary::Sign if x == 0.0 || x.is_nan() => x,
        Unary::Sign => x.signum(),
        Unary::Hardswish if x.is_infinite() => x.max(0.0),
        Unary::Hardswish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Gelu => x * 0.5 * libm::erfc(-x * FRAC_1_SQRT_2),
        Unary::Silu => x / (1.0 + (-x).exp()),
        Unary::Erf => libm::erf(x),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Exp => x.exp(),
        Unary::Ln => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Recip => 1.0 / x,
        Unary::Pow(p) => x.powf(f64::from(p)),
        Unary::Affine { a, b } => f64::from(a) * x + f64::from(b),
        op => f64::from(op.eval(x as f32, at)),
    }
}

/// Returns true if the function must be exact.
fn is_exact(op: Unary) -> bool {
    matches!(op, Unary::Id | Unary::Neg | Unary::Abs | Unary::Sign | Unary::Relu)
}

/// Returns the scale of the error: the parts of a sum that may cancel.
fn scale(op: Unary, x: f64, y: f64) -> f64 {
    match op {
        Unary::Affine { a, b } => (f64::from(a) * x).abs() + f64::from(b).abs(),
        // The argument of an exponential is rounded before it, and that error grows with it.
        Unary::Gelu => y.abs() * (1.0 + x * x),
        // Near 1 a logarithm is as small as its argument's distance, of which f32 functions lose digits.
        Unary::Ln => y.abs().max(1.0),
        _ => y.abs(),
    }
}

/// Returns all halves, and f32 values where the function neither overflows nor underflows.
fn inputs(op: Unary) -> Vec<f32> {
    let halves = (0..=u16::MAX).map(|bits| half::f16::from_bits(bits).to_f32());
    let mut random = Random(11);
    let spread = (0..4096).map(|_| random.normal() * 2f32.powi((random.below(16)) as i32 - 10));
    let edges = edges().into_iter().filter(|_| is_exact(op));
    // Many turns of a circle, up to the largest numbers.
    let is_periodic = matches!(op, Unary::Sin | Unary::Cos);
    let mut turns = Random(12);
    let far =
        (0..if is_periodic { 4096 } else { 0 }).map(|_| (turns.unit() + 1.0) * 2f32.powi(turns.below(127) as i32));
    halves.filter(|x| !x.is_nan()).chain(spread).chain(far).chain(edges).chain([f32::NAN]).collect()
}

fn values<B: Backend>(b: &B, op: Unary) -> crate::Check {
    let rig = Rig::new(b)?;
    let keep_subnormals = b.caps().f32_subnormals;
    let x: Vec<f32> =
        inputs(op).into_iter().filter(|x| keep_subnormals || x.is_normal() || *x == 0.0 || x.is_nan()).collect();
    let buffer = rig.padded(DType::F32, &x)?;
    let got = rig.plain(x.len(), |y| b.launch(Launch::Unary { op, len: x.len() as u32, x: &buffer, y }))?;
    let at = |i: usize| At { seed: rig.seed, index: i as u32 };
    if is_exact(op) {
        let want: Vec<f32> = x.iter().enumerate().map(|(i, &x)| op.eval(x, at(i))).collect();
        same_bits(&format!("{op:?}"), &got, &want)?;
        return Ok(vec![]);
    }
    let want = x.iter().enumerate().map(|(i, &x)| {
        let y = exact(op, f64::from(x), at(i));
        // Beyond f32 a result is ∞.
        let y = if (y as f32).is_infinite() { f64::from(y as f32) } else { y };
        // Far out in a tail a result may be any tiny number, or 0.
        let scale = if y != 0.0 && y.abs() < 2f64.powi(-100) { 2f64.powi(-76) } else { scale(op, f64::from(x), y) };
        Want { value: y, scale, terms: 1 }
    });
    Ok(vec![compare("unary", DType::F32, &b.caps(), &got, &want.collect::<Vec<_>>())?])
}

/// The vjp against central differences of the function in f64.
fn derivative<B: Backend>(b: &B, op: Unary) -> crate::Check {
    let rig = Rig::new(b)?;
    let mut random = Random(5);
    // Only where the function is smooth, and away from the ends of its range.
    let x: Vec<f64> = (0..2000)
        .map(|_| f64::from(random.half()) * 4.0)
        .map(|x| match op {
            Unary::Ln | Unary::Sqrt | Unary::Pow(_) | Unary::Recip => x.abs() + 0.125,
            Unary::Abs | Unary::Sign | Unary::Relu | Unary::LeakyRelu(_) => x + 0.01f64.copysign(x),
            // Away from both kinks.
            Unary::Hardswish if (x.abs() - 3.0).abs() < 0.01 => x + 0.02,
            _ => x,
        })
        .collect();
    let dy = random.many(x.len(), |random| random.half() + 1.5);
    let at = |i: usize| At { seed: rig.seed, index: i as u32 };
    // Values that the tape keeps, as f32.
    let kept: Vec<f32> = x
        .iter()
        .enumerate()
        .map(|(i, &x)| match op.keeps() {
            Saved::Nothing => 0.0,
            Saved::Input => x as f32,
            Saved::Output => exact(op, x, at(i)) as f32,
        })
        .collect();
    let (kept, gradient) = (rig.input(DType::F32, &kept)?, rig.input(DType::F32, &dy)?);
    let p = Binary::new(BinaryOp::Grad(op), 1, x.len() as u32, Broadcast::All)
        .map_err(|e| crate::Fail::new(e.to_string()))?;
    let got = rig.plain(x.len(), |y| b.launch(Launch::Binary { p, a: &kept, b: &gradient, y }))?;
    let h = 1e-5;
    let want = x.iter().zip(&dy).enumerate().map(|(i, (&x, &dy))| {
        let slope = (exact(op, x + h, at(i)) - exact(op, x - h, at(i))) / (2.0 * h);
        let slope = if matches!(op, Unary::Dropout { .. }) { exact(op, 1.0, at(i)) } else { slope };
        // A derivative formed from a rounded output, or near where it vanishes, has the error of its parts.
        let parts = match op {
            Unary::Tanh | Unary::Sigmoid | Unary::Gelu | Unary::Silu | Unary::Hardswish | Unary::Sin | Unary::Cos => {
                slope.abs().max(1.0)
            }
            Unary::Erf => slope.abs() * (1.0 + x * x),
            _ => slope.abs(),
        };
        // The difference of two f64 values loses the digits by which the function exceeds its slope: 2^-53 / h of it.
        let parts = parts.max(exact(op, x, at(i)).abs() * 2f64.powi(-53) / h * 2f64.powi(24));
        Want { value: slope * f64::from(dy), scale: (parts.max(slope.abs()) * f64::from(dy)).abs(), terms: 1 }
    });
    Ok(vec![compare("unary_vjp", DType::F32, &b.caps(), &got, &want.collect::<Vec<_>>())?])
}

/// The mask is core's, differs between steps and between streams, and drops the expected share.
fn dropout<B: Backend>(b: &B) -> crate::Check {
    let mut rig = Rig::new(b)?;
    let len = 10_000;
    let x = rig.input(DType::F32, &vec![1.0; len])?;
    let mut masks = Vec::new();
    for (seed, stream) in [(1, 0), (1, 1), (2, 0), (1 << 40 | 1, 0)] {
        let op = Unary::Dropout { keep: 0.75, stream };
        rig.seed = seed;
        rig.upload()?;
        let got = rig.plain(len, |y| b.launch(Launch::Unary { op, len: x.len() as u32, x: &x, y }))?;
        for (i, &y) in got.iter().enumerate() {
            let kept = op.eval(1.0, At { seed, index: i as u32 }) != 0.0;
            if (y != 0.0) != kept {
                return Err(crate::Fail::new(format!("seed {seed}, stream {stream}: element {i} is {y}")));
            }
        }
        // Binomial: 7500 ± 43; six spreads.
        let kept = got.iter().filter(|&&y| y != 0.0).count();
        if kept.abs_diff(7500) > 260 || masks.contains(&got) {
            return Err(crate::Fail::new(format!(
                "seed {seed}, stream {stream}: {kept} of {len} kept, or an old mask"
            )));
        }
        masks.push(got);
    }
    Ok(vec![])
}
